//! YAML text as a tree whose every node knows where it stood.
//!
//! The only file that knows the YAML library. It refuses what a policy has no use for (anchors, aliases, tags, several
//! documents, keys that are not plain words), so nothing here can be made to expand.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Span, StrInput};

use crate::diagnostic::{Diagnostic, quote};
use crate::policy::Place;

/// Above this the text is refused before it is parsed.
pub(crate) const MAX_TEXT: usize = 1 << 20;
const MAX_DEPTH: usize = 16;
const MAX_NODES: usize = 20_000;
/// Enough to be useful; a file with more is broken in one place, not in many.
pub(crate) const MAX_DIAGNOSTICS: usize = 50;

/// Where a node stands in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    /// From 1; 0 where the source has no lines.
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Mark {
    pub(crate) fn place(self, file: &Arc<str>) -> Place {
        Place { file: Arc::clone(file), line: self.line, column: self.column }
    }
}

/// Whether a scalar may mean something other than its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Unquoted: `null`, `5`, `yes`.
    Plain,
    /// Quoted or a block: always text.
    Quoted,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Scalar(String, Style),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) mark: Mark,
}

impl Value {
    /// What a person would call it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Scalar(text, _) => quote(text),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a map".to_owned(),
        }
    }
}

/// The one document in `text`, or what is wrong with it.
pub(crate) fn parse_yaml(file: &Arc<str>, text: &str) -> Result<Node, Vec<Diagnostic>> {
    if text.len() > MAX_TEXT {
        return Err(vec![
            Diagnostic::error("policy::too-large", format!("the file has {} bytes; at most 1MiB is read", text.len()))
                .advise("a policy needs a few hundred lines at most; is this the right file?")
                .at(Some(Place { file: Arc::clone(file), line: 1, column: 1 })),
        ]);
    }
    let mut options = Options::default();
    options.disallow_directives = true;
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    let mut builder = Builder {
        file,
        parser: Parser::new_from_str_with_options(text, options),
        nodes: 0,
        last: Mark { line: 1, column: 1, start: 0, end: 0 },
        duplicates: Vec::new(),
    };
    match builder.document() {
        Ok(node) if builder.duplicates.is_empty() => Ok(node),
        Ok(_) => Err(builder.duplicates),
        Err(problem) => {
            builder.duplicates.push(*problem);
            Err(builder.duplicates)
        }
    }
}

struct Builder<'t> {
    file: &'t Arc<str>,
    parser: Parser<'t, StrInput<'t>>,
    nodes: usize,
    last: Mark,
    duplicates: Vec<Diagnostic>,
}

type Built<T> = Result<T, Box<Diagnostic>>;

impl<'t> Builder<'t> {
    fn document(&mut self) -> Built<Node> {
        let mut root = None;
        loop {
            let (event, mark) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(self.refuse(
                        mark,
                        "policy::several-documents",
                        "a second document starts here",
                        "keep one policy per file: remove the `---` and what follows it",
                    ));
                }
                Event::DocumentStart(..) => {
                    let (event, mark) = self.next()?;
                    root = Some(self.node(event, mark, 0)?);
                }
                Event::StreamEnd => break,
                _ => {
                    return Err(self.refuse(
                        mark,
                        "policy::syntax",
                        "this is not a document",
                        "write `version: 1` first",
                    ));
                }
            }
        }
        // An empty file has no document at all.
        Ok(root.unwrap_or(Node { value: Value::Null, mark: Mark { line: 1, column: 1, start: 0, end: 0 } }))
    }

    fn node(&mut self, event: Event<'t>, mark: Mark, depth: usize) -> Built<Node> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.refuse(
                mark,
                "policy::too-many-values",
                format!("more than {MAX_NODES} values"),
                "a policy needs a few hundred at most",
            ));
        }
        if depth > MAX_DEPTH {
            return Err(self.too_deep(mark));
        }
        if event.anchor_id().is_some() {
            return Err(self.refuse(
                mark,
                "policy::anchor",
                "anchors (`&name`) are not used in a policy",
                "write the value out in each place",
            ));
        }
        if let Some(tag) = event.tag() {
            let message = format!("tags are not used in a policy: {}", quote(&tag.original()));
            return Err(self.refuse(mark, "policy::tag", message, "write the value without the tag"));
        }
        match event {
            Event::Scalar(text, style, ..) => Ok(Node { value: scalar(&text, style), mark }),
            Event::SequenceStart(..) => self.list(mark, depth),
            Event::MappingStart(..) => self.map(mark, depth),
            Event::Alias(_) | Event::UnresolvedAlias(_) => Err(self.alias(mark)),
            _ => {
                Err(self.refuse(mark, "policy::syntax", "a value is missing here", "write a value, or remove the key"))
            }
        }
    }

    fn list(&mut self, mark: Mark, depth: usize) -> Built<Node> {
        let mut items = Vec::new();
        loop {
            let (event, item) = self.next()?;
            if event == Event::SequenceEnd {
                let mark = Mark { end: item.end.max(mark.end), ..mark };
                return Ok(Node { value: Value::List(items), mark });
            }
            items.push(self.node(event, item, depth + 1)?);
        }
    }

    fn map(&mut self, mark: Mark, depth: usize) -> Built<Node> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        loop {
            let (event, key_mark) = self.next()?;
            if event == Event::MappingEnd {
                let mark = Mark { end: key_mark.end.max(mark.end), ..mark };
                return Ok(Node { value: Value::Map(entries), mark });
            }
            let key = match self.node(event, key_mark, depth + 1)?.value {
                Value::Scalar(text, _) => text,
                Value::Null | Value::List(_) | Value::Map(_) => {
                    return Err(self.refuse(key_mark, "policy::key", "a key must be a word", "write `key: value`"));
                }
            };
            if key == "<<" {
                return Err(self.alias(key_mark));
            }
            let (event, value_mark) = self.next()?;
            let value = self.node(event, value_mark, depth + 1)?;
            match entries.iter().find(|(earlier, _)| earlier.text == key) {
                Some((earlier, _)) if self.duplicates.len() < MAX_DIAGNOSTICS => {
                    let message = format!("the key {} is already there, on line {}", quote(&key), earlier.mark.line);
                    let advice = "keep one of the two: which of them would count is not for us to guess";
                    let problem = self.refuse(key_mark, "policy::duplicate-key", message, advice);
                    self.duplicates.push(*problem);
                }
                Some(_) => {}
                None => entries.push((Key { text: key, mark: key_mark }, value)),
            }
        }
    }

    fn next(&mut self) -> Built<(Event<'t>, Mark)> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.last = mark_of(&span);
                Ok((event, self.last))
            }
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(self.refuse(self.last, "policy::syntax", "the text ends too early", "finish the last value")),
        }
    }

    fn syntax(&self, error: &ScanError) -> Box<Diagnostic> {
        let start = error.marker();
        let byte = start.byte_offset().unwrap_or_default();
        let mark = Mark { line: number(start.line()), column: number(start.col()) + 1, start: byte, end: byte };
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => self.too_deep(mark),
            ErrorKind::DirectiveDisallowed => {
                self.refuse(mark, "policy::syntax", "directives (`%…`) are not used in a policy", "remove the line")
            }
            _ => self.refuse(
                mark,
                "policy::syntax",
                format!("this is not YAML: {}", error.info()),
                "check the indentation (spaces, no tabs), the brackets and the quotes just before this place",
            ),
        }
    }

    fn too_deep(&self, mark: Mark) -> Box<Diagnostic> {
        let message = format!("values are nested more than {MAX_DEPTH} deep");
        self.refuse(mark, "policy::too-deep", message, "no key of a policy is nested more than five deep")
    }

    fn alias(&self, mark: Mark) -> Box<Diagnostic> {
        let message = "aliases (`*name`) and merge keys (`<<`) are not used in a policy";
        self.refuse(mark, "policy::alias", message, "write the value out in each place")
    }

    fn refuse(
        &self,
        mark: Mark,
        code: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Box<Diagnostic> {
        Box::new(
            Diagnostic::error(code, message)
                .advise(advice)
                .at(Some(mark.place(self.file)))
                .spanning(mark.start..mark.end),
        )
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    match style {
        ScalarStyle::Plain if matches!(text, "" | "~" | "null" | "Null" | "NULL") => Value::Null,
        ScalarStyle::Plain => Value::Scalar(text.to_owned(), Style::Plain),
        _ => Value::Scalar(text.to_owned(), Style::Quoted),
    }
}

fn mark_of(span: &Span) -> Mark {
    let Marked { line, column, byte: start } = Marked::from(&span.start);
    Mark { line, column, start, end: span.end.byte_offset().unwrap_or(start).max(start) }
}

struct Marked {
    line: u32,
    column: u32,
    byte: usize,
}

impl From<&Marker> for Marked {
    fn from(marker: &Marker) -> Self {
        Self {
            line: number(marker.line()),
            column: number(marker.col()) + 1,
            byte: marker.byte_offset().unwrap_or_default(),
        }
    }
}

/// Texts are at most [`MAX_TEXT`] long, so this loses nothing.
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX - 1)
}

/// The same tree from JSON, where nodes have no place. Duplicate keys are refused as in YAML.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl NodeVisitor {
    fn node<E>(value: Value) -> Result<Node, E> {
        Ok(Node { value, mark: Mark::default() })
    }
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Self::node(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Self::node(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Self::node(Value::Scalar(value.to_string(), Style::Plain))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Self::node(Value::Scalar(value.to_string(), Style::Plain))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Self::node(Value::Scalar(value.to_string(), Style::Plain))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Self::node(Value::Scalar(value.to_string(), Style::Plain))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Self::node(Value::Scalar(value.to_owned(), Style::Quoted))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Node>()? {
            list.push(item);
        }
        Self::node(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        while let Some((text, value)) = map.next_entry::<String, Node>()? {
            if entries.iter().any(|(earlier, _)| earlier.text == text) {
                return Err(de::Error::custom(format_args!("the key {} is there twice", quote(&text))));
            }
            entries.push((Key { text, mark: Mark::default() }, value));
        }
        Self::node(Value::Map(entries))
    }
}
