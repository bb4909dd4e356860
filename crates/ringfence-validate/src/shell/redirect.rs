//! Redirections: files that are read and written, here-documents, and the sockets that bash hides behind `/dev/tcp`.

use super::tree::{Redirect, RedirectKind, Target, Word};
use super::value::Value;
use super::walk::Walker;
use super::word::Quotes;
use crate::analysis::{Contact, Fact, Flow};
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// What a command's redirections change.
#[derive(Debug, Default)]
pub(super) struct Redirection {
    /// Standard input, where it is changed.
    pub(super) input: Option<Stream>,
    /// What a bare `< file` gives.
    pub(super) read: Option<Stream>,
    /// Where standard output goes.
    output: Option<Output>,
    /// Input is the same as the output: `0>&1` behind a socket.
    opened: Vec<(i32, Stream)>,
}

#[derive(Debug)]
enum Output {
    File {
        path: String,
        adds: bool,
    },
    Gone,
    Socket(Span, Text),
    /// What a coprocess reads.
    Coprocess(i32),
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

    fn duplicate(&mut self, redirect: &Redirect, argument: &Argument, found: &mut Redirection) {
        let known = argument.known().unwrap_or_default();
        let Ok(source) = known.trim_end_matches('-').parse::<i32>() else {
            // `>& file` writes both streams into the file.
            if redirect.kind == RedirectKind::DuplicateOutput && known != "-" {
                self.open_for_writing(redirect, argument, found);
            }
            return;
        };
        let opened =
            found.opened.iter().find(|(descriptor, _)| *descriptor == source).map(|(_, stream)| stream.clone());
        let stream = opened.or_else(|| self.reading.scope.descriptors.get(&source).cloned());
        let target = redirect.descriptor.unwrap_or(i32::from(redirect.kind == RedirectKind::DuplicateOutput));
        if target == 1
            && let Some(path) = self.reading.scope.outputs.get(&source)
        {
            found.output = Some(Output::File { path: path.clone(), adds: true });
            return;
        }
        if target > 2
            && let Some(path) = self.reading.scope.outputs.get(&source).cloned()
        {
            self.reading.scope.outputs.insert(target, path);
        }
        if let Some(process) = self.reading.scope.coprocesses.get(&source).cloned() {
            match target {
                1 => found.output = Some(Output::Coprocess(source)),
                3.. => {
                    self.reading.scope.coprocesses.insert(target, process);
                }
                _ => {}
            }
            return;
        }
        match (target, stream) {
            (0, Some(stream)) => found.input = Some(stream),
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
        if let (Some(descriptor @ 3..), Some(path)) = (redirect.descriptor, argument.known()) {
            if redirect.kind == RedirectKind::Write {
                self.reading.scope.keep(path, Stream::literal(Text::default()));
            }
            let path = self.reading.scope.key(path);
            self.reading.scope.outputs.insert(descriptor, path);
        }
        if to_output {
            let adds = redirect.kind == RedirectKind::Append;
            found.output = Some(match argument.known() {
                Some("/dev/null") => Output::Gone,
                Some("/dev/stdout" | "/dev/stderr" | "/dev/tty") => return,
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
        match redirection.output {
            None => output,
            Some(Output::Gone) => Stream::default(),
            Some(Output::File { path, adds }) => {
                let mut contents = output;
                if adds && let Some(mut whole) = self.reading.scope.file(&path).cloned() {
                    whole.then(contents);
                    contents = whole;
                }
                self.reading.scope.keep(&path, contents);
                Stream::default()
            }
            Some(Output::Socket(span, place)) => {
                let sends = output.telling();
                if !sends.is_empty() {
                    self.late.push(crate::Act { span, fact: Fact::Contacts { place, contact: Contact::Send, sends } });
                }
                Stream::default()
            }
            Some(Output::Coprocess(descriptor)) => {
                self.send_beside(descriptor, &output);
                Stream::default()
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
