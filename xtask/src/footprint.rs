//! What the tests may leave behind: nothing. A scratch folder for them, and a look around before and after.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::step::{Failure, Outcome};
use crate::workspace::Workspace;

const PREFIX: &str = "ringfence-xtask-";
/// Every process that a step starts inherits this, unless something clears its environment.
const MARK: &str = "XTASK_MARK";
/// How the variables begin that Ringfence reads.
const OUR_SETTINGS: &[&str] = &["RINGFENCE_", "SECURITY_"];
/// How long what is ending may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// A temporary folder of our own, removed when dropped; what a killed run left is removed by the next.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) folder: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self, Failure> {
        let parent = everybodys_folder();
        remove_abandoned(&parent);
        let folder = parent.join(format!("{PREFIX}{}", std::process::id()));
        let scratch = Self { folder };
        // `create` fails if it exists: nobody else's folder, and no link that somebody laid there.
        DirBuilder::new()
            .mode(0o755)
            .create(&scratch.folder)
            .map_err(|error| Failure::io(format!("make `{}`", scratch.folder.display()), &error))?;
        open_to_all(&scratch.folder)?;
        scratch.subfolder("tmp")?;
        let state = scratch.subfolder("state")?;
        // Programs refuse a runtime folder that others can look into.
        fs::set_permissions(&state, Permissions::from_mode(0o700))
            .map_err(|error| Failure::io(format!("close `{}`", state.display()), &error))?;
        Ok(scratch)
    }

    pub(crate) fn subfolder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(|error| Failure::io(format!("make `{}`", folder.display()), &error))?;
        open_to_all(&folder)?;
        Ok(folder)
    }

    /// Gives a command this folder for all that it would write for itself.
    pub(crate) fn apply(&self, command: &mut Command) {
        keep_apart(command, &self.folder.join("tmp"), &self.folder.join("state"));
    }
}

/// Points everything that a program would write for itself to these folders, and keeps the developer's own settings of
/// Ringfence out: a test sees the same world on every machine.
pub(crate) fn keep_apart(command: &mut Command, temporary: &Path, state: &Path) {
    for (name, _) in std::env::vars_os() {
        if OUR_SETTINGS.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    // Some packages keep what was compiled in the folder for temporary files, and leave it there.
    command.env("NODE_DISABLE_COMPILE_CACHE", "1");
    command.env("TMPDIR", temporary).env(MARK, std::process::id().to_string());
    for name in ["XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        command.env(name, state);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("warning: could not remove `{}`: {error}", self.folder.display());
        }
    }
}

pub(crate) fn open_to_all(folder: &Path) -> Result<(), Failure> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))
        .map_err(|error| Failure::io(format!("open `{}` to all", folder.display()), &error))
}

/// The temporary folder, if an ordinary user can reach it; root's own may be closed.
fn everybodys_folder() -> PathBuf {
    let wanted = std::env::temp_dir();
    if reachable_by_all(&wanted) { wanted } else { PathBuf::from("/tmp") }
}

/// Whether every folder on the way lets everybody through.
pub(crate) fn reachable_by_all(folder: &Path) -> bool {
    folder.is_absolute()
        && folder.canonicalize().is_ok_and(|real| {
            real.ancestors().all(|step| step.metadata().is_ok_and(|metadata| metadata.mode() & 0o001 != 0))
        })
}

fn remove_abandoned(parent: &Path) {
    let mine = fs::metadata("/proc/self").map(|metadata| metadata.uid()).ok();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let owner = entry.metadata().map(|metadata| metadata.uid()).ok();
        let own_pid = pid.parse() == Ok(std::process::id());
        if owner == mine && pid.parse::<u32>().is_ok() && (own_pid || !Path::new("/proc").join(pid).exists()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// What of ours is in the world at one moment: each thing by a key, with words for a person.
#[derive(Debug)]
pub(crate) struct Footprint(BTreeMap<String, String>);

impl Footprint {
    pub(crate) fn take(workspace: &Workspace, scratch: &Scratch) -> Self {
        let mut things = BTreeMap::new();
        for line in fs::read_to_string("/proc/self/mounts").unwrap_or_default().lines() {
            things.insert(format!("mount {line}"), format!("mount {line}"));
        }
        for name in cgroups() {
            let words = format!("cgroup {name}");
            things.insert(words.clone(), words);
        }
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            if let Some((key, words)) = our_process(&entry.path(), workspace, scratch) {
                things.insert(key, words);
            }
        }
        for place in places(scratch) {
            for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
                let ours =
                    place.starts_with(&scratch.folder) || entry.file_name().to_string_lossy().contains("ringfence");
                // Another `cargo xtask test` may be at work beside this one.
                if ours && !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                    let words = format!("left in a temporary folder: {}", entry.path().display());
                    things.insert(words.clone(), words);
                }
            }
        }
        Self(things)
    }

    /// Compares with the world as it is now; what is still ending gets a moment.
    pub(crate) fn compare(&self, workspace: &Workspace, scratch: &Scratch) -> Result<Outcome, Failure> {
        let started = Instant::now();
        loop {
            let now = Self::take(workspace, scratch);
            let left = now.beyond(self);
            if left.is_empty() {
                return Ok(Outcome::Passed("no process, mount, cgroup or temporary folder is left".to_owned()));
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure { what: format!("{} left behind", count(left.len())), output: left.join("\n") });
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.iter().filter(|(key, _)| !before.0.contains_key(*key)).map(|(_, words)| words.clone()).collect()
    }
}

fn count(number: usize) -> String {
    if number == 1 { "1 thing is".to_owned() } else { format!("{number} things are") }
}

fn places(scratch: &Scratch) -> Vec<PathBuf> {
    let mut places =
        vec![scratch.folder.join("tmp"), std::env::temp_dir(), "/dev/shm".into(), "/run".into(), "/var/tmp".into()];
    if let Some(home) = std::env::var_os("HOME") {
        let home = PathBuf::from(home);
        places.extend([".local/state", ".local/share", ".config", ".cache"].map(|name| home.join(name)));
    }
    places
}

/// The cgroups that engines of ours make for all their containers.
fn cgroups() -> Vec<String> {
    let parents = crate::engines::hierarchies().into_iter().flat_map(fs::read_dir).flatten().flatten();
    let mine = format!("ringfence-test-{}-", std::process::id());
    let found = parents.filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine));
    found.map(|entry| entry.path().display().to_string()).collect()
}

/// A process is ours if it runs from the target folder, stands in the scratch folder, or carries our mark.
fn our_process(entry: &Path, workspace: &Workspace, scratch: &Scratch) -> Option<(String, String)> {
    let pid: u32 = entry.file_name()?.to_str()?.parse().ok()?;
    if pid == std::process::id() {
        return None;
    }
    let read = |name: &str| fs::read(entry.join(name)).unwrap_or_default();
    let link = |name: &str| fs::read_link(entry.join(name)).unwrap_or_default();
    let command_line = read("cmdline");
    let program = command_line.split(|byte| *byte == 0).next().map(String::from_utf8_lossy)?;
    let mark = format!("{MARK}={}", std::process::id());
    let ours = link("exe").starts_with(&workspace.target)
        || Path::new(program.as_ref()).starts_with(&workspace.target)
        || link("cwd").starts_with(&scratch.folder)
        || read("environ").split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes());
    if !ours {
        return None;
    }
    // Numbers are used again; number and start time together are not.
    let stat = read("stat");
    let stat = String::from_utf8_lossy(&stat);
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    let words = String::from_utf8_lossy(&command_line).replace('\0', " ");
    Some((format!("process {pid} {start}"), format!("process {pid}: {}", words.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_there_before_counts() {
        let things =
            |keys: &[&str]| Footprint(keys.iter().map(|key| ((*key).to_owned(), format!("a {key}"))).collect());
        assert_eq!(things(&["x", "y"]).beyond(&things(&["x"])), ["a y"]);
        assert!(things(&["x"]).beyond(&things(&["x", "y"])).is_empty());
    }

    #[test]
    fn a_closed_or_missing_folder_is_not_reachable() {
        assert!(reachable_by_all(Path::new("/")));
        assert!(!reachable_by_all(Path::new("/no/such/folder")));
        assert!(!reachable_by_all(Path::new("relative")));
        let closed = std::env::temp_dir().join(format!("ringfence-closed-{}", std::process::id()));
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
        let reachable = reachable_by_all(&closed);
        fs::remove_dir(&closed).unwrap();
        assert!(!reachable);
    }
}
