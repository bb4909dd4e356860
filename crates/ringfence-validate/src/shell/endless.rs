//! Loops that use up the machine: they never end, and every turn leaves something behind.

use super::tree::{Node, Redirect, RedirectKind, Simple, Target, Then};

/// Whether a loop uses up the machine; without a condition it is one that never ends.
pub(super) fn exhausts(condition: Option<&Node>, body: &Node, redirects: &[Redirect]) -> bool {
    condition.is_some_and(|condition| floods(condition, body))
        || condition.is_none_or(never_ends) && fills(body, redirects)
}

/// Whether a loop starts programs without end: nothing in a turn waits for the one that it leaves behind.
fn floods(condition: &Node, body: &Node) -> bool {
    let name = |node: &Node| match node {
        Node::Simple(simple) => simple.words.first().map(|word| word.raw.clone()),
        _ => None,
    };
    let endless = match condition {
        Node::List(items) => {
            matches!(items.as_slice(), [(node, _)] if matches!(name(node).as_deref(), Some(":" | "true" | "[")))
        }
        _ => false,
    };
    let Node::List(items) = body else { return false };
    let leaves_behind = items.iter().any(|(node, then)| *then == Then::Background && name(node).is_some());
    let waits = items.iter().any(|(node, then)| {
        *then != Then::Background
            && name(node).is_none_or(|name| !matches!(name.as_str(), "echo" | "printf" | ":" | "true" | "let"))
    });
    endless && leaves_behind && !waits
}

/// Whether a condition always holds, or never: `until false` is read like `while false`, which nobody writes.
fn never_ends(condition: &Node) -> bool {
    let constant = |raw: &str| !raw.contains(['$', '`']);
    match condition {
        Node::List(items) => matches!(items.as_slice(), [(node, _)] if never_ends(node)),
        Node::Simple(simple) => match simple.words.first().map(|word| word.raw.as_str()) {
            Some(":" | "true" | "false") => true,
            // Without a letter that says what is asked about, two constants are compared.
            Some("[" | "test") => simple.words.iter().skip(1).all(|word| constant(&word.raw) && !asks(&word.raw)),
            _ => false,
        },
        Node::Arithmetic { text, .. } => text.0.chars().all(|letter| letter.is_ascii_digit() || letter.is_whitespace()),
        _ => false,
    }
}

/// `-f`, `-d` and their kin look at something that may change.
fn asks(raw: &str) -> bool {
    raw.len() == 2 && raw.starts_with('-') && !matches!(raw, "-n" | "-z")
}

/// Programs that are done at once, so that nothing holds up the next turn.
const QUICK: &[&str] = &[
    "echo",
    "printf",
    "cat",
    "head",
    "tail",
    "dd",
    "seq",
    "yes",
    "base64",
    "tr",
    "date",
    "cp",
    "fallocate",
    "truncate",
    "openssl",
    "cd",
    "od",
    "xxd",
    "gzip",
    "mkdir",
    "touch",
    "ln",
    "tee",
    "[",
    "test",
    ":",
    "true",
    "let",
    "rev",
    "sed",
    "awk",
];

/// Commands behind which a loop may be over, or the next turn waits.
const LEAVES: &[&str] = &["break", "return", "exit", "sleep", "read", "wait", "kill", "exec"];

/// Whether each turn adds to a file, makes another one or lets a variable grow, and nothing waits or ends it.
fn fills(body: &Node, redirects: &[Redirect]) -> bool {
    let mut found = Turn { quick: true, ..Turn::default() };
    found.node(body);
    let keeps = |redirect: &Redirect| match (&redirect.target, redirect.kind) {
        (Target::Word(word), RedirectKind::Write | RedirectKind::Append | RedirectKind::Both) => {
            !word.raw.starts_with("/dev/") && matches!(redirect.descriptor, None | Some(1))
        }
        _ => false,
    };
    found.quick && (found.grows || found.makes && found.goes || found.writes && redirects.iter().any(keeps))
}

/// What one turn does.
#[derive(Debug, Default)]
struct Turn {
    quick: bool,
    grows: bool,
    /// Something is written to its output.
    writes: bool,
    /// A folder is made, and gone into.
    makes: bool,
    goes: bool,
}

impl Turn {
    fn node(&mut self, node: &Node) {
        match node {
            Node::Simple(simple) => self.simple(simple),
            Node::Pipeline(nodes, _) => nodes.iter().for_each(|node| self.node(node)),
            Node::List(items) => items.iter().for_each(|(node, _)| self.node(node)),
            Node::Group { body, redirects, .. } => {
                self.redirects(redirects);
                self.node(body);
            }
            Node::If { arms, otherwise, redirects, .. } => {
                self.redirects(redirects);
                for (condition, body) in arms {
                    self.node(condition);
                    self.node(body);
                }
                otherwise.iter().for_each(|node| self.node(node));
            }
            Node::For { body, redirects, .. } => {
                self.redirects(redirects);
                self.node(body);
            }
            Node::Arithmetic { .. } | Node::Test { .. } | Node::Nothing => {}
            Node::While { .. }
            | Node::ForArithmetic { .. }
            | Node::Case { .. }
            | Node::Function { .. }
            | Node::Coprocess { .. } => self.quick = false,
        }
    }

    fn redirects(&mut self, redirects: &[Redirect]) {
        self.grows |= redirects.iter().any(|redirect| match (&redirect.target, redirect.kind) {
            (Target::Word(word), RedirectKind::Append) => !word.raw.starts_with("/dev/"),
            // Another name each time.
            (Target::Word(word), RedirectKind::Write) => word.raw.contains('$'),
            _ => false,
        });
    }

    fn simple(&mut self, simple: &Simple) {
        self.redirects(&simple.redirects);
        self.grows |= simple.assignments.iter().any(|word| word.raw.contains("+="));
        let Some(first) = simple.words.first().map(|word| word.raw.as_str()) else { return };
        let varies = simple.words.iter().any(|word| word.raw.contains('$'));
        let adds = simple.words.iter().any(|word| word.raw == "-a");
        self.quick &= QUICK.contains(&first) && !LEAVES.contains(&first);
        self.writes |= matches!(first, "echo" | "printf" | "cat" | "head" | "dd" | "seq" | "yes" | "date" | "openssl");
        self.makes |= first == "mkdir";
        self.goes |= first == "cd";
        self.grows |= match first {
            "cp" | "touch" | "mkdir" | "dd" | "truncate" | "fallocate" | "ln" => varies,
            "tee" => adds,
            _ => false,
        };
    }
}
