//! Patterns of the shell, matched against known text.

/// Whether `pattern` matches the whole of `text`: `*`, `?`, `[…]`, backslash.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut letter) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while letter < text.len() {
        match step(&pattern, at, text.get(letter).copied()) {
            Step::Any => {
                back = Some((at, letter));
                at += 1;
            }
            Step::One(next) => {
                at = next;
                letter += 1;
            }
            Step::No => match back {
                // The last star takes one letter more.
                Some((star, start)) => {
                    back = Some((star, start + 1));
                    at = star + 1;
                    letter = start + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).is_some_and(|rest| rest.iter().all(|&letter| letter == '*'))
}

enum Step {
    Any,
    One(usize),
    No,
}

fn step(pattern: &[char], at: usize, letter: Option<char>) -> Step {
    let Some(letter) = letter else { return Step::No };
    match pattern.get(at) {
        Some('*') => Step::Any,
        Some('?') => Step::One(at + 1),
        Some('[') => match class(pattern, at, letter) {
            Some((true, next)) => Step::One(next),
            Some((false, _)) => Step::No,
            None if letter == '[' => Step::One(at + 1),
            None => Step::No,
        },
        Some('\\') => match pattern.get(at + 1) {
            Some(&escaped) if escaped == letter => Step::One(at + 2),
            _ => Step::No,
        },
        Some(&plain) if plain == letter => Step::One(at + 1),
        _ => Step::No,
    }
}

/// Whether `letter` is in the class that opens at `at`, and where it ends.
fn class(pattern: &[char], at: usize, letter: char) -> Option<(bool, usize)> {
    let mut index = at + 1;
    let negated = matches!(pattern.get(index), Some('!' | '^'));
    if negated {
        index += 1;
    }
    let first = index;
    let mut found = false;
    loop {
        match pattern.get(index)? {
            ']' if index > first => return Some((found != negated, index + 1)),
            &start => {
                if pattern.get(index + 1) == Some(&'-')
                    && let Some(&end) = pattern.get(index + 2)
                    && end != ']'
                {
                    found |= (start..=end).contains(&letter);
                    index += 3;
                } else {
                    found |= start == letter;
                    index += 1;
                }
            }
        }
    }
}

/// What is taken off a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strip {
    /// From the front, or from the end.
    pub(crate) prefix: bool,
    /// As much as matches, or as little.
    pub(crate) longest: bool,
}

/// Takes off what `pattern` matches.
pub(crate) fn strip<'t>(text: &'t str, pattern: &str, how: Strip) -> &'t str {
    let mut cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    if how.prefix == how.longest {
        cuts.reverse();
    }
    for cut in cuts {
        let (front, back) = text.split_at(cut);
        if how.prefix && matches(pattern, front) {
            return back;
        }
        if !how.prefix && matches(pattern, back) {
            return front;
        }
    }
    text
}

/// Puts `replacement` in the place of what `pattern` matches: the first, or all. Nothing where that would take long.
pub(crate) fn replace(text: &str, pattern: &str, replacement: &str, all: bool) -> Option<String> {
    if text.len() > 512 {
        return None;
    }
    let plain = !pattern.contains(['*', '?', '[', '\\']);
    if pattern.is_empty() {
        return Some(text.to_owned());
    }
    if plain {
        return Some(if all { text.replace(pattern, replacement) } else { text.replacen(pattern, replacement, 1) });
    }
    let mut result = String::new();
    let mut rest = text;
    let mut done = false;
    while let Some(letter) = rest.chars().next() {
        let ends = rest.char_indices().map(|(at, letter)| at + letter.len_utf8()).rev();
        let found =
            if done && !all { None } else { ends.into_iter().find(|&end| matches(pattern, rest.split_at(end).0)) };
        match found {
            Some(end) => {
                result.push_str(replacement);
                rest = rest.split_at(end).1;
                done = true;
            }
            None => {
                result.push(letter);
                rest = rest.split_at(letter.len_utf8()).1;
            }
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text_or_not_at_all() {
        for (pattern, text, expected) in [
            ("c?t", "cat", true),
            ("*.rs", "main.rs", true),
            ("*.rs", "main.rsx", false),
            ("[a-c]at", "bat", true),
            ("[!a-c]at", "bat", false),
            ("a*b*c", "aXXbYYc", true),
            ("\\*", "*", true),
            ("[", "[", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn prefixes_suffixes_and_replacements_follow_the_shell() {
        let how = |prefix, longest| Strip { prefix, longest };
        assert_eq!(strip("a/b/c", "*/", how(true, false)), "b/c");
        assert_eq!(strip("a/b/c", "*/", how(true, true)), "c");
        assert_eq!(strip("a.tar.gz", ".*", how(false, false)), "a.tar");
        assert_eq!(strip("a.tar.gz", ".*", how(false, true)), "a");
        assert_eq!(replace("xaxa", "a", "b", false).as_deref(), Some("xbxa"));
        assert_eq!(replace("xaxa", "[a]", "b", true).as_deref(), Some("xbxb"));
    }
}
