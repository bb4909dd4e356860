//! Splits shell lines that are plain enough to be split without a shell.
//!
//! Total: any text gives words or [`NotPlain`], never a guess. What would need a real shell parser (expansion,
//! substitution, redirection, globs, keywords) is [`NotPlain`]; the caller then denies, asks, or uses a real parser.

use crate::diagnostic::quote;

/// Why a line cannot be split without a shell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset} needs a shell to be understood")]
pub struct NotPlain {
    /// Byte offset in the line.
    pub offset: usize,
    /// What stands there, such as "`$` (expansion)".
    pub what: String,
}

/// The words of one plain command.
pub fn split_words(line: &str) -> Result<Vec<String>, NotPlain> {
    let mut commands = Splitter { line, separators: Separators::Refused }.split()?;
    commands.pop().map_or(Ok(Vec::new()), plain_command)
}

/// The commands of a plain line, split at `;`, `&&`, `||`, `|`, `&` and newlines.
pub fn split_commands(line: &str) -> Result<Vec<Vec<String>>, NotPlain> {
    let commands = Splitter { line, separators: Separators::Split }.split()?;
    commands.into_iter().map(plain_command).collect()
}

struct Word {
    text: String,
    offset: usize,
    quoted: Quoted,
}

/// Only an unquoted word can be a keyword or an assignment.
#[derive(PartialEq)]
enum Quoted {
    Nowhere,
    Somewhere,
}

#[derive(Clone, Copy, PartialEq)]
enum Separators {
    Split,
    Refused,
}

struct Splitter<'t> {
    line: &'t str,
    separators: Separators,
}

/// What the words so far are waiting for.
#[derive(PartialEq)]
enum Due {
    /// A command may follow or not: start of line, after `;`, `&` or a newline.
    Nothing,
    /// After `|`, `&&`, `||` a command must follow.
    Command,
}

impl Splitter<'_> {
    fn split(&self) -> Result<Vec<Vec<Word>>, NotPlain> {
        let mut commands: Vec<Vec<Word>> = Vec::new();
        let mut words: Vec<Word> = Vec::new();
        let mut word: Option<Word> = None;
        let mut due = Due::Nothing;
        let mut chars = self.line.char_indices().peekable();
        while let Some((offset, c)) = chars.next() {
            match c {
                ' ' | '\t' => words.extend(word.take()),
                '\n' | ';' | '&' | '|' if self.separators == Separators::Split => {
                    words.extend(word.take());
                    if words.is_empty() && c != '\n' {
                        return Err(not_plain(offset, format!("`{c}` without a command before it")));
                    }
                    let doubled = chars.peek().is_some_and(|(_, next)| *next == c) && matches!(c, '&' | '|' | ';');
                    if doubled {
                        chars.next();
                    }
                    match (c, doubled, chars.peek()) {
                        (';', true, _) => return Err(not_plain(offset, "`;;` (case)")),
                        ('&' | '|', false, Some((_, next @ ('&' | '>')))) => {
                            return Err(not_plain(offset, format!("`{c}{next}` (redirection)")));
                        }
                        _ => {}
                    }
                    if !words.is_empty() {
                        commands.push(std::mem::take(&mut words));
                        due = if c == '|' || (c == '&' && doubled) { Due::Command } else { Due::Nothing };
                    }
                }
                '\'' => {
                    let word = begin(&mut word, offset, Quoted::Somewhere);
                    loop {
                        match chars.next() {
                            Some((_, '\'')) => break,
                            Some((at, '\0')) => return Err(not_plain(at, "a NUL byte")),
                            Some((_, c)) => word.text.push(c),
                            None => return Err(not_plain(offset, "an unclosed single quote")),
                        }
                    }
                }
                '"' => {
                    let word = begin(&mut word, offset, Quoted::Somewhere);
                    loop {
                        match chars.next() {
                            Some((_, '"')) => break,
                            Some((at, c @ ('$' | '`'))) => {
                                return Err(not_plain(at, format!("{} (expansion)", tick(c))));
                            }
                            Some((at, '\0')) => return Err(not_plain(at, "a NUL byte")),
                            Some((at, '\\')) => match chars.next() {
                                Some((_, c @ ('$' | '`' | '"' | '\\'))) => word.text.push(c),
                                Some((_, '\n')) => {}
                                Some((at, '\0')) => return Err(not_plain(at, "a NUL byte")),
                                Some((_, c)) => word.text.extend(['\\', c]),
                                None => return Err(not_plain(at, "a backslash at the end")),
                            },
                            Some((_, c)) => word.text.push(c),
                            None => return Err(not_plain(offset, "an unclosed double quote")),
                        }
                    }
                }
                '\\' => match chars.next() {
                    // A continued line joins without a word break.
                    Some((_, '\n')) => {}
                    Some((at, '\0')) => return Err(not_plain(at, "a NUL byte")),
                    Some((_, c)) => begin(&mut word, offset, Quoted::Somewhere).text.push(c),
                    None => return Err(not_plain(offset, "a backslash at the end")),
                },
                '#' if word.is_none() => return Err(not_plain(offset, "`#` (comment)")),
                '~' if word.is_none() => return Err(not_plain(offset, "`~` (home folder)")),
                '=' | ':' if matches!(chars.peek(), Some((_, '~'))) => {
                    return Err(not_plain(offset + 1, "`~` (home folder)"));
                }
                _ => match special(c) {
                    Some(what) => return Err(not_plain(offset, format!("{} ({what})", tick(c)))),
                    None => begin(&mut word, offset, Quoted::Nowhere).text.push(c),
                },
            }
        }
        words.extend(word);
        if !words.is_empty() {
            commands.push(words);
        } else if due == Due::Command {
            return Err(not_plain(self.line.len(), "the end where a command must follow"));
        }
        Ok(commands)
    }
}

fn begin(word: &mut Option<Word>, offset: usize, quoted: Quoted) -> &mut Word {
    let word = word.get_or_insert(Word { text: String::new(), offset, quoted: Quoted::Nowhere });
    if quoted == Quoted::Somewhere {
        word.quoted = Quoted::Somewhere;
    }
    word
}

/// What an unquoted character means to a shell, when it means more than itself.
fn special(c: char) -> Option<&'static str> {
    match c {
        '$' | '`' => Some("expansion"),
        ';' | '|' | '&' | '\n' => Some("several commands"),
        '<' | '>' => Some("redirection"),
        '(' | ')' => Some("subshell"),
        '{' | '}' => Some("braces"),
        '*' | '?' | '[' | ']' => Some("glob"),
        '\0' => Some("NUL"),
        c if c.is_control() => Some("control character"),
        // Shells do not split at these, people read them as spaces.
        c if c.is_whitespace() => Some("unusual space"),
        _ => None,
    }
}

fn tick(c: char) -> String {
    if c == '`' { "a backtick".to_owned() } else { quote(&c.to_string()) }
}

const KEYWORDS: [&str; 22] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "in", "function",
    "select", "time", "coproc", "[[", "]]", "!", "{", "}",
];

fn plain_command(words: Vec<Word>) -> Result<Vec<String>, NotPlain> {
    if let Some(first) = words.first()
        && first.quoted == Quoted::Nowhere
        && KEYWORDS.contains(&first.text.as_str())
    {
        return Err(not_plain(first.offset, format!("the keyword `{}`", first.text)));
    }
    if let Some(first) = words.first().filter(|first| is_assignment(&first.text)) {
        // Quoting only the value (`A='b' cmd`) leaves it an assignment, so quotes do not matter here.
        return Err(not_plain(first.offset, "an assignment before the command"));
    }
    Ok(words.into_iter().map(|word| word.text).collect())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn not_plain(offset: usize, what: impl Into<String>) -> NotPlain {
    NotPlain { offset, what: what.into() }
}
