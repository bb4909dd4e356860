//! Words that the first parser would read for hours.
//!
//! It tries whether a word that begins with a name and a bracket is an element of an array, and reads what stands in the bracket. Where that is not
//! closed, it reads the same once more without the bracket: twice for one, four times for two, for some dozen until the end of days. Parentheses
//! in such a word, and what is put in their place by a dollar sign, are tried in several ways, too.

use std::collections::VecDeque;

/// How often anything may be read, all such words together.
const MOST: u64 = 1 << 14;
/// More in one word are not told apart.
const MANY: u32 = 32;

/// Whether a text has words of which the first parser would read too much too often. What is not sure counts as part of such a word.
pub(super) fn takes_too_long(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut readings = 0u64;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let name = rest.iter().take_while(|byte| is_of_a_name(**byte)).count();
        let begins = match bytes.get(..at).unwrap_or_default() {
            [] => true,
            // The name of a value.
            [.., b'$', b'{'] => false,
            [.., before] => is_before_a_word(*before),
        };
        if name > 0 && begins && rest.get(name) == Some(&b'[') {
            let word = Word::read(rest);
            readings = readings.saturating_add(1 << word.open.min(MANY));
            if readings > MOST {
                return true;
            }
            if word.end == End::Unknown {
                // Everything that follows was counted with it.
                return false;
            }
        }
        at += name.max(1);
    }
    false
}

/// What stands in the place of a bracket that the parser need not see; no text has it.
pub(super) const COVER: char = '\u{1}';

/// The text with the brackets in its quoted here-documents covered; nothing where it has none. Which lines those are is only guessed here:
/// whoever parses the text has to find every cover in the body of a here-document again.
pub(super) fn covered(text: &str) -> Option<String> {
    if text.contains(COVER) {
        return None;
    }
    let mut bare = String::with_capacity(text.len());
    let mut waiting: VecDeque<Document<'_>> = VecDeque::new();
    for line in text.split_inclusive('\n') {
        let Some(document) = waiting.front() else {
            bare.push_str(line);
            waiting.extend(documents(line));
            continue;
        };
        let bareline = line.trim_end_matches('\n');
        let bareline = if document.strips { bareline.trim_start_matches('\t') } else { bareline };
        if bareline == document.delimiter {
            waiting.pop_front();
            bare.push_str(line);
        } else if document.quoted {
            bare.extend(line.chars().map(|letter| if letter == '[' { COVER } else { letter }));
        } else {
            bare.push_str(line);
        }
    }
    (waiting.is_empty() && bare.contains(COVER)).then_some(bare)
}

struct Document<'t> {
    delimiter: &'t str,
    quoted: bool,
    strips: bool,
}

/// The here-documents that begin in a line, for all that can be told without reading it.
fn documents(line: &str) -> Vec<Document<'_>> {
    let starts = line.match_indices("<<").filter(|(at, _)| {
        !line.get(..*at).is_some_and(|before| before.ends_with('<'))
            && !line.get(at + 2..).is_some_and(|rest| rest.starts_with('<'))
    });
    let read = |(at, _): (usize, &str)| {
        let rest = line.get(at + 2..)?;
        let strips = rest.starts_with('-');
        let rest = rest.trim_start_matches('-').trim_start_matches([' ', '\t']);
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let delimiter = match quote {
            Some(quote) => rest.get(1..)?.split(quote).next()?,
            None => rest.split(|letter: char| letter.is_ascii_whitespace() || ";&|()<>`".contains(letter)).next()?,
        };
        (!delimiter.is_empty()).then_some(Document { delimiter, quoted: quote.is_some(), strips })
    };
    starts.filter_map(read).collect()
}

/// Where a word ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Here,
    /// With the text, for all that we know without reading it.
    Unknown,
}

/// A word that begins with a name and a bracket.
struct Word {
    /// What is read in more than one way: brackets behind a name that are not closed at once, and all that is put in their place.
    open: u32,
    end: End,
}

impl Word {
    /// The word that `bytes` begin with.
    fn read(bytes: &[u8]) -> Self {
        let mut word = Self { open: 0, end: End::Here };
        let mut quote = None;
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let next = bytes.get(at + 1).copied().unwrap_or_default();
            let rest = bytes.get(at..).unwrap_or_default();
            match (byte, quote) {
                (b'$', None | Some(b'"')) if next == b'{' && plain_value(rest).is_some() => {
                    at += plain_value(rest).unwrap_or_default();
                }
                (b'$', None | Some(b'"')) if next == b'(' && plain_output(rest).is_some() => {
                    let output = plain_output(rest).unwrap_or_default();
                    let brackets = rest.iter().take(output).filter(|byte| **byte == b'[').count();
                    word.open = word.open.saturating_add(u32::try_from(brackets).unwrap_or(MANY)).saturating_add(1);
                    at += output;
                }
                // What they hold has words of its own, and other rules for quotes. It is not read here.
                (b'$', None | Some(b'"')) if b"({['\"".contains(&next) => word.goes_on(),
                (b'`', None | Some(b'"')) | (b'(', _) => word.goes_on(),
                (b'<' | b'>', None) if next == b'(' => word.goes_on(),
                (b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b')', None)
                    if word.end == End::Here =>
                {
                    break;
                }
                (b'\\', None | Some(b'"')) => at += 1,
                (b'\'' | b'"', None) => quote = Some(*byte),
                (byte, Some(quoted)) if *byte == quoted => quote = None,
                (b'[', _) if is_behind_a_name(bytes, at) && !is_closed(bytes, at) => word.open += 1,
                _ => {}
            }
            if word.open >= MANY {
                break;
            }
            at += 1;
        }
        word
    }

    /// Something that is read in more than one way, and after which we do not know where the word ends.
    fn goes_on(&mut self) {
        self.open += 1;
        self.end = End::Unknown;
    }
}

/// Where `${name}`, `${#name}` or `${name[index]}` ends, when nothing but letters stands in it.
fn plain_value(bytes: &[u8]) -> Option<usize> {
    let inside = bytes.get(2..)?;
    let end = inside.iter().position(|byte| *byte == b'}')?;
    let inside = inside.get(..end)?;
    let is_plain = inside.iter().all(|byte| is_of_a_name(*byte) || b"@*#!$[]".contains(byte));
    let brackets = |bracket: u8| inside.iter().filter(|byte| **byte == bracket).count();
    (is_plain && brackets(b'[') <= 1 && brackets(b'[') == brackets(b']')).then_some(end + 2)
}

/// Where `$(…)` ends, when it holds plain words, perhaps in double quotes.
fn plain_output(bytes: &[u8]) -> Option<usize> {
    let inside = bytes.get(2..)?;
    let mut quoted = false;
    let mut at = 0;
    loop {
        match inside.get(at)? {
            b')' if !quoted => break,
            b'"' => quoted = !quoted,
            b'$' if inside.get(at + 1) == Some(&b'{') => at += plain_value(inside.get(at..)?)?,
            b'$' if inside.get(at + 1).is_some_and(|next| is_of_a_name(*next)) => {}
            b'(' | b')' | b'\\' | b'\'' | b'`' | b'#' | b'<' | b'\n' | b'$' => return None,
            _ => {}
        }
        at += 1;
    }
    // In a `case`, a parenthesis closes a pattern.
    let has_case = inside.get(..at)?.windows(4).any(|word| word == b"case");
    (!has_case).then_some(at + 2)
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_before_a_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b";&|()<>`{}!".contains(&byte)
}

fn is_behind_a_name(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(|before| is_of_a_name(*before))
}

/// Whether nothing but plain letters stands in the bracket, so that it is read once.
fn is_closed(bytes: &[u8], at: usize) -> bool {
    let inside = bytes.get(at + 1..).unwrap_or_default();
    let plain = inside.iter().take_while(|byte| is_of_a_name(**byte) || b"@*+-.,:".contains(*byte)).count();
    inside.get(plain) == Some(&b']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: bool) {
        assert_eq!(takes_too_long(text), expected, "{}", text.chars().take(80).collect::<String>());
    }

    #[test]
    fn brackets_that_are_never_closed_are_counted_wherever_they_stand() {
        for one in ["t['a'", "t[\"a\"", "name[^'x'", "t[\\}", "t[$x'a'", "t['a b'", "t[']'", "t[\" ]\""] {
            check(&one.repeat(40), true);
            check(&format!("echo x; y=1 {}", one.repeat(40)), true);
            check(&format!("echo $({})", one.repeat(40)), true);
            check(&format!("t[$(x y)]{}", one.repeat(40)), true);
            check(&format!("t[`x y`]{}", one.repeat(40)), true);
            check(&format!("t[`x`]; $({})", one.repeat(40)), true);
            check(&one.repeat(5), false);
        }
        for one in ["$((", "$(", "(", "`", "${x[", "${x-"] {
            check(&format!("t[{}", one.repeat(40)), true);
        }
        // Many words with a few each.
        check(&"t['a't['a't['a't['a't['a't['a't['a't['a'; ".repeat(100), true);
        check(&"t['a't['a'; ".repeat(100), false);
    }

    #[test]
    fn only_the_brackets_of_quoted_here_documents_are_covered() {
        let bare = |text: &str| covered(text).map(|bare| bare.replace(COVER, "_"));
        let check = |text: &str, expected: Option<&str>| assert_eq!(bare(text).as_deref(), expected, "{text}");
        check("cat <<'E'\na[b\nE\nc[d", Some("cat <<'E'\na_b\nE\nc[d"));
        check("cat <<-\"E F\" | x[1\na[b\n\tE F\n", Some("cat <<-\"E F\" | x[1\na_b\n\tE F\n"));
        check("cat <<E <<'F'\na[b\nE\nc[d\nF\n", Some("cat <<E <<'F'\na[b\nE\nc_d\nF\n"));
        check("cat <<E\na[b\nE\n", None);
        check("cat <<'E'\na[b\n", None);
        check("cat <<'E'\na[\u{1}b\nE\n", None);
        check("cat <<<'E'\na[b\nE\n", None);
    }

    #[test]
    fn arrays_and_programs_in_other_languages_are_not() {
        check(&"values[$i]=\"${other[$i]}\"\n".repeat(1000), false);
        check(&"sizes[$f]=$(stat -c %s \"$f\"); x=$(date)\n".repeat(1000), false);
        check(&"values[0]=1; values[10]+=2; echo ${values[@]}\n".repeat(1000), false);
        check(&"map[\"key\"]=1\n".repeat(1000), false);
        let python = "rows[\"a\"][\"b\"] = table[\"c\"][key['d']] + [x[\"y\"] for x in z]\n".repeat(200);
        check(&format!("python3 - <<'EOF'\n{python}EOF\n"), false);
        check(&format!("python3 -c '{}'", "d[\"a\"] = e[\"b\"]; ".repeat(500)), false);
        check(&"grep -E '[a-z][0-9]' file | sed 's/x[^y]/z/'; ".repeat(500), false);
    }
}
