//! Searches through the contents of whole folders, which must not show what is denied.

use std::path::{Path, PathBuf};

use ringfence::Refusal;
use serde_json::Value;

use super::NotJudged;
use super::call::{Access, Answer, Call, Files, Search};
use super::files;
use super::judge::Judge;

/// What has a meaning of its own in a pattern.
const SPECIAL: [char; 8] = ['*', '?', '[', '{', '!', '(', '\\', '|'];

/// The folder that a pattern begins in; nothing where it begins with a pattern. Where it goes up, or begins anew, behind its first special
/// character, nobody knows where it leads.
pub(super) fn base_of(pattern: &str) -> Result<Option<String>, NotJudged> {
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
pub(super) fn reached(mut paths: Vec<String>, pattern: &str) -> Result<Vec<String>, NotJudged> {
    let Some(base) = base_of(pattern)? else { return Ok(paths) };
    let joined: Vec<String> =
        paths.iter().map(|path| Path::new(path).join(&base).to_string_lossy().into_owned()).collect();
    // A home folder is meant by itself.
    let alone = paths.is_empty() || base.starts_with('~');
    paths.extend(joined);
    paths.extend(alone.then_some(base));
    Ok(paths)
}

pub(super) fn judge(judge: &Judge<'_>, call: &Call, search: &Search) -> Result<Answer, NotJudged> {
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

fn is_folder(judge: &Judge<'_>, call: &Call, path: &str) -> bool {
    reals(judge, call, path).iter().any(|real| real.is_dir())
}

/// Where `path` leads, by each reading of it.
fn reals(judge: &Judge<'_>, call: &Call, path: &str) -> Vec<PathBuf> {
    let readings = judge.all_names(call, path).unwrap_or_default();
    readings.into_iter().filter_map(|mut names| names.pop()).collect()
}

/// The same search with the denied files left out by its own patterns.
fn without_denied(judge: &Judge<'_>, call: &Call, key: &str) -> Result<Answer, NotJudged> {
    let mut globs: Vec<String> = Vec::new();
    match call.input.get(key) {
        None | Some(Value::Null) => {}
        Some(Value::String(written)) => globs.extend(written.split_whitespace().map(str::to_owned)),
        Some(_) => return Err(NotJudged::because(format!("its `{key}` is no text"))),
    }
    for denied in &judge.ground.context.loaded.policy.fs.deny {
        let glob = denied.value.as_str();
        // Between two patterns stands a space or a comma.
        if glob.contains([' ', '\t', ',']) {
            let why = format!("it cannot be told to leave out `{glob}`, which the policy denies");
            return Ok(Answer::Deny(cannot_leave_out(&why)));
        }
        // Meant from wherever the search begins, which need not be the workspace.
        let anywhere = glob.trim_start_matches('/').trim_start_matches("**/");
        globs.push(format!("!**/{anywhere}"));
    }
    let mut input = call.input.clone();
    input.insert(key.to_owned(), Value::String(globs.join(" ")));
    Ok(Answer::Changed(input))
}

/// Where nothing can be left out, nothing denied may be there.
fn none_denied(judge: &Judge<'_>, call: &Call, folders: &[&String]) -> Result<Answer, NotJudged> {
    let policy = &judge.ground.context.loaded.policy.fs;
    let found = ringfence::backend::denied_below(&judge.workspace, &policy.deny, judge.state.as_ref())
        .map_err(|error| NotJudged::because(format!("nobody knows what is denied in the workspace: {error}")))?;
    let reals: Vec<_> = folders.iter().flat_map(|path| reals(judge, call, path)).collect();
    let shows = |denied: &Path| reals.iter().any(|real| judge.workspace.join(denied).starts_with(real));
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
