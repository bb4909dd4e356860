//! Groups, branches and loops.

use super::sets::Sets;
use super::tree::{Node, Redirect, Then, Word};
use super::walk::Walker;
use crate::analysis::{Does, Fact, Flow, Step, Unknown};
use crate::shell::value::Value;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

/// Turns of a loop over words that are walked one by one, all loops around it together.
const MOST_TURNS: usize = 64;
/// The same where each of the loops has few words.
const FEW_TURNS: usize = 8;
/// Commands behind a branch that are walked for each of its ends.
const MOST_FORKED: usize = 200;
const MOST_NESTED: usize = 512;

impl Walker<'_, '_> {
    pub(super) fn list(&mut self, items: &[(Node, Then)], input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let mut output = Stream::default();
        let mut walked = 0;
        for chain in items.split_inclusive(|(_, then)| matches!(then, Then::Next | Then::Background)) {
            walked += chain.len();
            let background = matches!(chain.last(), Some((_, Then::Background)));
            let saved = background.then(|| self.reading.scope.clone());
            let (written, other) = self.chain(chain, input, steps);
            output.then(written);
            if let Some(saved) = saved {
                self.run_traps(saved.traps.len(), steps);
                self.leave_subshell(saved);
                continue;
            }
            let Some(other) = other else { continue };
            let rest = items.get(walked..).unwrap_or_default();
            let may = self.forks > 0 && !rest.is_empty() && rest.len() <= MOST_FORKED;
            // A fork counts as a step, so that their number is bounded too.
            if may && self.reading.scope.differs(&other) && self.reading.count_step().is_ok() {
                return self.fork(rest, other, output, input, steps);
            }
            self.reading.scope.join(other);
        }
        output
    }

    /// The rest of a list twice, with what holds in either case: a hole would hide what one of them does.
    fn fork(
        &mut self,
        rest: &[(Node, Then)],
        mut other: super::Scope,
        mut output: Stream,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        self.forks -= 1;
        let first = self.list(rest, input, steps);
        other.take_left(&self.reading.scope);
        let ended = std::mem::replace(&mut self.reading.scope, other);
        let mut inner = Vec::new();
        let second = self.list(rest, input, &mut inner);
        self.reading.scope.join(ended);
        self.forks += 1;
        if !inner.is_empty() {
            let span = inner.first().map(|step| step.span).unwrap_or_default();
            steps.push(Step { span, does: Does::Group, facts: Vec::new(), inner });
        }
        let same = first == second;
        output.then(first);
        output.add_all(&second.flows);
        if !same {
            output.text = None;
        }
        output
    }

    /// Commands between `&&` and `||`: each starts from what holds where the one before succeeded, or failed.
    /// What they write, and what holds at the end where it may be something else.
    fn chain(
        &mut self,
        items: &[(Node, Then)],
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> (Stream, Option<super::Scope>) {
        if let [(node, _)] = items {
            return (self.node(node, input, steps), None);
        }
        let mut output = Stream::default();
        // Nothing where that cannot be.
        let mut success = Some(self.reading.scope.clone());
        let mut failure = None;
        let mut before = Then::And;
        for (index, (node, then)) in items.iter().enumerate() {
            let from = if before == Then::Or { failure.take() } else { success.take() };
            if let Some(mut from) = from {
                // What was written stays for the next one to see.
                from.take_left(&self.reading.scope);
                self.reading.scope = from;
            }
            output.then(self.node(node, input, steps));
            let after = (!leaves(node)).then(|| self.reading.scope.clone());
            let other = if before == Then::Or { success.take() } else { failure.take() };
            let last = index + 1 == items.len();
            let both = match (other, after.clone()) {
                // At the end the two are told apart as they are.
                (Some(other), Some(_)) if last => Some(other),
                (Some(mut other), Some(after)) => {
                    other.join(after);
                    Some(other)
                }
                (other, after) => other.or(after),
            };
            (success, failure) = if before == Then::Or { (both, after) } else { (after, both) };
            before = *then;
        }
        match (success, failure) {
            (Some(success), failure) => {
                self.adopt(success);
                (output, failure)
            }
            (None, Some(only)) => {
                self.adopt(only);
                (output, None)
            }
            (None, None) => (output, None),
        }
    }

    /// Goes on from another scope; what left early or was written here is not lost.
    fn adopt(&mut self, mut scope: super::Scope) {
        scope.take_left(&self.reading.scope);
        self.reading.scope = scope;
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
                self.run_traps(saved.traps.len(), steps);
                self.leave_subshell(saved);
                output
            }
            Node::Coprocess { body } => {
                let saved = self.reading.scope.clone();
                let output = self.node(body, input, steps);
                self.run_traps(saved.traps.len(), steps);
                self.leave_subshell(saved);
                output
            }
            Node::Group { body, .. } => self.node(body, input, steps),
            Node::If { arms, otherwise, .. } => self.branches(arms, otherwise.as_deref(), input, steps),
            Node::While { condition, body, .. } => {
                self.forget(node);
                let mut output = self.node(condition, input, steps);
                let before = self.reading.scope.clone();
                output.then(self.node(body, input, steps));
                self.reading.scope.join(before);
                self.reading.scope.join_left();
                output.text = None;
                output
            }
            Node::For { variable, words, body, .. } => self.turns(variable, words.as_deref(), node, body, input, steps),
            Node::ForArithmetic { parts, body, .. } => {
                let place = Word { raw: String::new(), at: 0 };
                for part in parts {
                    self.note_blind(part, &place);
                    self.within_arithmetic(part, &place);
                }
                self.forget(node);
                parts.iter().for_each(|part| self.set_by_arithmetic(part));
                let before = self.reading.scope.clone();
                let mut output = self.node(body, input, steps);
                self.reading.scope.join(before);
                self.reading.scope.join_left();
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
                    let mut start = before.clone();
                    start.files.clone_from(&self.reading.scope.files);
                    start.called.clone_from(&self.reading.scope.called);
                    start.uncalled.clone_from(&self.reading.scope.uncalled);
                    self.reading.scope = start;
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
                self.note_blind(text, &word);
                self.within_arithmetic(text, &word);
                self.set_by_arithmetic(text);
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
        let turns = self.turning.saturating_mul(values.len());
        if plain && !values.is_empty() && (values.len() <= FEW_TURNS && turns <= MOST_NESTED || turns <= MOST_TURNS) {
            let outer = std::mem::replace(&mut self.turning, turns);
            for value in values {
                let value = Value { fields: vec![value.text], flows: value.flows };
                self.reading.scope.set(variable.to_owned(), value);
                output.then(self.node(body, input, steps));
                self.reading.scope.join_left();
            }
            self.turning = outer;
            return output;
        }
        self.forget(node);
        let before = self.reading.scope.clone();
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
        if !plain || values.is_empty() {
            self.reading.scope.join(before);
        }
        self.reading.scope.join_left();
        output
    }

    /// What a loop sets is not known at the start of a turn: variables, the directory, functions.
    fn forget(&mut self, node: &Node) {
        let mut sets = Sets::default();
        sets.node(node, &self.reading.scope);
        for (name, body) in &sets.functions {
            self.define_perhaps(name, body);
        }
        if sets.anything {
            self.reading.scope.forget_all();
        }
        for name in &sets.names {
            if self.reading.scope.variables.contains_key(name) {
                self.reading.scope.forget(name);
            }
        }
        if sets.directory {
            self.reading.scope.directory = Some(Text::hole(Hole::Other));
        }
    }

    /// Arithmetic is kept without its blanks: what a command in it would run cannot be told.
    fn note_blind(&mut self, text: &str, word: &Word) {
        let runs = text.contains('`')
            || text.match_indices("$(").any(|(at, _)| !text.get(at + 2..).is_some_and(|rest| rest.starts_with('(')));
        if runs {
            let span = self.span(word);
            self.fact(span, Fact::Unknown { unknown: Unknown::Program });
        }
    }

    /// `((x = 1))` and `((x++))`: what they come to is not reckoned.
    pub(super) fn set_by_arithmetic(&mut self, text: &str) {
        for name in super::arithmetic::sets(text) {
            self.reading.scope.forget(&name);
        }
    }
}

/// Whether nothing runs behind it.
fn leaves(node: &Node) -> bool {
    match node {
        Node::Simple(simple) => simple
            .words
            .first()
            .is_some_and(|word| matches!(word.raw.as_str(), "exit" | "return" | "break" | "continue")),
        Node::Group { subshell: false, body, .. } => leaves(body),
        Node::List(items) => match items.last() {
            Some((node, then)) => *then != Then::Background && leaves(node) && sure(items),
            None => false,
        },
        Node::Group { .. }
        | Node::Pipeline(..)
        | Node::If { .. }
        | Node::While { .. }
        | Node::For { .. }
        | Node::ForArithmetic { .. }
        | Node::Case { .. }
        | Node::Function { .. }
        | Node::Test { .. }
        | Node::Arithmetic { .. }
        | Node::Coprocess { .. }
        | Node::Nothing => false,
    }
}

/// Whether the last command runs whatever the others come to.
fn sure(items: &[(Node, Then)]) -> bool {
    items.iter().rev().nth(1).is_none_or(|(_, then)| matches!(then, Then::Next | Then::Background))
}

/// What all values start with.
fn common(values: &[Argument], variable: &str) -> Text {
    if values.iter().any(|value| value.text.to_string().contains("..")) {
        return Text::hole(Hole::Variable(variable.to_owned()));
    }
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
