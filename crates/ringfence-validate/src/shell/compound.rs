//! Groups, branches and loops.

use super::tree::{Node, Redirect, Then, Word};
use super::walk::Walker;
use crate::analysis::{Does, Flow, Step};
use crate::shell::scope::Value;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

/// Turns of a loop over words that are walked one by one.
const MOST_TURNS: usize = 8;

impl Walker<'_, '_> {
    pub(super) fn list(&mut self, items: &[(Node, Then)], input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let mut output = Stream::default();
        for (node, _) in items {
            let written = self.node(node, input, steps);
            output.then(written);
        }
        output
    }

    /// Something with a body, and redirections for all of it.
    pub(super) fn compound(&mut self, node: &Node, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let outer = (std::mem::take(&mut self.facts), std::mem::take(&mut self.inner));
        let (redirects, place): (&[Redirect], _) = match node {
            Node::Group { redirects, place, .. }
            | Node::If { redirects, place, .. }
            | Node::While { redirects, place, .. }
            | Node::For { redirects, place, .. }
            | Node::ForArithmetic { redirects, place, .. }
            | Node::Case { redirects, place, .. }
            | Node::Test { redirects, place, .. }
            | Node::Arithmetic { redirects, place, .. } => (redirects, *place),
            Node::Coprocess { .. }
            | Node::Simple(_)
            | Node::Pipeline(..)
            | Node::List(_)
            | Node::Function { .. }
            | Node::Nothing => (&[], super::tree::Place::default()),
        };
        let redirection = self.redirections(redirects, input);
        let input = redirection.input.as_ref().unwrap_or(input).clone();
        let mut inner = Vec::new();
        let output = self.body(node, &input, &mut inner);
        let mut facts = std::mem::take(&mut self.facts);
        let mut substituted = std::mem::take(&mut self.inner);
        substituted.append(&mut inner);
        let output = self.deliver(redirection, output);
        facts.append(&mut self.late);
        if !facts.is_empty() || !substituted.is_empty() {
            steps.push(Step { span: self.place(place), does: Does::Group, facts, inner: substituted });
        }
        (self.facts, self.inner) = outer;
        output
    }

    fn body(&mut self, node: &Node, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        match node {
            Node::Group { subshell: true, body, .. } => {
                let saved = self.reading.scope.clone();
                let output = self.node(body, input, steps);
                self.leave_subshell(saved);
                output
            }
            Node::Group { body, .. } | Node::Coprocess { body } => self.node(body, input, steps),
            Node::If { arms, otherwise, .. } => self.branches(arms, otherwise.as_deref(), input, steps),
            Node::While { condition, body, .. } => {
                self.forget(node);
                let mut output = self.node(condition, input, steps);
                let before = self.reading.scope.clone();
                output.then(self.node(body, input, steps));
                self.reading.scope.join(before);
                output.text = None;
                output
            }
            Node::For { variable, words, body, .. } => self.turns(variable, words.as_deref(), node, body, input, steps),
            Node::ForArithmetic { parts, body, .. } => {
                let place = Word { raw: String::new(), at: 0 };
                parts.iter().for_each(|part| self.within_arithmetic(part, &place));
                self.forget(node);
                let mut output = self.node(body, input, steps);
                output.text = None;
                output
            }
            Node::Case { word, arms, .. } => {
                self.single(word);
                let before = self.reading.scope.clone();
                let mut after = before.clone();
                let mut output = Stream::default();
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.single(pattern);
                    }
                    self.reading.scope.variables.clone_from(&before.variables);
                    if let Some(body) = body {
                        output.add_all(&self.node(body, input, steps).flows);
                    }
                    after.join(self.reading.scope.clone());
                }
                self.reading.scope = after;
                output
            }
            Node::Test { words, .. } => {
                for word in words {
                    self.single(word);
                }
                Stream::default()
            }
            Node::Arithmetic { text, place, .. } => {
                let word = Word { raw: text.clone(), at: place.0.start };
                self.within_arithmetic(text, &word);
                Stream::default()
            }
            Node::Simple(_) | Node::Pipeline(..) | Node::List(_) | Node::Function { .. } | Node::Nothing => {
                self.node(node, input, steps)
            }
        }
    }

    fn branches(
        &mut self,
        arms: &[(Node, Node)],
        otherwise: Option<&Node>,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let mut output = Stream::default();
        let mut after: Option<super::Scope> = None;
        for (condition, body) in arms {
            output.add_all(&self.node(condition, input, steps).flows);
            let before = self.reading.scope.clone();
            output.add_all(&self.node(body, input, steps).flows);
            let taken = std::mem::replace(&mut self.reading.scope, before);
            // What a branch wrote stays for the next one to see: only one of them runs, and either may.
            self.reading.scope.files.clone_from(&taken.files);
            self.reading.scope.called.clone_from(&taken.called);
            match &mut after {
                Some(after) => after.join(taken),
                None => after = Some(taken),
            }
        }
        if let Some(otherwise) = otherwise {
            output.add_all(&self.node(otherwise, input, steps).flows);
        }
        if let Some(after) = after {
            self.reading.scope.join(after);
        }
        output
    }

    fn turns(
        &mut self,
        variable: &str,
        words: Option<&[Word]>,
        node: &Node,
        body: &Node,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let values: Vec<Argument> = match words {
            Some(words) => words.iter().flat_map(|word| self.fields(word)).collect(),
            None => self.reading.scope.arguments.clone(),
        };
        let mut output = Stream::default();
        let plain = values.iter().all(|value| !value.text.has_hole());
        if values.is_empty() && words.is_some() {
            return output;
        }
        if plain && !values.is_empty() && values.len() <= MOST_TURNS {
            for value in values {
                let value = Value { fields: vec![value.text], flows: value.flows };
                self.reading.scope.set(variable.to_owned(), value);
                output.then(self.node(body, input, steps));
            }
            return output;
        }
        self.forget(node);
        // One turn stands for all: the values that are alike keep what is known of them.
        let mut value = match values.as_slice() {
            [only] => Value::one(only.text.clone()),
            _ => Value::one(common(&values, variable)),
        };
        value.flows = values.iter().flat_map(|value| value.flows.clone()).collect();
        value.flows.dedup();
        if value.flows.is_empty() && values.iter().any(|value| value.text.has_hole()) {
            value.flows.push(Flow::Unknown);
        }
        self.reading.scope.set(variable.to_owned(), value);
        output.then(self.node(body, input, steps));
        output.text = None;
        output
    }

    /// Variables that a loop sets are not known at the start of a turn.
    fn forget(&mut self, node: &Node) {
        let mut names = Vec::new();
        assigned(node, &mut names);
        for name in names {
            if self.reading.scope.variables.contains_key(&name) {
                self.reading.scope.set(name.clone(), Value::hole(&name));
            }
        }
    }
}

/// What all values start with.
fn common(values: &[Argument], variable: &str) -> Text {
    let mut starts = values.iter().map(|value| value.text.known_start());
    let first = starts.next().unwrap_or_default();
    let mut length = first.len();
    for other in starts {
        length = first.bytes().zip(other.bytes()).take(length).take_while(|(one, two)| one == two).count();
    }
    while !first.is_char_boundary(length) {
        length -= 1;
    }
    let mut text = Text::known(first.get(..length).unwrap_or_default());
    text.append(Text::hole(Hole::Variable(variable.to_owned())));
    text
}

/// The names that are set somewhere within.
fn assigned(node: &Node, names: &mut Vec<String>) {
    match node {
        Node::Simple(simple) => {
            let reads = simple
                .words
                .first()
                .is_some_and(|word| matches!(word.raw.as_str(), "read" | "export" | "declare" | "local"));
            let words = simple.assignments.iter().chain(simple.words.iter().skip(1).filter(|_| reads));
            names.extend(words.filter_map(|word| {
                let name = word.raw.split(['=', '+', '[']).next()?;
                Some(name.to_owned())
            }));
        }
        Node::Pipeline(nodes, _) => nodes.iter().for_each(|node| assigned(node, names)),
        Node::List(items) => items.iter().for_each(|(node, _)| assigned(node, names)),
        Node::Group { body, .. } | Node::ForArithmetic { body, .. } | Node::Coprocess { body } => assigned(body, names),
        Node::If { arms, otherwise, .. } => {
            for (condition, body) in arms {
                assigned(condition, names);
                assigned(body, names);
            }
            if let Some(body) = otherwise {
                assigned(body, names);
            }
        }
        Node::While { condition, body, .. } => {
            assigned(condition, names);
            assigned(body, names);
        }
        Node::For { variable, body, .. } => {
            names.push(variable.clone());
            assigned(body, names);
        }
        Node::Case { arms, .. } => {
            arms.iter().filter_map(|(_, body)| body.as_ref()).for_each(|node| assigned(node, names))
        }
        Node::Function { .. } | Node::Test { .. } | Node::Arithmetic { .. } | Node::Nothing => {}
    }
}
