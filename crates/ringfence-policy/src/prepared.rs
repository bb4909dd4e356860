//! The tree of a built-in text as it was read before: every start needs the defaults, and reading YAML takes longer than all else
//! that is done with them.
//!
//! Each line is a node: its kind, where it stands in the text, and what it is. It begins with a hash of the text that it is of.

use std::str::Lines;

use crate::yaml::{Key, Mark, Node, Style, Value};

/// The tree in `prepared`, where that is the one of a text with this hash.
pub(crate) fn read(prepared: &str, hash: u64) -> Option<Node> {
    let mut lines = prepared.lines();
    let of = u64::from_str_radix(lines.next()?, 16).ok()?;
    let tree = if of == hash { node(&mut lines)? } else { return None };
    lines.next().is_none().then_some(tree)
}

/// Tells one text from another, also while this is compiled.
pub(crate) const fn hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

/// A line: its kind, its mark, and the rest.
fn line<'t>(lines: &mut Lines<'t>) -> Option<(&'t str, Mark, &'t str)> {
    let (kind, mut rest) = lines.next()?.split_once(' ')?;
    let mut number = || {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest
            .bytes()
            .take(digits)
            .try_fold(0_u32, |sum, digit| sum.checked_mul(10)?.checked_add(u32::from(digit - b'0')));
        rest = rest.get(digits..)?.strip_prefix(' ')?;
        number.filter(|_| digits > 0)
    };
    let (line, column, start, end) = (number()?, number()?, number()?, number()?);
    let mark = Mark { line, column, start: usize::try_from(start).ok()?, end: usize::try_from(end).ok()? };
    Some((kind, mark, rest))
}

fn node(lines: &mut Lines<'_>) -> Option<Node> {
    let (kind, mark, rest) = line(lines)?;
    let value = match kind {
        "null" => Value::Null,
        "plain" => Value::Scalar(rest.to_owned(), Style::Plain),
        "quoted" => Value::Scalar(rest.to_owned(), Style::Quoted),
        "list" => Value::List((0..rest.parse::<u16>().ok()?).map(|_| node(lines)).collect::<Option<_>>()?),
        "map" => Value::Map((0..rest.parse::<u16>().ok()?).map(|_| entry(lines)).collect::<Option<_>>()?),
        _ => return None,
    };
    Some(Node { value, mark })
}

fn entry(lines: &mut Lines<'_>) -> Option<(Key, Node)> {
    let (kind, mark, text) = line(lines)?;
    (kind == "key").then_some(())?;
    Some((Key { text: text.to_owned(), mark }, node(lines)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::{DEFAULT_TEXT, PREPARED};
    use crate::yaml::parse_yaml;

    fn write(node: &Node, to: &mut String) {
        let mut line = |kind: &str, mark: Mark, rest: &str| {
            assert!(!rest.contains('\n'), "{rest}");
            let Mark { line, column, start, end } = mark;
            to.push_str(&format!("{kind} {line} {column} {start} {end} {rest}\n"));
        };
        match &node.value {
            Value::Null => line("null", node.mark, ""),
            Value::Scalar(text, Style::Plain) => line("plain", node.mark, text),
            Value::Scalar(text, Style::Quoted) => line("quoted", node.mark, text),
            Value::List(nodes) => {
                line("list", node.mark, &nodes.len().to_string());
                nodes.iter().for_each(|node| write(node, to));
            }
            Value::Map(entries) => {
                line("map", node.mark, &entries.len().to_string());
                for (key, node) in entries {
                    to.push_str(&format!(
                        "key {} {} {} {} {}\n",
                        key.mark.line, key.mark.column, key.mark.start, key.mark.end, key.text
                    ));
                    write(node, to);
                }
            }
        }
    }

    #[test]
    fn the_tree_of_the_defaults_that_was_read_before_is_the_one_of_their_text() {
        let tree = parse_yaml(&"presets/default.yaml".into(), DEFAULT_TEXT).unwrap();
        let mut now = format!("{:x}\n", hash(DEFAULT_TEXT));
        write(&tree, &mut now);
        if std::env::var_os("RINGFENCE_TEST_WRITE_DEFAULTS").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/presets/default.tree"), now).unwrap();
            return;
        }
        assert!(now == PREPARED, "presets/default.tree is stale; run this test with RINGFENCE_TEST_WRITE_DEFAULTS=1");
        assert_eq!(read(PREPARED, hash(DEFAULT_TEXT)), Some(tree));
    }

    #[test]
    fn a_tree_of_another_text_or_one_that_is_not_whole_is_none() {
        assert_eq!(read(PREPARED, hash("version: 1")), None);
        let cut = PREPARED.trim_end().rsplit_once('\n').unwrap().0;
        assert_eq!(read(cut, hash(DEFAULT_TEXT)), None);
        assert_eq!(read(&format!("{PREPARED}null 1 1 0 0 \n"), hash(DEFAULT_TEXT)), None);
    }
}
