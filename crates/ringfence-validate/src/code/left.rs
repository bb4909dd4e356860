//! What a program leaves in files: those that it starts, and the lines behind it, may run them.

use std::rc::Rc;

use super::call::{Given, Place};
use super::role::Slot;
use super::value::{Field, Held, Value};
use super::walk::Walk;
use crate::analysis::{Contact, Fact, Flow};
use crate::path::{PathClass, classify};
use crate::program::{hands_out_secrets, is_of_the_sources};
use crate::span::Span;
use crate::stream::Stream;
use crate::text::{Hole, Text};

/// Texts of one file that are handed on one by one, beside all together; texts of it that are kept, and bytes of one. What is more is not read, and
/// as good as decoded.
const MOST_TEXTS: usize = 8;
pub(super) const MOST_KEPT: usize = 256;
const MOST_BYTES: usize = 64 * 1024;
/// Levels of an object that is written as JSON.
const MOST_LEVELS: usize = 4;

/// Scripts of a package that nobody has to ask for.
const SCRIPTS: &[&str] = &[
    "preinstall",
    "install",
    "postinstall",
    "prepare",
    "prepublish",
    "prepublishOnly",
    "prepack",
    "postpack",
    "pretest",
];
/// Streams that lead to another machine.
const GOES_OUT: &[&str] = &[
    "http.request()",
    "https.request()",
    "http2.connect().request()",
    "net.connect()",
    "net.createConnection()",
    "net.Socket()",
    "tls.connect()",
    "got.stream()",
    "got.stream.put()",
    "got.stream.post()",
    "request()",
    "request.put()",
    "request.post()",
    "needle.put()",
    "ws()",
];

impl Walk<'_, '_> {
    /// Where each file of a folder with sources goes out, the project does.
    pub(super) fn with_sources(&self, mut sends: Vec<Flow>) -> Vec<Flow> {
        let is_each =
            |flow: &Flow| matches!(flow, Flow::File { path } if path.ends_with('*') && is_of_the_sources(path));
        if sends.iter().any(is_each) {
            let whole = self.reading.scope.resolve(&Text::known("."));
            sends.push(Flow::File { path: whole.to_string() });
        }
        sends
    }

    /// The text that is written to a file, where it stands in the program.
    pub(super) fn written_text(&self, path: Option<&Slot>, given: &Given) -> Option<Held> {
        let contents = match path? {
            Slot::Receiver => given.args.first()?,
            Slot::At(0, _) => given.args.get(1)?,
            _ => return None,
        };
        let text = match contents.as_known() {
            Some(known) if known.len() <= MOST_BYTES => known.to_owned(),
            Some(_) => return Some(unread()),
            None => match shell_text(contents) {
                Some(text) => text,
                None => json(contents, MOST_LEVELS)?,
            },
        };
        Some(Rc::new(Value::known(text)))
    }

    /// A manifest is written: lines that a package manager starts by itself, where the program put them in.
    pub(super) fn leaves_scripts(&mut self, path: &Text, span: Span) {
        if !path.known_end().ends_with("package.json") {
            return;
        }
        for script in SCRIPTS {
            let Some(line) = self.scopes.attribute(script).filter(|line| !line.texts.is_empty()).cloned() else {
                continue;
            };
            self.shell(Some((line, Place { span, literal: None })), &Given { span, ..Given::default() });
        }
    }

    /// Scripts that an object of a manifest names are found when a manifest is written.
    pub(super) fn notes_scripts(&mut self, fields: &[Field]) {
        for (key, line) in fields.iter().filter(|(key, line)| SCRIPTS.contains(&&**key) && !line.texts.is_empty()) {
            self.scopes.set_attribute(key, line);
        }
    }

    /// A file that a service obeys is told to hand out what the service keeps.
    pub(super) fn leaves_orders(&mut self, path: Option<&(Held, Place)>, text: Option<&Held>, given: &Given) {
        let (Some((path, _)), Some(text)) = (path, text.and_then(|text| text.as_known())) else { return };
        if path.texts.iter().any(|path| hands_out_secrets(&path.to_string(), text)) {
            let place = Text::hole(Hole::Value);
            let sends = vec![Flow::Environment];
            self.tell(given.span, Fact::Contacts { place, contact: Contact::Send, sends });
        }
    }

    /// A stream is led into a file.
    pub(super) fn piped(&mut self, from: Option<&Held>, to: Option<&Held>, given: &Given) {
        let (Some(from), Some(to)) = (from, to) else { return };
        if to.has(super::libraries::ANSWER) {
            self.answers(from, given);
        }
        if goes_out(to) {
            let sends =
                self.with_sources(from.flows.iter().filter(|flow| super::walk::matters(flow)).cloned().collect());
            let place = to.texts.first().cloned().unwrap_or_else(|| Text::hole(Hole::Value));
            self.tell(given.span, Fact::Contacts { place, contact: Contact::Send, sends });
        }
        let place = Place { span: given.span, literal: None };
        let brought = Given { args: vec![Rc::clone(from)], span: given.span, ..Given::default() };
        self.remember(Some(&(Rc::clone(to), place)), &brought, &Value::default(), None);
    }

    /// Hands on what stands in the files that this program wrote.
    pub(super) fn leave_files(&mut self) {
        let mut paths: Vec<&String> = self.files.keys().collect();
        paths.sort_unstable();
        for path in paths {
            let place = self.reading.scope.resolve(&Text::known(path.as_str()));
            let classes = classify(&place, self.reading.surroundings);
            let own = |class: &PathClass| matches!(class, PathClass::Workspace | PathClass::Temporary);
            // Nothing that may not be read becomes the program's own by being written.
            if path.contains(['$', '*', '?']) || !classes.iter().any(own) || classes.contains(&PathClass::Secret) {
                continue;
            }
            let Some(held) = self.files.get(path) else { continue };
            let mut stream = Stream::default();
            let texts: Vec<&str> =
                held.items.iter().flat_map(|items| items.iter()).filter_map(|text| text.as_known()).collect();
            let mut known: Vec<String> = texts.iter().take(MOST_TEXTS).map(|text| (*text).to_owned()).collect();
            if texts.len() > 1 {
                known.push(texts.concat());
            }
            for text in known {
                let literal = Stream::literal(Text::known(text));
                if stream.is_empty() { stream = literal } else { stream.or(literal) }
            }
            let comes = |flow: &&Flow| matches!(flow, Flow::Network | Flow::Decoded);
            stream.add_all(held.flows.iter().filter(comes));
            if let Some(before) = self.reading.scope.file(path) {
                stream.or(before.clone());
            }
            if !stream.is_empty() {
                self.reading.scope.keep(path, stream);
            }
        }
    }
}

/// Whether something is a stream that leads to another machine.
pub(super) fn goes_out(stream: &Value) -> bool {
    stream.names.iter().any(|name| GOES_OUT.contains(&&**name))
}

/// What is too much to be read.
pub(super) fn unread() -> Held {
    let mut unread = Value::default();
    unread.flows.add(&Flow::Decoded);
    Rc::new(unread)
}

/// A script for a shell with variables where something of it is not known.
fn shell_text(contents: &Value) -> Option<String> {
    let text = contents.texts.first().filter(|text| text.has_hole() && contents.texts.len() == 1)?;
    let start = text.known_start().lines().next()?;
    let is_shell = start.starts_with("#!") && start.ends_with("sh");
    let script = super::fold::as_shell_line(text);
    (is_shell && script.len() <= MOST_BYTES).then_some(script)
}

/// An object as `JSON.stringify` writes it, where all of it is known; numbers and the like do not matter.
fn json(value: &Value, levels: usize) -> Option<String> {
    let quoted = |text: &str| serde_json::to_string(text).ok();
    if let Some(known) = value.as_known() {
        return quoted(known);
    }
    let fields = value.fields.as_ref().filter(|_| levels > 0 && value.functions.is_empty())?;
    let all: Vec<String> = fields
        .iter()
        .map(|(key, field)| {
            let field = json(field, levels - 1).unwrap_or_else(|| "null".to_owned());
            Some(format!("{}:{field}", quoted(key)?))
        })
        .collect::<Option<_>>()?;
    Some(format!("{{{}}}", all.join(",")))
}

/// Whether a line, or a list of words, writes out the variables.
pub(super) fn shows_environment(line: &Value) -> bool {
    let shows = |command: &str| {
        let mut words = command.split_whitespace();
        let name = words.next().and_then(|name| name.rsplit('/').next());
        match name {
            Some("printenv") => true,
            Some("env") => words.all(|word| word.starts_with('-') || word.contains('=')),
            Some("export" | "declare" | "set") => words.all(|word| word.starts_with('-')),
            _ => false,
        }
    };
    match &line.items {
        Some(items) => {
            let words: Vec<&str> = items.iter().filter_map(|item| item.as_known()).collect();
            shows(&words.join(" "))
        }
        None => line.texts.iter().any(|text| text.known_start().split(['|', ';', '&', '\n']).any(shows)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fact, Flow, Language, Limits, Subject, Surroundings, analyse};

    /// Whether what a program wrote before it starts `last.sh` is known to be no plain text.
    fn is_told(writes: &str) -> bool {
        let source = format!("import os\n{writes}\nos.system('sh last.sh')\n");
        let subject = Subject::Code { language: Language::Python, source: &source };
        let analysis = analyse(subject, &Surroundings::default(), &Limits::default());
        let told = |fact: &Fact| matches!(fact, Fact::Executes { from } if from.contains(&Flow::Decoded));
        analysis.all_steps().iter().any(|step| step.facts.iter().any(|act| told(&act.fact)))
    }

    #[test]
    fn what_is_too_much_to_be_kept_of_a_file_that_is_run_is_told() {
        assert!(!is_told("open('last.sh', 'w').write('ls')"));
        assert!(is_told(&format!("open('last.sh', 'w').write('{}')", "# x ".repeat(20_000))));
        let many: String = (0..300).map(|number| format!("open('last.sh', 'a').write('echo {number}')\n")).collect();
        assert!(is_told(&many));
    }
}
