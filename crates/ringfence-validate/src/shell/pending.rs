//! What the first parser must not be shown: a brace that goes on over the end of a line on which a here-document was announced. It reads the lines of
//! the document when it comes to that end, keeps them until the brace is closed, takes a part of what it kept for the closing brace, and ends with
//! the whole process when there is nothing more to read. No ordinary script is written like that.

/// Whether a here-document may be waited for while a brace is open, as far as that can be told without parsing.
pub(super) fn may_be_lost(text: &str) -> bool {
    let left_open = first_left_open(text).unwrap_or(text.len());
    let mut from = 0;
    while let Some(found) = text.get(from..).and_then(|rest| rest.find("<<")) {
        let at = from + found;
        let rest = text.get(at..).unwrap_or_default();
        let run = rest.bytes().take_while(|byte| *byte == b'<').count();
        from = at + run;
        // Three are a string.
        if run == 3 {
            continue;
        }
        if at > left_open {
            return true;
        }
        let before = text.get(..at).unwrap_or_default();
        let line = before.rsplit('\n').next().unwrap_or_default();
        let announced = rest.get(run..).unwrap_or_default();
        if has_open_brace(line) || has_open_brace(announced.get(..waiting(announced)).unwrap_or(announced)) {
            return true;
        }
    }
    false
}

/// How much of `rest` is read while the document is waited for: to the end of the line, or to the end of all where it is not plain which line that is.
fn waiting(rest: &str) -> usize {
    let (mut quote, mut depth, mut escaped) = (None, 0usize, false);
    let bytes = rest.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        match (byte, quote) {
            _ if escaped => escaped = false,
            (b'`', _) => return rest.len(),
            (b'\'' | b'"', None) if before == Some(&b'$') => return rest.len(),
            (b'(', Some(b'"')) => return rest.len(),
            (b'\\', None | Some(b'"')) => escaped = true,
            (b'\'' | b'"', None) => quote = Some(*byte),
            (b'\'' | b'"', Some(open)) if open == *byte => quote = None,
            (b'(', None) => depth += 1,
            (b')', None) => depth = depth.saturating_sub(1),
            (b'\n', None) if depth == 0 => return at,
            _ => {}
        }
    }
    rest.len()
}

/// Where the first `${` stands that is not closed in its line.
fn first_left_open(text: &str) -> Option<usize> {
    let is_left_open = |inside: &[u8]| {
        let (mut quote, mut depth, mut escaped) = (None, 0usize, false);
        for byte in inside {
            match (byte, quote) {
                (b'\n', _) => return true,
                _ if escaped => escaped = false,
                (b'\\', None | Some(b'"')) => escaped = true,
                (b'\'' | b'"', None) => quote = Some(*byte),
                (b'\'' | b'"', Some(open)) if open == *byte => quote = None,
                (b'{', None) => depth += 1,
                (b'}', None) if depth == 0 => return false,
                (b'}', None) => depth -= 1,
                _ => {}
            }
        }
        true
    };
    let mut all = text.match_indices("${").map(|(at, _)| at);
    all.find(|at| is_left_open(text.as_bytes().get(at + 2..).unwrap_or_default()))
}

/// Whether `text` has a `${` that is not closed at once, by nothing but names and plain signs.
fn has_open_brace(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"'\"\\`()<>[]#{};&|$".contains(&byte);
    text.match_indices("${").any(|(at, opening)| {
        let inside = text.as_bytes().get(at + opening.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"#").or(inside.strip_prefix(b"!")).unwrap_or(inside);
        let end = inside.iter().position(|byte| *byte == b'}');
        let word = end.and_then(|end| inside.get(..end));
        let word = word.map(|word| match word {
            // An element of an array, or all of them.
            [name @ .., b'[', b'@' | b'*' | b'0'..=b'9', b']'] => name,
            word => word,
        });
        // From a name's beginning, or to its end.
        !word.is_some_and(|word| word.iter().all(|byte| is_plain(*byte) || matches!(byte, b'#' | b'$')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brace_that_goes_on_while_a_document_is_waited_for_is_not_shown() {
        for line in [
            "cat <<E ${x\nE\n}",
            "cat <<'E' | a ${x; c ${y\nE\n} b",
            "cat <<E \"\n\" ${x\nE\n}",
            "cat <<E $'\\'\n' ${x\n}\nE\n",
            "cat <<E \\\n ${x\n}\nE\n",
            "cat <<E `a\n` ${x\n}\nE\n",
            "cat <<E $(a\n) ${x\n}\nE\n",
            "cat <<E ${x'}'\n}\nE\n",
            "cat <<E ${x #}\n}\nE\n",
            "echo ${x <<E\n}\nE\n",
            "echo ${x\n<<E\n}\nE\n",
            "echo ${x '}' ${y}\n<<E\n}\nE\n",
        ] {
            assert!(may_be_lost(line), "{line}");
        }
        for line in [
            "cat <<EOF > ${OUT}\na ${b:-\n\"c\"}\nEOF\n",
            "cat <<EOF > \"${OUT:-$HOME/x}/${NAME##*/}\"\nEOF\n",
            "cat <<'EOF' | tee ${files[@]} ${#files[@]} ${!name}\nEOF\necho \"${x:-$(date)}\"",
            "cat <<< ${x:-\"a\n\"}",
            "x=${y:-\"a\"}\ncat <<EOF\nEOF\n",
            "echo $((1<<2)) ${x}",
        ] {
            assert!(!may_be_lost(line), "{line}");
        }
    }
}
