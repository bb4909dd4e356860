//! Files of a sandbox, looked at and written from inside: each tool is a small program that runs behind the wall.

use std::ffi::OsString;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence::Outcome;
use serde::Deserialize;
use serde_json::json;

use super::inside::{self, below, file, small};
use super::run::Encoding;
use super::{Problem, Said};
use crate::call::Call;
use crate::client::Sandbox;
use crate::tell;

/// Of a file that is read or edited.
const MOST_READ: usize = 256 * 1024;
/// Of what an edit makes of a file.
const MOST_EDITED: usize = 4 * 1024 * 1024;
/// Of a list.
const MOST_ENTRIES: usize = 1000;
/// Of matches.
const MOST_MATCHES: usize = 200;
const MOST_PATTERN: usize = 4096;
/// Of what is found, in letters.
const MOST_FOUND: usize = 32 * 1024;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Read {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
    #[serde(alias = "sandbox_id")]
    sandbox_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Write {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default)]
    append: bool,
    #[serde(alias = "sandbox_id")]
    sandbox_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct List {
    #[serde(default)]
    path: String,
    #[serde(alias = "sandbox_id")]
    sandbox_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Edit {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
    #[serde(alias = "sandbox_id")]
    sandbox_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Search {
    pattern: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    ignore_case: bool,
    #[serde(alias = "sandbox_id")]
    sandbox_id: Option<String>,
}

/// The words of a small program; a path comes last, and is never taken for an option, or for the input where its name is `-`.
fn words(program: &[&str], path: &Path) -> Vec<OsString> {
    let here = Path::new(".");
    let path = if path.as_os_str().is_empty() { here.to_owned() } else { here.join(path) };
    program.iter().map(OsString::from).chain(["--".into(), path.into()]).collect()
}

/// What a file in a sandbox holds, at most so much of it and a byte more.
pub(super) async fn bytes_of(
    call: &Call,
    place: Option<&Sandbox>,
    path: &Path,
    most: usize,
) -> Result<Vec<u8>, Problem> {
    let outcome = small(call, place, words(&["head", "-c", &(most + 1).to_string()], path), Vec::new(), &[0]).await?;
    if outcome.output_truncated {
        return Err(Problem::never("the policy lets a program write less than this file holds (proc.output)")
            .advise("Read it in parts, with offset and limit."));
    }
    exact(outcome)
}

/// What a program wrote, byte for byte.
fn exact(outcome: Outcome) -> Result<Vec<u8>, Problem> {
    match outcome.stdout_base64 {
        Some(exact) => {
            STANDARD.decode(exact).map_err(|_| Problem::later("what came back of the file could not be read"))
        }
        None => Ok(outcome.stdout.into_bytes()),
    }
}

pub(super) async fn read(call: &Call, arguments: Read) -> Result<Said, Problem> {
    let place = inside::place(call, arguments.sandbox_id.as_deref()).await?;
    let path = file(&arguments.path)?;
    let mut bytes = match (arguments.offset, arguments.limit) {
        (None, None) => bytes_of(call, place.as_ref(), &path, MOST_READ).await?,
        (offset, limit) => {
            let first = offset.unwrap_or(1).max(1);
            let last = limit.map_or("$".to_owned(), |limit| first.saturating_add(limit.max(1) - 1).to_string());
            let lines = format!("{first},{last}p");
            let outcome = small(call, place.as_ref(), words(&["sed", "-n", &lines], &path), Vec::new(), &[0]).await?;
            if outcome.output_truncated {
                return Err(Problem::fixable(
                    "the policy lets a program write less than these lines hold (proc.output)",
                )
                .advise("Read fewer lines at once, with a smaller limit."));
            }
            exact(outcome)?
        }
    };
    let truncated = bytes.len() > MOST_READ;
    bytes.truncate(MOST_READ);
    let size = bytes.len();
    let (content, encoding) = match String::from_utf8(bytes) {
        Ok(text) => (text, "utf8"),
        // A letter that was cut in two at the end is no reason to take the text for something else.
        Err(error) if truncated && error.utf8_error().valid_up_to() + 4 > MOST_READ => {
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), "utf8")
        }
        Err(error) => (STANDARD.encode(error.as_bytes()), "base64"),
    };
    let shown = match (encoding, content.is_empty()) {
        (_, true) => "The file is empty, or has no such lines.".to_owned(),
        ("utf8", false) => content.clone(),
        _ => format!("{size} bytes that are no text; structuredContent has them as base64."),
    };
    let mut text = shown;
    if truncated {
        text.push_str(&format!("\n[the file goes on; this is its first {MOST_READ} bytes]"));
    }
    let structured = json!({
        "path": path.to_string_lossy(), "content": content, "encoding": encoding, "truncated": truncated
    });
    Ok(Said::well(text, structured))
}

/// Writes a file, and makes the folders that it is in.
async fn put(call: &Call, place: &Sandbox, path: &Path, content: Vec<u8>, append: Append) -> Result<(), Problem> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        small(call, Some(place), words(&["mkdir", "-p"], folder), Vec::new(), &[0]).await?;
    }
    let program: &[&str] = match append {
        Append::No => &["tee"],
        Append::Yes => &["tee", "-a"],
    };
    small(call, Some(place), words(program, path), content, &[0]).await.map(|_| ())
}

#[derive(Clone, Copy)]
enum Append {
    No,
    Yes,
}

pub(super) async fn write(call: &Call, arguments: Write) -> Result<Said, Problem> {
    let place = call.client.sandbox(&arguments.sandbox_id).await?;
    let path = file(&arguments.path)?;
    let content = arguments.encoding.decode(arguments.content)?;
    let bytes = content.len();
    let append = if arguments.append { Append::Yes } else { Append::No };
    put(call, &place, &path, content, append).await?;
    let text = format!("Wrote {bytes} bytes to {}, in the sandbox.", path.display());
    Ok(Said::well(text, json!({ "path": path.to_string_lossy(), "bytes": bytes })))
}

pub(super) async fn list(call: &Call, arguments: List) -> Result<Said, Problem> {
    let place = inside::place(call, arguments.sandbox_id.as_deref()).await?;
    let path = below(&arguments.path)?;
    let outcome = small(call, place.as_ref(), words(&["ls", "-1Ap"], &path), Vec::new(), &[0]).await?;
    let mut entries: Vec<&str> = outcome.stdout.lines().collect();
    let truncated = outcome.output_truncated || entries.len() > MOST_ENTRIES;
    entries.truncate(MOST_ENTRIES);
    let mut text = if entries.is_empty() { "The folder is empty.".to_owned() } else { entries.join("\n") };
    if truncated {
        text.push_str("\n[there is more]");
    }
    let structured = json!({ "path": path.to_string_lossy(), "entries": entries, "truncated": truncated });
    Ok(Said::well(text, structured))
}

pub(super) async fn edit(call: &Call, arguments: Edit) -> Result<Said, Problem> {
    let place = call.client.sandbox(&arguments.sandbox_id).await?;
    let path = file(&arguments.path)?;
    if arguments.old.is_empty() {
        return Err(Problem::fixable("`old` is empty").advise("Write a new file with files_write."));
    }
    let bytes = bytes_of(call, Some(&place), &path, MOST_READ).await?;
    if bytes.len() > MOST_READ {
        return Err(Problem::never(format!("the file is longer than {MOST_READ} bytes"))
            .advise("Edit it with a program, by sandboxed_code_run."));
    }
    let before = String::from_utf8(bytes).map_err(|_| Problem::never("the file is no text"))?;
    let found = before.matches(&arguments.old).count();
    match (found, arguments.all) {
        (0, _) => {
            return Err(
                Problem::fixable("`old` is not in the file").advise("Read it with files_read, and copy exactly.")
            );
        }
        (1, _) | (_, true) => {}
        (_, false) => {
            return Err(Problem::fixable(format!("`old` is in the file {found} times"))
                .advise("Write more of what is around it, or set `all`."));
        }
    }
    if edited(&before, found, &arguments).is_none_or(|bytes| bytes > MOST_EDITED) {
        return Err(Problem::never(format!("the file would be longer than {MOST_EDITED} bytes"))
            .advise("Write it with a program, by sandboxed_code_run."));
    }
    let after = before.replace(&arguments.old, &arguments.new);
    put(call, &place, &path, after.into_bytes(), Append::No).await?;
    let text = format!("Replaced it {found} times in {}, in the sandbox.", path.display());
    Ok(Said::well(text, json!({ "path": path.to_string_lossy(), "replaced": found })))
}

/// How long a file will be, in which something was found so often. It is known before any of it is made: this is outside of every wall.
fn edited(before: &str, found: usize, arguments: &Edit) -> Option<usize> {
    let stays = before.len().checked_sub(found.checked_mul(arguments.old.len())?)?;
    stays.checked_add(found.checked_mul(arguments.new.len())?)
}

pub(super) async fn search(call: &Call, arguments: Search) -> Result<Said, Problem> {
    let place = inside::place(call, arguments.sandbox_id.as_deref()).await?;
    let path = below(&arguments.path)?;
    let pattern = &arguments.pattern;
    if pattern.is_empty() || pattern.len() > MOST_PATTERN || pattern.contains(['\0', '\n']) {
        return Err(Problem::fixable("the pattern is empty, too long, or has a line end in it"));
    }
    let options = if arguments.ignore_case { "-rHnsEi" } else { "-rHnsE" };
    let words = words(&["grep", options, "-e", pattern], &path);
    // 1 is that nothing was found, 2 that a file could not be read, of which it says nothing, or that the pattern is none, of which it does.
    let outcome = small(call, place.as_ref(), words, Vec::new(), &[0, 1, 2]).await?;
    let is_partial = outcome.exit_code == Some(2);
    if is_partial && outcome.stdout.is_empty() && !outcome.stderr.trim().is_empty() {
        return Err(Problem::fixable(tell::head_and_tail(outcome.stderr.trim(), 1000)));
    }
    let mut matches: Vec<String> =
        outcome.stdout.lines().map(|line| tell::head_and_tail(line.strip_prefix("./").unwrap_or(line), 400)).collect();
    let truncated = outcome.output_truncated || matches.len() > MOST_MATCHES;
    matches.truncate(MOST_MATCHES);
    let mut text = if matches.is_empty() { "Nothing was found.".to_owned() } else { matches.join("\n") };
    text = tell::head_and_tail(&text, MOST_FOUND);
    if truncated {
        text.push_str("\n[there is more; write a narrower pattern]");
    }
    if is_partial {
        text.push_str("\n[some files are not there or could not be read]");
    }
    Ok(Said::well(text, json!({ "matches": matches, "truncated": truncated, "partial": is_partial })))
}
