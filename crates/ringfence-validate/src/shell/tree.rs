//! The structure of a shell text, as both parsers give it: what they have to agree on, and what is walked.

use std::rc::Rc;

use crate::span::Span;

/// A word as written, with its quotes.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub(super) raw: String,
    /// Where it stands in the text of this shell; nothing from the second parser.
    pub(super) at: usize,
}

/// Two words are the same if they are written the same; where they stand is not compared, nor where their lines are continued.
impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw || same_joined(&self.raw, &other.raw) || same_array(&self.raw, &other.raw)
    }
}

/// Whether two texts are the same once continued lines are one: the parsers take them out at different times.
fn same_joined(one: &str, other: &str) -> bool {
    (one.contains("\\\n") || other.contains("\\\n")) && without_continuations(one) == without_continuations(other)
}

/// Whether both set the same array to the same elements: one of the parsers takes out line ends and comments between them.
fn same_array(one: &str, other: &str) -> bool {
    let array = |raw: &str| {
        let (name, list) = raw.split_once("=(")?;
        Some((name.to_owned(), super::assign::elements(list.strip_suffix(')')?)))
    };
    array(one).is_some_and(|one| array(other).is_some_and(|other| one == other))
}

fn without_continuations(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            joined.push(letter);
            continue;
        }
        match letters.next() {
            Some('\n') => {}
            Some(next) => joined.extend([letter, next]),
            None => joined.push(letter),
        }
    }
    joined
}

/// A place that does not take part in comparisons.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place(pub(super) Span);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// An arithmetic text. The parsers keep its blanks differently, and they mean nothing outside of the commands in it, which are read by
/// both of them again.
#[derive(Debug, Clone)]
pub(super) struct Sum(pub(super) String);

impl PartialEq for Sum {
    fn eq(&self, other: &Self) -> bool {
        let letters = |text: &'_ str| -> String { text.chars().filter(|letter| !letter.is_whitespace()).collect() };
        self.0 == other.0 || letters(&self.0) == letters(&other.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Simple(Simple),
    Pipeline(Vec<Node>, Place),
    /// Commands one after the other.
    List(Vec<(Node, Then)>),
    /// `( … )` or `{ …; }`.
    Group {
        subshell: bool,
        body: Box<Node>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    /// Conditions and branches, in order; the last may stand alone.
    If {
        arms: Vec<(Node, Node)>,
        otherwise: Option<Box<Node>>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    While {
        condition: Box<Node>,
        body: Box<Node>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    For {
        turns: Turns,
        variable: String,
        words: Option<Vec<Word>>,
        body: Box<Node>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    ForArithmetic {
        parts: Vec<Sum>,
        body: Box<Node>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    Case {
        word: Word,
        arms: Vec<(Vec<Word>, Option<Node>, Arm)>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    Function {
        name: String,
        body: Rc<Node>,
        place: Place,
    },
    Test {
        words: Vec<Word>,
        redirects: Vec<Redirect>,
        place: Place,
    },
    Arithmetic {
        text: Sum,
        redirects: Vec<Redirect>,
        place: Place,
    },
    /// A command beside the shell, and the variable that has its descriptors.
    Coprocess {
        name: String,
        body: Rc<Node>,
    },
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Simple {
    pub(super) assignments: Vec<Word>,
    pub(super) words: Vec<Word>,
    pub(super) redirects: Vec<Redirect>,
    pub(super) place: Place,
}

/// Which word a turn of a loop takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turns {
    /// `for`: one after the other.
    InOrder,
    /// `select`: whichever somebody chooses, as often as they choose.
    Chosen,
}

/// What comes behind an arm of `case`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    /// `;;`: nothing.
    Ends,
    /// `;&` or `;;&`: others may run too.
    GoesOn,
}

/// What joins a command to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Next,
    And,
    Or,
    Background,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Redirect {
    pub(super) descriptor: Option<i32>,
    /// `{name}>file`: the shell picks a descriptor, and the variable says which.
    pub(super) variable: Option<String>,
    pub(super) kind: RedirectKind,
    pub(super) target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectKind {
    Read,
    Write,
    Append,
    ReadWrite,
    DuplicateInput,
    DuplicateOutput,
    HereString,
    HereDocument,
    /// `&>` and `&>>`.
    Both,
}

#[derive(Debug, Clone)]
pub(super) enum Target {
    Word(Word),
    /// The body of a here-document.
    Document {
        body: String,
        expands: bool,
        at: Place,
    },
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Word(one), Self::Word(two)) => one == two,
            (Self::Document { body: one, expands, .. }, Self::Document { body: two, expands: other, .. }) => {
                expands == other && (one == two || *expands && same_joined(one, two))
            }
            (Self::Word(_), Self::Document { .. }) | (Self::Document { .. }, Self::Word(_)) => false,
        }
    }
}
