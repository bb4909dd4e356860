//! JSON with comments, changed where it must be and nowhere else: whoever wrote a settings file keeps its order, its comments and its layout.

use std::ops::Range;

use serde_json::{Map, Value};

/// Deeper nesting is not read.
const MOST_DEPTH: usize = 64;

/// Why a text is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct NotJson {
    line: usize,
    what: &'static str,
}

/// What may stand between values, and of that what does not end a line. Nothing else is a space here, whatever it is elsewhere.
const SPACES: [char; 5] = [' ', '\t', '\r', '\n', '\u{feff}'];
const BLANKS: [char; 2] = [' ', '\t'];

/// A value and where it stands.
#[derive(Debug, Clone)]
struct Node {
    span: Range<usize>,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Object(Vec<(String, Node)>),
    Array(Vec<Node>),
    Plain(Value),
}

/// Behind the `/* comment */` that `text` begins with. What opens it does not close it: `/*/` is open.
fn end_of_comment(text: &str) -> Option<usize> {
    Some(text.get(2..)?.find("*/")? + 4)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &'static str) -> NotJson {
        NotJson { line: self.text.as_bytes()[..self.at].iter().filter(|byte| **byte == b'\n').count() + 1, what }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Past spaces and comments.
    fn skip(&mut self) -> Result<(), NotJson> {
        loop {
            let rest = self.rest();
            let spaces = rest.len() - rest.trim_start_matches(SPACES).len();
            self.at += spaces;
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += end_of_comment(rest).ok_or_else(|| self.wrong("a comment has no end"))?;
            } else if spaces == 0 {
                return Ok(());
            }
        }
    }

    fn take(&mut self, letter: char) -> bool {
        let found = self.rest().starts_with(letter);
        if found {
            self.at += letter.len_utf8();
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node, NotJson> {
        if depth > MOST_DEPTH {
            return Err(self.wrong("it is nested too deeply"));
        }
        let start = self.at;
        let kind = if self.take('{') {
            self.object(depth)?
        } else if self.take('[') {
            self.array(depth)?
        } else {
            Kind::Plain(self.plain()?)
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn object(&mut self, depth: usize) -> Result<Kind, NotJson> {
        let mut members: Vec<(String, Node)> = Vec::new();
        loop {
            self.skip()?;
            if self.take('}') {
                return Ok(Kind::Object(members));
            }
            let Value::String(key) = self.plain()? else { return Err(self.wrong("a key is a text in quotes")) };
            if members.iter().any(|(known, _)| *known == key) {
                return Err(self.wrong("a key stands there twice"));
            }
            self.skip()?;
            if !self.take(':') {
                return Err(self.wrong("after a key stands `:`"));
            }
            self.skip()?;
            members.push((key, self.value(depth + 1)?));
            self.skip()?;
            if !self.take(',') && !self.rest().starts_with('}') {
                return Err(self.wrong("between two members stands `,`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Kind, NotJson> {
        let mut elements = Vec::new();
        loop {
            self.skip()?;
            if self.take(']') {
                return Ok(Kind::Array(elements));
            }
            elements.push(self.value(depth + 1)?);
            self.skip()?;
            if !self.take(',') && !self.rest().starts_with(']') {
                return Err(self.wrong("between two elements stands `,`"));
            }
        }
    }

    /// A text, a number or a word.
    fn plain(&mut self) -> Result<Value, NotJson> {
        let rest = self.rest();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match (rest.starts_with(['{', '[']), values.next()) {
            (false, Some(Ok(value))) => {
                self.at += values.byte_offset();
                Ok(value)
            }
            _ => Err(self.wrong("this is no value")),
        }
    }
}

fn read(text: &str) -> Result<Node, NotJson> {
    let mut reader = Reader { text, at: 0 };
    // For some readers a comment ends there, for others it does not.
    if let Some(at) = text.match_indices('\r').map(|(at, _)| at).find(|at| !text[at + 1..].starts_with('\n')) {
        return Err(Reader { text, at }.wrong("a line ends with a carriage return alone; end it with a line feed"));
    }
    reader.skip()?;
    let root = reader.value(0)?;
    reader.skip()?;
    match reader.rest().is_empty() {
        true => Ok(root),
        false => Err(reader.wrong("something follows the value")),
    }
}

fn meaning(node: &Node) -> Value {
    match &node.kind {
        Kind::Plain(value) => value.clone(),
        Kind::Array(elements) => elements.iter().map(meaning).collect(),
        Kind::Object(members) => {
            Value::Object(members.iter().map(|(key, node)| (key.clone(), meaning(node))).collect::<Map<_, _>>())
        }
    }
}

/// What a text means; an empty one is an empty object.
pub(crate) fn parse(text: &str) -> Result<Value, NotJson> {
    match text.trim().is_empty() {
        true => Ok(Value::Object(Map::new())),
        false => read(text).map(|root| meaning(&root)),
    }
}

/// `text` with `value` as the member that `path` names; what is missing on the way is made. A member that is there is an error.
pub(crate) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, NotJson> {
    let (last, way) = path.split_last().ok_or(NotJson { line: 1, what: "nothing is named" })?;
    add(text, way, Item::Member(last, value))
}

/// `text` with `value` as the last element of the array that `path` names; what is missing on the way is made.
pub(crate) fn push(text: &str, path: &[&str], value: &Value) -> Result<String, NotJson> {
    add(text, path, Item::Element(value))
}

#[derive(Clone, Copy)]
enum Item<'a> {
    Member(&'a str, &'a Value),
    Element(&'a Value),
}

impl Item<'_> {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Member(key, _) => Some(key),
            Self::Element(_) => None,
        }
    }

    fn value(&self) -> &Value {
        match self {
            Self::Member(_, value) | Self::Element(value) => value,
        }
    }

    /// The container that holds just this.
    fn alone(&self) -> Value {
        match self {
            Self::Member(key, value) => Value::Object(Map::from_iter([((*key).to_owned(), (*value).clone())])),
            Self::Element(value) => Value::Array(vec![(*value).clone()]),
        }
    }
}

fn add(text: &str, way: &[&str], item: Item<'_>) -> Result<String, NotJson> {
    let begun = if text.trim().is_empty() { "{}\n" } else { text };
    let root = read(begun)?;
    let mut now = &root;
    for (depth, key) in way.iter().enumerate() {
        let Kind::Object(members) = &now.kind else { return Err(misfit(begun, now)) };
        match members.iter().find(|(known, _)| known == key) {
            Some((_, next)) => now = next,
            None => {
                // The rest of the way is made as one value.
                let made = way[depth + 1..]
                    .iter()
                    .rev()
                    .fold(item.alone(), |inner, key| Value::Object(Map::from_iter([((*key).to_owned(), inner)])));
                return Ok(put(begun, now, depth, Item::Member(key, &made)));
            }
        }
    }
    match (&now.kind, item.key()) {
        (Kind::Object(members), Some(key)) if members.iter().all(|(known, _)| known != key) => {}
        (Kind::Array(_), None) => {}
        _ => return Err(misfit(begun, now)),
    }
    Ok(put(begun, now, way.len(), item))
}

fn misfit(text: &str, node: &Node) -> NotJson {
    Reader { text, at: node.span.start }.wrong("this is not what was expected here; change it by hand")
}

/// Puts `item` at the end of `container`, which is `depth` levels deep.
fn put(text: &str, container: &Node, depth: usize, item: Item<'_>) -> String {
    let unit = unit(text);
    let end_of_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let inner = unit.repeat(depth + 1);
    let last = match &container.kind {
        Kind::Object(members) => members.last().map(|(_, node)| node.span.end),
        Kind::Array(elements) => elements.last().map(|node| node.span.end),
        Kind::Plain(_) => None,
    };
    let written = |layout: Layout<'_>| {
        let value = layout.write(item.value());
        item.key().map_or(value.clone(), |key| format!("{}: {value}", Value::from(key)))
    };
    let tall = written(Layout::Tall { unit: &unit, indent: &inner, end_of_line });
    let Some(last) = last else {
        let start = container.span.start + 1;
        let rest = &text[start..];
        // Only spaces up to the end of the container: they go. A comment stays.
        let blank = rest.len() - rest.trim_start_matches(SPACES).len();
        let is_empty = start + blank + 1 == container.span.end;
        let (skip, closing) = match is_empty {
            true => (blank, format!("{end_of_line}{}", unit.repeat(depth))),
            false => (0, String::new()),
        };
        return format!("{}{end_of_line}{inner}{tall}{closing}{}", &text[..start], &rest[skip..]);
    };
    if !text[container.span.clone()].contains('\n') {
        let comma = if has_comma(text, last) { "" } else { "," };
        let after = after_comma(text, last);
        return format!("{}{comma}{} {}{}", &text[..last], &text[last..after], written(Layout::Flat), &text[after..]);
    }
    let comma = if has_comma(text, last) { "" } else { "," };
    let after = end_of_what_belongs(text, after_comma(text, last));
    format!("{}{comma}{}{end_of_line}{inner}{tall}{}", &text[..last], &text[last..after], &text[after..])
}

/// Whether a comma follows the value that ends at `at`.
fn has_comma(text: &str, at: usize) -> bool {
    after_comma(text, at) != at
}

/// Behind the comma that follows; `at` where none does.
fn after_comma(text: &str, at: usize) -> usize {
    let mut reader = Reader { text, at };
    match reader.skip() {
        Ok(()) if reader.take(',') => reader.at,
        _ => at,
    }
}

/// A comment on the same line belongs to what stands before it.
fn end_of_what_belongs(text: &str, at: usize) -> usize {
    let line = text[at..].split(['\n', '\r']).next().unwrap_or_default();
    let words = line.trim_start_matches(BLANKS);
    // Behind a comment the container may end.
    let alone = |end: usize| words.get(end..).is_some_and(|rest| rest.trim_matches(BLANKS).is_empty());
    let whole = words.starts_with("//") || (words.starts_with("/*") && end_of_comment(words).is_some_and(alone));
    if whole { at + line.trim_end_matches(BLANKS).len() } else { at }
}

/// What one level is indented by.
fn unit(text: &str) -> String {
    let spaces = |line: &str| line[..line.len() - line.trim_start_matches(BLANKS).len()].to_owned();
    text.lines().map(spaces).find(|indent| !indent.is_empty()).unwrap_or_else(|| "  ".to_owned())
}

enum Layout<'a> {
    Flat,
    Tall { unit: &'a str, indent: &'a str, end_of_line: &'a str },
}

impl Layout<'_> {
    fn write(&self, value: &Value) -> String {
        match (self, value) {
            (Self::Tall { unit, indent, end_of_line }, Value::Object(members)) if !members.is_empty() => {
                let deeper = format!("{indent}{unit}");
                let inner = Layout::Tall { unit, indent: &deeper, end_of_line };
                let lines: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("{deeper}{}: {}", Value::from(key.as_str()), inner.write(value)))
                    .collect();
                format!("{{{end_of_line}{}{end_of_line}{indent}}}", lines.join(&format!(",{end_of_line}")))
            }
            (Self::Tall { unit, indent, end_of_line }, Value::Array(elements))
                if elements.iter().any(Value::is_object) =>
            {
                let deeper = format!("{indent}{unit}");
                let inner = Layout::Tall { unit, indent: &deeper, end_of_line };
                let lines: Vec<String> =
                    elements.iter().map(|value| format!("{deeper}{}", inner.write(value))).collect();
                format!("[{end_of_line}{}{end_of_line}{indent}]", lines.join(&format!(",{end_of_line}")))
            }
            (_, Value::Array(elements)) => {
                let flat: Vec<String> = elements.iter().map(|value| Layout::Flat.write(value)).collect();
                format!("[{}]", flat.join(", "))
            }
            (Self::Flat, Value::Object(members)) if !members.is_empty() => {
                let flat: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("{}: {}", Value::from(key.as_str()), Layout::Flat.write(value)))
                    .collect();
                format!("{{ {} }}", flat.join(", "))
            }
            (_, value) => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, path: &[&str], value: &Value, expected: &str) {
        assert_eq!(set(text, path, value).unwrap(), expected);
    }

    #[test]
    fn a_member_is_added_at_the_end_and_nothing_else_changes() {
        let value = json!({ "command": "x", "args": ["mcp"] });
        check("", &["a", "b"], &json!(1), "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n");
        check("{}", &["a"], &json!(1), "{\n  \"a\": 1\n}");
        check("{ \"x\": 1 }\n", &["a"], &json!({ "b": [1, 2] }), "{ \"x\": 1, \"a\": { \"b\": [1, 2] } }\n");
        check(
            "// top\n{\n\t\"z\": 1, // z\n\t/* inner */\n\t\"m\": {\n\t\t\"old\": {} // kept\n\t},\n}\n",
            &["m", "new"],
            &value,
            "// top\n{\n\t\"z\": 1, // z\n\t/* inner */\n\t\"m\": {\n\t\t\"old\": {}, // kept\n\t\t\"new\": {\n\t\t\t\"args\": [\"mcp\"],\n\t\t\t\"command\": \"x\"\n\t\t}\n\t},\n}\n",
        );
        check("{\n  // nothing yet\n}\n", &["a"], &json!(1), "{\n  \"a\": 1\n  // nothing yet\n}\n");
        check("{\r\n    \"x\": 1\r\n}\r\n", &["a"], &json!(1), "{\r\n    \"x\": 1,\r\n    \"a\": 1\r\n}\r\n");
    }

    #[test]
    fn an_element_is_added_at_the_end() {
        let text = "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\" }\n    ]\n  }\n}\n";
        let pushed = push(text, &["hooks", "PreToolUse"], &json!({ "matcher": "*" })).unwrap();
        assert_eq!(
            pushed,
            "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\" },\n      {\n        \"matcher\": \"*\"\n      }\n    ]\n  }\n}\n"
        );
    }

    #[test]
    fn a_comment_ends_where_every_reader_says_and_the_container_may_end_behind_it() {
        let text = "{\"a\":\n[1] /* x */ } /* y */";
        assert_eq!(parse(&set(text, &["b"], &json!(2)).unwrap()).unwrap(), json!({ "a": [1], "b": 2 }));
        for end in ["\u{b}", "\u{a0}", "\u{2028}", " "] {
            let text = format!("{{\n \"a\": [1] // x{end}\n}}\n");
            assert_eq!(
                parse(&set(&text, &["b"], &json!(2)).unwrap()).unwrap(),
                json!({ "a": [1], "b": 2 }),
                "{text:?}"
            );
        }
        // For an agent all of this is a comment.
        assert_eq!(parse("{ /*/ \"a\": 1, /*/ \"b\": 2 }").unwrap(), json!({ "b": 2 }));
    }

    #[test]
    fn what_is_no_json_or_stands_in_the_way_is_an_error() {
        for bad in [
            "{\"a\": 1 // x\r}\n}",
            "/*/",
            "{ /*/ }",
            "{",
            "{\"a\" 1}",
            "[1 2]",
            "{} x",
            "{\"a\":1,\"a\":2}",
            "/* x",
            "{'a': 1}",
            "nul",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
        assert!(set("{\"a\": 1}", &["a", "b"], &json!(1)).is_err());
        assert!(set("{\"a\": 1}", &["a"], &json!(1)).is_err());
        assert!(push("{\"a\": {}}", &["a"], &json!(1)).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<i32>().prop_map(Value::from),
            "[a-z\"/\\\\*]{0,6}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::hash_map("[a-z]{1,4}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "([{}\\[\\],:\"/* \n1a]|//|/\\*|\\*/|\u{fc}){0,30}") {
            parse(&text).ok();
            set(&text, &["a", "b"], &json!({ "c": 1 })).ok();
            push(&text, &["a"], &json!(1)).ok();
        }

        #[test]
        fn what_is_added_is_there_and_all_else_means_the_same(before in any_value(), pretty in any::<bool>(), value in any_value()) {
            prop_assume!(before.is_object());
            let text = if pretty { format!("// c\n{before:#} // d\n") } else { before.to_string() };
            prop_assert_eq!(&parse(&text).unwrap(), &before);
            let changed = set(&text, &["NEW", "deep"], &value).unwrap();
            let mut expected = before;
            expected["NEW"] = json!({ "deep": value });
            prop_assert_eq!(parse(&changed).unwrap(), expected);
        }
    }
}
