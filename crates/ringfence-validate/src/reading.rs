//! The way in: one text is read, and the texts within it, under one set of bounds.

use crate::analysis::{Act, Analysis, Fact, Flow, Origin, Step, Unknown};
use crate::language::Language;
use crate::limits::Limits;
use crate::path::Surroundings;
use crate::program::Invocation;
use crate::shell::{Scope, Ways};
use crate::span::Span;
use crate::stream::Stream;
use crate::text::Text;

/// What is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A program and its arguments; places are those in the words joined by single spaces.
    Argv(&'a [String]),
    /// A line or script for a shell.
    Shell(&'a str),
    /// Code.
    Code {
        /// In this language.
        language: Language,
        /// The text.
        source: &'a str,
    },
}

/// Reads `subject`.
pub fn analyse(subject: Subject<'_>, surroundings: &Surroundings, limits: &Limits) -> Analysis {
    let mut reading = Reading::new(surroundings, limits);
    let steps = match subject {
        Subject::Argv(words) => {
            let mut start = 0;
            let argv = words
                .iter()
                .map(|word| {
                    let span = Span::new(start, start + word.len());
                    start = span.end + 1;
                    (Text::known(word.as_str()), span)
                })
                .collect();
            vec![reading.command(argv, Span::new(0, start.saturating_sub(1)), &[Flow::Input])]
        }
        Subject::Shell(line) => reading.shell(line, Origin::At(0)),
        Subject::Code { language: Language::Shell, source } => reading.shell(source, Origin::At(0)),
        Subject::Code { language, source } => vec![reading.code(language, source, Origin::At(0))],
    };
    Analysis { steps }
}

/// What all readers of one analysis share: the bounds, and how much of them is used.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) limits: &'a Limits,
    /// What the shell that is walked knows.
    pub(crate) scope: Scope,
    /// Which of several values the commands that are walked take.
    pub(crate) ways: Ways,
    depth: usize,
    steps: usize,
    facts: usize,
    shell_bytes: usize,
    circles: usize,
    visits: usize,
    ways_walked: usize,
    texts: usize,
    functions: usize,
    /// A bound is passed, and it was told: nothing more is read.
    spent: bool,
}

/// Bytes that words may become by expansion, all together.
const MOST_TEXT: usize = 8 * 1024 * 1024;

/// Functions that are defined, at most: each may have to be walked with all the others known.
const MOST_FUNCTIONS: usize = 1024;

impl<'a> Reading<'a> {
    fn new(surroundings: &'a Surroundings, limits: &'a Limits) -> Self {
        Self {
            surroundings,
            limits,
            scope: Scope::new(&surroundings.directory, &surroundings.home),
            ways: Ways::default(),
            depth: 0,
            steps: 0,
            facts: 0,
            shell_bytes: 0,
            circles: 0,
            visits: 0,
            ways_walked: 0,
            texts: 0,
            functions: 0,
            spent: false,
        }
    }

    /// The steps of a shell text.
    pub(crate) fn shell(&mut self, text: &str, origin: Origin) -> Vec<Step> {
        self.deeper(origin, |reading| crate::shell::read(reading, text, origin)).unwrap_or_else(|step| vec![step])
    }

    /// The steps of a shell text with this input, and what it writes.
    pub(crate) fn shell_stream(&mut self, text: &str, origin: Origin, input: &Stream) -> (Vec<Step>, Stream) {
        self.deeper(origin, |reading| crate::shell::read_stream(reading, text, origin, input))
            .unwrap_or_else(|step| (vec![step], Stream::from(vec![Flow::Unknown])))
    }

    /// The step of a command that another one starts, and what it writes.
    pub(crate) fn run(&mut self, invocation: Invocation<'_>) -> (Step, Stream) {
        let origin = Origin::Made(invocation.span);
        if let Err(unknown) = self.count_step() {
            let step = unknown_code(Language::Shell, invocation.span, unknown);
            return (step, Stream::from(vec![Flow::Unknown]));
        }
        self.deeper(origin, |reading| crate::program::run(reading, invocation))
            .unwrap_or_else(|step| (step, Stream::from(vec![Flow::Unknown])))
    }

    /// The step of one command: what the program does with these words, and what it starts. `input` says where its standard input comes from.
    pub(crate) fn command(&mut self, argv: Vec<(Text, Span)>, span: Span, input: &[Flow]) -> Step {
        self.deeper(Origin::Made(span), |reading| crate::program::read(reading, argv, span, input))
            .unwrap_or_else(|step| step)
    }

    /// The step of code in a language other than the shell.
    pub(crate) fn code(&mut self, language: Language, text: &str, origin: Origin) -> Step {
        self.deeper(origin, |reading| match language {
            Language::Python => crate::python::read(reading, text, origin),
            Language::JavaScript | Language::TypeScript => crate::javascript::read(reading, language, text, origin),
            Language::Shell => Step {
                span: origin.place(Span::new(0, text.len())),
                does: crate::Does::Code { language },
                facts: Vec::new(),
                inner: reading.shell(text, origin),
            },
            Language::Other => unknown_code(language, origin.place(Span::new(0, text.len())), Unknown::Language),
        })
        .unwrap_or_else(|step| step)
    }

    /// Counts a step; over the bound, what is unknown instead.
    pub(crate) fn count_step(&mut self) -> Result<(), Unknown> {
        self.steps += 1;
        let over = self.steps > self.limits.steps;
        self.within(over, "steps")
    }

    /// Counts a way through a command beyond its first; over the bound, what is unknown instead.
    pub(crate) fn count_way(&mut self) -> Result<(), Unknown> {
        self.ways_walked += 1;
        let over = self.ways_walked > self.limits.steps / 2;
        self.within(over, "steps")
    }

    /// Steps and facts so far.
    pub(crate) fn counted(&self) -> (usize, usize) {
        (self.steps, self.facts)
    }

    /// What was counted since `before` was there already: one command once more. More than that is work, whatever it shows.
    pub(crate) fn count_from(&mut self, before: (usize, usize)) {
        if self.steps <= before.0 + 1 {
            (self.steps, self.facts) = before;
        }
    }

    /// Counts a part of a shell text that is walked, each time that it is; over the bound, what is unknown instead.
    pub(crate) fn count_visit(&mut self) -> Result<(), Unknown> {
        self.visits += 1;
        let over = self.visits > self.limits.steps.saturating_mul(8);
        self.within(over, "steps")
    }

    /// Counts a function that is defined, each time that it is; over the bound, what is unknown instead.
    pub(crate) fn count_function(&mut self) -> Result<(), Unknown> {
        self.functions += 1;
        let over = self.functions > MOST_FUNCTIONS;
        self.within(over, "functions")
    }

    /// Counts what words become; over the bound, what is unknown instead.
    pub(crate) fn count_text(&mut self, bytes: usize) -> Result<(), Unknown> {
        self.texts = self.texts.saturating_add(bytes);
        let over = self.texts > MOST_TEXT;
        self.within(over, "text")
    }

    fn within(&mut self, over: bool, bound: &'static str) -> Result<(), Unknown> {
        self.spent |= over;
        if over { Err(Unknown::TooMuch { bound }) } else { Ok(()) }
    }

    /// Whether a bound is passed: the answer is known then, and walking on would only take time.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    /// Counts facts; over the bound, what is unknown instead.
    pub(crate) fn count_facts(&mut self, facts: usize) -> Result<(), Unknown> {
        self.facts += facts;
        let over = self.facts > self.limits.facts;
        self.within(over, "facts")
    }

    /// Counts bytes of shell texts, those within others too: each level is parsed anew.
    pub(crate) fn count_shell(&mut self, bytes: usize) -> Result<(), Unknown> {
        self.shell_bytes = self.shell_bytes.saturating_add(bytes);
        let most = self.limits.shell_bytes;
        if bytes > most || self.shell_bytes > most.saturating_mul(2) {
            Err(Unknown::TooMuch { bound: "shell_bytes" })
        } else {
            Ok(())
        }
    }

    /// Whether a pipeline may be walked a second time: only few are.
    pub(crate) fn count_circle(&mut self) -> bool {
        self.circles += 1;
        self.circles <= 4
    }

    fn deeper<T>(&mut self, origin: Origin, read: impl FnOnce(&mut Self) -> T) -> Result<T, Step> {
        if self.depth >= self.limits.depth {
            let span = origin.place(Span::default());
            return Err(unknown_code(Language::Other, span, Unknown::TooMuch { bound: "depth" }));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        Ok(read)
    }
}

/// Code of which only is known that it is there.
pub(crate) fn unknown_code(language: Language, span: Span, unknown: Unknown) -> Step {
    Step {
        span,
        does: crate::Does::Code { language },
        facts: vec![Act { span, fact: Fact::Unknown { unknown } }],
        inner: Vec::new(),
    }
}
