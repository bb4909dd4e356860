//! What a project's own instructions would have an engine do, as far as that reaches outside of the build.
//!
//! The engine carries them out with its own rights: it fetches bases and addresses itself, whatever network the build has.
//! So what is not understood is refused, and so is what one engine reads in another way than the next: signs that quote or
//! escape, variables, lists. ADD is refused altogether, because what it fetches has too many spellings.

use super::cut;

/// More than any honest file has.
const MOST_TEXT: usize = 256 * 1024;

/// What a file of instructions asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Steps {
    /// Images that it goes on from or copies from; none of its own stages.
    pub images: Vec<String>,
}

/// Why instructions are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DockerfileError {
    /// Larger than can be meant.
    #[error("the Dockerfile is larger than {MOST_TEXT} bytes")]
    TooLarge,
    /// A line that this program does not judge.
    #[error("line {line} of the Dockerfile is refused, because {why}: `{text}`")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Why.
        why: &'static str,
        /// How it begins.
        text: String,
    },
    /// It has no base.
    #[error("the Dockerfile has no FROM")]
    NoBase,
}

/// Instructions that only change the image.
const PLAIN: [&str; 12] = [
    "ARG",
    "CMD",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "WORKDIR",
];
/// Flags of COPY that reach nowhere else.
const COPY_FLAGS: [&str; 3] = ["--from=", "--chown=", "--chmod="];
/// What quotes, escapes, begins a list or a variable.
const SIGNS: [char; 6] = ['\\', '"', '\'', '[', '$', '`'];

/// Reads the instructions in `text`.
pub(super) fn read(text: &str) -> Result<Steps, DockerfileError> {
    if text.len() > MOST_TEXT {
        return Err(DockerfileError::TooLarge);
    }
    let text = text.replace("\r\n", "\n");
    let mut steps = Steps::default();
    let mut stages: Vec<String> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, first)) = lines.next() {
        let refuse = |why| DockerfileError::Line {
            line: number + 1,
            why,
            text: cut(&first.chars().take(80).collect::<String>()),
        };
        if first.chars().any(is_odd) {
            return Err(refuse("it has a character that readers take in different ways"));
        }
        let trimmed = first.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            // Directives change how the rest is read, and who reads it.
            let key = comment.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
            if comment.contains('=') && matches!(key.as_str(), "syntax" | "escape" | "check") {
                return Err(refuse("it changes how the rest is read"));
            }
            continue;
        }
        // As engines do it: what is left of the backslash and the whole next line, with nothing between them and nothing
        // taken away.
        let mut line = String::new();
        let mut part = first;
        while let Some(open) = part.trim_end().strip_suffix('\\') {
            if open.ends_with('\\') {
                return Err(refuse("not every reader goes on after two backslashes"));
            }
            line.push_str(open);
            part = "";
            // What is empty or a comment within an instruction does not end it.
            let within = |next: &&str| !next.trim().is_empty() && !next.trim_start().starts_with('#');
            for (_, next) in lines.by_ref() {
                if next.chars().any(is_odd) {
                    return Err(refuse("it goes on with a character that readers take in different ways"));
                }
                if within(&next) {
                    part = next;
                    break;
                }
            }
        }
        line.push_str(part);
        let mut words = line.split_whitespace();
        let Some(instruction) = words.next() else { continue };
        let instruction = instruction.to_ascii_uppercase();
        let words: Vec<&str> = words.collect();
        let flags = words.iter().take_while(|word| word.starts_with("--"));
        match instruction.as_str() {
            "FROM" | "COPY" if line.contains(SIGNS) => {
                return Err(refuse("engines read quotes, backslashes, lists and variables in different ways here"));
            }
            "FROM" => {
                let (image, stage) = match words.as_slice() {
                    [image] => (image, None),
                    [image, word, stage] if word.eq_ignore_ascii_case("as") => (image, Some(stage)),
                    _ => return Err(refuse("this form of FROM is not known here")),
                };
                let image = plain(image).ok_or_else(|| refuse("it does not name its base plainly"))?;
                // `scratch` is no image but the lack of one.
                if image != "scratch" && !is_stage(&image, &stages).map_err(refuse)? {
                    steps.images.push(image);
                }
                let stage = stage.map_or_else(String::new, ToString::to_string);
                if !stage.is_empty() && (!is_stage_name(&stage) || is_stage(&stage, &stages) != Ok(false)) {
                    return Err(refuse("the name of the stage is not a plain one of its own"));
                }
                stages.push(stage);
            }
            "RUN" if flags.clone().next().is_some() => return Err(refuse("flags of RUN are not judged here")),
            "RUN" if line.contains("<<") => return Err(refuse("a document within instructions is not read here")),
            "RUN" => {}
            "ADD" => {
                return Err(refuse(
                    "the engine itself would fetch for ADD; use COPY, and for an archive COPY and RUN tar",
                ));
            }
            "COPY" => {
                if line.contains("<<") {
                    return Err(refuse("a document within instructions is not read here"));
                }
                if words.iter().any(|word| word.contains("://")) {
                    return Err(refuse("COPY takes files of the folder, no addresses"));
                }
                for flag in flags.clone() {
                    if !COPY_FLAGS.iter().any(|known| flag.starts_with(known)) {
                        return Err(refuse("this flag is not judged here"));
                    }
                    let Some(from) = flag.strip_prefix("--from=") else { continue };
                    let from = plain(from).ok_or_else(|| refuse("it does not name plainly what it copies from"))?;
                    let Some((current, earlier)) = stages.split_last() else {
                        return Err(refuse("there is no FROM before it"));
                    };
                    if from.bytes().all(|byte| byte.is_ascii_digit()) {
                        if from.parse::<usize>().is_ok_and(|index| index < earlier.len()) {
                            continue;
                        }
                        return Err(refuse("there is no earlier stage with this number"));
                    }
                    // An engine does not know it yet, and would look for an image of this name.
                    if from.eq_ignore_ascii_case(current) {
                        return Err(refuse("it copies from its own stage"));
                    }
                    if !is_stage(&from, earlier).map_err(refuse)? {
                        steps.images.push(from);
                    }
                }
            }
            plain if PLAIN.contains(&plain) => {}
            _ => return Err(refuse("this instruction is not judged here")),
        }
    }
    if stages.is_empty() { Err(DockerfileError::NoBase) } else { Ok(steps) }
}

/// What one reader takes for the space at the end of a line, and another does not.
fn is_odd(character: char) -> bool {
    (character.is_control() && character != '\t') || (character.is_whitespace() && !character.is_ascii())
}

/// Whether an earlier stage has this very name. Engines differ in whether small and large letters are the same.
fn is_stage(name: &str, stages: &[String]) -> Result<bool, &'static str> {
    match stages.iter().find(|stage| stage.eq_ignore_ascii_case(name)) {
        Some(stage) if stage == name => Ok(true),
        Some(_) => Err("it writes the name of a stage in other letters than the stage has"),
        None => Ok(false),
    }
}

/// Engines take a number for the place of a stage.
fn is_stage_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(fits)
        && !name.eq_ignore_ascii_case("scratch")
}

/// The name of an image or a stage that comes out of no variable.
fn plain(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b'@');
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (starts && name.len() <= 512 && name.bytes().all(fits)).then(|| name.to_owned())
}
