//! Names as the most forgiving file system would take them: what could be the same file somewhere is the same name here.

use std::ffi::OsStr;

use crate::workspace::change::Place;

/// The names of `place`, folded: without regard to case, to code points that some file systems ignore, to what Windows
/// cuts off, and with a backslash between names.
pub(super) fn folded(place: &Place) -> Vec<String> {
    place.names().flat_map(fold).collect()
}

/// One name; several where a backslash would part them.
pub(super) fn fold(name: &OsStr) -> Vec<String> {
    let text = name.to_string_lossy();
    text.split('\\').filter(|part| !part.is_empty()).map(fold_part).collect()
}

fn fold_part(part: &str) -> String {
    // Up and down again: there are letters whose one way leads to another letter than the other, such as `ſ`.
    let folded: String = part
        .chars()
        .filter(|character| !is_invisible(*character))
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect();
    // NTFS: what follows a colon names a stream of the file, and dots and spaces at the end do not count.
    let without_stream = folded.split(':').next().unwrap_or_default();
    let cut = without_stream.trim_end_matches(['.', ' ']);
    if cut.is_empty() { folded } else { cut.to_owned() }
}

/// Whether a character shows nothing: Unicode's default ignorable code points. HFS+ ignores some of them in names, ext4 with
/// folded case all.
pub fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a folded name has the form of a short name that Windows makes for a longer one, such as `git~1`.
pub(super) fn is_short_name(name: &str) -> bool {
    let (stem, ending) = name.split_once('.').unwrap_or((name, ""));
    let Some((letters, number)) = stem.rsplit_once('~') else { return false };
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-$".contains(&byte));
    stem.len() <= 8
        && !letters.is_empty()
        && plain(letters)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && ending.len() <= 3
        && plain(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &str, expected: &[&str]) {
        assert_eq!(folded(&Place::new(written).unwrap()), expected, "{written:?}");
    }

    #[test]
    fn f12_names_that_some_file_system_takes_for_one_are_one() {
        check("a/.GIT/Hooks", &["a", ".git", "hooks"]);
        check(".g\u{200c}it", &[".git"]);
        check(".gi\u{feff}t/config", &[".git", "config"]);
        check(".git . .", &[".git"]);
        check(".git::$INDEX_ALLOCATION/config", &[".git", "config"]);
        check(".git\\hooks\\pre-commit", &[".git", "hooks", "pre-commit"]);
        check("maKe\u{17f}", &["makes"]);
        check("ma\u{212a}efile", &["makefile"]);
        check("...", &["..."]);
        check("plain.rs", &["plain.rs"]);
    }

    #[test]
    fn short_names_of_windows_are_known_and_backups_are_not_taken_for_them() {
        for short in ["git~1", "gitmod~1", "gi7eba~1", "mcp~1.jso", "claude~2"] {
            assert!(is_short_name(short), "{short}");
        }
        for other in ["makefile~", "git", "git~", "~1", "a-long-name~1", "x~1.backup", "src"] {
            assert!(!is_short_name(other), "{other}");
        }
    }
}
