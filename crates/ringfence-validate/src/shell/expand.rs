//! Words become arguments: what is constant is folded, what is not becomes a hole that remembers where it comes from.

use super::braces;
use super::parameter;
use super::redirect::Lasting;
use super::tree::Word;
use super::walk::Walker;
use super::word::{Part, Quotes, parts};
use crate::analysis::{Act, Does, Fact, Flow, Origin, Step, Trick, Unknown};
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Piece, Text};

/// Fields that grow piece by piece.
#[derive(Debug, Default)]
pub(super) struct Fields {
    done: Vec<Text>,
    current: Text,
    /// Whether there is a field at all: quotes make one of nothing.
    started: bool,
    /// Bytes of the values that were put in.
    grown: usize,
}

impl Fields {
    fn quoted(&mut self, text: &str) {
        self.started = true;
        self.current.push(Piece::Known(text.to_owned()));
    }

    fn piece(&mut self, piece: Piece) {
        self.started = true;
        self.current.push(piece);
    }

    fn append(&mut self, text: Text) {
        self.started |= !text.pieces().is_empty();
        self.current.append(text);
    }

    fn cut(&mut self) {
        if std::mem::take(&mut self.started) {
            self.done.push(std::mem::take(&mut self.current));
        }
    }

    /// A value without quotes: blanks cut it.
    fn split(&mut self, text: &Text, separators: &str) {
        for piece in text.pieces() {
            match piece {
                Piece::Known(known) => {
                    let mut rest = known.as_str();
                    while let Some(at) = rest.find(|letter| separators.contains(letter)) {
                        if at > 0 {
                            self.unquoted(rest.get(..at).unwrap_or_default());
                        }
                        self.cut();
                        let after = rest.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                        rest = rest.get(at + after..).unwrap_or_default();
                    }
                    self.unquoted(rest);
                }
                Piece::Pattern(_) | Piece::Hole(_) => self.piece(piece.clone()),
            }
        }
    }

    /// Text in which patterns mean something.
    fn unquoted(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.started = true;
        if !text.contains(['*', '?', '[', '(']) {
            self.current.push(Piece::Known(text.to_owned()));
            return;
        }
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let length = match letter {
                '@' | '!' | '+' | '*' | '?' if rest.get(1..).is_some_and(|rest| rest.starts_with('(')) => {
                    rest.find(')').map_or(rest.len(), |at| at + 1)
                }
                '*' | '?' => 1,
                '[' => match rest.get(2..).and_then(|rest| rest.find(']')) {
                    Some(at) => at + 3,
                    None => 0,
                },
                _ => 0,
            };
            let (taken, left) = if length > 0 { rest.split_at(length) } else { rest.split_at(letter.len_utf8()) };
            let taken = taken.to_owned();
            self.current.push(if length > 0 { Piece::Pattern(taken) } else { Piece::Known(taken) });
            rest = left;
        }
    }

    fn finish(mut self) -> Vec<Text> {
        self.cut();
        self.done
    }

    fn finish_as_one(mut self) -> Text {
        if self.done.is_empty() {
            return self.current;
        }
        self.cut();
        let mut whole = Text::default();
        for (index, field) in self.done.into_iter().enumerate() {
            if index > 0 {
                whole.push(Piece::Known(" ".to_owned()));
            }
            whole.append(field);
        }
        whole
    }
}

/// What an expansion in progress carries along.
pub(super) struct Expansion {
    pub(super) fields: Fields,
    pub(super) flows: Vec<Flow>,
    /// A plain word was hidden.
    pub(super) disguised: bool,
    /// What cuts values that stand without quotes; nothing where they are not cut.
    separators: Option<String>,
}

impl Expansion {
    fn new(separators: Option<String>) -> Self {
        Self { fields: Fields::default(), flows: Vec::new(), disguised: false, separators }
    }

    fn flows(&mut self, flows: &[Flow]) {
        for flow in flows {
            if !self.flows.contains(flow) {
                self.flows.push(flow.clone());
            }
        }
    }

    /// Adds a value: cut into fields where it stands without quotes.
    pub(super) fn value(&mut self, text: &Text, quoted: bool) {
        if quoted {
            self.fields.started = true;
        }
        self.fields.grown = self.fields.grown.saturating_add(text.length());
        if self.fields.grown > Text::LONGEST {
            // Longer than what is kept: what follows is not known.
            if !matches!(self.fields.current.pieces().last(), Some(Piece::Hole(_))) {
                self.fields.piece(Piece::Hole(Hole::Other));
            }
            return;
        }
        match &self.separators {
            Some(separators) if !quoted => self.fields.split(text, separators),
            _ => self.fields.append(text.clone()),
        }
    }

    /// Adds the fields of `"$@"` or `"${a[@]}"`.
    pub(super) fn each(&mut self, texts: &[Text], quoted: bool) {
        for (index, text) in texts.iter().enumerate() {
            if index > 0 && self.separators.is_some() {
                self.fields.cut();
            } else if index > 0 {
                self.fields.quoted(" ");
            }
            self.value(text, quoted);
        }
    }
}

impl Walker<'_, '_> {
    /// What cuts words: blanks, or what the text says.
    pub(super) fn separators(&mut self) -> String {
        self.reading.settle("IFS");
        let set = self.reading.scope.variables.get("IFS").and_then(|value| value.first().as_known().map(str::to_owned));
        set.unwrap_or_else(|| " \t\n".to_owned())
    }

    pub(super) fn span(&self, word: &Word) -> Span {
        self.origin.place(Span::new(word.at, word.at + word.raw.len()))
    }

    /// The arguments that a word becomes: none, one or several.
    pub(super) fn fields(&mut self, word: &Word) -> Vec<Argument> {
        let span = self.span(word);
        let Some(taken) = parts(&word.raw, Quotes::Mean) else {
            return vec![self.unreadable(span)];
        };
        let mut arguments = Vec::new();
        let mut hidden = disguised(&taken);
        let Some(words) = braces::expand(&taken) else {
            // Too many words to know; what runs within them is read once.
            let mut expansion = Expansion::new(None);
            self.expand(&taken, word, true, &mut expansion);
            return vec![Argument { text: Text::hole(Hole::Other), span, flows: expansion.flows }];
        };
        for parts in words {
            let mut expansion = Expansion::new(Some(self.separators()));
            self.expand(&parts, word, false, &mut expansion);
            hidden |= expansion.disguised;
            let flows = expansion.flows;
            arguments.extend(expansion.fields.finish().into_iter().map(|text| Argument {
                text,
                span,
                flows: flows.clone(),
            }));
        }
        if hidden {
            self.fact(span, Fact::Tricks { trick: Trick::Obscured });
        }
        // A word takes more than its letters.
        if let Err(unknown) = self.reading.count_text(arguments.iter().map(|word| word.text.length() + 32).sum()) {
            self.fact(span, Fact::Unknown { unknown });
            return vec![Argument::new(Text::hole(Hole::Other), span)];
        }
        arguments
    }

    /// A word that cannot be taken apart: what runs within it is not known.
    fn unreadable(&mut self, span: Span) -> Argument {
        let unknown = Unknown::Unreadable { why: "a word that cannot be taken apart".to_owned() };
        self.fact(span, Fact::Unknown { unknown });
        Argument::new(Text::hole(Hole::Other), span)
    }

    /// The one argument that a word becomes where it is not cut: values, targets, here-strings.
    pub(super) fn single(&mut self, word: &Word) -> Argument {
        self.single_of(&word.raw, word, Quotes::Mean)
    }

    /// Like [`Walker::single`], for a text that stands within `word`.
    pub(super) fn single_of(&mut self, raw: &str, word: &Word, quotes: Quotes) -> Argument {
        let span = self.span(word);
        let Some(parts) = parts(raw, quotes) else { return self.unreadable(span) };
        let mut expansion = Expansion::new(None);
        // Places within are those of the word only where the text is the word.
        let place =
            if raw.len() == word.raw.len() { word.clone() } else { Word { raw: word.raw.clone(), at: word.at } };
        let exact = word.raw.ends_with(raw) && quotes == Quotes::Mean;
        let place =
            if exact { Word { raw: raw.to_owned(), at: place.at + (word.raw.len() - raw.len()) } } else { place };
        self.expand(&parts, &place, quotes == Quotes::Plain, &mut expansion);
        if expansion.disguised || quotes == Quotes::Mean && disguised(&parts) {
            self.fact(span, Fact::Tricks { trick: Trick::Obscured });
        }
        let text = expansion.fields.finish_as_one();
        if let Err(unknown) = self.reading.count_text(text.length()) {
            self.fact(span, Fact::Unknown { unknown });
            return Argument::new(Text::hole(Hole::Other), span);
        }
        Argument { text, span, flows: expansion.flows }
    }

    pub(super) fn expand(&mut self, parts: &[Part], word: &Word, quoted: bool, expansion: &mut Expansion) {
        for (index, part) in parts.iter().enumerate() {
            match part {
                Part::Plain(text) if quoted => expansion.fields.quoted(text),
                Part::Plain(text) => {
                    let rest = if index == 0 { self.tilde(text, &mut expansion.fields) } else { text.as_str() };
                    expansion.fields.unquoted(rest);
                }
                Part::Escaped(letter) => expansion.fields.quoted(letter.encode_utf8(&mut [0; 4])),
                Part::Single(text) | Part::Ansi { text, .. } => expansion.fields.quoted(text),
                Part::Double(inner) => {
                    expansion.fields.started |=
                        !matches!(inner.as_slice(), [Part::Parameter { body, .. }] if body == "@");
                    self.expand(inner, word, true, expansion);
                }
                Part::Parameter { body, at } => {
                    let middle = index > 0 && index + 1 < parts.len();
                    parameter::expand(self, body, word, *at, parameter::Standing { quoted, middle }, expansion);
                }
                Part::Command { text, at } => {
                    let output = self.substitute(text, word, *at);
                    let output = self.reading.pick(output);
                    expansion.flows(&output.flows);
                    expansion.disguised |= output.flows.contains(&Flow::Decoded) && output.known().is_some();
                    match output.known() {
                        Some(known) => expansion.value(&Text::known(known.trim_end_matches('\n')), quoted),
                        None => match &output.text {
                            Some(text) => expansion.value(text, quoted),
                            None => expansion.fields.piece(Piece::Hole(Hole::Output)),
                        },
                    }
                }
                Part::Process { text, at, writes } => {
                    let output = self.substitute(text, word, Some(*at));
                    let used = self.reading.scope.files.len() + self.reading.scope.coprocesses.len();
                    let number = 60 + i32::try_from(used).unwrap_or(0);
                    let path = format!("/dev/fd/{number}");
                    if *writes {
                        let origin = self.place_within(word, Some(*at));
                        self.process(number, text, origin);
                    } else {
                        expansion.flows(&output.flows);
                        self.reading.scope.keep(&path, output);
                    }
                    expansion.fields.quoted(&path);
                }
                Part::Arithmetic { text } => {
                    let folded = super::arithmetic::fold(text);
                    self.within_arithmetic(text, word);
                    match folded {
                        Some(number) => expansion.fields.quoted(&number.to_string()),
                        None => expansion.fields.piece(Piece::Hole(Hole::Value)),
                    }
                }
            }
        }
    }

    /// Substitutions within arithmetic are run like others.
    pub(super) fn within_arithmetic(&mut self, text: &str, word: &Word) {
        // The value of a variable is reckoned too, and an index in it is expanded: there a command would run.
        let names = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for name in names.filter(|name| name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')) {
            let value = self.reading.scope.variables.get(name).map(super::value::Value::first);
            if let Some(known) = value.as_ref().and_then(Text::as_known) {
                self.evaluate(known, word);
            }
        }
        self.evaluate_all(text, word);
    }

    /// A text that the shell reckons or takes as the name of a place: what runs in an index of it.
    pub(super) fn evaluate(&mut self, text: &str, word: &Word) {
        if text.contains('[') && (text.contains("$(") || text.contains('`')) {
            self.evaluate_all(text, word);
        }
    }

    fn evaluate_all(&mut self, text: &str, word: &Word) {
        if text.contains(['$', '`'])
            && let Some(parts) = parts(text, Quotes::Plain)
        {
            let inner = Word { raw: word.raw.clone(), at: word.at };
            let mut ignored = Expansion::new(None);
            let commands: Vec<Part> = parts
                .into_iter()
                .map(|part| match part {
                    Part::Command { text, .. } => Part::Command { text, at: None },
                    other => other,
                })
                .collect();
            self.expand(&commands, &inner, true, &mut ignored);
        }
    }

    /// Puts in what a tilde at the start stands for; what is left of the text.
    fn tilde<'t>(&mut self, text: &'t str, fields: &mut Fields) -> &'t str {
        let Some(after) = text.strip_prefix('~') else { return text };
        let end = after.find('/').unwrap_or(after.len());
        let (user, rest) = after.split_at(end);
        let home = match user {
            "" | "+" => {
                let name = if user.is_empty() { "HOME" } else { "PWD" };
                if user.is_empty() && !self.reading.scope.variables.contains_key(name) {
                    let home = super::lists::home(self);
                    fields.append(home);
                    return rest;
                }
                let value = parameter::lookup(self, name);
                fields.append(value.map_or_else(|| Text::hole(Hole::Variable(name.to_owned())), |value| value.first()));
                return rest;
            }
            "-" => {
                fields.piece(Piece::Hole(Hole::Variable("OLDPWD".to_owned())));
                return rest;
            }
            "root" => "/root".to_owned(),
            user if user.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter)) => {
                format!("/home/{user}")
            }
            _ => return text,
        };
        fields.quoted(&home);
        rest
    }

    /// Runs the text of a substitution: its steps stand within the command, its output becomes part of the word.
    fn substitute(&mut self, text: &str, word: &Word, at: Option<usize>) -> Stream {
        let span = self.span(word);
        let origin = self.place_within(word, at);
        let saved = self.reading.scope.clone();
        self.reading.scope.lasting = Lasting::default();
        let (steps, output) = super::read_stream(self.reading, text, origin, &Stream::default());
        self.leave_subshell(saved);
        if !steps.is_empty() {
            self.inner.push(Step { span, does: Does::Group, facts: Vec::new(), inner: steps });
        }
        output
    }

    /// Where the text of a substitution stands.
    fn place_within(&self, word: &Word, at: Option<usize>) -> Origin {
        match (at, self.origin) {
            (Some(offset), Origin::At(start)) => Origin::At(start + word.at + offset),
            _ => Origin::Made(self.span(word)),
        }
    }

    pub(super) fn fact(&mut self, span: Span, fact: Fact) {
        self.facts.push(Act { span, fact });
    }
}

/// Whether quotes or escapes hide a plain word: `c''at`, `\c\a\t`, `/etc/sha'd'ow`. Ordinary quoting does not.
fn disguised(parts: &[Part]) -> bool {
    let option = matches!(parts.first(), Some(Part::Plain(text)) if text.starts_with('-') || text.contains('='));
    let mut before: Option<char> = None;
    let mut empty = false;
    for part in parts {
        let (first, last) = match part {
            Part::Plain(text) | Part::Single(text) => (text.chars().next(), text.chars().next_back()),
            Part::Ansi { disguised: true, .. } => return true,
            Part::Ansi { text, .. } => (text.chars().next(), text.chars().next_back()),
            Part::Escaped(letter) if letter.is_ascii_alphanumeric() && parts.len() > 2 => return true,
            Part::Escaped(letter) => (Some(*letter), Some(*letter)),
            Part::Double(inner) => match inner.as_slice() {
                [] => (None, None),
                [Part::Plain(text)] => (text.chars().next(), text.chars().next_back()),
                _ => {
                    before = None;
                    empty = false;
                    continue;
                }
            },
            Part::Parameter { .. } | Part::Command { .. } | Part::Process { .. } | Part::Arithmetic { .. } => {
                before = None;
                empty = false;
                continue;
            }
        };
        match first {
            None => empty = true,
            Some(first) => {
                let joins = before.is_some_and(char::is_alphanumeric) && first.is_alphanumeric();
                if joins && (!option || empty) {
                    return true;
                }
                before = last;
                empty = false;
            }
        }
    }
    empty && before.is_some_and(char::is_alphanumeric) && !option
}
