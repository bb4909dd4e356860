//! A command that uses what may be one of several is walked once for each.

use super::directory::{Depends, Start};
use super::tree::{Redirect, Simple, Target};
use super::walk::Walker;
use crate::analysis::Step;
use crate::reading::{Reading, unknown_code};
use crate::stream::Stream;

/// Ways in which one command is walked, at most. Where there are more, each value is still taken once, and then none is known.
const MOST_WAYS: usize = 128;

/// The choices of the commands that are walked, the innermost last.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    commands: Vec<Choices>,
}

#[derive(Debug, Default)]
struct Choices {
    /// What to take, in the order in which it is asked; the first of the values behind that.
    script: Vec<usize>,
    /// How many there were to choose from.
    asked: Vec<usize>,
    /// Nothing is chosen: what may be one of several is not known.
    blind: bool,
    /// The directory that was chosen, out of several. It is the first choice of all.
    start: Option<Start>,
    depends: Depends,
}

impl Choices {
    fn taken(&self, index: usize) -> usize {
        self.script.get(index).copied().unwrap_or(0)
    }

    /// How many there are to choose from, in each place: one directory stands for all where it does not matter.
    fn counts(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
        let alike = self.depends == Depends::No;
        self.asked.iter().enumerate().map(move |(index, count)| if alike && index == 0 { 1 } else { *count })
    }

    /// The choices that follow these, like the digits of a number; nothing behind the last.
    fn next(&self) -> Option<Vec<usize>> {
        let turned = self.counts().enumerate().rposition(|(index, count)| self.taken(index) + 1 < count)?;
        let mut script: Vec<usize> = (0..turned).map(|index| self.taken(index)).collect();
        script.push(self.taken(turned) + 1);
        Some(script)
    }

    /// Where there are too many: all alike, and each value once.
    fn some(&self) -> Vec<Vec<usize>> {
        let most = self.asked.iter().copied().max().unwrap_or(0);
        let alike = (1..most).map(|index| self.asked.iter().map(|count| index.min(count - 1)).collect());
        let single = self.asked.iter().enumerate().flat_map(|(place, count)| {
            (1..*count).map(move |value| {
                let mut script = vec![0; place];
                script.push(value);
                script
            })
        });
        alike.chain(single).take(MOST_WAYS).collect()
    }
}

impl Ways {
    /// Which of `count` to take; nothing where none is known.
    fn choose(&mut self, count: usize) -> Option<usize> {
        let choices = self.commands.last_mut()?;
        if choices.blind || count == 0 {
            return None;
        }
        let taken = choices.taken(choices.asked.len()).min(count - 1);
        choices.asked.push(count);
        Some(taken)
    }
}

impl Reading<'_> {
    /// The variable has one value from here on, where it may have several.
    pub(crate) fn settle(&mut self, name: &str) {
        if let Some(count) = self.scope.values_of(name)
            && let Some(index) = self.ways.choose(count)
        {
            self.scope.take_value(name, index);
        }
    }

    /// A stream that says one text, where it may say several.
    pub(crate) fn pick(&mut self, mut stream: Stream) -> Stream {
        if !stream.texts.is_empty() {
            let mut texts = std::mem::take(&mut stream.texts);
            if let Some(index) = self.ways.choose(texts.len()) {
                stream.says(texts.swap_remove(index));
            }
        }
        stream
    }

    /// What a file holds that the text wrote.
    pub(crate) fn file(&mut self, path: &str) -> Option<Stream> {
        let stream = self.scope.file(path).cloned()?;
        Some(self.pick(stream))
    }

    /// The directory and the arguments are one from here on.
    fn settle_places(&mut self) {
        if self.scope.directories() > 0 {
            let index = self.ways.choose(self.scope.directories());
            let start = self.scope.take_directory(index);
            if let Some(choices) = self.ways.commands.last_mut() {
                choices.start = Some(start);
            }
        }
        if self.scope.lists_of_arguments() > 0 {
            let index = self.ways.choose(self.scope.lists_of_arguments());
            self.scope.take_arguments(index);
        }
    }

    fn settle_alias(&mut self, name: &str) {
        if let Some(count) = self.scope.lines_of(name)
            && let Some(index) = self.ways.choose(count)
        {
            self.scope.take_line(name, index);
        }
    }
}

impl Walker<'_, '_> {
    /// A command, in each way that it may run.
    pub(super) fn each_simple(&mut self, simple: &Simple, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let runs = |raw: &str| raw.contains(['(', '`']);
        let asks = !self.reading.scope.several.is_empty()
            || !input.texts.is_empty()
            || simple.words.iter().chain(&simple.assignments).any(|word| runs(&word.raw))
            || redirects_run(&simple.redirects);
        if !asks {
            return self.simple(simple, input, steps);
        }
        self.each_way(steps, |walker, steps| {
            walker.reading.settle_places();
            if let Some(first) = simple.words.first() {
                walker.reading.settle_alias(&first.raw);
            }
            let input = walker.reading.pick(input.clone());
            walker.simple(simple, &input, steps)
        })
    }

    /// Something with a body, in each way that its own words and redirections ask for; the body asks by itself.
    pub(super) fn each_compound(
        &mut self,
        redirects: &[Redirect],
        words: &[super::tree::Word],
        steps: &mut Vec<Step>,
        walk: impl Fn(&mut Self, &mut Vec<Step>) -> Stream,
    ) -> Stream {
        let several = !self.reading.scope.several.is_empty();
        let asks = (several
            && (!redirects.is_empty() || !words.is_empty() || self.reading.scope.lists_of_arguments() > 0))
            || words.iter().any(|word| word.raw.contains(['(', '`']))
            || redirects_run(redirects);
        if !asks {
            return walk(self, steps);
        }
        self.each_way(steps, |walker, steps| {
            if !redirects.is_empty() || walker.reading.scope.lists_of_arguments() > 0 {
                walker.reading.settle_places();
            }
            walk(walker, steps)
        })
    }

    /// Walks once for each choice that is asked for, each time from the same start; what they leave behind is joined.
    fn each_way(&mut self, steps: &mut Vec<Step>, walk: impl Fn(&mut Self, &mut Vec<Step>) -> Stream) -> Stream {
        let before = self.reading.scope.clone();
        let first = steps.len();
        let (mut output, mut choices) = self.one_way(Choices::default(), steps, &walk);
        if choices.asked.is_empty() {
            return output;
        }
        let ways = choices.counts().fold(1_usize, usize::saturating_mul);
        let mut after = self.reading.scope.clone();
        let mut some = if ways > MOST_WAYS { choices.some() } else { Vec::new() };
        let mut next = if ways > MOST_WAYS { some.pop() } else { choices.next() };
        let mut depends = choices.depends;
        let mut count = 1;
        let mut blind = false;
        loop {
            let script = match next.take() {
                Some(script) if count < 2 * MOST_WAYS => script,
                // More than what is walked: as if nothing were known of it.
                _ if (ways > MOST_WAYS || count >= 2 * MOST_WAYS) && !blind => {
                    blind = true;
                    Vec::new()
                }
                _ => break,
            };
            count += 1;
            if let Err(unknown) = self.reading.count_way() {
                let span = steps.get(first).map(|step| step.span).unwrap_or_default();
                steps.push(unknown_code(crate::Language::Shell, span, unknown));
                break;
            }
            let counted = self.reading.counted();
            self.reading.scope = before.clone();
            let mut more = Vec::new();
            let (written, tried) = self.one_way(Choices { script, blind, ..Choices::default() }, &mut more, &walk);
            choices = tried;
            output.or(written);
            let known = steps.get(first..).unwrap_or_default();
            let more: Vec<Step> = more.into_iter().filter(|step| !known.contains(step)).collect();
            if more.is_empty() {
                // What is shown once more is counted once.
                self.reading.count_from(counted);
            }
            steps.extend(more);
            after.join(self.reading.scope.clone());
            if blind {
                break;
            }
            // The directory is the last to turn: if it mattered once, each of them is taken.
            if choices.depends == Depends::Yes {
                depends = Depends::Yes;
            }
            choices.depends = depends;
            next = if ways > MOST_WAYS { some.pop() } else { choices.next() };
        }
        self.reading.scope = after;
        output
    }

    fn one_way(
        &mut self,
        choices: Choices,
        steps: &mut Vec<Step>,
        walk: &impl Fn(&mut Self, &mut Vec<Step>) -> Stream,
    ) -> (Stream, Choices) {
        let noted = self.reading.scope.watch_directory();
        self.reading.ways.commands.push(choices);
        let output = walk(self, steps);
        let mut choices = self.reading.ways.commands.pop().unwrap_or_default();
        let start = choices.start.take();
        choices.depends = self.reading.scope.end_directory(start, noted);
        (output, choices)
    }
}

fn redirects_run(redirects: &[Redirect]) -> bool {
    redirects.iter().any(|redirect| match &redirect.target {
        Target::Word(word) => word.raw.contains(['(', '`']),
        Target::Document { body, expands, .. } => *expands && body.contains(['(', '`']),
    })
}
