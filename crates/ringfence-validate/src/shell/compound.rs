//! Groups, branches and loops.

use super::endless::exhausts;
use super::leaves::{LEAVE, leaves};
use super::sets::Sets;
use super::several::Held;
use super::tree::{Arm, Node, Redirect, Then, Turns, Word};
use super::walk::Walker;
use crate::analysis::{Does, Fact, Flow, Step, SystemAct};
use crate::shell::value::Value;
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

/// Turns of a loop over words that are walked one by one, all loops around it together.
const MOST_TURNS: usize = 64;
/// The same where each of the loops has few words.
const FEW_TURNS: usize = 8;
const MOST_NESTED: usize = 512;
/// Loops within each other that are walked a second time.
const MOST_ROUNDS: usize = 2;
/// Values of a loop that one turn stands for.
const MOST_AT_ONCE: usize = 16;

impl Walker<'_, '_> {
    pub(super) fn list(&mut self, items: &[(Node, Then)], input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let mut output = Stream::default();
        for chain in items.split_inclusive(|(_, then)| matches!(then, Then::Next | Then::Background)) {
            if self.reading.is_spent() {
                // The answer is known: what was written would only grow.
                return Stream::from(vec![Flow::Unknown]);
            }
            let background = matches!(chain.last(), Some((_, Then::Background)));
            let saved = background.then(|| self.reading.scope.clone());
            let (written, other) = self.chain(chain, input, steps);
            output.follow(written);
            if let Some(saved) = saved {
                self.run_traps(saved.traps.len(), steps);
                self.leave_subshell(saved);
                continue;
            }
            if let Some(other) = other {
                self.reading.scope.join(other);
            }
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
            output.follow(self.node(node, input, steps));
            let after = (!self.leaves(node)).then(|| self.reading.scope.clone());
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
        let words: &[Word] = match node {
            Node::For { words: Some(words), .. } | Node::Test { words, .. } => words,
            Node::Case { word, .. } => std::slice::from_ref(word),
            _ => &[],
        };
        let output = self.each_compound(redirects, words, steps, |walker, steps| {
            walker.compound_once(node, redirects, place, input, steps)
        });
        (self.facts, self.inner) = outer;
        output
    }

    fn compound_once(
        &mut self,
        node: &Node,
        redirects: &[Redirect],
        place: super::tree::Place,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let redirection = self.redirections(redirects, input);
        let outer = self.enter_redirection(&redirection);
        let input = redirection.input.clone().or_else(|| self.lasting_input()).unwrap_or_else(|| input.clone());
        let mut inner = Vec::new();
        let output = self.body(node, &input, &mut inner);
        if redirection.redirects() {
            self.reading.scope.lasting = outer;
        }
        let mut facts = std::mem::take(&mut self.facts);
        let mut substituted = std::mem::take(&mut self.inner);
        substituted.append(&mut inner);
        let output = self.deliver(redirection, output);
        facts.append(&mut self.late);
        substituted.append(&mut self.beside);
        if !facts.is_empty() || !substituted.is_empty() {
            steps.push(Step { span: self.place(place), does: Does::Group, facts, inner: substituted });
        }
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
            Node::Coprocess { name, body } => self.coprocess(name, body, input, steps),
            Node::Group { body, .. } => self.node(body, input, steps),
            Node::If { arms, otherwise, .. } => self.branches(arms, otherwise.as_deref(), input, steps),
            Node::While { condition, body, redirects, .. } => self.rounds(node, steps, |walker, steps| {
                if exhausts(Some(condition), body, redirects) {
                    walker.tell_endless();
                }
                let mut output = walker.node(condition, input, steps);
                let before = walker.reading.scope.clone();
                output.follow(walker.node(body, input, steps));
                walker.reading.scope.join(before);
                output
            }),
            Node::For { variable, words, body, .. } => self.turns(variable, words.as_deref(), node, body, input, steps),
            Node::ForArithmetic { parts, body, redirects, .. } => {
                if parts.get(1).is_some_and(|part| part.0.trim().is_empty()) && exhausts(None, body, redirects) {
                    self.tell_endless();
                }
                let place = Word { raw: String::new(), at: 0 };
                for part in parts {
                    self.within_arithmetic(&part.0, &place);
                }
                self.rounds(node, steps, |walker, steps| {
                    parts.iter().for_each(|part| walker.set_by_arithmetic(&part.0));
                    let before = walker.reading.scope.clone();
                    let output = walker.node(body, input, steps);
                    walker.reading.scope.join(before);
                    output
                })
            }
            Node::Case { word, arms, .. } => self.cases(word, arms, input, steps),
            Node::Test { words, .. } => {
                for word in words {
                    // An operand of `-v` names a place, one of `-eq` is reckoned.
                    if let Some(known) = self.single(word).known() {
                        self.evaluate(known, word);
                    }
                }
                Stream::default()
            }
            Node::Arithmetic { text, place, .. } => {
                let word = Word { raw: text.0.clone(), at: place.0.start };
                self.within_arithmetic(&text.0, &word);
                self.set_by_arithmetic(&text.0);
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
        let mut ends = Ends::default();
        let mut conditions = Stream::default();
        for (condition, body) in arms {
            conditions.follow(self.node(condition, input, steps));
            let before = self.reading.scope.clone();
            let written = self.node(body, input, steps);
            let taken = std::mem::replace(&mut self.reading.scope, before);
            self.reading.scope.take_notes(&taken);
            ends.add(conditions.clone(), written, (!self.leaves(body)).then_some(taken));
        }
        let written = otherwise.map(|body| self.node(body, input, steps)).unwrap_or_default();
        let left = otherwise.is_some_and(|body| self.leaves(body));
        let last = (!left).then(|| self.reading.scope.clone());
        ends.add(conditions, written, last);
        self.end(ends)
    }

    /// What holds behind branches, and what they wrote.
    fn end(&mut self, ends: Ends) -> Stream {
        if let Some(mut scope) = ends.scope {
            scope.take_notes(&self.reading.scope);
            self.reading.scope = scope;
        }
        ends.output.unwrap_or_default()
    }

    fn cases(
        &mut self,
        word: &Word,
        arms: &[(Vec<Word>, Option<Node>, Arm)],
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        self.single(word);
        let mut ends = Ends::default();
        let mut start = self.reading.scope.clone();
        let mut always = false;
        for (patterns, body, arm) in arms {
            for pattern in patterns {
                self.single(pattern);
            }
            always |= patterns.iter().any(|pattern| pattern.raw == "*");
            start.take_notes(&self.reading.scope);
            self.reading.scope = start.clone();
            let written = body.as_ref().map(|body| self.node(body, input, steps)).unwrap_or_default();
            let left = body.as_ref().is_some_and(|body| self.leaves(body));
            let ended = self.reading.scope.clone();
            if *arm == Arm::GoesOn && !left {
                start.join(ended.clone());
            }
            ends.add(Stream::default(), written, (!left).then_some(ended));
        }
        if !always {
            start.take_notes(&self.reading.scope);
            ends.add(Stream::default(), Stream::default(), Some(start));
        }
        self.end(ends)
    }

    /// A loop: a turn with nothing known of what it sets, and one more with what may hold after a turn.
    fn rounds(
        &mut self,
        node: &Node,
        steps: &mut Vec<Step>,
        turn: impl Fn(&mut Self, &mut Vec<Step>) -> Stream,
    ) -> Stream {
        let start = self.reading.scope.clone();
        let sets = self.forget(node);
        let first = steps.len();
        let mut output = turn(self, steps);
        self.reading.scope.join_left();
        if sets && self.rounds < MOST_ROUNDS {
            self.rounds += 1;
            let ended = self.reading.scope.clone();
            let mut head = start;
            head.take_notes(&ended);
            head.join(ended.clone());
            self.reading.scope = head;
            let mut more = Vec::new();
            output.or(turn(self, &mut more));
            self.reading.scope.join_left();
            self.reading.scope.join(ended);
            let known = steps.get(first..).unwrap_or_default();
            let more: Vec<Step> = more.into_iter().filter(|step| !known.contains(step)).collect();
            steps.extend(more);
            self.rounds -= 1;
        }
        // No turn, this one, or any number of them.
        let mut all = Stream::from(output.flows.clone());
        all.or(output);
        all.or(Stream::default());
        all
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
        let mut values: Vec<Argument> = match words {
            Some(words) => words.iter().flat_map(|word| self.fields(word)).collect(),
            None => self.reading.scope.arguments.clone(),
        };
        crate::program::note_processes(&mut values);
        self.reading.scope.renames(variable);
        let mut output = Stream::default();
        let plain = values.iter().all(|value| !value.text.has_hole());
        if values.is_empty() && words.is_some() {
            return output;
        }
        let turns = self.turning.saturating_mul(values.len());
        let chosen = matches!(node, Node::For { turns: Turns::Chosen, .. });
        if chosen {
            let typed = Value { flows: input.flows.clone(), ..Value::hole("REPLY") };
            self.reading.scope.set("REPLY".to_owned(), typed);
        }
        let few = values.len() <= FEW_TURNS && turns <= MOST_NESTED || turns <= MOST_TURNS;
        if plain && !chosen && !values.is_empty() && few {
            let outer = std::mem::replace(&mut self.turning, turns);
            for value in values {
                let value = Value { fields: vec![value.text], flows: value.flows };
                self.reading.scope.set(variable.to_owned(), value);
                output.follow(self.node(body, input, steps));
                self.reading.scope.join_left();
            }
            self.turning = outer;
            return output;
        }
        let mut flows: Vec<Flow> = values.iter().flat_map(|value| value.flows.clone()).collect();
        flows.dedup();
        if flows.is_empty() && values.iter().any(|value| value.text.has_hole()) {
            flows.push(Flow::Unknown);
        }
        let each = |text: Text| Some(Value { fields: vec![text], flows: flows.clone() });
        // One turn stands for all: any of the values, or what they have in common where they are too many.
        let held = match values.as_slice() {
            [only] => Held::one_of(variable, vec![each(only.text.clone())]),
            few if few.len() <= MOST_AT_ONCE && !few.is_empty() => {
                let mut texts: Vec<Option<Value>> = Vec::new();
                for value in few {
                    let value = each(value.text.clone());
                    if !texts.contains(&value) {
                        texts.push(value);
                    }
                }
                Held::one_of(variable, texts)
            }
            many => Held::one_of(variable, vec![each(common(many, variable))]),
        };
        let may_not = !plain || chosen || values.is_empty();
        self.rounds(node, steps, |walker, steps| {
            let before = walker.reading.scope.clone();
            walker.reading.scope.restore(variable.to_owned(), held.clone());
            let output = walker.node(body, input, steps);
            if may_not {
                walker.reading.scope.join(before);
            }
            output
        })
    }

    /// What a loop sets is not known at the start of a turn: variables, the directory, functions.
    /// Whether there is anything.
    fn forget(&mut self, node: &Node) -> bool {
        let mut sets = Sets::default();
        sets.node(node, &self.reading.scope);
        sets.settle(&self.reading.scope);
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
            self.reading.scope.forget_directory();
        }
        sets.anything || sets.directory || !sets.names.is_empty() || !sets.functions.is_empty()
    }

    fn tell_endless(&mut self) {
        let fact = Fact::System { act: SystemAct::Exhaustion, about: Text::known("a loop without end") };
        self.fact(Span::default(), fact);
    }

    /// Whether nothing runs behind it: not where these words mean something else.
    fn leaves(&self, node: &Node) -> bool {
        let scope = &self.reading.scope;
        let plain = |name: &str| !scope.functions.contains_key(name) && !scope.aliases.contains_key(name);
        leaves(node) && LEAVE.iter().all(|name| plain(name))
    }

    /// `((x = 1))` and `((x++))`: what they come to is not reckoned.
    pub(super) fn set_by_arithmetic(&mut self, text: &str) {
        for name in super::arithmetic::sets(text) {
            self.reading.scope.forget(&name);
        }
    }
}

/// What holds behind branches, one added after the other.
#[derive(Debug, Default)]
struct Ends {
    /// Nothing where all of them leave.
    scope: Option<super::Scope>,
    output: Option<Stream>,
}

impl Ends {
    /// What a branch wrote behind `before`, and what holds where it does not leave.
    fn add(&mut self, mut before: Stream, written: Stream, scope: Option<super::Scope>) {
        before.follow(written);
        match &mut self.output {
            Some(output) => output.or(before),
            None => self.output = Some(before),
        }
        match (&mut self.scope, scope) {
            (Some(joined), Some(scope)) => joined.join(scope),
            (None, Some(scope)) => self.scope = Some(scope),
            (_, None) => {}
        }
    }
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
