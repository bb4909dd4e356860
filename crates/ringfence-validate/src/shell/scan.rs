//! A linear look at a shell text before any parser sees it: how deep it nests, what that would cost, and where a substitution ends.
//!
//! The parsers are recursive, and take exponential time on some nested texts. What they are given is bounded here first.

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scan {
    /// The byte after the closing bracket, or the end of the text.
    pub(super) end: usize,
    /// Brackets, quotes, substitutions and keywords within each other, at most.
    pub(super) depth: usize,
    /// How much work the parsers may have, in units of a plain word.
    pub(super) cost: u64,
}

/// Why a text cannot be looked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// A quote or bracket is not closed.
    Open,
    /// A number before a redirection is too long for a file descriptor.
    Descriptor,
}

/// Where the look starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// At the top of a text; to its end.
    Top,
    /// After `$(`, `<(` or `>(`; to the matching `)`.
    Command,
    /// After `${`, to the matching `}`.
    Parameter,
    /// After `${` within double quotes.
    QuotedParameter,
    /// After `$((`, to the matching `))`.
    Arithmetic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frame {
    Top,
    Command,
    Paren,
    Parameter,
    QuotedParameter,
    Double,
    Backquote,
    Arithmetic,
}

/// Commands that one list may have.
const MOST_COMMANDS: usize = 1_000;

struct HereDocument {
    delimiter: Vec<u8>,
    strip_tabs: bool,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Frame>,
    /// Blocks that keywords opened.
    blocks: usize,
    cases: u32,
    /// Square brackets within each other, in this word, and where the first one opened.
    squares: usize,
    /// Curly brackets in this word: the second parser looks for the end of each.
    braces: u64,
    /// `!` and `time` before a command.
    prefixes: usize,
    /// Commands of one list: the second parser nests them to the left.
    commands: usize,
    indexed: Option<usize>,
    depth: usize,
    cost: u64,
    waiting: Vec<HereDocument>,
}

/// Looks through `text` from byte `start`.
pub(super) fn scan(text: &str, start: usize, from: From) -> Result<Scan, Broken> {
    let first = match from {
        From::Top => Frame::Top,
        From::Command => Frame::Command,
        From::Parameter => Frame::Parameter,
        From::QuotedParameter => Frame::QuotedParameter,
        From::Arithmetic => Frame::Arithmetic,
    };
    let mut scanner = Scanner {
        bytes: text.as_bytes(),
        at: start,
        stack: vec![first],
        blocks: 0,
        cases: 0,
        squares: 0,
        braces: 0,
        prefixes: 0,
        commands: 0,
        indexed: None,
        depth: 1,
        cost: 0,
        waiting: Vec::new(),
    };
    scanner.run()?;
    Ok(Scan { end: scanner.at, depth: scanner.depth, cost: scanner.cost })
}

impl Scanner<'_> {
    fn run(&mut self) -> Result<(), Broken> {
        while let Some(&byte) = self.bytes.get(self.at) {
            let Some(&frame) = self.stack.last() else { return Ok(()) };
            match frame {
                Frame::Double => self.in_double_quotes(byte),
                Frame::Parameter | Frame::QuotedParameter => self.in_parameter(byte, frame)?,
                Frame::Arithmetic => self.in_arithmetic(byte)?,
                Frame::Top | Frame::Command | Frame::Paren | Frame::Backquote => self.in_code(byte, frame)?,
            }
            if self.stack.is_empty() {
                return Ok(());
            }
        }
        if self.stack == [Frame::Top] { Ok(()) } else { Err(Broken::Open) }
    }

    fn push(&mut self, frame: Frame) {
        self.stack.push(frame);
        self.note_depth();
        let level = u32::try_from(self.stack.len()).unwrap_or(u32::MAX);
        // The first parser reads the index of `name[…]=` anew for every way it could be meant.
        if let Some(base) = self.indexed {
            let within = u32::try_from(self.stack.len().saturating_sub(base)).unwrap_or(u32::MAX);
            self.cost = self.cost.saturating_add(6_u64.saturating_pow(within));
        }
        self.cost = self.cost.saturating_add(match frame {
            Frame::Paren => 1_u64.checked_shl(level).unwrap_or(u64::MAX),
            Frame::Command | Frame::Backquote => u64::from(level).saturating_pow(2) * 4,
            Frame::Top | Frame::Parameter | Frame::QuotedParameter | Frame::Double | Frame::Arithmetic => {
                u64::from(level)
            }
        });
    }

    fn note_depth(&mut self) {
        self.depth = self.depth.max(self.stack.len() + self.blocks + self.squares + self.prefixes);
    }

    fn next(&self) -> Option<u8> {
        self.bytes.get(self.at + 1).copied()
    }

    fn in_double_quotes(&mut self, byte: u8) {
        match byte {
            b'\\' => self.at += 2,
            b'"' => {
                self.stack.pop();
                self.at += 1;
            }
            b'$' | b'`' if self.substitution(byte, Frame::QuotedParameter) => {}
            _ => self.at += 1,
        }
    }

    fn in_parameter(&mut self, byte: u8, frame: Frame) -> Result<(), Broken> {
        match byte {
            b'\\' => self.at += 2,
            b'}' => {
                self.stack.pop();
                self.at += 1;
            }
            b'"' => {
                self.push(Frame::Double);
                self.at += 1;
            }
            b'\'' if frame == Frame::Parameter => self.single_quotes()?,
            b'$' if self.next() == Some(b'\'') && frame == Frame::Parameter => self.ansi_quotes()?,
            b'$' | b'`' if self.substitution(byte, frame) => {}
            _ => self.at += 1,
        }
        Ok(())
    }

    fn in_arithmetic(&mut self, byte: u8) -> Result<(), Broken> {
        match byte {
            b'\\' => self.at += 2,
            b'(' => {
                self.push(Frame::Arithmetic);
                self.at += 1;
            }
            b')' => {
                self.stack.pop();
                self.at += 1;
            }
            b'"' => {
                self.push(Frame::Double);
                self.at += 1;
            }
            b'\'' => self.single_quotes()?,
            b'$' | b'`' if self.substitution(byte, Frame::Parameter) => {}
            _ => self.at += 1,
        }
        Ok(())
    }

    fn in_code(&mut self, byte: u8, frame: Frame) -> Result<(), Broken> {
        if byte.is_ascii_whitespace() && self.indexed.is_none_or(|base| self.stack.len() <= base) {
            self.squares = 0;
            self.braces = 0;
            self.indexed = None;
        }
        if b";&|\n".contains(&byte) {
            let top = byte == b'\n' && self.stack.len() == 1 && self.blocks == 0;
            self.commands = if top { 0 } else { self.commands + 1 };
            self.prefixes = 0;
            if self.commands > MOST_COMMANDS {
                self.cost = u64::MAX;
            }
        }
        match byte {
            b'\\' => self.at += 2,
            b'[' => {
                self.squares += 1;
                self.indexed.get_or_insert(self.stack.len());
                self.note_depth();
                self.at += 1;
            }
            b']' => {
                self.squares = self.squares.saturating_sub(1);
                self.at += 1;
            }
            b'\'' => self.single_quotes()?,
            b'$' if self.next() == Some(b'\'') => self.ansi_quotes()?,
            b'$' if self.next() == Some(b'"') => self.at += 1,
            b'"' => {
                self.push(Frame::Double);
                self.at += 1;
            }
            b'`' if frame == Frame::Backquote => {
                self.stack.pop();
                self.at += 1;
            }
            b'$' | b'`' if self.substitution(byte, Frame::Parameter) => {}
            b'(' if self.next() == Some(b'(') && self.starts_word() => {
                // The second bracket is pushed by the arithmetic frame itself.
                self.push(Frame::Paren);
                self.push(Frame::Arithmetic);
                self.at += 2;
                let resume = (self.at, self.stack.len());
                if self.subshell_in_disguise() {
                    self.at = resume.0;
                    self.stack.truncate(resume.1);
                    if let Some(last) = self.stack.last_mut() {
                        *last = Frame::Paren;
                    }
                }
            }
            b'(' => {
                self.push(Frame::Paren);
                self.at += 1;
            }
            b')' => {
                if matches!(frame, Frame::Command | Frame::Paren) {
                    self.stack.pop();
                }
                self.at += 1;
            }
            b'#' if self.starts_word() => {
                while self.bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
                    self.at += 1;
                }
            }
            b'<' if self.bytes.get(self.at..self.at + 3) == Some(b"<<<") => self.at += 3,
            b'<' if self.next() == Some(b'<') => self.here_document()?,
            b'\n' if !self.waiting.is_empty() => self.bodies(),
            b'0'..=b'9' if self.starts_word() => self.digits()?,
            b'!' if self.starts_word() => {
                self.prefixes += 1;
                self.note_depth();
                self.at += 1;
            }
            b'a'..=b'z' | b'{' | b'}' if self.starts_word() => self.keyword(),
            b'{' => {
                self.brace();
                self.at += 1;
            }
            _ => self.at += 1,
        }
        Ok(())
    }

    /// `((` that opens two subshells: the brackets are not closed by `))`. Left to the parsers to tell; here both are counted.
    fn subshell_in_disguise(&self) -> bool {
        let mut depth = 2_usize;
        let mut last_close = None;
        for (index, &byte) in self.bytes.iter().enumerate().skip(self.at).take(2_000) {
            match byte {
                b'(' => depth += 1,
                b')' => {
                    depth -= 1;
                    if depth == 0 {
                        return last_close.is_none_or(|last: usize| last + 1 != index);
                    }
                    last_close = Some(index);
                }
                b';' | b'\n' if depth > 1 => {}
                _ => {}
            }
        }
        false
    }

    /// A word or a bracket starts here: nothing before belongs to it.
    fn starts_word(&self) -> bool {
        // A continued line does not start a word.
        let mut end = self.at;
        while let Some(rest) = self.bytes.get(..end).and_then(|before| before.strip_suffix(b"\\\n")) {
            if rest.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1 {
                break;
            }
            end = rest.len();
        }
        match end.checked_sub(1).and_then(|before| self.bytes.get(before)) {
            None => true,
            Some(before) => before.is_ascii_whitespace() || b";&|()`".contains(before),
        }
    }

    /// `$(`, `$((`, `${` or a backquote: whether one starts here.
    fn substitution(&mut self, byte: u8, parameter: Frame) -> bool {
        if byte == b'`' {
            self.push(Frame::Backquote);
            self.at += 1;
            return true;
        }
        match self.next() {
            Some(b'(') if self.bytes.get(self.at + 2) == Some(&b'(') => {
                self.push(Frame::Arithmetic);
                self.push(Frame::Arithmetic);
                self.at += 3;
                true
            }
            Some(b'(') => {
                self.push(Frame::Command);
                self.at += 2;
                true
            }
            Some(b'{') => {
                self.push(parameter);
                self.at += 2;
                true
            }
            _ => false,
        }
    }

    fn single_quotes(&mut self) -> Result<(), Broken> {
        let rest = self.bytes.get(self.at + 1..).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'\'').ok_or(Broken::Open)?;
        self.at += length + 2;
        Ok(())
    }

    fn ansi_quotes(&mut self) -> Result<(), Broken> {
        self.at += 2;
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'\'' {
                return Ok(());
            }
        }
        Err(Broken::Open)
    }

    fn digits(&mut self) -> Result<(), Broken> {
        let mut count = 0;
        loop {
            match self.bytes.get(self.at..) {
                Some([b'0'..=b'9', ..]) => {
                    count += 1;
                    self.at += 1;
                }
                // The number goes on in the next line.
                Some([b'\\', b'\n', ..]) => self.at += 2,
                _ => break,
            }
        }
        let descriptor = self.bytes.get(self.at).is_some_and(|byte| b"<>".contains(byte));
        if descriptor && count > 4 { Err(Broken::Descriptor) } else { Ok(()) }
    }

    fn brace(&mut self) {
        self.braces += 1;
        self.cost = self.cost.saturating_add(self.braces);
    }

    fn keyword(&mut self) {
        let start = self.at;
        while let Some(byte) =
            self.bytes.get(self.at).filter(|byte| byte.is_ascii_alphabetic() || b"{}_-".contains(byte))
        {
            if *byte == b'{' {
                self.brace();
            }
            self.at += 1;
        }
        if self.at == start {
            self.at += 1;
        }
        match self.bytes.get(start..self.at).unwrap_or_default() {
            b"case" => {
                self.cases += 1;
                self.blocks += 1;
                self.cost = self.cost.saturating_add(3_u64.saturating_pow(self.cases));
            }
            b"esac" => {
                self.cases = self.cases.saturating_sub(1);
                self.blocks = self.blocks.saturating_sub(1);
            }
            b"time" => self.prefixes += 1,
            b"if" | b"do" | b"{" | b"coproc" | b"function" => self.blocks += 1,
            b"fi" | b"done" | b"}" => self.blocks = self.blocks.saturating_sub(1),
            _ => {}
        }
        self.note_depth();
    }

    fn here_document(&mut self) -> Result<(), Broken> {
        self.at += 2;
        let strip_tabs = self.bytes.get(self.at) == Some(&b'-');
        if strip_tabs {
            self.at += 1;
        }
        while self.bytes.get(self.at).is_some_and(|byte| b" \t".contains(byte)) {
            self.at += 1;
        }
        let mut delimiter = Vec::new();
        let mut quote = None;
        while let Some(&byte) = self.bytes.get(self.at) {
            match (quote, byte) {
                (Some(open), byte) if byte == open => quote = None,
                (Some(_), byte) => delimiter.push(byte),
                (None, b'\'' | b'"') => quote = Some(byte),
                (None, b'\\') => {}
                (None, byte) if byte.is_ascii_whitespace() || b";&|()<>`".contains(&byte) => break,
                (None, byte) => delimiter.push(byte),
            }
            self.at += 1;
        }
        if delimiter.is_empty() {
            // A parser looks for its end without end.
            return Err(Broken::Open);
        }
        self.waiting.push(HereDocument { delimiter, strip_tabs });
        Ok(())
    }

    /// Leaps over the bodies that start on the next line, to the end of the last delimiter.
    fn bodies(&mut self) {
        for document in std::mem::take(&mut self.waiting) {
            // The newline before the body.
            self.at += 1;
            loop {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                if rest.is_empty() {
                    return;
                }
                let length = rest.iter().position(|&byte| byte == b'\n');
                let line = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
                let tabs = if document.strip_tabs { line.iter().take_while(|&&byte| byte == b'\t').count() } else { 0 };
                let bare = line.get(tabs..).unwrap_or_default();
                // Within a substitution the bracket may close on the delimiter's own line.
                let closes =
                    bare.strip_prefix(document.delimiter.as_slice()).is_some_and(|rest| rest.first() == Some(&b')'));
                if bare == document.delimiter || closes && !document.delimiter.is_empty() && self.stack.len() > 1 {
                    self.at += tabs + document.delimiter.len();
                    break;
                }
                self.at += line.len() + usize::from(length.is_some());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, from: From) -> Option<&str> {
        scan(text, 0, from).ok().and_then(|scan| text.get(..scan.end))
    }

    #[test]
    fn a_substitution_ends_at_its_own_bracket() {
        assert_eq!(end("ls) x", From::Command), Some("ls)"));
        assert_eq!(
            end("echo ')' \")\" \\) $(a) `b)` # )\n) x", From::Command),
            Some("echo ')' \")\" \\) $(a) `b)` # )\n)")
        );
        assert_eq!(end("cat <<'E'\nit's ) here\nE\n) x", From::Command), Some("cat <<'E'\nit's ) here\nE\n)"));
        assert_eq!(end("x:-'}'} y", From::Parameter), Some("x:-'}'}"));
        assert_eq!(end("1+(2<<3)+16#f)) z", From::Arithmetic), Some("1+(2<<3)+16#f)"));
        assert_eq!(end("never closed", From::Command), None);
    }

    #[test]
    fn r14_nesting_is_counted_and_quotes_hide_brackets() {
        let depth = |text: &str| scan(text, 0, From::Top).map(|scan| scan.depth);
        assert_eq!(depth("a; b"), Ok(1));
        assert_eq!(depth("echo '((((('"), Ok(1));
        assert_eq!(depth("(a; (b))"), Ok(3));
        assert!(scan(&"( ".repeat(40), 0, From::Top).is_err());
        let nested = format!("{}a;b{}", "( ".repeat(40), " )".repeat(40));
        assert!(scan(&nested, 0, From::Top).unwrap().cost > 1_000_000_000);
        assert_eq!(scan("99999999999>x", 0, From::Top), Err(Broken::Descriptor));
        assert_eq!(scan("cat <<'' ", 0, From::Top), Err(Broken::Open));
        assert_eq!(scan("ls\n66666\\\n66666\\\n>x", 0, From::Top), Err(Broken::Descriptor));
    }
}
