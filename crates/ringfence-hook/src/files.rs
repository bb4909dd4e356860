//! Files that an agent's own tools would touch: within the workspace, and neither denied nor protected.

use std::path::{Component, Path, PathBuf};

use ringfence::backend::readable;
use ringfence::workspace::named::Meant;
use ringfence::{Refusal, plain};
use ringfence_policy::{Mount, MountMode, WorkspaceMode};

use crate::Agent;
use crate::call::{Access, Answer, Asks, Call, Files};
use crate::judge::Judge;

/// More of a path is not shown.
const MOST_SHOWN: usize = 300;

/// A text of a model, shortened and in one harmless line.
pub fn shown(text: &str) -> String {
    let short: String = text.chars().take(MOST_SHOWN).collect();
    plain::line(short.as_bytes())
}

/// What speaks against touching `files`: a denial of one is a denial of all, and one question is enough.
pub(crate) fn judge(judge: &Judge, call: &Call, files: &Files) -> Option<Answer> {
    let mut asked = None;
    let mut spelled = Vec::new();
    // A pattern begins with such a path, and some tools match patterns without regard to case.
    for path in files.paths.iter().filter(|_| files.access == Access::List) {
        match judge.spellings(call, path) {
            Ok(more) => spelled.extend(more),
            Err(refusal) => return Some(Answer::Deny(refusal)),
        }
    }
    for path in files.paths.iter().chain(&spelled) {
        match judge_one(judge, call, path, files.access) {
            Some(Answer::Ask(refusal, input)) => {
                asked.get_or_insert(Answer::Ask(refusal, input));
            }
            Some(Answer::Deny(refusal)) => return Some(Answer::Deny(refusal)),
            Some(Answer::Free | Answer::Changed(_)) | None => {}
        }
    }
    asked
}

/// What speaks against any reading of one path; a denial before a question.
fn judge_one(judge: &Judge, call: &Call, path: &str, access: Access) -> Option<Answer> {
    let readings = match judge.all_names(call, path) {
        Ok(readings) => readings,
        Err(refusal) => return Some(Answer::Deny(refusal)),
    };
    let mut objections: Vec<Answer> =
        readings.iter().filter_map(|names| judge_reading(judge, call, path, names, access)).collect();
    let worst = objections.iter().position(|one| matches!(one, Answer::Deny(_))).unwrap_or_default();
    (!objections.is_empty()).then(|| objections.swap_remove(worst))
}

fn judge_reading(judge: &Judge, call: &Call, path: &str, names: &[PathBuf], access: Access) -> Option<Answer> {
    let meant = match access {
        Access::Read | Access::Write => Meant::File,
        Access::List => Meant::Folder,
    };
    let fs = &judge.ground.loaded.policy.fs;
    let subject = format!("`{}` may not be {}", shown(path), done(access));
    if is_ours(judge, names, access) {
        let refusal =
            Refusal::new("hook.own-files", subject, "it is a part of Ringfence: its policy, its records or itself");
        return Some(Answer::Deny(refusal.do_not_retry("Leave it alone, and tell the person if it has to change.")));
    }
    let relative: Vec<&Path> =
        names.iter().map(|name| name.strip_prefix(&judge.ground.workspace).unwrap_or(name)).collect();
    if let Some(glob) = relative.iter().find_map(|name| judge.named.denied(name, meant)) {
        let origin = fs.deny.iter().find(|written| written.value.as_str() == glob).map(|written| &written.origin);
        let refusal = Refusal::new("fs.deny", subject, format!("the policy denies it by `{glob}`"));
        let refusal = origin.map_or_else(|| refusal.clone(), |origin| refusal.clone().at(origin));
        let advice = "It is kept from every tool; do not try to get at it by another way. Ask the person for what you need of it.";
        return Some(Answer::Deny(refusal.do_not_retry(advice)));
    }
    let real = names.last()?;
    if let Some(why) = out_of_bounds(judge, call, real, access) {
        let refusal = Refusal::new("fs.workspace", subject, why).at(&fs.workspace.origin);
        return Some(Answer::Deny(
            refusal
                .hint("A person can show a folder by `fs: { mounts: … }` in the policy.")
                .instead("Work with files below the workspace."),
        ));
    }
    if access != Access::Write || is_the_agents(judge, call, real, access) {
        return None;
    }
    let why = relative.iter().find_map(|name| judge.named.asked_about(name))?;
    let refusal = Refusal::new("fs.protect", format!("`{}` would be changed", shown(path)), why);
    Some(match call.asks {
        Asks::APerson => Answer::Ask(refusal, None),
        Asks::Nobody => Answer::Deny(refusal.instead(
            "A person has to look first. Change it by a shell command: then it is kept, and they can apply it with `ringfence apply`.",
        )),
    })
}

fn done(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::List => "listed",
        Access::Write => "changed",
    }
}

/// The policy may be read, and nothing else of ours touched.
fn is_ours(judge: &Judge, names: &[PathBuf], access: Access) -> bool {
    let writes = access == Access::Write;
    let own = &judge.ground.own;
    let state = judge
        .ground
        .state
        .as_ref()
        .map(|state| state.path().canonicalize().unwrap_or_else(|_| state.path().to_owned()));
    names.iter().any(|name| {
        writes && (own.contains(name) || judge.ground.program == *name)
            || state.as_ref().is_some_and(|state| name.starts_with(state))
    })
}

/// Why `real` lies where such a tool does not reach.
fn out_of_bounds(judge: &Judge, call: &Call, real: &Path, access: Access) -> Option<String> {
    let fs = &judge.ground.loaded.policy.fs;
    if real.starts_with(&judge.ground.workspace) {
        return match (access, fs.mode.value) {
            (Access::Read | Access::List, _) | (Access::Write, WorkspaceMode::Review | WorkspaceMode::Direct) => None,
            (Access::Write, WorkspaceMode::ReadOnly | WorkspaceMode::Ephemeral) => {
                Some("the policy does not let the workspace be changed".to_owned())
            }
        };
    }
    let base = judge.ground.loaded.project_file.as_deref().and_then(Path::parent);
    let mounted = fs.mounts.iter().any(|mount| match &mount.value {
        Mount::Tmpfs { .. } => false,
        Mount::Host { host, mode, .. } => {
            let host = base.unwrap_or(&judge.ground.workspace).join(host.as_path());
            let host = host.canonicalize().unwrap_or(host);
            real.starts_with(host) && (access != Access::Write || *mode == MountMode::ReadWrite)
        }
    });
    if mounted || is_the_agents(judge, call, real, access) {
        return None;
    }
    let reads = access != Access::Write;
    if reads
        && readable(&judge.ground.path, &judge.ground.workspace).iter().any(|folder| starts_with_real(real, folder))
    {
        return None;
    }
    Some(format!("it lies outside of the workspace {}", judge.ground.workspace.display()))
}

fn starts_with_real(real: &Path, folder: &Path) -> bool {
    real.starts_with(folder) || folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
}

/// What an agent keeps for itself outside of the project, and has its model read: what long calls gave back, plans. Of what it keeps for
/// each project, only the folder of this one, where it writes the conversation down.
fn is_the_agents(judge: &Judge, call: &Call, real: &Path, access: Access) -> bool {
    let home = judge.ground.home.as_ref().and_then(|home| home.canonicalize().ok());
    let below =
        |parts: &[&str]| home.as_ref().is_some_and(|home| parts.iter().any(|part| real.starts_with(home.join(part))));
    let of_this_project = |all: &str| {
        let all = home.as_ref().map(|home| home.join(all));
        let transcript = call.transcript.as_deref().and_then(|path| {
            let folder = path.parent()?;
            Some(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()))
        });
        let (Some(all), Some(transcript)) = (all, transcript) else { return false };
        let Some(Component::Normal(name)) =
            transcript.strip_prefix(&all).ok().and_then(|rest| rest.components().next())
        else {
            return false;
        };
        // Programs that the agent fetched for itself.
        name != "bin" && real.starts_with(all.join(name))
    };
    match (judge.ground.agent, access) {
        (Agent::ClaudeCode, Access::Write) => below(&[".claude/plans"]),
        (Agent::ClaudeCode, Access::Read | Access::List) => {
            below(&[".claude/plans"])
                || of_this_project(".claude/projects")
                || real.starts_with(format!("/tmp/claude-{}", judge.ground.user))
        }
        (Agent::Gemini, _) => of_this_project(".gemini/tmp"),
        (Agent::Cursor, Access::Read | Access::List) => of_this_project(".cursor/projects"),
        (Agent::Codex, _) | (Agent::Cursor, Access::Write) => false,
    }
}
