//! Toolchains that lie outside the system's folders: shown read-only when `PATH` leads to them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_linux::wall::{Access, Entry, Source, Written};

use super::view::read_only;

/// Version managers below a home folder: what of them is needed to run their tools. Nothing that could hold a token.
const MANAGERS: [(&str, &[&str]); 12] = [
    (".pyenv", &[".pyenv"]),
    (".nvm", &[".nvm/versions"]),
    (".cargo", &[".cargo/bin", ".rustup/toolchains", ".rustup/settings.toml"]),
    (".rustup", &[".rustup/toolchains"]),
    (".volta", &[".volta/bin", ".volta/tools"]),
    (".asdf", &[".asdf"]),
    (".rbenv", &[".rbenv"]),
    (".sdkman", &[".sdkman/candidates"]),
    (".bun", &[".bun/bin"]),
    (".deno", &[".deno/bin"]),
    ("miniconda3", &["miniconda3"]),
    ("anaconda3", &["anaconda3"]),
];
/// Below these everything is shown already.
const SHOWN: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];

/// What a folder of programs does not have: a home, or a project with secrets, that somebody put on `PATH`.
const NOT_OF_PROGRAMS: [&str; 10] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".bash_history",
    ".bashrc",
    ".profile",
];

/// The entries for what `path` leads to, without what belongs to `workspace`: that is shown once, where its rules hold.
pub(super) fn entries(path: &OsStr, workspace: &Path) -> Vec<Entry> {
    paths(path, workspace).iter().map(|path| shown(path, workspace)).collect()
}

/// The folders and files that `path` leads to, without what belongs to `workspace`.
pub(in crate::backend) fn paths(path: &OsStr, workspace: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute() && folder.is_dir()) {
        if SHOWN.iter().any(|shown| folder.starts_with(shown)) {
            continue;
        }
        for needed in needed(&folder) {
            // A look at what is known costs nothing, a look at the disk does.
            if !found.iter().any(|known| needed.starts_with(known)) && may_be_shown(&needed, workspace) {
                found.retain(|known| !known.starts_with(&needed));
                found.push(needed);
            }
        }
    }
    found.sort();
    found
}

/// Not a bind: a socket of a host's service in it would answer.
fn shown(path: &Path, workspace: &Path) -> Entry {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // A workspace that lies in it may have to appear at its own place, for which a layer has no room.
    if !real.is_dir() || workspace.starts_with(&real) {
        return read_only(path);
    }
    let absent = Vec::new();
    let source = Source::Host(path.to_owned());
    Entry::CopyOnWrite { source, at: path.to_owned(), absent, access: Access::ReadOnly, written: Written::Forgotten }
}

/// Whether `needed`, wherever its links lead, is there and is neither a home, nor above one, nor a part of `workspace`.
fn may_be_shown(needed: &Path, workspace: &Path) -> bool {
    let Ok(real) = needed.canonicalize() else { return false };
    let fit = ringfence_policy::check_source(&real).is_ok();
    fit && !is_home(&real) && !real.starts_with(workspace)
}

/// Whether a folder, given by its real path, is or holds our home, or looks like anybody's.
pub(super) fn is_home(real: &Path) -> bool {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let holds_home = home.is_some_and(|home| home.starts_with(real));
    holds_home || NOT_OF_PROGRAMS.iter().any(|name| real.join(name).symlink_metadata().is_ok())
}

/// What must be shown for the programs of one folder of `PATH` to work.
fn needed(folder: &Path) -> Vec<PathBuf> {
    for (manager, parts) in MANAGERS {
        let home =
            folder.ancestors().find(|above| above.file_name() == Some(OsStr::new(manager))).and_then(Path::parent);
        if let Some(home) = home {
            return parts.iter().map(|part| home.join(part)).collect();
        }
    }
    // `/opt/tool/bin` needs all of `/opt/tool`; `/opt/bin` does not need all of `/opt`, and nothing of a home folder is
    // shown because one of its folders is on the path.
    let prefix = folder.parent().filter(|_| folder.file_name() == Some(OsStr::new("bin")));
    match prefix {
        Some(prefix) if prefix.components().count() >= 3 && prefix.starts_with("/opt") => vec![prefix.to_owned()],
        Some(_) | None => vec![folder.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folder: &str, expected: &[&str]) {
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(needed(Path::new(folder)), expected, "{folder}");
    }

    #[test]
    fn a_version_manager_is_shown_without_what_could_hold_a_token() {
        check("/home/me/.pyenv/shims", &["/home/me/.pyenv"]);
        check("/home/me/.nvm/versions/node/v20/bin", &["/home/me/.nvm/versions"]);
        check(
            "/home/me/.cargo/bin",
            &["/home/me/.cargo/bin", "/home/me/.rustup/toolchains", "/home/me/.rustup/settings.toml"],
        );
    }

    #[test]
    fn s02_a_folder_on_the_path_never_shows_a_whole_home() {
        check("/home/me/bin", &["/home/me/bin"]);
        check("/home/me/.local/bin", &["/home/me/.local/bin"]);
        check("/opt/bin", &["/opt/bin"]);
        check("/opt/tool/bin", &["/opt/tool"]);
        check("/srv/x/y/bin", &["/srv/x/y/bin"]);
    }
}
