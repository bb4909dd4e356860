//! Searches through the contents of whole folders, which must not show what is denied.

use std::path::{Path, PathBuf};

use ringfence::Refusal;
use ringfence_policy::Sourced;
use serde_json::Value;

use crate::NotJudged;
use crate::call::{Access, Answer, Call, Files, Search};
use crate::files;
use crate::judge::Judge;

/// What has a meaning of its own in a pattern.
const SPECIAL: [char; 8] = ['*', '?', '[', '{', '!', '(', '\\', '|'];

/// The folder that a pattern begins in; nothing where it begins with a pattern. Where it goes up, or begins anew, behind its first special
/// character, nobody knows where it leads.
pub(crate) fn base_of(pattern: &str) -> Result<Option<String>, NotJudged> {
    let Some(special) = pattern.find(SPECIAL) else {
        // Without one it is a path, whose last name may be one that leads up.
        let above = pattern.rfind('/').map_or("", |end| &pattern[..end.max(1)]);
        let base = if pattern == ".." || pattern.ends_with("/..") { pattern } else { above };
        return Ok((!base.is_empty()).then(|| base.to_owned()));
    };
    let end = pattern[..special].rfind('/');
    let rest = pattern[end.map_or(0, |end| end + 1)..].replace('\\', "");
    let anew = ["{/", ",/", "(/", "|/", "{~", ",~", "(~", "|~"];
    if rest.contains("..") || anew.iter().any(|mark| rest.contains(mark)) {
        return Err(NotJudged::because("nobody knows where its pattern leads; write it without `..`"));
    }
    Ok(end.map(|end| pattern[..end.max(1)].to_owned()))
}

/// The folders that a pattern reaches, which is meant from the first of `paths` where there is one.
pub(crate) fn reached(mut paths: Vec<String>, pattern: &str) -> Result<Vec<String>, NotJudged> {
    let Some(base) = base_of(pattern)? else { return Ok(paths) };
    let joined: Vec<String> =
        paths.iter().map(|path| Path::new(path).join(&base).to_string_lossy().into_owned()).collect();
    // A home folder is meant by itself.
    let alone = paths.is_empty() || base.starts_with('~');
    paths.extend(joined);
    paths.extend(alone.then_some(base));
    Ok(paths)
}

pub(crate) fn judge(judge: &Judge, call: &Call, search: &Search) -> Result<Answer, NotJudged> {
    let is_pattern = |path: &String| {
        path.contains(['*', '?', '[', '{', '\\']) || ["@(", "+(", "!("].iter().any(|mark| path.contains(mark))
    };
    let paths: Vec<String> = match search.paths.is_empty() {
        true => vec![".".to_owned()],
        false => search
            .paths
            .iter()
            .map(|path| match is_pattern(path) {
                true => Ok(base_of(path)?.unwrap_or_else(|| ".".to_owned())),
                false => Ok(path.clone()),
            })
            .collect::<Result<_, NotJudged>>()?,
    };
    let mut spelled = Vec::new();
    for path in &paths {
        match judge.spellings(call, path) {
            Ok(more) => spelled.extend(more),
            Err(refusal) => return Ok(Answer::Deny(refusal)),
        }
    }
    let paths = [paths, spelled].concat();
    for path in &paths {
        let access = if is_folder(judge, call, path) { Access::List } else { Access::Read };
        if let Some(objection) = files::judge(judge, call, &Files { paths: vec![path.clone()], access }) {
            return Ok(objection);
        }
    }
    let folders: Vec<&String> = paths.iter().filter(|path| is_folder(judge, call, path)).collect();
    if folders.is_empty() {
        return Ok(Answer::Free);
    }
    match search.globs {
        Some(key) => without_denied(judge, call, key),
        None => none_denied(judge, call, &folders),
    }
}

fn is_folder(judge: &Judge, call: &Call, path: &str) -> bool {
    reals(judge, call, path).iter().any(|real| real.is_dir())
}

/// Where `path` leads, by each reading of it.
fn reals(judge: &Judge, call: &Call, path: &str) -> Vec<PathBuf> {
    let readings = judge.all_names(call, path).unwrap_or_default();
    readings.into_iter().filter_map(|mut names| names.pop()).collect()
}

/// The same search with the denied files left out by its own patterns.
fn without_denied(judge: &Judge, call: &Call, key: &str) -> Result<Answer, NotJudged> {
    let mut globs: Vec<String> = Vec::new();
    match call.input.get(key) {
        None | Some(Value::Null) => {}
        Some(Value::String(written)) => globs.extend(written.split_whitespace().map(str::to_owned)),
        Some(_) => return Err(NotJudged::because(format!("its `{key}` is no text"))),
    }
    for denied in &judge.ground.loaded.policy.fs.deny {
        let glob = denied.value.as_str();
        // Between two patterns stands a space or a comma.
        if glob.contains([' ', '\t', ',']) {
            let why = format!("it cannot be told to leave out `{glob}`, which the policy denies");
            return Ok(Answer::Deny(cannot_leave_out(&why)));
        }
        // Meant from wherever the search begins, which need not be the workspace; and in any case, as everywhere where files are judged.
        let anywhere = glob.trim_start_matches('/').trim_start_matches("**/");
        globs.push(format!("!**/{}", any_case(anywhere)));
    }
    let mut input = call.input.clone();
    input.insert(key.to_owned(), Value::String(globs.join(" ")));
    Ok(Answer::Changed(input))
}

/// A pattern that fits whatever `glob` fits in any case of its letters, and perhaps more: what is left out of a search for nothing is
/// missed, what is shown by mistake is known.
fn any_case(glob: &str) -> String {
    let mut out = String::with_capacity(glob.len() * 4);
    let mut letters = glob.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '[' => {
                let set = set(&mut letters);
                match in_other_case(&set) {
                    Some(other) => out.push_str(&format!("[{set}{other}]")),
                    // The bytes of others differ in number.
                    None => out.push(if set.is_ascii() { '?' } else { '*' }),
                }
            }
            '\\' => match letters.next() {
                Some(next) if next.is_alphanumeric() => push_any_case(&mut out, next),
                next => out.extend(['\\'].into_iter().chain(next)),
            },
            _ => push_any_case(&mut out, letter),
        }
    }
    out
}

/// What stands in a set, whose first character does not end it.
fn set(letters: &mut std::str::Chars<'_>) -> String {
    let mut set = String::new();
    for letter in letters {
        if letter == ']' && !["", "!", "^"].contains(&set.as_str()) {
            break;
        }
        set.push(letter);
    }
    set
}

fn push_any_case(out: &mut String, letter: char) {
    match letter {
        _ if letter.is_ascii_alphabetic() => {
            out.extend(['[', letter.to_ascii_lowercase(), letter.to_ascii_uppercase(), ']']);
        }
        // The bytes of others differ in number.
        _ if letter.is_alphabetic() => out.push('*'),
        _ => out.push(letter),
    }
}

/// The letters of a set in their other case; nothing where it is no plain set, or its ranges would not be ranges any more, as in `A-z`.
fn in_other_case(set: &str) -> Option<String> {
    let other = |letter: char| match letter {
        _ if letter.is_ascii_lowercase() => letter.to_ascii_uppercase(),
        _ => letter.to_ascii_lowercase(),
    };
    let swapped: Vec<char> = set.chars().map(other).collect();
    let is_plain = set.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_range = |three: &[char]| three[1] != '-' || three[0] <= three[2];
    let is_known = is_plain && !set.is_empty() && !set.starts_with('-') && !set.ends_with('-');
    (is_known && swapped.windows(3).all(is_range)).then(|| swapped.into_iter().collect())
}

/// Where nothing can be left out, nothing denied may be there.
fn none_denied(judge: &Judge, call: &Call, folders: &[&String]) -> Result<Answer, NotJudged> {
    let policy = &judge.ground.loaded.policy.fs;
    // A copy of the project has its files, too.
    let in_copies = policy.deny.iter().map(|rule| {
        let glob = format!("**/.claude/worktrees/*/{}", rule.value.as_str().trim_start_matches('/'));
        let value = glob.parse().map_err(|_| NotJudged::because(format!("nobody knows what `{glob}` names")))?;
        Ok(Sourced { value, origin: rule.origin.clone() })
    });
    let deny: Vec<_> = policy.deny.iter().cloned().map(Ok).chain(in_copies).collect::<Result<_, NotJudged>>()?;
    let found = ringfence::backend::denied_below(&judge.ground.workspace, &deny, judge.ground.state.as_ref())
        .map_err(|error| NotJudged::because(format!("nobody knows what is denied in the workspace: {error}")))?;
    let reals: Vec<_> = folders.iter().flat_map(|path| reals(judge, call, path)).collect();
    let shows = |denied: &Path| reals.iter().any(|real| judge.ground.workspace.join(denied).starts_with(real));
    match found.iter().find(|denied| shows(denied)) {
        None => Ok(Answer::Free),
        Some(denied) => {
            let why =
                format!("it would look into `{}`, which the policy denies", files::shown(&denied.to_string_lossy()));
            Ok(Answer::Deny(cannot_leave_out(&why)))
        }
    }
}

fn cannot_leave_out(why: &str) -> Refusal {
    Refusal::new("fs.deny", "the search looks through a whole folder", why)
        .instead("Search by a shell command, such as `grep -rn`, which runs where such files are not; or in a folder without them.")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ringfence_policy::Glob;

    use super::any_case;

    fn check(glob: &str, name: &str, expected: bool) {
        let any: Glob = any_case(glob).parse().unwrap();
        assert_eq!(any.matches(std::path::Path::new(name)), expected, "{glob} became {any}: {name}");
    }

    #[test]
    fn a_pattern_in_any_case_fits_every_spelling_and_nothing_of_another_name() {
        for name in [".env", ".ENV", ".Env"] {
            check(".env", name, true);
            check(".EnV", name, true);
            check("\\.env", name, true);
            check(".\\env", name, true);
        }
        check(".env", ".environment", false);
        check(".env", "xenv", false);
        for name in ["key1", "KEY1", "Key9", "kEYa", "KEYF"] {
            check("key[0-9a-f]", name, true);
        }
        check("key[0-9a-f]", "keyz", false);
        check("x[A-z]", "xQ", true);
        check("x[Z-a]", "xz", true);
        for name in ["keyx", "KEYX", "key]"] {
            check("key[]x]", name, true);
        }
        check("key[!]a]", "keyB", true);
        check("key[a-]", "KEYA", true);
        check("key[-a]", "key-", true);
        check("key[\u{fc}]", "KEY\u{dc}", true);
        check("id_*", "ID_RSA", true);
        check("gr\u{fc}n", "GR\u{dc}N", true);
        check("**/.ssh/**", "a/.SSH/config", true);
        check("a[!b]", "aC", true);
    }
}
