//! Here-documents that the first parser loses. Where one is announced and a `${`, `$(`, `$((` or `$[` goes on over the end of that line, it puts what stands
//! in between aside, takes a part of that for the sign that closes, and leaps over one letter of the text for each: behind the last one it ends with the
//! whole process. What it makes of such a text is not what is written there, and the other parser says so; here it is only kept from coming to the end.

use std::borrow::Cow;

/// Bytes behind the beginning of a here-document in one line: each word of them is put aside, and moved once for each that is taken up again.
const LONGEST: usize = 64 * 1024;

/// What the parser is shown of a text: where it may leap over letters, with as many blanks behind it.
pub(super) fn with_room(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains("<<") {
        return Ok(Cow::Borrowed(text));
    }
    if waits_too_long(text) {
        return Err("too much stands behind the beginning of a here-document");
    }
    if !["${", "$(", "$["].iter().any(|opening| text.contains(opening)) {
        return Ok(Cow::Borrowed(text));
    }
    if text.ends_with('\\') {
        // Before a newline it would mean something else.
        return Err("a backslash at the end of all");
    }
    Ok(Cow::Owned(format!("{text}\n{}", " ".repeat(text.len() + 1))))
}

/// Whether more stands in the line of a here-document's beginning than is worth to be read.
fn waits_too_long(text: &str) -> bool {
    let mut in_line = 0;
    let mut goes_on = false;
    text.split_inclusive('\n').any(|line| {
        // A line that goes on is one with the next.
        let from = if goes_on && in_line > 0 { Some(0) } else { line.find("<<") };
        in_line = from.map_or(0, |from| line.len() - from + if goes_on { in_line } else { 0 });
        goes_on = line.ends_with("\\\n");
        in_line > LONGEST
    })
}

#[cfg(test)]
mod tests {
    use brush_parser::{Parser, ParserOptions};

    use super::*;

    /// Texts that the parser ends with, given as they are.
    const ENDING: &[&str] = &[
        "cat <<E $((1\n))\nE\n",
        "cat <<E $[1\n]\nE\n",
        "x=$(cat <<E $[(] $[1]\na\nE\n)",
        "x=$(cat <<E ${x:-(} ${y}\nE\n)",
        "x=$(cat <<E ${x:-(a)} ${y}\na\nE\n)",
        "x=$(cat <<E $[(1)] $[1]\na\nE\n)",
        "cat \\<<<E $((1\n))\nE\n",
    ];

    fn is_parsed(text: &str) -> bool {
        std::panic::catch_unwind(|| {
            // Whatever it says, as long as it says something.
            drop(Parser::new(text.as_bytes(), &ParserOptions::default()).parse_program());
        })
        .is_ok()
    }

    #[test]
    fn a_text_that_ends_the_parser_does_not_when_there_is_room_behind_it() {
        for text in ENDING {
            assert!(!is_parsed(text), "{text}");
            assert!(is_parsed(&with_room(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn whatever_goes_on_over_the_line_of_a_here_document_is_parsed_to_an_end() {
        let opened = [
            "${x", "${x:-(", "$(a", "$((1", "$[1", "$[(1", "`a", "'a", "\"a", "$'a", "\"${x", "\"$(a", "\"$((1", "<(a",
            "a[1", "a=(1", "@(a", "(", "((1", "{ a",
        ];
        let closed = ["}", ")", "))", "]", "`", "'", "\"", "}\"", ")\"", "))\"", ")]"];
        for before in [
            "cat <<E ",
            "cat <<-'E' ",
            "cat \\<<<E ",
            "x=$(cat <<E ",
            "\"$(cat <<E $[(] ",
            "${x <<E ",
            "echo $((1<<2)) <<E ",
        ] {
            for (open, close) in opened.iter().flat_map(|open| closed.iter().map(move |close| (open, close))) {
                for text in [
                    format!("{before}{open}\n{close}\nE\n"),
                    format!("{before}{open}\nE\n{close}"),
                    format!("{before}{open}{close} {open}{close}\nE\n)"),
                    format!("{before}{open}\n{close}\nE\n)\""),
                ] {
                    assert!(is_parsed(&with_room(&text).unwrap()), "{text:?}");
                    drop(super::super::tests::read(&text));
                }
            }
        }
    }

    #[test]
    fn ordinary_here_documents_are_read_as_before() {
        for line in [
            "x=$(cat <<E\na ${b:-c}\nE\n)",
            "cat > \"${OUT:-$HOME/x}/${NAME##*/}\" <<'EOF'\na ${b\nEOF\necho \"${x:-$(date)}\"",
            "cat <<< ${x:-\"a\n\"}",
            "x=${y:-\"a\"}\ncat <<EOF\n$((1 << 2))\nEOF",
            "echo $((1<<2)) ${x}",
        ] {
            assert!(with_room(line).unwrap().len() > line.len(), "{line}");
            let analysis = super::super::tests::read(line);
            let is_read = |fact: &crate::analysis::Fact| !matches!(fact, crate::analysis::Fact::Unknown { .. });
            assert!(analysis.facts().all(|act| is_read(&act.fact)), "{line}");
        }
        assert_eq!(with_room("cat <<E\na\nE\n").unwrap(), "cat <<E\na\nE\n");
        assert!(with_room("cat <<E $(a)\nE\n\\").is_err());
    }

    #[test]
    fn a_line_is_too_long_from_the_here_document_on_and_with_those_that_it_goes_on_in() {
        let words = "a ".repeat(LONGEST);
        assert!(waits_too_long(&format!("cat <<E {words}\nE\n")));
        assert!(waits_too_long(&format!("cat <<E {}\nE\n", "a \\\n".repeat(LONGEST / 3))));
        assert!(!waits_too_long(&format!("cat {words} <<E\n{words}\nE\n{words}")));
    }
}
