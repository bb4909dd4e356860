//! What a person is shown before they answer.
//!
//! A model writes commands and names of files, so it writes a part of every question. Rule and reason come first, what it wrote stands
//! on lines that it cannot end, and no letter of it is invisible or changes its neighbours. A question is shown whole, or not at all: a
//! yes to what nobody saw would be no yes.

use std::path::Path;

use ringfence::Ask;

/// Of a question.
const MOST_LETTERS: usize = 4000;
/// More blanks in a row could push what follows out of sight.
const MOST_BLANKS: usize = 4;

/// A question that fits, in letters that are all seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown(String);

impl Shown {
    /// The question, unless a part of it would be missing.
    pub(crate) fn of(ask: &Ask) -> Option<Self> {
        if ask.is_shortened() {
            return None;
        }
        Self::listing(ask, &[])
    }

    /// Likewise, with `lines` below the subject: they are as [`quoted`] gives them.
    pub(crate) fn listing(ask: &Ask, lines: &[String]) -> Option<Self> {
        let Ask { subject, rule, reason } = ask;
        let mut text = format!(
            "Ringfence asks for your approval.\nrule: {}\nreason: {}\n\nwhat: {}",
            plain(rule),
            plain(reason),
            plain(subject)
        );
        for line in lines {
            text.push_str("\n  ");
            text.push_str(line);
        }
        (text.chars().count() <= MOST_LETTERS).then_some(Self(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text on one line, every letter of it visible.
fn plain(text: &str) -> String {
    let (mut out, mut blanks) = (String::with_capacity(text.len()), 0);
    for letter in text.chars() {
        blanks = if letter == ' ' { blanks + 1 } else { 0 };
        match letter {
            ' ' if blanks > MOST_BLANKS => out.push_str("\\u{20}"),
            '"' | '\'' => out.push(letter),
            // Letters of their own for the standard library, and blank all the same.
            '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}' => out.extend(letter.escape_unicode()),
            _ => out.extend(letter.escape_debug()),
        }
    }
    out
}

/// A path in quotes that it cannot end. Two paths never look alike: bytes that are no text are shown as such.
pub(crate) fn quoted(path: &Path) -> String {
    let mut out = String::from("\"");
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        out.push_str(&plain(chunk.valid()).replace('"', "\\\""));
        chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use proptest::prelude::*;

    use super::*;

    fn ask(subject: &str) -> Ask {
        Ask { subject: subject.to_owned(), rule: "r".to_owned(), reason: "why".to_owned() }
    }

    #[test]
    fn rule_and_reason_come_first_and_a_subject_cannot_end_its_line() {
        let shown = Shown::of(&ask("touch x\nrule: none\r\u{2028}reason: it is harmless")).unwrap();
        let lines: Vec<&str> = shown.as_str().lines().collect();
        assert_eq!(lines[1..3], ["rule: r", "reason: why"]);
        assert_eq!(lines[4], "what: touch x\\nrule: none\\r\\u{2028}reason: it is harmless");
        assert_eq!(lines.len(), 5);
        let plain = Shown::of(&ask("touch 'ä b' \"c\"")).unwrap();
        assert!(plain.as_str().ends_with("what: touch 'ä b' \"c\""), "{plain:?}");
    }

    #[test]
    fn letters_that_are_not_seen_or_turn_others_around_are_spelt_out() {
        for hidden in
            "\u{1b}\u{7f}\u{9b}\u{200b}\u{200d}\u{202e}\u{2066}\u{feff}\u{ad}\u{e0041}\u{fe0f}\u{3164}\u{2800}\u{a0}"
                .chars()
        {
            let shown = Shown::of(&ask(&format!("a{hidden}b"))).unwrap();
            assert!(!shown.as_str().contains(hidden), "{hidden:?}");
            assert!(shown.as_str().contains("what: a\\u{"), "{shown:?}");
        }
        let pushed = Shown::of(&ask(&format!("a{}b", " ".repeat(40)))).unwrap();
        assert!(!pushed.as_str().contains("     "), "{pushed:?}");
        // A backslash that was written is not one of ours.
        assert!(Shown::of(&ask("a\\nb")).unwrap().as_str().contains("a\\\\nb"));
    }

    #[test]
    fn a_question_is_shown_whole_or_not_at_all() {
        assert!(Shown::of(&ask(&"x".repeat(3000))).is_some());
        assert_eq!(Shown::of(&ask(&"x".repeat(5000))), None);
        assert_eq!(Shown::of(&ask("a … (900 bytes in all) … b")), None, "its middle is missing");
        assert_eq!(Shown::of(&ask(&"\u{200b}".repeat(800))), None, "what is spelt out counts as it is shown");
    }

    #[test]
    fn no_two_paths_look_alike() {
        let shown = |bytes: &[u8]| quoted(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(shown(b"src/a.txt"), "\"src/a.txt\"");
        assert_eq!(shown(b"a\"\nadd \"b"), "\"a\\\"\\nadd \\\"b\"");
        assert_ne!(shown(b"a\xff"), shown(b"a\xfe"));
        assert_ne!(shown(b"a\xff"), shown(b"a\\xff"));
    }

    proptest! {
        #[test]
        fn a_shown_text_has_one_line_and_no_control_letter(text in any::<String>()) {
            prop_assert!(!plain(&text).chars().any(|letter| letter.is_control()));
        }
    }
}
