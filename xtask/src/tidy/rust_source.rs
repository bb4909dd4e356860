//! Just enough of Rust's grammar to tell code from comments and strings, and to find the tests at a file's end.

/// The source with comments, strings and characters blanked out; every line stays where it is.
pub(super) fn code_only(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut code = String::with_capacity(source.len());
    let mut index = 0;
    while index < chars.len() {
        let end = match at(index) {
            '/' if at(index + 1) == '/' => end_of_line(&chars, index),
            '/' if at(index + 1) == '*' => end_of_block(&chars, index),
            '"' => end_of_string(&chars, index + 1),
            'r' if !continues_a_word(&chars, index) => end_of_raw(&chars, index).unwrap_or(index),
            '\'' if at(index + 1) == '\\' => end_of_character(&chars, index + 3),
            '\'' if at(index + 1) != '\'' && at(index + 2) == '\'' => index + 3,
            _ => index,
        };
        if end == index {
            code.push(at(index));
            index += 1;
        }
        while index < end.min(chars.len()) {
            code.push(if at(index) == '\n' { '\n' } else { ' ' });
            index += 1;
        }
    }
    code
}

/// Whether what stands here belongs to a word that began earlier; the prefix of `br"…"` and `cr"…"` does not count.
fn continues_a_word(chars: &[char], index: usize) -> bool {
    let word = |index: Option<usize>| index.and_then(|index| chars.get(index)).is_some_and(|c| is_word(*c));
    match index.checked_sub(1).and_then(|index| chars.get(index)) {
        Some('b' | 'c') => word(index.checked_sub(2)),
        Some(c) => is_word(*c),
        None => false,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_line(chars: &[char], from: usize) -> usize {
    (from..chars.len()).find(|index| chars.get(*index) == Some(&'\n')).unwrap_or(chars.len())
}

fn end_of_block(chars: &[char], from: usize) -> usize {
    let mut depth = 0_usize;
    let mut index = from;
    while index < chars.len() {
        match (chars.get(index), chars.get(index + 1)) {
            (Some('/'), Some('*')) => {
                depth += 1;
                index += 2;
            }
            (Some('*'), Some('/')) => {
                depth = depth.saturating_sub(1);
                index += 2;
                if depth == 0 {
                    return index;
                }
            }
            _ => index += 1,
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], from: usize) -> usize {
    let mut index = from;
    while index < chars.len() {
        match chars.get(index) {
            Some('\\') => index += 2,
            Some('"') => return index + 1,
            _ => index += 1,
        }
    }
    chars.len()
}

/// `None`: no raw string begins here.
fn end_of_raw(chars: &[char], from: usize) -> Option<usize> {
    let hashes = chars.iter().skip(from + 1).take_while(|c| **c == '#').count();
    let open = from + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |index: &usize| {
        chars.get(*index) == Some(&'"')
            && chars.iter().skip(index + 1).take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |index| index + 1 + hashes))
}

fn end_of_character(chars: &[char], from: usize) -> usize {
    (from..chars.len()).find(|index| chars.get(*index) == Some(&'\'')).map_or(chars.len(), |index| index + 1)
}

/// The number of lines before the `#[cfg(test)] mod … { }` that ends the file; all lines where none does.
pub(super) fn lines_before_tests(code: &str) -> usize {
    let all = code.lines().count();
    let mut offset = 0;
    for (number, line) in code.lines().enumerate() {
        if line.starts_with("#[cfg(test)]") && code.get(offset..).is_some_and(is_last_module) {
            return number;
        }
        offset += line.len() + 1;
    }
    all
}

fn is_last_module(code: &str) -> bool {
    let mut rest = code.trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        let Some((_, after)) = attribute.split_once("]\n") else { return false };
        rest = after.trim_start();
    }
    if !rest.starts_with("mod ") {
        return false;
    }
    let mut depth = 0_usize;
    for (index, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return rest.get(index + 1..).is_some_and(|after| after.trim().is_empty()),
            '}' => depth -= 1,
            ';' if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// Whether the word stands in the text, not as a part of a longer one.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let before = text.get(..start).and_then(|before| before.chars().next_back());
        let after = text.get(start + word.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, seen: bool) {
        assert_eq!(has_word(&code_only(source), "unsafe"), seen, "{source}\n{}", code_only(source));
    }

    #[test]
    fn a_word_is_seen_in_code_but_not_in_comments_strings_or_longer_words() {
        check("unsafe { f() }", true);
        check("let x = 1; unsafe{}", true);
        check("// unsafe\nlet x = 1;", false);
        check("/* a /* unsafe */ unsafe */ fn f() {}", false);
        check("let s = \"unsafe\";", false);
        check("let s = r#\"a \" unsafe\"#;", false);
        check("let s = br##\"unsafe\"# unsafe\"##;", false);
        check("#![deny(unsafe_code)]", false);
        check("fn not_unsafe() {}", false);
    }

    #[test]
    fn code_cannot_hide_behind_what_only_looks_like_a_string() {
        check("let quote = '\"'; unsafe {} let other = '\"';", true);
        check("let quote = '\\''; unsafe {} // '", true);
        check("let quote = b'\\\"'; unsafe {}", true);
        check("fn f<'a>(x: &'a str) { unsafe {} }", true);
        check("let s = \"\\\\\"; unsafe {} // \"", true);
        check("let r#type = 1; unsafe {}", true);
        check("let s = r\"\\\"; unsafe {}", true);
        check("/* // */ unsafe {}", true);
        check("let bar = \"x\"; unsafe {} \"y\"", true);
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "a\n\"b\nc\"\n/*\n*/\nd // e\n'\\n'\n";
        assert_eq!(code_only(source).lines().count(), source.lines().count());
    }

    #[test]
    fn no_source_makes_it_panic() {
        for source in ["", "'", "'\\", "r#", "r#\"", "\"", "\"\\", "/*", "b'", "br", "'a", "é'é'\"é", "\\", "r"] {
            code_only(source);
            lines_before_tests(source);
        }
    }

    #[test]
    fn tests_count_as_tests_only_at_the_end() {
        let at_the_end = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() { {} }\n}\n";
        assert_eq!(lines_before_tests(at_the_end), 2);
        let with_reason = "fn a() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod tests {\n}\n";
        assert_eq!(lines_before_tests(with_reason), 1);
        let in_the_middle = "#[cfg(test)]\nmod tests {\n}\nfn a() {}\n";
        assert_eq!(lines_before_tests(in_the_middle), 4);
        let elsewhere = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n";
        assert_eq!(lines_before_tests(elsewhere), 4);
        let a_function = "#[cfg(test)]\nfn a() {\n}\n";
        assert_eq!(lines_before_tests(a_function), 3);
    }
}
