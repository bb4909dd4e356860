//! What kind of place a path is. By its words alone: links are the caller's to resolve, which [`crate::follow`] asks it to do.

use serde::{Deserialize, Serialize};

use crate::places;
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

/// What kinds of place `path` is: at least one; a secret below the home is both.
pub fn classify(path: &Text, surroundings: &Surroundings) -> Vec<PathClass> {
    let written = written(path, surroundings);
    let Some(absolute) = absolute(&written, surroundings) else {
        // The start is not known; what is known of the end may still tell.
        let parts: Vec<&str> =
            written.split('/').filter(|part| !part.is_empty() && *part != "." && *part != "..").collect();
        let mut classes = places::named(&parts);
        classes.push(PathClass::Unknown);
        return classes;
    };
    let parts = resolve(&absolute, surroundings);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let mut classes = places::named(&parts);
    // Where the work is done in the home itself, whoever says "home" means more than a project; and all of it is a home all the same.
    let whole = || takes_home(&parts, surroundings);
    let at_home =
        works_at_home(surroundings) && (is_spelled_as_home(path) || is_personal(&parts, surroundings) || whole());
    let here = if at_home { &Surroundings { workspaces: Vec::new(), ..surroundings.clone() } } else { surroundings };
    classes.extend(if at_home && whole() { vec![PathClass::WholeHome] } else { place(&parts, here) });
    classes.dedup();
    classes
}

/// Whether a workspace is the home folder, or lies around it.
pub(crate) fn works_at_home(surroundings: &Surroundings) -> bool {
    let home = split(&surroundings.home);
    surroundings
        .workspaces
        .iter()
        .map(|workspace| split(workspace))
        .any(|workspace| !workspace.is_empty() && home.starts_with(&workspace))
}

fn split(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// The home, under each of its names: where it is a workspace, the others are the same folder.
fn homes(surroundings: &Surroundings) -> Vec<&str> {
    let same = surroundings.workspaces.contains(&surroundings.home);
    let others = surroundings.workspaces.iter().filter(|_| same);
    std::iter::once(&surroundings.home).chain(others).map(String::as_str).collect()
}

/// Whether a path takes the whole home, or more than one.
fn takes_home(parts: &[&str], surroundings: &Surroundings) -> bool {
    let end = parts.iter().rposition(|part| !everything(&[*part])).map_or(0, |last| last + 1);
    let folder = parts.get(..end).unwrap_or_default();
    let another = match (folder, split(&surroundings.home).as_slice()) {
        ([homes, _], [beside, _]) => homes == beside,
        _ => false,
    };
    !folder.is_empty() && (another || homes(surroundings).iter().any(|home| split(home).starts_with(folder)))
}

/// Folders that a person keeps in a home, whatever work is done there.
const PERSONAL: &[&str] = &[
    "Applications",
    "Desktop",
    "Documents",
    "Downloads",
    "Dropbox",
    "Library",
    "Movies",
    "Music",
    "OneDrive",
    "Pictures",
    "Public",
    "Templates",
    "Videos",
    ".aws",
    ".azure",
    ".config",
    ".docker",
    ".gnupg",
    ".kube",
    ".local",
    ".mozilla",
    ".password-store",
    ".ssh",
    ".thunderbird",
    ".var",
];

/// Whether a path lies in such a folder.
fn is_personal(parts: &[&str], surroundings: &Surroundings) -> bool {
    let telling = |part: &str| part.chars().any(char::is_alphanumeric);
    homes(surroundings)
        .iter()
        .filter_map(|home| below(parts, home)?.first())
        .any(|first| PERSONAL.iter().any(|name| first == name || telling(first) && places::fits(first, name)))
}

/// `~/…` or `$HOME/…`.
fn is_spelled_as_home(path: &Text) -> bool {
    let variable = matches!(path.pieces().first(), Some(Piece::Hole(Hole::Variable(name))) if name == "HOME");
    variable || path.known_start() == "~" || path.known_start().starts_with("~/")
}

/// A part that is not known, in place of it.
pub const HOLE: char = '\u{1}';

/// The path from the root in each form that may be opened: as it is written, with its letters decoded, and with its steps back taken.
/// None where its start is not known.
pub(crate) fn absolute_forms(path: &Text, surroundings: &Surroundings) -> Vec<String> {
    let mut forms: Vec<String> = Vec::new();
    for form in [without_scheme(spelled(path, surroundings)), written(path, surroundings)] {
        let Some(absolute) = absolute(&form, surroundings) else { continue };
        let plain = absolute.contains("/..").then(|| format!("/{}", resolve(&absolute, surroundings).join("/")));
        for form in std::iter::once(absolute).chain(plain) {
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    forms
}

/// The path as one string: patterns stay as they are, holes become a mark.
fn spelled(path: &Text, surroundings: &Surroundings) -> String {
    let mut whole = String::new();
    for piece in path.pieces() {
        match piece {
            Piece::Known(text) | Piece::Pattern(text) => whole.push_str(text),
            Piece::Hole(Hole::Variable(name)) if name == "HOME" => whole.push_str(&surroundings.home),
            Piece::Hole(Hole::Variable(name)) if name == "PWD" => whole.push_str(&surroundings.directory),
            Piece::Hole(_) => whole.push(HOLE),
        }
    }
    whole
}

/// Likewise, with encoded letters decoded.
fn written(path: &Text, surroundings: &Surroundings) -> String {
    let mut whole = spelled(path, surroundings);
    // Twice encoded is decoded twice; more is no path that anything opens.
    for _ in 0..2 {
        whole = decoded(&whole);
    }
    without_scheme(whole)
}

fn without_scheme(whole: String) -> String {
    for start in ["file://localhost", "file://"] {
        if let Some(rest) = whole.strip_prefix(start) {
            return rest.to_owned();
        }
    }
    whole
}

/// `%2e`, `%2f` and their kin, decoded: only signs that paths are made of.
fn decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        plain.push_str(rest.get(..at).unwrap_or_default());
        let code = rest.get(at + 1..at + 3).unwrap_or_default().to_ascii_lowercase();
        let letter = match code.as_str() {
            "2e" => ".",
            "2f" | "5c" => "/",
            "25" => "%",
            "7e" => "~",
            _ => "",
        };
        if letter.is_empty() {
            plain.push('%');
            rest = rest.get(at + 1..).unwrap_or_default();
        } else {
            plain.push_str(letter);
            rest = rest.get(at + 3..).unwrap_or_default();
        }
    }
    plain.push_str(rest);
    plain
}

/// The path from the root; nothing where its start is not known.
fn absolute(written: &str, surroundings: &Surroundings) -> Option<String> {
    let home = &surroundings.home;
    for start in ["~", "$HOME", "${HOME}"] {
        if let Some(rest) = written.strip_prefix(start)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return Some(format!("{home}{rest}"));
        }
    }
    if let Some(user) = written.strip_prefix('~') {
        let (user, rest) = user.split_once('/').unwrap_or((user, ""));
        let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
        return Some(format!("{home}/{rest}"));
    }
    if written.starts_with(HOLE) || written.is_empty() {
        return None;
    }
    if written.starts_with('/') {
        Some(written.to_owned())
    } else {
        Some(format!("{}/{written}", surroundings.directory))
    }
}

/// The parts of a path from the root, without `.`, `..` and the detours through `/proc`.
fn resolve(absolute: &str, surroundings: &Surroundings) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in absolute.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
        if let [proc, _, last] = parts.as_slice()
            && proc == "proc"
        {
            match last.as_str() {
                "root" => parts.clear(),
                "cwd" => {
                    parts =
                        surroundings.directory.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
                }
                _ => {}
            }
        }
    }
    parts
}

/// Whether the rest of a path takes everything in a folder: nothing, or `*`.
fn everything(rest: &[&str]) -> bool {
    rest.iter().all(|part| matches!(*part, "*" | "**" | ".*" | "{*,.*}" | ".[!.]*" | "?*"))
}

fn below<'p>(parts: &'p [&'p str], folder: &str) -> Option<&'p [&'p str]> {
    let folder: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if folder.is_empty() {
        return None;
    }
    let start = parts.get(..folder.len())?;
    let telling = |part: &str| part.chars().any(char::is_alphanumeric);
    let same = start.iter().zip(&folder).all(|(part, name)| part == name || telling(part) && places::fits(part, name));
    if same { parts.get(folder.len()..) } else { None }
}

/// Where a path lies.
fn place(parts: &[&str], surroundings: &Surroundings) -> Vec<PathClass> {
    for workspace in &surroundings.workspaces {
        if let Some(rest) = below(parts, workspace) {
            return vec![if everything(rest) { PathClass::WholeWorkspace } else { PathClass::Workspace }];
        }
    }
    if everything(parts) {
        return vec![PathClass::Root];
    }
    if let [only] = parts
        && only.starts_with(HOLE)
    {
        // Nothing may come of the hole: then it is the root.
        return vec![PathClass::Root, PathClass::Unknown];
    }
    // The home before what is temporary: a home may lie there.
    for home in [surroundings.home.as_str(), "/root"] {
        if let Some(rest) = below(parts, home) {
            return match rest {
                // What programs keep there they can make again.
                [".cache", _, ..]
                | ["Library", "Caches", _, ..]
                | [".npm", "_cacache" | "_npx" | "_logs", ..]
                | [".gradle" | ".yarn" | ".ivy2" | ".composer", "caches" | "cache", ..]
                | [".m2", "repository", _, ..]
                | [".cargo", "registry", "cache" | "src" | "index", ..]
                | [".bun", "install", "cache", ..]
                | [".nuget", "packages", _, ..]
                | [".pnpm-store" | ".pub-cache", ..] => vec![PathClass::Home, PathClass::Temporary],
                rest if everything(rest) => vec![PathClass::WholeHome],
                _ => vec![PathClass::Home],
            };
        }
    }
    for temporary in ["/tmp", "/var/tmp", "/dev/shm", "/private/tmp", "/private/var/tmp"] {
        if below(parts, temporary).is_some() {
            return vec![PathClass::Temporary];
        }
    }
    for homes in ["/home", "/Users"] {
        if let Some(rest) = below(parts, homes) {
            let whole = everything(rest.get(1..).unwrap_or_default());
            return vec![if whole { PathClass::WholeHome } else { PathClass::Home }];
        }
    }
    if let Some(rest) = below(parts, "/dev") {
        return vec![places::device(rest)];
    }
    if below(parts, "/proc").is_some() || below(parts, "/sys").is_some() {
        return vec![PathClass::Kernel];
    }
    if below(parts, "/etc").is_some() {
        return vec![PathClass::SystemSettings];
    }
    let system = [
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/boot",
        "/var",
        "/opt",
        "/srv",
        "/run",
        "/snap",
        "/System",
        "/Library",
        "/Applications",
        "/nix",
    ];
    if system.iter().any(|folder| below(parts, folder).is_some()) {
        return vec![PathClass::System];
    }
    vec![PathClass::Elsewhere]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &[PathClass]) {
        let mut text = Text::default();
        // `*` and `?` are patterns, `…` is a hole.
        for letter in path.chars() {
            text.push(match letter {
                '*' | '?' => Piece::Pattern(letter.to_string()),
                '…' => Piece::Hole(Hole::Other),
                letter => Piece::Known(letter.to_string()),
            });
        }
        assert_eq!(classify(&text, &Surroundings::default()), expected, "{path}");
    }

    #[test]
    fn a_path_is_of_the_kinds_that_its_parts_say() {
        use PathClass::*;
        for (path, expected) in [
            ("src/main.rs", &[Workspace][..]),
            ("/workspace/a", &[Workspace]),
            (".", &[WholeWorkspace]),
            ("*", &[WholeWorkspace]),
            ("./", &[WholeWorkspace]),
            ("./build/*", &[Workspace]),
            ("..", &[Root]),
            ("../../etc/passwd", &[SystemSettings]),
            ("..%2f..%2fetc%2fshadow", &[Secret, SystemSettings]),
            ("%252e%252e/etc/shadow", &[Secret, SystemSettings]),
            ("/", &[Root]),
            ("/*", &[Root]),
            ("//", &[Root]),
            ("/./..//", &[Root]),
            ("/…", &[Root, Unknown]),
            ("…", &[Unknown]),
            ("…/.ssh/id_rsa", &[Secret, Unknown]),
            ("~", &[WholeHome]),
            ("~/*", &[WholeHome]),
            ("$HOME/x", &[Home]),
            ("/root", &[WholeHome]),
            ("/home", &[WholeHome]),
            ("/home/*", &[WholeHome]),
            ("~/notes.txt", &[Home]),
            ("~/.ssh/id_ed25519", &[Secret, Home]),
            ("~/.ssh/id_ed25519.pub", &[Home]),
            ("~/.ssh", &[Secret, Home]),
            ("~/.ssh/*", &[Secret, ExecutedLater, Home]),
            ("~/.ssh/authorized_keys", &[ExecutedLater, Home]),
            ("~/.aws/credentials", &[Secret, Home]),
            ("~/.bashrc", &[ExecutedLater, Home]),
            ("~/.bash_history", &[Traces, Home]),
            (".env", &[Secret, Workspace]),
            (".env.example", &[Workspace]),
            (".git/hooks/pre-commit", &[ExecutedLater, Workspace]),
            (".mcp.json", &[ExecutedLater, Workspace]),
            ("/etc/shadow", &[Secret, SystemSettings]),
            ("/etc/shad?w", &[Secret, SystemSettings]),
            ("/e?c/shadow", &[Secret, SystemSettings]),
            ("/etc/passwd", &[SystemSettings]),
            ("/etc/cron.d/x", &[ExecutedLater, SystemSettings]),
            ("/etc/ld.so.preload", &[ExecutedLater, SystemSettings]),
            ("/proc/self/root/etc/shadow", &[Secret, SystemSettings]),
            ("/proc/1/root/*", &[Root]),
            ("/proc/self/cwd/x", &[Workspace]),
            ("/proc/self/environ", &[Secret, Kernel]),
            ("/proc/cpuinfo", &[Kernel]),
            ("/sys/kernel", &[Kernel]),
            ("/dev/null", &[Stream]),
            ("/dev/fd/3", &[Stream]),
            ("/dev/sda1", &[Device]),
            ("/dev/mem", &[Device]),
            ("/dev/shm/x", &[Temporary]),
            ("/tmp/x", &[Temporary]),
            ("/var/run/docker.sock", &[EngineSocket, System]),
            ("/var/log/auth.log", &[Traces, System]),
            ("/usr/bin/env", &[System]),
            ("/boot", &[System]),
            ("/data/x", &[Elsewhere]),
            ("file:///etc/passwd", &[SystemSettings]),
        ] {
            check(path, expected);
        }
    }
}
