//! What a part of the text may set, told without walking it: a loop does that before its next turn.

use std::rc::Rc;

use super::Scope;
use super::tree::{Node, Simple, Then, Turns, Word};

/// Functions within functions that are looked into.
const MOST_CALLS: usize = 8;

/// Whether a loop starts programs without end: nothing in a turn waits for the one that it leaves behind.
pub(super) fn floods(condition: &Node, body: &Node) -> bool {
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

/// What may be set.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) names: Vec<String>,
    /// Any variable.
    pub(super) anything: bool,
    pub(super) directory: bool,
    pub(super) functions: Vec<(String, Rc<Node>)>,
    calls: Vec<String>,
}

impl Sets {
    pub(super) fn node(&mut self, node: &Node, scope: &Scope) {
        match node {
            Node::Simple(simple) => self.simple(simple, scope),
            Node::Pipeline(nodes, _) => nodes.iter().for_each(|node| self.node(node, scope)),
            Node::List(items) => items.iter().for_each(|(node, _)| self.node(node, scope)),
            Node::Group { subshell: true, body, .. } => {
                // A subshell keeps its directory to itself.
                let directory = self.directory;
                self.node(body, scope);
                self.directory = directory;
            }
            Node::Group { body, .. } | Node::Coprocess { body } => self.node(body, scope),
            Node::If { arms, otherwise, .. } => {
                for (condition, body) in arms {
                    self.node(condition, scope);
                    self.node(body, scope);
                }
                if let Some(body) = otherwise {
                    self.node(body, scope);
                }
            }
            Node::While { condition, body, .. } => {
                self.node(condition, scope);
                self.node(body, scope);
            }
            Node::For { turns, variable, words, body, .. } => {
                self.names.push(variable.clone());
                if *turns == Turns::Chosen {
                    self.names.push("REPLY".to_owned());
                }
                words.iter().flatten().for_each(|word| self.word(word));
                self.node(body, scope);
            }
            Node::ForArithmetic { parts, body, .. } => {
                parts.iter().for_each(|part| self.names.extend(super::arithmetic::sets(&part.0)));
                self.node(body, scope);
            }
            Node::Case { arms, .. } => {
                arms.iter().filter_map(|(_, body, _)| body.as_ref()).for_each(|node| self.node(node, scope));
            }
            Node::Function { name, body, .. } => {
                self.functions.push((name.clone(), Rc::clone(body)));
                self.node(body, scope);
            }
            Node::Test { words, .. } => words.iter().for_each(|word| self.word(word)),
            Node::Arithmetic { text, .. } => self.names.extend(super::arithmetic::sets(&text.0)),
            Node::Nothing => {}
        }
    }

    fn simple(&mut self, simple: &Simple, scope: &Scope) {
        simple.assignments.iter().for_each(|word| self.assigned(word));
        simple.words.iter().for_each(|word| self.word(word));
        let mut words = simple.words.iter().skip_while(|word| matches!(word.raw.as_str(), "command" | "builtin"));
        let Some(first) = words.next() else { return };
        let name = first.raw.as_str();
        match name {
            "read" | "export" | "declare" | "local" | "typeset" | "readonly" | "mapfile" | "readarray" | "getopts"
            | "unset" | "printf" | "wait" | "coproc" => words.for_each(|word| self.assigned(word)),
            "let" => words.for_each(|word| self.names.extend(super::arithmetic::sets(&word.raw))),
            "cd" | "pushd" | "popd" => self.directory = true,
            "eval" | "source" | "." | "trap" => {
                self.anything = true;
                // `eval "$(…)"` may go anywhere too, but what it says is judged by itself.
                self.directory |= words.any(|word| word.raw.contains("cd "));
            }
            name if scope.aliases.contains_key(name) || name.starts_with(['$', '"', '\'', '\\']) => {
                self.anything = true
            }
            name => {
                let Some(functions) = scope.functions.get(name) else { return };
                if self.calls.iter().any(|called| called == name) {
                    return;
                }
                if self.calls.len() >= MOST_CALLS {
                    self.anything = true;
                    return;
                }
                self.calls.push(name.to_owned());
                functions.bodies.iter().for_each(|function| self.node(&function.body, scope));
            }
        }
        if name == "read" {
            self.names.push("REPLY".to_owned());
        }
    }

    /// A word such as `NAME`, `NAME=value` or `NAME[1]+=value`.
    fn assigned(&mut self, word: &Word) {
        self.word(word);
        let name: String = word.raw.chars().filter(|letter| !matches!(letter, '"' | '\'' | '\\')).collect();
        if name.starts_with('$') {
            self.anything = true;
        }
        self.names.extend(name.split(['=', '+', '[']).next().map(str::to_owned));
    }

    /// `${NAME:=value}` and `$((NAME = 1))` set too.
    fn word(&mut self, word: &Word) {
        for (at, _) in word.raw.match_indices("${") {
            let rest = word.raw.get(at + 2..).unwrap_or_default();
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            if after.starts_with('=') || after.starts_with(":=") {
                self.names.push(name.to_owned());
            }
        }
        if word.raw.contains("$((") {
            self.names.extend(super::arithmetic::sets(&word.raw));
        }
    }
}
