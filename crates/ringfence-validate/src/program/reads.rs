//! `read` and `mapfile`: variables and arrays take what the input holds.

use super::{Handler, Run, Style};
use crate::analysis::Origin;
use crate::shell::Value;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "read" => read,
        "mapfile" | "readarray" => mapfile,
        _ => return None,
    })
}

/// Elements of an array that are told apart, at most.
const MOST_ELEMENTS: usize = 256;

/// Variables take what the input holds.
fn read(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p", "-d", "-n", "-N", "-t", "-u", "-i", "-a"], Style::Usual);
    let descriptor = words.value(&["-u"]).cloned();
    let input = input(run, descriptor.as_ref());
    let array = words.value(&["-a"]).cloned().and_then(|name| run.target(&name));
    let operands = words.operands.clone();
    let names: Vec<String> = operands.iter().filter_map(|word| run.target(word)).collect();
    let names = if names.is_empty() { vec!["REPLY".to_owned()] } else { names };
    // One line of known input into one variable is known too, where nothing is cut off or taken out of it.
    let options: Vec<Argument> = run.rest();
    let plain = options
        .iter()
        .filter_map(Argument::known)
        .filter(|word| word.starts_with('-'))
        .all(|word| matches!(word, "-r" | "-s" | "-p" | "-u" | "-rs" | "-sr" | "-rp" | "-a" | "-ra"));
    // Up to another sign than the end of the line: a name is still one.
    let ends = |word: &str| word == "-rd" || word.starts_with("-d");
    let by_sign = options
        .iter()
        .filter_map(Argument::known)
        .filter(|word| word.starts_with('-'))
        .all(|word| ends(word) || matches!(word, "-r" | "-s"));
    let raw = options.iter().filter_map(Argument::known).any(|word| word.starts_with('-') && word.contains('r'));
    let line = input
        .known()
        .map(|known| known.trim_end_matches('\n'))
        .filter(|known| plain && !known.contains('\n') && (raw || !known.contains('\\')))
        .map(str::to_owned);
    if let Some(array) = array {
        let fields = line.and_then(|line| cut(run, &line));
        set_array(run, array, fields, &input);
        return;
    }
    let single = line.filter(|line| names.len() == 1 && line.trim() == *line).filter(|_| {
        // Where nothing cuts, the line is taken as it is.
        let cuts = run.reading.scope.variables.get("IFS");
        cuts.is_none_or(|value| value.first().as_known() == Some(""))
    });
    // A line of which a part is known, such as a path below a folder.
    let part = input
        .text
        .as_ref()
        .filter(|text| (plain || by_sign) && names.len() == 1 && text.as_known().is_none() && one_line(text));
    for name in &names {
        let value = match (&single, part) {
            (Some(known), _) => Value { fields: vec![Text::known(known)], flows: input.flows.clone() },
            (None, Some(part)) => Value { fields: vec![without_newline(part)], flows: input.flows.clone() },
            (None, None) => Value { flows: input.flows.clone(), ..Value::hole(name) },
        };
        run.expands(name);
        run.reading.set_named(name, value);
    }
}

/// What is read: the input, or what a descriptor gives.
fn input(run: &mut Run<'_, '_>, descriptor: Option<&Argument>) -> Stream {
    match descriptor.and_then(Argument::known).and_then(|number| number.parse::<i32>().ok()) {
        Some(number) => {
            let stream = run.reading.scope.descriptors.get(&number).cloned().unwrap_or_default();
            run.reading.pick(stream)
        }
        None => run.input.clone(),
    }
}

/// The words of a line; nothing where it is not known what cuts them.
fn cut(run: &mut Run<'_, '_>, line: &str) -> Option<Vec<Text>> {
    run.reading.settle("IFS");
    let cuts = match run.reading.scope.variables.get("IFS") {
        None => " \t\n".to_owned(),
        Some(value) => value.first().as_known()?.to_owned(),
    };
    let blank = cuts.chars().all(char::is_whitespace);
    let parts = line.split(|letter| cuts.contains(letter));
    Some(parts.filter(|part| !blank || !part.is_empty()).map(Text::known).collect())
}

fn set_array(run: &mut Run<'_, '_>, name: String, fields: Option<Vec<Text>>, input: &Stream) {
    let flows = input.flows.clone();
    let value = match fields {
        Some(fields) if fields.len() <= MOST_ELEMENTS => Value { fields, flows },
        _ => Value { flows, ..Value::hole(&name) },
    };
    run.reading.set_named(&name, value);
}

/// The line without its end.
fn without_newline(text: &Text) -> Text {
    let mut whole = Text::default();
    for piece in text.pieces() {
        whole.push(match piece {
            crate::Piece::Known(known) => crate::Piece::Known(known.trim_end_matches('\n').to_owned()),
            other => other.clone(),
        });
    }
    whole
}

fn one_line(text: &Text) -> bool {
    text.pieces().iter().all(|piece| match piece {
        crate::Piece::Known(known) | crate::Piece::Pattern(known) => {
            !known.trim_end_matches('\n').contains(['\n', '\\'])
        }
        crate::Piece::Hole(_) => true,
    })
}

fn mapfile(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-d", "-n", "-O", "-s", "-u", "-C", "-c"], Style::Usual);
    if let Some(code) = words.value(&["-C"]).cloned() {
        run.shell(&code);
    }
    let first = words.operands.first().cloned();
    let name = first.and_then(|word| run.target(&word)).unwrap_or_else(|| "MAPFILE".to_owned());
    let input = input(run, words.value(&["-u"]));
    // The lines as they are: all of them, each without its end.
    let plain = words.options.iter().all(|(option, _)| matches!(option.as_str(), "-t" | "-u"));
    let whole = plain && words.has(&["-t"]);
    let fields = input.known().filter(|_| whole).map(|known| known.lines().map(Text::known).collect());
    set_array(run, name, fields, &input);
}

impl Run<'_, '_> {
    /// What a command sets that is named by this word; without quotes, `a[0]` looks like a pattern. Where it is not known, anything is.
    pub(super) fn target(&mut self, word: &Argument) -> Option<String> {
        if word.text.has_hole() {
            self.reading.scope.forget_all();
            return None;
        }
        Some(word.text.to_string())
    }

    /// A text that is reckoned: a variable in it is reckoned too, and commands in an index of its value run.
    pub(super) fn reckons(&mut self, text: &str) {
        self.expands(text);
        for name in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            let value = self.reading.scope.variables.get(name).map(Value::first);
            if let Some(known) = value.as_ref().and_then(Text::as_known) {
                self.expands(known);
            }
        }
    }

    /// A word that names a place of an array: commands in its index run, though quotes kept the shell from seeing them before.
    pub(super) fn expands(&mut self, name: &str) {
        if name.contains('[') && (name.contains("$(") || name.contains('`')) {
            let shown = format!(": <<_SHOWN_\n{name}\n_SHOWN_\n");
            let (steps, _) = self.reading.shell_stream(&shown, Origin::Made(self.span), &Stream::default());
            self.inner.extend(steps);
        }
    }
}
