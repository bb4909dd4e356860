//! A coprocess: a command beside the shell. Its variable has a descriptor to read what it writes, and one to write what it reads.
//! What a command writes into `>(…)` goes the same way.

use std::rc::Rc;

use super::redirect::Lasting;
use super::scope::{Function, number_of};
use super::tree::Node;
use super::value::Value;
use super::walk::Walker;
use crate::analysis::{Origin, Step};
use crate::stream::Stream;
use crate::text::Text;

/// The first of the descriptors: beyond those that scripts write out, and those of `<(…)`.
const FIRST: i32 = 1000;

/// A command that runs beside the shell.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// The descriptor that it is read from.
    from: i32,
    function: Rc<Function>,
    /// What it writes goes where the command writes that it stands in.
    passes: bool,
}

impl Beside {
    /// Whether both are the same command.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.from == other.from && Rc::ptr_eq(&self.function.body, &other.function.body)
    }

    /// Where it is kept what was sent to it: no path that a text could write.
    fn kept(&self) -> String {
        format!("/dev/fd/!{}", self.from)
    }
}

impl Walker<'_, '_> {
    pub(super) fn coprocess(&mut self, name: &str, body: &Rc<Node>, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let function = Function { body: Rc::clone(body), origin: self.origin };
        let output = self.beside(&function, input, steps);
        let scope = &mut self.reading.scope;
        let from = FIRST + 2 * i32::try_from(scope.coprocesses.len()).unwrap_or(0);
        let to = from + 1;
        scope.descriptors.insert(from, output);
        scope.coprocesses.insert(to, vec![Beside { from, function: Rc::new(function), passes: false }]);
        let fields = [from, to].map(|descriptor| Text::known(descriptor.to_string())).to_vec();
        scope.set(name.to_owned(), Value { fields, flows: Vec::new() });
        Stream::default()
    }

    /// `>(…)` under this number: what is written there, the command reads.
    pub(super) fn process(&mut self, number: i32, text: &str, origin: Origin) {
        if let Ok(node) = super::parse(self.reading, text) {
            let function = Rc::new(Function { body: Rc::new(node), origin });
            self.reading.scope.coprocesses.insert(number, vec![Beside { from: -number, function, passes: true }]);
        }
    }

    /// Something is sent to a coprocess: that is what it reads, behind what it was sent before, and what it then writes can be read from
    /// it. What is left for the next command.
    pub(super) fn send_beside(&mut self, descriptor: i32, sent: &Stream) -> Stream {
        let processes = self.reading.scope.coprocesses.get(&descriptor).cloned().unwrap_or_default();
        let mut output: Option<Stream> = None;
        for process in processes {
            let kept = process.kept();
            let mut whole = self.reading.scope.files.get(&kept).cloned().unwrap_or_default();
            whole.then(sent.clone());
            self.count(&whole);
            self.reading.scope.keep(&kept, whole.clone());
            // Where it is not known what came before, this is still known.
            if whole.text.is_none() && whole.texts.is_empty() && whole != *sent {
                self.send_to(&process, sent);
            }
            let written = self.send_to(&process, &whole);
            match &mut output {
                Some(output) => output.or(written),
                None => output = Some(written),
            }
        }
        output.unwrap_or_default()
    }

    fn send_to(&mut self, process: &Beside, sent: &Stream) -> Stream {
        // It is gone while it is walked: one that writes to itself would be walked without end.
        let others = std::mem::take(&mut self.reading.scope.coprocesses);
        let mut seen = others.clone();
        seen.values_mut().for_each(|all| all.retain(|other| !other.is(process)));
        self.reading.scope.coprocesses = seen;
        let mut steps = Vec::new();
        let output = self.beside(&process.function, sent, &mut steps);
        self.beside.append(&mut steps);
        let scope = &mut self.reading.scope;
        scope.coprocesses = others;
        if process.passes {
            return output;
        }
        let from = scope.descriptors.entry(process.from).or_default();
        from.or(output);
        scope.several.streams |= !from.texts.is_empty();
        Stream::default()
    }

    /// What a program wrote into `/dev/fd/N` where a coprocess reads it.
    pub(super) fn send_written(&mut self) {
        let descriptors: Vec<i32> = self.reading.scope.coprocesses.keys().copied().collect();
        for descriptor in descriptors {
            let path = format!("/dev/fd/{descriptor}");
            if self.reading.scope.files.contains_key(&path)
                && let Some(sent) = Rc::make_mut(&mut self.reading.scope.files).remove(&path)
            {
                self.send_beside(descriptor, &sent);
            }
        }
    }

    /// The coprocesses that a path such as `/dev/fd/5` leads to, by their descriptor.
    pub(super) fn coprocess_at(&self, path: &str) -> Option<i32> {
        let number = number_of(&self.reading.scope.key(path))?;
        self.reading.scope.coprocesses.contains_key(&number).then_some(number)
    }

    fn beside(&mut self, function: &Function, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let saved = self.reading.scope.clone();
        self.reading.scope.lasting = Lasting::default();
        let origin = std::mem::replace(&mut self.origin, function.origin);
        let output = self.node(&function.body, input, steps);
        self.run_traps(saved.traps.len(), steps);
        self.origin = origin;
        self.leave_subshell(saved);
        output
    }
}
