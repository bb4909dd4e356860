//! Colours, where they are wanted.

use std::io::IsTerminal;

use super::args::ColourArg;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Added,
    Removed,
    Place,
    Heading,
    Warning,
    Denied,
    Quiet,
}

/// Gives text its colour, or leaves it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    colours: bool,
    /// Letters on a line.
    pub(super) width: usize,
}

const WIDTH: usize = 80;
const WIDEST: usize = 120;
const NARROWEST: usize = 50;

impl Paint {
    pub(super) fn new(when: ColourArg) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let wanted = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = match when {
            ColourArg::Always => true,
            ColourArg::Never => false,
            ColourArg::Auto => terminal && !wanted("NO_COLOR") && !dumb,
        };
        let size = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
        let width = size.map_or(WIDTH, |size| usize::from(size.ws_col).clamp(NARROWEST, WIDEST));
        Self { colours, width }
    }

    pub(super) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Added => "32",
            Tone::Removed => "31",
            Tone::Place => "36",
            Tone::Heading => "1",
            Tone::Warning => "1;33",
            Tone::Denied => "1;31",
            Tone::Quiet => "2",
        };
        if self.colours && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
