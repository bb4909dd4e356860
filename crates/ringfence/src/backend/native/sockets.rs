//! Sockets of the host that the policy names: each is shown at its own path, and nothing beside it.

use std::env::VarError;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ringfence_linux::wall::{Access, Entry, Identity};
use ringfence_policy::ResolvedPolicy;
use rustix::fs::FileType;

use super::pinned::Pinned;
use super::{StartError, WallError, view, wall_error};
use crate::state::StateFolder;

/// Variables that name a socket which speaks for the user: whatever it is called, it is never shown.
const SPEAK_FOR_THE_USER: [&str; 10] = [
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "TMUX",
    "SWAYSOCK",
    "I3SOCK",
    "VSCODE_IPC_HOOK_CLI",
    "NVIM",
    "KITTY_LISTEN_ON",
];

/// The sockets of `net.unix`. One that is missing, or is none, fails the start: a program that needs it would fail later, and say less.
pub(super) fn entries(
    policy: &ResolvedPolicy,
    identity: Identity,
    state: &StateFolder,
    trees: &mut view::Trees,
) -> Result<Vec<Entry>, StartError> {
    let sockets = &policy.net.unix;
    sockets.iter().map(|socket| entry(socket.value.as_path(), identity, state, trees)).collect()
}

fn entry(path: &Path, identity: Identity, state: &StateFolder, trees: &mut view::Trees) -> Result<Entry, StartError> {
    let refuse = |why: String| Err(StartError::Wall(WallError(format!("`net.unix` names {}: {why}", path.display()))));
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) => return refuse(format!("{error}; start its service first, or take it out of the policy")),
    };
    if real != path {
        return refuse(format!("a link leads from there to {}; write that path", real.display()));
    }
    let state = state.path().canonicalize().map_err(|error| wall_error("find the state folder", &error))?;
    if real.starts_with(&state) {
        return refuse("it is one of our own, by which sessions are ruled".to_owned());
    }
    let socket = match Pinned::open(path) {
        Ok(socket) if socket.kind() == FileType::Socket => socket,
        Ok(_) => return refuse("it is no socket; a file or folder is shown by `fs.mounts`".to_owned()),
        Err(error) => return refuse(error.to_string()),
    };
    if let Some(variable) = SPEAK_FOR_THE_USER.into_iter().find(|variable| is_named_by(&socket, variable)) {
        return refuse(format!("`{variable}` names it: whoever reaches it acts for you"));
    }
    // Everybody may connect to some; to others their owner, who is nobody inside when we are root.
    let source = if socket.is_open_to_all() { socket.source() } else { view::source(&socket, identity, trees)? };
    Ok(Entry::Bind { source, at: path.to_owned(), access: Access::ReadOnly })
}

/// Whether an environment variable of ours leads to `socket`.
fn is_named_by(socket: &Pinned, variable: &str) -> bool {
    let value = match std::env::var(variable) {
        Ok(value) => value,
        Err(VarError::NotPresent) => return false,
        // What cannot be read may name any.
        Err(VarError::NotUnicode(_)) => return true,
    };
    let mut named = value.split([';', ',']).map(|part| part.trim_start_matches("unix:").trim_start_matches("path="));
    named.any(|text| {
        let path = PathBuf::from(text.replacen("//", "/", 1));
        path.metadata()
            .is_ok_and(|found| found.file_type().is_socket() && (found.dev(), found.ino()) == socket.identity())
    })
}
