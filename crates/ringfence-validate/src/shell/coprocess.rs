//! A coprocess: a command beside the shell. Its variable has a descriptor to read what it writes, and one to write what it reads.

use std::rc::Rc;

use super::scope::Function;
use super::tree::Node;
use super::value::Value;
use super::walk::Walker;
use crate::analysis::Step;
use crate::stream::Stream;
use crate::text::Text;

/// The first of the descriptors: beyond those that scripts write out.
const FIRST: i32 = 200;

impl Walker<'_, '_> {
    pub(super) fn coprocess(&mut self, name: &str, body: &Rc<Node>, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let function = Function { body: Rc::clone(body), origin: self.origin };
        let output = self.beside(&function, input, steps);
        let scope = &mut self.reading.scope;
        let from = FIRST + 2 * i32::try_from(scope.coprocesses.len()).unwrap_or(0);
        let to = from + 1;
        scope.descriptors.insert(from, output);
        scope.coprocesses.insert(to, (from, Rc::new(function)));
        let fields = [from, to].map(|descriptor| Text::known(descriptor.to_string())).to_vec();
        scope.set(name.to_owned(), Value { fields, flows: Vec::new() });
        Stream::default()
    }

    /// Something is sent to a coprocess: that is what it reads, and what it then writes can be read from it.
    pub(super) fn send_beside(&mut self, descriptor: i32, sent: &Stream) {
        // It is gone while it is walked: one that writes to itself would be walked without end.
        let Some((from, function)) = self.reading.scope.coprocesses.remove(&descriptor) else { return };
        let others = std::mem::take(&mut self.reading.scope.coprocesses);
        self.reading.scope.coprocesses = others
            .iter()
            .filter(|(_, (_, other))| !Rc::ptr_eq(other, &function))
            .map(|(to, other)| (*to, other.clone()))
            .collect();
        let mut steps = Vec::new();
        let output = self.beside(&function, sent, &mut steps);
        self.beside.append(&mut steps);
        let scope = &mut self.reading.scope;
        scope.coprocesses = others;
        scope.coprocesses.insert(descriptor, (from, function));
        match scope.descriptors.get_mut(&from) {
            Some(before) => before.or(output),
            None => {
                scope.descriptors.insert(from, output);
            }
        }
    }

    fn beside(&mut self, function: &Function, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let saved = self.reading.scope.clone();
        let origin = std::mem::replace(&mut self.origin, function.origin);
        let output = self.node(&function.body, input, steps);
        self.run_traps(saved.traps.len(), steps);
        self.origin = origin;
        self.leave_subshell(saved);
        output
    }
}
