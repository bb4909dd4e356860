//! Redirections: files that are read and written, here-documents, and the sockets that bash hides behind `/dev/tcp`.

use super::tree::{Redirect, RedirectKind, Target, Word};
use super::value::Value;
use super::walk::Walker;
use super::word::Quotes;
use crate::analysis::{Contact, Fact, Flow};
use crate::program::hands_out_secrets;
use crate::span::Span;
use crate::stream::{Argument, Stream};

use crate::text::{Hole, Text};

/// What a command's redirections change.
#[derive(Debug, Default)]
pub(super) struct Redirection {
    /// Standard input, where it is changed.
    pub(super) input: Option<Stream>,
    /// What a bare `< file` gives.
    pub(super) read: Option<Stream>,
    /// Where standard output goes.
    output: Option<Output>,
    /// Where errors go, where `>&2` would lead the output too.
    errors: Option<Output>,
    /// Input is the same as the output: `0>&1` behind a socket.
    opened: Vec<(i32, Stream)>,
}

impl Redirection {
    /// Whether it leads the input or the output somewhere else.
    pub(super) fn redirects(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Output {
    /// Where it goes without any redirection.
    Usual,
    File {
        path: String,
        adds: bool,
    },
    Gone,
    Socket(Span, Text),
    /// What these coprocesses read.
    Coprocess(Vec<i32>),
    /// What any coprocess may read, or where it goes without any redirection.
    Perhaps(Vec<i32>),
}

/// Where `exec` led what all later commands read and write. Each of the outputs, where branches lead to several.
#[derive(Debug, Clone, Default)]
pub(super) struct Lasting {
    input: Option<Stream>,
    outputs: Vec<Output>,
}

impl Lasting {
    /// Either of the two.
    pub(super) fn join(&mut self, other: Self) {
        if self.outputs != other.outputs {
            let usual = |outputs: &[Output]| outputs.is_empty();
            let adds_usual = usual(&self.outputs) || usual(&other.outputs);
            for output in other.outputs.into_iter().chain(adds_usual.then_some(Output::Usual)) {
                if !self.outputs.contains(&output) {
                    self.outputs.push(output);
                }
            }
        }
        match (&mut self.input, other.input) {
            (Some(here), Some(there)) => here.or(there),
            (here @ None, there) => *here = there,
            (Some(_), None) => {}
        }
    }

    /// Input, or output, comes from a command beside: of a pipeline, or of a redirection.
    pub(super) fn without_input(&mut self) {
        self.input = None;
    }

    pub(super) fn without_output(&mut self) {
        self.outputs = Vec::new();
    }
}

impl Walker<'_, '_> {
    pub(super) fn redirections(&mut self, redirects: &[Redirect], _input: &Stream) -> Redirection {
        let mut found = Redirection::default();
        for redirect in redirects {
            match &redirect.variable {
                None => self.redirection(redirect, &mut found),
                Some(name) => {
                    let used = self.reading.scope.descriptors.len() + self.reading.scope.outputs.len();
                    let number = 10 + i32::try_from(used).unwrap_or(0);
                    self.redirection(&Redirect { descriptor: Some(number), ..redirect.clone() }, &mut found);
                    self.reading.scope.set(name.clone(), Value::one(Text::known(number.to_string())));
                }
            }
        }
        found
    }

    fn redirection(&mut self, redirect: &Redirect, found: &mut Redirection) {
        match &redirect.target {
            Target::Document { body, expands, at } => {
                let stream = if *expands {
                    let word = Word { raw: body.clone(), at: at.0.start };
                    let argument = self.single_of(body, &word, Quotes::Plain);
                    value_stream(argument)
                } else {
                    Stream::literal(Text::known(body.as_str()))
                };
                self.set_input(redirect.descriptor, stream, found);
            }
            Target::Word(word) => {
                let argument = self.single(word);
                match redirect.kind {
                    RedirectKind::HereString => {
                        let mut stream = value_stream(argument);
                        if let Some(text) = &mut stream.text {
                            text.append(Text::known("\n"));
                        }
                        self.set_input(redirect.descriptor, stream, found);
                    }
                    RedirectKind::HereDocument => {}
                    RedirectKind::Read => {
                        let stream = self.open_for_reading(&argument);
                        self.set_input(redirect.descriptor, stream, found);
                    }
                    RedirectKind::Write | RedirectKind::Append | RedirectKind::Both => {
                        self.open_for_writing(redirect, &argument, found);
                    }
                    RedirectKind::ReadWrite => {
                        if let Some(stream) = self.socket(&argument) {
                            let descriptor = redirect.descriptor.unwrap_or(0);
                            found.opened.push((descriptor, stream.clone()));
                            self.reading.scope.descriptors.insert(descriptor, stream.clone());
                            if descriptor == 0 {
                                found.input = Some(stream);
                            }
                        } else {
                            self.open_for_writing(redirect, &argument, found);
                            let stream = self.open_for_reading(&argument);
                            self.set_input(redirect.descriptor, stream, found);
                        }
                    }
                    RedirectKind::DuplicateInput | RedirectKind::DuplicateOutput => {
                        self.duplicate(redirect, &argument, found);
                    }
                }
            }
        }
    }

    /// What is redirected here, all the way through: its input and its output are no longer where `exec` led them.
    pub(super) fn enter_redirection(&mut self, redirection: &Redirection) -> Lasting {
        let outer = self.reading.scope.lasting.clone();
        if redirection.input.is_some() {
            self.reading.scope.lasting.without_input();
        }
        if redirection.output.is_some() {
            self.reading.scope.lasting.without_output();
        }
        outer
    }

    /// `exec` without a command: the redirections hold for all that follows.
    pub(super) fn stay_redirected(&mut self, redirection: &mut Redirection) {
        if let Some(input) = redirection.input.clone() {
            self.reading.scope.lasting.input = Some(input);
        }
        let Some(mut output) = redirection.output.take() else { return };
        if let Output::File { path, adds } = &mut output {
            if !std::mem::replace(adds, true) {
                self.reading.scope.keep(path, Stream::literal(Text::default()));
            }
            *path = self.reading.scope.key(path);
        }
        self.reading.scope.lasting.outputs = vec![output];
    }

    /// What a command reads that is not told what to read.
    pub(super) fn lasting_input(&self) -> Option<Stream> {
        self.reading.scope.lasting.input.clone()
    }

    /// Leads `target` to coprocesses.
    fn lead_to_coprocesses(&mut self, target: i32, to: Output, found: &mut Redirection) {
        match (target, to) {
            (1, to) => found.output = Some(to),
            (2, to) => found.errors = Some(to),
            (3.., Output::Coprocess(descriptors) | Output::Perhaps(descriptors)) => {
                let scope = &mut self.reading.scope;
                let all = descriptors.iter().filter_map(|one| scope.coprocesses.get(one)).flatten().cloned().collect();
                scope.coprocesses.insert(target, all);
                scope.outputs.remove(&target);
                scope.descriptors.remove(&target);
            }
            _ => {}
        }
    }

    fn duplicate(&mut self, redirect: &Redirect, argument: &Argument, found: &mut Redirection) {
        let known = argument.known().unwrap_or_default();
        let writes = redirect.kind == RedirectKind::DuplicateOutput;
        let Ok(source) = known.trim_end_matches('-').parse::<i32>() else {
            // `>& file` writes both streams into the file.
            if writes && known != "-" {
                self.open_for_writing(redirect, argument, found);
            }
            // A number that is not known may be that of any coprocess.
            let all: Vec<i32> = self.reading.scope.coprocesses.keys().copied().collect();
            if writes && argument.known().is_none() && !all.is_empty() {
                self.lead_to_coprocesses(redirect.descriptor.unwrap_or(1), Output::Perhaps(all), found);
            }
            return;
        };
        let opened =
            found.opened.iter().find(|(descriptor, _)| *descriptor == source).map(|(_, stream)| stream.clone());
        let stream = opened.or_else(|| self.reading.scope.descriptors.get(&source).cloned());
        let target = redirect.descriptor.unwrap_or(i32::from(redirect.kind == RedirectKind::DuplicateOutput));
        if (source, target) == (2, 1) && found.errors.is_some() {
            found.output.clone_from(&found.errors);
            return;
        }
        if (source, target) == (1, 2) && found.output.is_some() {
            found.errors.clone_from(&found.output);
            return;
        }
        if let Some(path) = self.reading.scope.outputs.get(&source).cloned() {
            match target {
                1 => found.output = Some(Output::File { path, adds: true }),
                2 => found.errors = Some(Output::File { path, adds: true }),
                target => {
                    self.reading.scope.coprocesses.remove(&target);
                    self.reading.scope.outputs.insert(target, path);
                }
            }
            if target < 3 {
                return;
            }
        } else if self.reading.scope.coprocesses.contains_key(&source) {
            self.lead_to_coprocesses(target, Output::Coprocess(vec![source]), found);
            return;
        } else if writes && source > 2 && stream.is_none() && !self.reading.scope.coprocesses.is_empty() {
            // Nothing of this text has that number: it may be the one that the shell gave to a coprocess.
            let all = self.reading.scope.coprocesses.keys().copied().collect();
            self.lead_to_coprocesses(target, Output::Perhaps(all), found);
            return;
        } else if writes && stream.is_none() {
            // The output again, whatever had that number before.
            match target {
                1 => found.output = Some(Output::Usual),
                3.. => {
                    self.reading.scope.outputs.remove(&target);
                    self.reading.scope.coprocesses.remove(&target);
                    self.reading.scope.descriptors.remove(&target);
                }
                _ => {}
            }
            return;
        }
        match (target, stream) {
            (0, Some(stream)) => found.input = Some(self.reading.pick(stream)),
            (1, Some(stream)) if stream.flows.contains(&Flow::Network) => {
                found.output = Some(Output::Socket(argument.span, Text::known(format!("descriptor {source}"))));
            }
            (target, Some(stream)) => {
                // Another number for the same thing, for later commands too.
                if target > 2 {
                    self.reading.scope.descriptors.insert(target, stream.clone());
                }
                found.opened.push((target, stream));
            }
            (_, None) => {}
        }
    }

    fn set_input(&mut self, descriptor: Option<i32>, stream: Stream, found: &mut Redirection) {
        match descriptor {
            None | Some(0) => {
                found.read = Some(stream.clone());
                found.input = Some(stream);
            }
            Some(other) => {
                found.opened.push((other, stream.clone()));
                self.reading.scope.descriptors.insert(other, stream);
            }
        }
    }

    fn open_for_reading(&mut self, argument: &Argument) -> Stream {
        if let Some(stream) = self.socket(argument) {
            return stream;
        }
        crate::program::read_file(self.reading, argument, &mut self.facts)
    }

    fn open_for_writing(&mut self, redirect: &Redirect, argument: &Argument, found: &mut Redirection) {
        let to_output = matches!(redirect.descriptor, None | Some(1));
        if let Some(stream) = self.socket(argument) {
            let descriptor = redirect.descriptor.unwrap_or(1);
            self.reading.scope.descriptors.insert(descriptor, stream.clone());
            found.opened.push((descriptor, stream));
            if to_output {
                found.output = Some(Output::Socket(argument.span, argument.text.clone()));
            }
            return;
        }
        if argument.known() != Some("/dev/null") {
            let path = self.reading.scope.resolve(&argument.text);
            self.fact(argument.span, Fact::Writes { path });
        }
        if let Some(descriptor) = argument.known().and_then(|path| self.coprocess_at(path)) {
            let to = Output::Coprocess(vec![descriptor]);
            self.lead_to_coprocesses(redirect.descriptor.unwrap_or(1), to, found);
            return;
        }
        if redirect.descriptor == Some(2)
            && let Some(path) = argument.known()
        {
            let adds = redirect.kind == RedirectKind::Append;
            found.errors = Some(Output::File { path: path.to_owned(), adds });
        }
        if let (Some(descriptor @ 3..), Some(path)) = (redirect.descriptor, argument.known()) {
            if redirect.kind == RedirectKind::Write {
                self.reading.scope.keep(path, Stream::literal(Text::default()));
            }
            let path = self.reading.scope.key(path);
            self.reading.scope.coprocesses.remove(&descriptor);
            self.reading.scope.outputs.insert(descriptor, path);
        }
        if to_output {
            let adds = redirect.kind == RedirectKind::Append;
            found.output = Some(match argument.known() {
                Some("/dev/null") => Output::Gone,
                Some("/dev/stdout" | "/dev/stderr" | "/dev/tty") => Output::Usual,
                Some(path) => Output::File { path: path.to_owned(), adds },
                None => Output::Gone,
            });
        }
    }

    /// `/dev/tcp/HOST/PORT` is a connection.
    fn socket(&mut self, argument: &Argument) -> Option<Stream> {
        let start = argument.text.known_start();
        let rest = start.strip_prefix("/dev/tcp/").or_else(|| start.strip_prefix("/dev/udp/"))?;
        let place = match argument.known() {
            Some(_) => Text::known(rest.replacen('/', ":", 1)),
            None => argument.text.clone(),
        };
        let sends = crate::stream::telling(&argument.flows);
        self.fact(argument.span, Fact::Contacts { place, contact: Contact::Connect, sends });
        Some(Stream::from(vec![Flow::Network]))
    }

    /// Sends what was written to where it goes; what is left for the next command.
    pub(super) fn deliver(&mut self, redirection: Redirection, output: Stream) -> Stream {
        if let Some(to) = redirection.output {
            return self.deliver_to(to, output);
        }
        let mut left: Option<Stream> = None;
        for to in self.reading.scope.lasting.outputs.clone() {
            let passed = self.deliver_to(to, output.clone());
            match &mut left {
                Some(left) => left.or(passed),
                None => left = Some(passed),
            }
        }
        left.unwrap_or(output)
    }

    /// What was written before is gone through once more.
    pub(super) fn count(&mut self, whole: &Stream) {
        let length = whole.text.iter().chain(&whole.texts).map(Text::length).sum();
        if let Err(unknown) = self.reading.count_text(length) {
            self.late.push(crate::Act { span: Span::default(), fact: Fact::Unknown { unknown } });
        }
    }

    fn deliver_to(&mut self, to: Output, output: Stream) -> Stream {
        match to {
            Output::Usual => output,
            Output::Gone => Stream::default(),
            Output::File { path, adds } => {
                let mut contents = output;
                if adds && let Some(mut whole) = self.reading.scope.file(&path).cloned() {
                    self.count(&whole);
                    whole.then(contents);
                    contents = whole;
                }
                if contents.known().is_some_and(|text| hands_out_secrets(&path, text)) {
                    let (place, sends) = (Text::hole(Hole::Value), vec![Flow::Environment]);
                    let fact = Fact::Contacts { place, contact: Contact::Send, sends };
                    self.late.push(crate::Act { span: Span::default(), fact });
                }
                self.reading.scope.keep(&path, contents);
                Stream::default()
            }
            Output::Socket(span, place) => {
                let sends = output.telling();
                if !sends.is_empty() {
                    self.late.push(crate::Act { span, fact: Fact::Contacts { place, contact: Contact::Send, sends } });
                }
                Stream::default()
            }
            Output::Perhaps(descriptors) => {
                for descriptor in descriptors.into_iter().filter(|_| !output.is_empty()) {
                    self.send_beside(descriptor, &output);
                }
                output
            }
            Output::Coprocess(descriptors) => {
                let mut left = Stream::default();
                for descriptor in descriptors.into_iter().filter(|_| !output.is_empty()) {
                    left.then(self.send_beside(descriptor, &output));
                }
                left
            }
        }
    }
}

/// A value as a stream.
fn value_stream(argument: Argument) -> Stream {
    let mut stream = Stream::literal(argument.text);
    stream.add_all(&argument.flows);
    stream
}
