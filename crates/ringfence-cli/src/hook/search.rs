//! Searches through the contents of whole folders, which must not show what is denied.

use std::path::Path;

use ringfence::Refusal;
use serde_json::Value;

use super::NotJudged;
use super::call::{Access, Answer, Call, Files, Search};
use super::files;
use super::judge::Judge;

/// The folder that a pattern begins in; nothing where it begins with a pattern.
pub(super) fn base_of(pattern: &str) -> Option<String> {
    let special = pattern.find(['*', '?', '[', '{', '!']).unwrap_or(pattern.len());
    let base = match pattern[..special].rfind('/') {
        Some(0) => "/",
        Some(end) => &pattern[..end],
        None => return pattern[..special].starts_with("..").then(|| "..".to_owned()),
    };
    Some(base.to_owned())
}

pub(super) fn judge(judge: &Judge<'_>, call: &Call, search: &Search) -> Result<Answer, NotJudged> {
    let is_pattern = |path: &String| path.contains(['*', '?', '[', '{']);
    let paths: Vec<String> = match search.paths.is_empty() {
        true => vec![".".to_owned()],
        false => search
            .paths
            .iter()
            .map(|path| if is_pattern(path) { base_of(path).unwrap_or_else(|| ".".to_owned()) } else { path.clone() })
            .collect(),
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
    judge.all_names(call, path).ok().and_then(|names| names.last().cloned()).is_some_and(|real| real.is_dir())
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
        globs.push(format!("!{glob}"));
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
    let reals: Vec<_> = folders
        .iter()
        .filter_map(|path| judge.all_names(call, path).ok().and_then(|names| names.last().cloned()))
        .collect();
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
