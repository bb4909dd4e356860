//! What kind of place a path is. By its words alone: links are the caller's to resolve.

use serde::{Deserialize, Serialize};

use crate::text::{Hole, Piece, Text};

/// Where the request would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The working directory, absolute; relative paths start here.
    pub directory: String,
    /// Folders that are the request's own, absolute: the workspace, the project outside.
    pub workspaces: Vec<String>,
    /// The home folder, absolute.
    pub home: String,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            directory: "/workspace".to_owned(),
            workspaces: vec!["/workspace".to_owned()],
            home: "/home/user".to_owned(),
        }
    }
}

/// Kinds of places, for rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathClass {
    /// Below a workspace.
    Workspace,
    /// A workspace itself, as a whole.
    WholeWorkspace,
    /// `/tmp`, `/var/tmp`, `/dev/shm`.
    Temporary,
    /// `/dev/null`, `/dev/stdout`, `/dev/tty` and their kin.
    Stream,
    /// `/`, or everything below it by a pattern.
    Root,
    /// Folders of the system: `/usr`, `/bin`, `/lib`, `/boot`, `/var`, `/opt`.
    System,
    /// `/etc`.
    SystemSettings,
    /// A home folder as a whole.
    WholeHome,
    /// Below a home folder.
    Home,
    /// Start files and settings that are executed later: `.bashrc`, `.profile`, `.git/hooks`, `authorized_keys`, agent settings, crontabs.
    ExecutedLater,
    /// Keys, tokens, passwords: `.ssh/id_*`, `.aws/credentials`, `.env`, `/etc/shadow`, cookies, wallets, key rings.
    Secret,
    /// Disks and memory as devices: `/dev/sda`, `/dev/mem`, `/dev/kmem`.
    Device,
    /// Other processes and the kernel: `/proc`, `/sys`.
    Kernel,
    /// The socket of a container engine.
    EngineSocket,
    /// A history of commands, logs.
    Traces,
    /// Somewhere else.
    Elsewhere,
    /// Not known.
    Unknown,
}

/// Below a home: names, or folders with everything below, that hold keys and passwords.
const SECRET_AT_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".bitcoin",
    ".boto",
    ".cargo/credentials*",
    ".config/gcloud",
    ".config/gh",
    ".config/google-chrome",
    ".config/chromium",
    ".config/op",
    ".docker/config.json",
    ".electrum",
    ".ethereum",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube/config",
    ".local/share/keyrings",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pki",
    ".pypirc",
    ".s3cfg",
    ".ssh",
    ".terraform.d/credentials*",
    ".vault-token",
    ".config/hub",
    ".config/rclone",
    "Library/Keychains",
    ".config/solana",
    ".claude/.credentials*",
];
/// Below `.ssh`, what is no key.
const NO_KEY: &[&str] = &["*.pub", "known_hosts*", "config", "authorized_keys*"];
/// Names that are secret wherever they are.
const SECRET_NAMES: &[&str] = &[
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    ".env",
    ".env.*",
    "wallet.dat",
    "*.kdbx",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".vault-token",
];
/// Names like secrets that hold none.
const EXAMPLES: &[&str] = &["*.example", "*.sample", "*.template", "*.dist", "*.test", "*.defaults", "*.tpl"];
/// Absolute places that hold secrets.
const SECRET_PLACES: &[&str] = &[
    "/etc/shadow*",
    "/etc/gshadow*",
    "/etc/sudoers*",
    "/etc/ssh/ssh_host_*",
    "/etc/krb5.keytab",
    "/etc/ssl/private",
    "/run/secrets",
    "/var/run/secrets",
    "/var/lib/docker",
    "/etc/security/opasswd",
    "/etc/master.passwd",
    "/run/user/*/keyring",
];
/// Below a home or a workspace: what is executed or obeyed later.
const LATER: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".config/fish",
    ".gitconfig",
    ".config/git",
    ".ssh/authorized_keys*",
    ".ssh/config",
    ".ssh/rc",
    ".ssh/environment",
    ".config/autostart",
    ".config/systemd",
    ".claude",
    ".codex",
    ".config/environment.d",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".pam_environment",
    ".vimrc",
    ".config/nvim",
    ".emacs",
    ".emacs.d",
    ".git/hooks",
    ".git/config",
    ".cursor/mcp.json",
    ".mcp.json",
    ".local/bin",
    "Library/LaunchAgents",
    ".local/share/systemd",
    ".inputrc",
    ".npmrc",
    ".config/pip",
    ".pip/pip.conf",
];
const LATER_PLACES: &[&str] = &[
    "/etc/cron*",
    "/etc/profile*",
    "/etc/bash*",
    "/etc/zsh*",
    "/etc/rc.local",
    "/etc/ld.so*",
    "/etc/systemd",
    "/etc/init.d",
    "/var/spool/cron",
    "/etc/environment",
    "/etc/sudoers*",
    "/etc/pam.d",
    "/etc/udev",
    "/usr/lib/systemd",
    "/lib/systemd",
    "/etc/xdg/autostart",
    "/etc/update-motd.d",
];
const HISTORY: &[&str] = &[
    ".bash_history",
    ".zsh_history",
    ".history",
    ".sh_history",
    ".python_history",
    ".node_repl_history",
    ".mysql_history",
    ".psql_history",
    ".lesshst",
    ".local/share/fish",
];
const LOGS: &[&str] = &["/var/log", "/var/run/utmp", "/run/utmp", "/run/log"];
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
const STREAMS: &[&str] = &[
    "/dev/null",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/fd",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/console",
    "/dev/log",
    "/proc/self/fd",
    "/dev/tcp",
    "/dev/udp",
];
const DEVICES: &[&str] = &[
    "/dev/sd*",
    "/dev/hd*",
    "/dev/vd*",
    "/dev/xvd*",
    "/dev/nvme*",
    "/dev/mmcblk*",
    "/dev/loop*",
    "/dev/dm-*",
    "/dev/mapper",
    "/dev/disk",
    "/dev/md*",
    "/dev/mem",
    "/dev/kmem",
    "/dev/port",
    "/dev/kmsg",
    "/dev/input",
    "/dev/kvm",
    "/dev/sg*",
    "/dev/fb*",
    "/proc/kcore",
];
const KERNEL: &[&str] = &["/proc", "/sys"];
const SOCKETS: &[&str] =
    &["*/docker.sock", "*/podman.sock", "*/containerd.sock", "*/crio.sock", "*/cri-dockerd.sock", "*/buildkitd.sock"];
const SYSTEM: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/var", "/opt", "/run", "/snap", "/nix",
    "/dev",
];

/// What kinds of place `path` is: at least one; a secret below the home is both.
pub fn classify(path: &Text, surroundings: &Surroundings) -> Vec<PathClass> {
    let Some(parts) = parts(path, surroundings) else {
        let end = path.known_end();
        let mut found = vec![PathClass::Unknown];
        let below = end.split_once('/').map_or("", |(_, rest)| rest);
        if within_any(SECRET_AT_HOME, below) || is_secret_name(end.rsplit('/').next().unwrap_or_default()) {
            found.push(PathClass::Secret);
        }
        return found;
    };
    let mut found = Vec::new();
    let whole = format!("/{}", parts.join("/"));
    let below = |folder: &str| below(&parts, folder);
    let at_home = [surroundings.home.as_str(), "/root", "/home/*"].into_iter().find_map(below);
    let in_workspace = surroundings.workspaces.iter().find_map(|folder| self::below(&parts, folder));
    let everything = |rest: &[String]| matches!(rest, [] | [_] if rest.first().is_none_or(|name| is_all(name)));
    match (&in_workspace, &at_home) {
        (Some(rest), _) if everything(rest) => found.push(PathClass::WholeWorkspace),
        (Some(_), _) => found.push(PathClass::Workspace),
        (None, _) if everything(&parts) => found.push(PathClass::Root),
        (None, Some(rest)) if everything(rest) => found.push(PathClass::WholeHome),
        (None, None) if below("/home").is_some_and(|rest| everything(&rest)) => found.push(PathClass::WholeHome),
        (None, Some(_)) => found.push(PathClass::Home),
        (None, None) => found.push(of_the_machine(&parts, &whole)),
    }
    // Whoever removes a folder above a workspace removes it, too.
    if in_workspace.is_none()
        && surroundings.workspaces.iter().any(|folder| self::below(&split(folder), &whole).is_some())
    {
        found.push(PathClass::WholeWorkspace);
    }
    let own = in_workspace.as_ref().or(at_home.as_ref()).map(|rest| rest.join("/"));
    let name = parts.last().map_or("", String::as_str);
    let secret_at_home = at_home.as_ref().is_some_and(|rest| {
        let is_key = !(rest.first().is_some_and(|first| first == ".ssh") && rest.len() > 1 && any(NO_KEY, name));
        is_key && in_workspace.is_none() && within_any(SECRET_AT_HOME, &rest.join("/"))
    });
    let stray_key = in_workspace.is_none()
        && any(&["*.pem", "*.p12", "*.pfx", "*.keystore"], name)
        && below("/etc/ssl/certs").is_none();
    if secret_at_home || is_secret_name(name) || stray_key || SECRET_PLACES.iter().any(|place| below(place).is_some()) {
        found.push(PathClass::Secret);
    }
    if own.as_ref().is_some_and(|own| within_any(LATER, own) && !(in_workspace.is_some() && own == ".npmrc"))
        || LATER_PLACES.iter().any(|place| below(place).is_some())
        || any(&["usercustomize.py", "sitecustomize.py"], name)
        || whole.contains("/.git/hooks/") && !name.ends_with(".sample")
    {
        found.push(PathClass::ExecutedLater);
    }
    if at_home.as_ref().is_some_and(|rest| within_any(HISTORY, &rest.join("/")))
        || LOGS.iter().any(|place| below(place).is_some())
    {
        found.push(PathClass::Traces);
    }
    if any(SOCKETS, &whole) {
        found.push(PathClass::EngineSocket);
    }
    found
}

fn of_the_machine(parts: &[String], whole: &str) -> PathClass {
    let is = |places: &[&str]| places.iter().any(|place| below(parts, place).is_some());
    if is(STREAMS) || whole.starts_with("/dev/fd") {
        PathClass::Stream
    } else if is(TEMPORARY) {
        PathClass::Temporary
    } else if is(DEVICES) {
        PathClass::Device
    } else if is(KERNEL) {
        PathClass::Kernel
    } else if is(&["/etc"]) {
        PathClass::SystemSettings
    } else if is(SYSTEM) {
        PathClass::System
    } else if parts.first().is_some_and(|first| first.contains(HOLE)) {
        PathClass::Unknown
    } else {
        PathClass::Elsewhere
    }
}

/// Stands for what is not known within a name.
const HOLE: char = '\u{0}';

/// The names of an absolute, tidy path; nothing where its beginning is not known. A pattern stays one, a hole is [`HOLE`].
fn parts(path: &Text, surroundings: &Surroundings) -> Option<Vec<String>> {
    let mut text = String::new();
    for piece in path.pieces() {
        match piece {
            Piece::Known(known) | Piece::Pattern(known) => text.push_str(known),
            Piece::Hole(Hole::Variable(name)) if name == "HOME" && text.is_empty() => text.push_str(&surroundings.home),
            Piece::Hole(Hole::Variable(name)) if name == "PWD" && text.is_empty() => {
                text.push_str(&surroundings.directory)
            }
            Piece::Hole(_) if text.is_empty() => return None,
            Piece::Hole(_) => text.push(HOLE),
        }
    }
    let text = text.strip_prefix("file://").unwrap_or(&text);
    let text = decoded(text);
    let whole = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{}{rest}", surroundings.home),
        Some(rest) => format!("/home/{rest}"),
        None if text.starts_with('/') => text,
        None => format!("{}/{text}", surroundings.directory),
    };
    Some(split(&whole))
}

/// `%2e%2e%2f` is a way up as well.
fn decoded(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.contains("%2e") || lower.contains("%2f") {
        text.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").replace("%2F", "/")
    } else {
        text.to_owned()
    }
}

fn split(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
    }
    parts
}

/// What of `parts` is below `folder`, whose names may be patterns, and so may ours.
fn below(parts: &[String], folder: &str) -> Option<Vec<String>> {
    let wanted = split(folder);
    if parts.len() < wanted.len() {
        return None;
    }
    let (start, rest) = parts.split_at(wanted.len());
    start.iter().zip(&wanted).all(|(name, wanted)| could_be(name, wanted)).then(|| rest.to_vec())
}

/// Whether a name of the path could be this name of a list.
fn could_be(name: &str, wanted: &str) -> bool {
    if name.contains(HOLE) || is_all(name) {
        return wanted == "*";
    }
    let is_pattern = name.contains(['*', '?', '[']);
    if wanted.contains('*') {
        return crate::glob::matches(wanted, name)
            || is_pattern && crate::glob::matches(name, &wanted.replace('*', ""));
    }
    name == wanted || is_pattern && crate::glob::matches(name, wanted)
}

fn is_all(name: &str) -> bool {
    matches!(name, "*" | ".*" | "**" | ".[!.]*" | "{*,.*}")
}

fn any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| crate::glob::matches(pattern, name))
}

fn within_any(folders: &[&str], path: &str) -> bool {
    let parts = split(path);
    !parts.is_empty() && folders.iter().any(|folder| below(&parts, folder).is_some())
}

fn is_secret_name(name: &str) -> bool {
    any(SECRET_NAMES, name) && !any(EXAMPLES, name) && !name.ends_with(".pub")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &[PathClass]) {
        let mut text = Text::default();
        for (place, part) in path.split('$').enumerate() {
            if place > 0 {
                text.push(Piece::Hole(Hole::Other));
            }
            text.push(Piece::Known(part.to_owned()));
        }
        assert_eq!(classify(&text, &Surroundings::default()), expected, "{path}");
    }

    #[test]
    fn places_are_told_apart_by_their_words() {
        use PathClass::*;
        check("build", &[Workspace]);
        check("/workspace/../workspace/a", &[Workspace]);
        check(".", &[WholeWorkspace]);
        check("*", &[WholeWorkspace]);
        check("/", &[Root, WholeWorkspace]);
        check("/*", &[Root, WholeWorkspace]);
        check("../../..", &[Root, WholeWorkspace]);
        check("%2e%2e/etc/passwd", &[SystemSettings]);
        check("~", &[WholeHome]);
        check("~/*", &[WholeHome]);
        check("/home/other", &[WholeHome]);
        check("~/Documents", &[Home]);
        check("~/.ssh/id_rsa", &[Home, Secret]);
        check("~/.ssh", &[Home, Secret]);
        check("~/.ssh/id_rsa.pub", &[Home]);
        check(".env", &[Workspace, Secret]);
        check(".env.example", &[Workspace]);
        check("/etc/sh*ow", &[SystemSettings, Secret]);
        check("/etc/$", &[SystemSettings]);
        check("/tmp/x", &[Temporary]);
        check("/dev/null", &[Stream]);
        check("/dev/sda1", &[Device]);
        check("/proc/1/environ", &[Kernel]);
        check("/usr/bin/git", &[System]);
        check("/srv/data", &[Elsewhere]);
        check("$/x", &[Unknown]);
        check("$/.ssh/id_rsa", &[Unknown, Secret]);
        check("out-$.txt", &[Workspace]);
        check("~/.bashrc", &[Home, ExecutedLater]);
        check(".git/hooks/pre-commit", &[Workspace, ExecutedLater]);
        check("~/.bash_history", &[Home, Traces]);
        check("/var/log/syslog", &[System, Traces]);
        check("/var/run/docker.sock", &[System, EngineSocket]);
    }
}
