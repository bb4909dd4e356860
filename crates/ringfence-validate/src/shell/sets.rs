//! What a part of the text may set, told without walking it: a loop does that before its next turn.

use std::rc::Rc;

use super::Scope;
use super::tree::{Node, Simple, Turns, Word};

/// Functions within functions that are looked into.
const MOST_CALLS: usize = 8;

/// What may be set.
#[derive(Debug, Default)]
pub(super) struct Sets {
    pub(super) names: Vec<String>,
    /// Any variable.
    pub(super) anything: bool,
    pub(super) directory: bool,
    pub(super) functions: Vec<(String, Rc<Node>)>,
    calls: Vec<String>,
    /// Variables whose value is called, and those that a loop gives nothing but paths.
    called: Vec<String>,
    paths: Vec<String>,
    /// The arrays that those come from.
    arrays: Vec<String>,
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
            Node::Group { body, .. } => self.node(body, scope),
            Node::Coprocess { name, body } => {
                self.names.push(name.clone());
                self.node(body, scope);
            }
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
                if words.as_ref().is_some_and(|words| words.iter().all(|word| only_paths(&word.raw, scope))) {
                    self.paths.push(variable.clone());
                    self.arrays.extend(words.iter().flatten().filter_map(|word| array(&word.raw)).map(str::to_owned));
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

    /// A word that is a path starts a program, and no command of the shell: it sets nothing.
    pub(super) fn settle(&mut self, scope: &Scope) {
        let count = |list: &[String], name: &str| list.iter().filter(|other| *other == name).count();
        // A function may have a name like a path.
        self.anything |= !self.called.is_empty() && scope.functions.keys().any(|name| name.contains('/'));
        self.anything |= !self.called.is_empty() && self.arrays.iter().any(|name| self.names.contains(name));
        self.anything |= self.called.iter().any(|name| {
            let set = count(&self.names, name);
            if set > 0 { set != count(&self.paths, name) } else { !scope.holds_a_path(name) }
        });
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
                match plain_variable(name) {
                    Some(variable) => self.called.push(variable.to_owned()),
                    None => self.anything = true,
                }
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

/// The name in `$name`, `"$name"` or `"${name}"`.
fn plain_variable(raw: &str) -> Option<&str> {
    let bare = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(raw);
    let name = bare.strip_prefix("${").and_then(|bare| bare.strip_suffix('}')).or_else(|| bare.strip_prefix('$'))?;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && !name.is_empty()).then_some(name)
}

/// The name in `"${name[@]}"`.
fn array(raw: &str) -> Option<&str> {
    raw.strip_prefix("\"${").and_then(|raw| raw.strip_suffix("[@]}\""))
}

/// Whether a word of a loop is a path, or the elements of an array of them.
fn only_paths(raw: &str, scope: &Scope) -> bool {
    match array(raw) {
        Some(name) => scope.holds_a_path(name),
        None => raw.contains('/') && !raw.contains(['$', '`', '{', '\\', '"', '\'', ' ', '\t', '\n']),
    }
}
