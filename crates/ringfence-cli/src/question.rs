//! Questions to a person at a terminal.

use std::io::{self, BufRead, IsTerminal};

use crate::args::OutputArgs;
use crate::chatter;

/// A longer answer is none.
const MOST_ANSWER: u64 = 256;

/// What a person can answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
    /// This and all that follow.
    All,
    /// Neither this nor what follows.
    Quit,
    /// First show what it is about.
    Difference,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::All => "all",
            Self::Quit => "quit",
            Self::Difference => "difference",
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionFailure {
    #[error("there is nobody to ask: standard input is no terminal")]
    NoTerminal,
    #[error("could not read the answer")]
    Read(#[source] io::Error),
}

/// Whether somebody is there.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Whether nothing that a program writes reaches our terminal while a question stands. Behind a pipe somebody else may write it there,
/// whenever they like, and unfiltered.
pub(crate) fn is_held_back(output: OutputArgs) -> bool {
    let stdout = io::stdout();
    let is_file = || {
        let kind = rustix::fs::fstat(&stdout).map(|found| rustix::fs::FileType::from_raw_mode(found.st_mode));
        kind == Ok(rustix::fs::FileType::RegularFile)
    };
    output.json || output.events || stdout.is_terminal() || is_file()
}

/// Asks until there is an answer. The end of the input is the most careful one.
pub(crate) fn ask(question: &str, answers: &[Answer]) -> Result<Answer, QuestionFailure> {
    if !can_ask() {
        return Err(QuestionFailure::NoTerminal);
    }
    let words: Vec<&str> = answers.iter().map(|answer| answer.word()).collect();
    loop {
        chatter::say_raw(&format!("{question} [{}] ", words.join("/")));
        let mut line = String::new();
        let read = io::Read::take(io::stdin().lock(), MOST_ANSWER).read_line(&mut line);
        if read.map_err(QuestionFailure::Read)? == 0 {
            chatter::say_raw("\n");
            return Ok(if answers.contains(&Answer::Quit) { Answer::Quit } else { Answer::No });
        }
        if let Some(answer) = meant(&line, answers) {
            return Ok(answer);
        }
    }
}

/// The one answer that begins as `line` does.
fn meant(line: &str, answers: &[Answer]) -> Option<Answer> {
    let line = line.trim().to_ascii_lowercase();
    answers.iter().copied().find(|answer| !line.is_empty() && answer.word().starts_with(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_word_or_its_first_letters_and_nothing_is_none() {
        let answers = [Answer::Yes, Answer::No, Answer::Quit];
        assert_eq!(meant("y\n", &answers), Some(Answer::Yes));
        assert_eq!(meant(" YES ", &answers), Some(Answer::Yes));
        assert_eq!(meant("no", &answers), Some(Answer::No));
        for none in ["", "\n", "all", "yess", "x"] {
            assert_eq!(meant(none, &answers), None, "{none:?}");
        }
    }
}
