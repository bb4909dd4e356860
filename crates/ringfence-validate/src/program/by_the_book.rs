//! A command whose line in the [`book`](super::book) says all about it.

use super::Run;
use super::book::{Entry, Out, Role};
use super::options::{Style, words};
use crate::analysis::{Contact, Fact, Flow, Removal};
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Piece, Text};

impl Run<'_, '_> {
    pub(super) fn by_the_book(&mut self, entry: &Entry) {
        let style = if entry.long_words { Style::LongWords } else { Style::Usual };
        let takes = |option: &str| entry.options.iter().find(|(name, _)| *name == option).map(|(_, role)| *role);
        let words = words(&self.rest(), takes, style);
        let mut output = Stream::default();
        for (option, value) in &words.options {
            if let (Some(role), Some(value)) = (takes(option), value) {
                self.play(role, value, entry, &mut output);
            }
        }
        let last = entry.last.filter(|_| words.operands.len() > 1).map(|_| words.operands.len() - 1);
        let mut read_something = false;
        for (index, operand) in words.operands.iter().enumerate() {
            let role = if Some(index) == last {
                entry.last
            } else if entry.goes_on {
                entry.operands.get(index).or(entry.operands.last()).copied()
            } else {
                entry.operands.get(index).copied()
            };
            // `-9`: nobody calls a file so without a folder before it.
            if matches!(role, Some(Role::Read | Role::Write)) && operand.known().is_some_and(super::options::number) {
                continue;
            }
            read_something |= matches!(role, Some(Role::Read));
            if let Some(role) = role {
                self.play(role, operand, entry, &mut output);
            }
        }
        if let Some(act) = entry.does {
            self.manages(act);
        }
        let span = self.span;
        if let Some(privilege) = entry.privilege {
            self.fact(span, Fact::Privilege { privilege });
        }
        if let Some((contact, Some(host))) = entry.net {
            let sends = self.sent();
            self.contacts(Text::known(host), span, contact, sends);
        }
        self.output = match entry.out {
            Out::Nothing => Stream::default(),
            Out::Files if read_something => output,
            Out::Files | Out::Input => {
                let mut through = self.input.clone();
                if entry.out == Out::Files && through.text.take().is_some() {
                    // What stood in the text is something else now.
                    through.add(Flow::Unknown);
                }
                through
            }
            Out::Network => Stream::from(vec![Flow::Network]),
            Out::Environment => Stream::from(vec![Flow::Environment]),
            Out::Decoded => {
                let mut decoded = if read_something { output } else { self.input.clone() };
                decoded.text = None;
                decoded.add(Flow::Decoded);
                decoded
            }
            Out::Unknown => {
                let mut flows = output;
                flows.text = None;
                flows.add(Flow::Unknown);
                flows
            }
        };
    }

    /// What goes out with a contact: what the words hold, and the input.
    pub(super) fn sent(&self) -> Vec<Flow> {
        let mut stream = Stream::from(self.word_flows());
        stream.add_all(&self.input.telling());
        stream.telling()
    }

    fn play(&mut self, role: Role, argument: &Argument, entry: &Entry, output: &mut Stream) {
        match role {
            Role::Nothing => {}
            Role::Read => {
                let read = self.reads(argument);
                output.then(read);
            }
            Role::Write => {
                let mut contents = self.input.clone();
                contents.add_all(&output.flows);
                if entry.net.is_some() {
                    contents = Stream::from(vec![Flow::Network]);
                } else if contents.is_empty() {
                    // A program has an input, though nothing of this text reaches it.
                    contents.add(Flow::Input);
                }
                self.writes(argument, contents);
            }
            Role::Remove => self.removes(argument, Removal::One),
            Role::Tree => self.removes(argument, Removal::Tree),
            Role::Url | Role::Host => {
                let (contact, host) = entry.net.unwrap_or((Contact::Connect, None));
                if host.is_none() && !argument.text.known_start().starts_with('+') {
                    let mut sends = self.sent();
                    if contact == Contact::Probe && sends.is_empty() && is_told_by_its_name(&argument.text) {
                        sends.push(Flow::Unknown);
                    }
                    self.contacts(argument.text.clone(), argument.span, contact, sends);
                }
            }
            Role::Shell => {
                self.shell(argument);
            }
            Role::Command => {
                let words = argument.clone();
                self.start(vec![words]);
            }
            Role::Environment => {
                self.fact(argument.span, Fact::ReadsEnvironment { name: Some(argument.text.clone()) });
            }
        }
    }
}

/// `$(whoami).x.example`: whoever answers for that domain is told what a command wrote.
fn is_told_by_its_name(host: &Text) -> bool {
    host.pieces().windows(2).any(|pair| match pair {
        [Piece::Hole(Hole::Output), Piece::Known(domain)] => {
            domain.strip_prefix('.').is_some_and(|domain| domain.contains('.'))
        }
        _ => false,
    })
}
