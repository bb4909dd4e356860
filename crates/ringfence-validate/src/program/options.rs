//! A command's words, told apart: flags, values of options, operands.

use super::book::Role;
use crate::stream::Argument;

/// What the words are.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Flags, and options with their values: `-r`, `--output`. Joined short flags are taken apart.
    pub(super) options: Vec<(String, Option<Argument>)>,
    pub(super) operands: Vec<Argument>,
}

impl Words {
    /// Whether a flag is there. Long ones may be shortened, as programs allow.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|(option, _)| names.iter().any(|name| same(option, name)))
    }

    /// The value of the last option of one of these names.
    pub(super) fn value(&self, names: &[&str]) -> Option<&Argument> {
        let found =
            self.options.iter().rfind(|(option, value)| value.is_some() && names.iter().any(|name| same(option, name)));
        found.and_then(|(_, value)| value.as_ref())
    }

    /// The values of all options of these names.
    pub(super) fn values<'s>(&'s self, names: &'s [&str]) -> impl Iterator<Item = &'s Argument> {
        self.options
            .iter()
            .filter(move |(option, _)| names.iter().any(|name| same(option, name)))
            .filter_map(|(_, value)| value.as_ref())
    }
}

fn same(option: &str, name: &str) -> bool {
    option == name || name.starts_with("--") && option.len() >= 5 && name.starts_with(option)
}

/// Where options may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Anywhere, and joined.
    Usual,
    /// Only before the first operand, which starts a command of its own.
    Leading,
    /// Long words behind one dash.
    LongWords,
}

/// Tells `arguments` apart, the program's name not among them. `takes` are the options with values.
pub(super) fn words<'t>(arguments: &[Argument], takes: impl Fn(&str) -> Option<Role> + 't, style: Style) -> Words {
    let mut found = Words::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let start = argument.text.known_start();
        // Before a command, `-5` and `-0` are options like others: no program is called so.
        let is_option = start.len() > 1 && start.starts_with('-') && (style == Style::Leading || !number(start));
        if start == "--" && argument.known().is_some() {
            found.operands.extend(rest.cloned());
            break;
        }
        if !is_option {
            found.operands.push(argument.clone());
            if style == Style::Leading {
                found.operands.extend(rest.cloned());
                break;
            }
            continue;
        }
        // Some short options have two letters.
        let whole = start.len() == 3 && argument.known().is_some() && takes(start).is_some();
        if start.starts_with("--") || style == Style::LongWords || whole {
            match start.split_once('=') {
                Some((name, _)) => {
                    let mut value = argument.clone();
                    value.text = super::after(&argument.text, name.len() + 1);
                    value.span.start = (value.span.start + name.len() + 1).min(value.span.end);
                    found.options.push((name.to_owned(), Some(value)));
                }
                None if takes(start).is_some() && argument.known().is_some() => {
                    found.options.push((start.to_owned(), rest.next().cloned()));
                }
                None => found.options.push((start.to_owned(), None)),
            }
            continue;
        }
        for (index, letter) in start.char_indices().skip(1) {
            let name = format!("-{letter}");
            if takes(&name).is_some() {
                let end = index + letter.len_utf8();
                let joined = start.len() > end || argument.known().is_none();
                let value = if joined {
                    let mut value = argument.clone();
                    value.text = super::after(&argument.text, end);
                    value.span.start = (value.span.start + end).min(value.span.end);
                    Some(value)
                } else {
                    rest.next().cloned()
                };
                found.options.push((name, value));
                break;
            }
            found.options.push((name, None));
        }
    }
    found
}

/// `-5`, as in `head -5`.
pub(super) fn number(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}
