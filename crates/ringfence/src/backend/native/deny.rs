//! Finds the files of a workspace that the policy denies. Bounded: a tree that is too large to look through is refused.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringfence_policy::{Glob, Sourced};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::known::{self, Known, Names, Place};
use super::linked;
use super::pace::{Pace, TooLong, at_once};
use super::pinned::Pinned;
use super::{StartError, WallError};
use crate::state::StateFolder;
use crate::workspace::copy::Kind;

/// More entries than this are not looked through.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// More matches than this are not masked one by one.
const MOST_MATCHES: usize = 4_096;
/// A folder's names are read in pieces of this size.
pub(super) const PIECE: usize = 64 * 1024;

/// A folder of the host that is walked through.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ground<'a> {
    /// Where it was found; what is remembered of it is found by this.
    pub(super) path: &'a Path,
    pub(super) root: &'a OwnedFd,
    pub(super) mounted: Mounted,
    /// What of it nobody sees, sorted: it is not looked into.
    pub(super) hidden: &'a [PathBuf],
}

/// What becomes of something that is mounted in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mounted {
    /// It is a part of it.
    Entered,
    /// It is an error: a wall that stands already shows what lies below.
    Refused,
}

/// Why it is not known what is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WalkError {
    /// There is too much of something.
    TooMany(&'static str),
    /// The time for it is over.
    TooLong,
    /// A folder, relative to the ground, could not be read.
    Folder(PathBuf, Errno),
}

impl From<TooLong> for WalkError {
    fn from(TooLong: TooLong) -> Self {
        Self::TooLong
    }
}

impl WalkError {
    /// The error of whoever raises a wall over `workspace`.
    fn at_the_start(self, workspace: &Path) -> StartError {
        let too_large = |what: &str| {
            StartError::Wall(WallError(format!(
                "the workspace has {what}, so `fs.deny` could not be held: name a smaller folder with --workspace"
            )))
        };
        match self {
            Self::TooMany(what) => too_large(what),
            Self::TooLong => too_large("too much in it to be looked through in time"),
            Self::Folder(folder, errno) => {
                StartError::WorkingDirectory { path: workspace.join(folder), source: errno.into() }
            }
        }
    }
}

/// The denied paths below `workspace`, relative to it, with every other name of a denied file. What lies below a denied
/// folder is not listed again. What was found is remembered in `state`, where there is one.
pub(crate) fn find(
    workspace: &Path,
    deny: &[Sourced<Glob>],
    state: Option<&StateFolder>,
) -> Result<Vec<PathBuf>, StartError> {
    find_at(workspace, deny, state, SystemTime::now())
}

/// Likewise, below a folder that is held.
pub(super) fn find_in(
    folder: &Pinned,
    deny: &[Sourced<Glob>],
    state: Option<&StateFolder>,
) -> Result<Vec<PathBuf>, StartError> {
    find_below(folder.path(), folder.opened(), deny, state, SystemTime::now())
}

fn find_at(
    workspace: &Path,
    deny: &[Sourced<Glob>],
    state: Option<&StateFolder>,
    now: SystemTime,
) -> Result<Vec<PathBuf>, StartError> {
    let root = rustix::fs::open(workspace, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| StartError::WorkingDirectory { path: workspace.to_owned(), source: errno.into() })?;
    find_below(workspace, &root, deny, state, now)
}

fn find_below(
    path: &Path,
    root: &OwnedFd,
    deny: &[Sourced<Glob>],
    state: Option<&StateFolder>,
    now: SystemTime,
) -> Result<Vec<PathBuf>, StartError> {
    let ground = Ground { path, root, mounted: Mounted::Entered, hidden: &[] };
    let memory = state.map(|state| Memory { state, most_bytes: known::MOST_BYTES });
    at_once(walk(ground, deny, memory, now, &mut Pace::to_the_end())).map_err(|error| error.at_the_start(path))
}

/// Where what was found is remembered, and how much may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory<'a> {
    pub(super) state: &'a StateFolder,
    pub(super) most_bytes: u64,
}

/// The denied paths below `ground`, as [`find`] has them.
pub(super) async fn walk(
    ground: Ground<'_>,
    deny: &[Sourced<Glob>],
    memory: Option<Memory<'_>>,
    now: SystemTime,
    pace: &mut Pace,
) -> Result<Vec<PathBuf>, WalkError> {
    if deny.is_empty() {
        return Ok(Vec::new());
    }
    let place = memory.and_then(|memory| Place::of(memory, ground, deny));
    let kept = place.as_ref().map(Place::read).unwrap_or_default();
    let mut known = Known::parse(&kept, now);
    let mut walk = Walk::default();
    // Not written before it is needed: each page of it would be a fault.
    let mut piece = Vec::<u8>::with_capacity(PIECE);
    while let Some((folder, kind)) = walk.left.pop() {
        pace.next_folder().await?;
        if ground.hides(&folder) {
            continue;
        }
        if let Some(names) = known.recall(ground.root, &folder) {
            walk.take(&folder, &names)?;
            continue;
        }
        let opened = match open(ground, &folder) {
            Ok(opened) => opened,
            // What is in it is not known. The program may know, or may open it: inside, it is the owner of its copy.
            Err(Errno::ACCESS | Errno::PERM) if !folder.as_os_str().is_empty() => {
                walk.found.push(folder);
                continue;
            }
            // Its kind could not be told, and it is no folder. One that was a folder a moment ago may have gone where we
            // have looked already: that is an error, as every other is.
            Err(Errno::NOTDIR | Errno::LOOP) if kind == FileType::Unknown => continue,
            Err(errno) => return Err(WalkError::Folder(folder, errno)),
        };
        // Before the names are read: a change while they are makes this stamp an old one.
        let stamp = known::stamp_of(&opened, Path::new(""));
        let mut read = Read::default();
        let mut entries = RawDir::new(opened, piece.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| WalkError::Folder(folder.clone(), errno))?;
            read.add(deny, &folder, entry.file_name().to_bytes(), entry.file_type());
            if walk.seen + read.entries > MOST_ENTRIES {
                return Err(WalkError::TooMany(TOO_MANY_ENTRIES));
            }
            pace.next_name().await?;
        }
        let names = read.names();
        walk.take(&folder, &names)?;
        for name in &read.unknown {
            walk.left.push((folder.join(OsStr::from_bytes(name)), FileType::Unknown));
        }
        if let Some(stamp) = stamp.filter(|_| read.unknown.is_empty()) {
            known.learn(&folder, stamp, &names);
        }
    }
    if let Some(place) = place {
        place.keep(known);
    }
    let linked = linked::other_names(ground, &walk.found, pace).await?;
    walk.found.extend(linked);
    if walk.found.len() > MOST_MATCHES {
        return Err(WalkError::TooMany(TOO_MANY_MATCHES));
    }
    Ok(walk.found)
}

const TOO_MANY_ENTRIES: &str = "more than 200,000 entries";
const TOO_MANY_MATCHES: &str = "more than 4,096 denied files";

/// How far a walk has come.
struct Walk {
    left: Vec<(PathBuf, FileType)>,
    found: Vec<PathBuf>,
    seen: usize,
}

impl Default for Walk {
    fn default() -> Self {
        Self { left: vec![(PathBuf::new(), FileType::Directory)], found: Vec::new(), seen: 0 }
    }
}

impl Walk {
    /// Goes on with what `folder` has.
    fn take(&mut self, folder: &Path, names: &Names<'_>) -> Result<(), WalkError> {
        self.seen += names.entries;
        if self.seen > MOST_ENTRIES {
            return Err(WalkError::TooMany(TOO_MANY_ENTRIES));
        }
        self.found.extend(names.denied.iter().map(|name| folder.join(OsStr::from_bytes(name))));
        if self.found.len() > MOST_MATCHES {
            return Err(WalkError::TooMany(TOO_MANY_MATCHES));
        }
        let below = names.folders.iter().map(|name| (folder.join(OsStr::from_bytes(name)), FileType::Directory));
        self.left.extend(below);
        Ok(())
    }
}

/// What was read of one folder.
#[derive(Default)]
struct Read {
    entries: usize,
    folders: Vec<Vec<u8>>,
    denied: Vec<Vec<u8>>,
    /// Neither known to be folders nor known not to be: they are looked into.
    unknown: Vec<Vec<u8>>,
}

impl Read {
    fn add(&mut self, deny: &[Sourced<Glob>], folder: &Path, name: &[u8], kind: FileType) {
        if name == b"." || name == b".." {
            return;
        }
        self.entries += 1;
        let is_folder = matches!(kind, FileType::Directory | FileType::Unknown);
        if is_denied(deny, folder, OsStr::from_bytes(name), is_folder) {
            self.denied.push(name.to_owned());
        } else if kind == FileType::Directory {
            self.folders.push(name.to_owned());
        } else if kind == FileType::Unknown {
            self.unknown.push(name.to_owned());
        }
    }

    fn names(&self) -> Names<'_> {
        Names {
            entries: self.entries,
            folders: self.folders.iter().map(Vec::as_slice).collect(),
            denied: self.denied.iter().map(Vec::as_slice).collect(),
        }
    }
}

/// Opens a folder below the workspace. No link is followed: one that came in its place since leads elsewhere.
pub(super) fn open(ground: Ground<'_>, folder: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(ground.root, path, flags, Mode::empty(), ground.resolve())
}

impl Ground<'_> {
    /// Whether nobody sees what is at `path`.
    pub(super) fn hides(self, path: &Path) -> bool {
        self.hidden.binary_search_by(|known| known.as_path().cmp(path)).is_ok()
    }

    /// How names in it are looked up.
    pub(super) fn resolve(self) -> ResolveFlags {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match self.mounted {
            Mounted::Entered => beneath,
            Mounted::Refused => beneath | ResolveFlags::NO_XDEV,
        }
    }
}

/// Whether a rule matches `path`, relative to the workspace, in no folder that one matches.
pub(crate) fn denies(deny: &[Sourced<Glob>], path: &Path, kind: Kind) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return false };
    is_denied(deny, folder, name, kind == Kind::Folder)
}

/// Whether a rule matches what `folder` has under `name`. A rule for all below a folder is a rule for the folder.
///
/// Nothing above it matched, or we would not be here: so a rule that cannot end in this name does not match, and nearly
/// all are ruled out without a path.
fn is_denied(deny: &[Sourced<Glob>], folder: &Path, name: &OsStr, is_folder: bool) -> bool {
    let mut candidates = deny.iter().map(|glob| &glob.value).filter(|glob| glob.may_end_in(name)).peekable();
    if candidates.peek().is_none() {
        return false;
    }
    let path = folder.join(name);
    let below = is_folder.then(|| path.join("x"));
    candidates.any(|glob| glob.matches(&path) || below.as_ref().is_some_and(|below| glob.matches(below)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Layer, Origin};
    use std::fs::{self, File};

    fn rules(patterns: &[&str]) -> Vec<Sourced<Glob>> {
        let rule = |pattern: &&str| Sourced {
            value: pattern.parse().unwrap(),
            origin: Origin { layer: Layer::Project, place: None },
        };
        patterns.iter().map(rule).collect()
    }

    /// Every path below `folder` is asked about with each rule, with nothing ruled out before.
    fn find_plainly(root: &Path, folder: &Path, deny: &[Sourced<Glob>], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let is_folder = entry.file_type().unwrap().is_dir();
            let matches = |path: &Path| deny.iter().any(|glob| glob.value.matches(path));
            if matches(&path) || (is_folder && matches(&path.join("x"))) {
                found.push(path);
            } else if is_folder {
                find_plainly(root, &path, deny, found);
            }
        }
    }

    #[test]
    fn s01_ruling_out_by_the_last_name_finds_just_what_asking_every_rule_does() {
        let patterns = [
            "**/.env",
            "**/.env.*.local",
            "**/id_rsa*",
            "**/*key.pem",
            "**/.ssh/**",
            "**/.config/gcloud/**",
            "**/.docker/config.json",
            "top/*.txt",
            "**/[ab].c",
            "**/{x,y}/z",
            "**",
            "deep/**/end",
        ];
        let home = tempfile::tempdir().unwrap();
        let names = [".env", ".env.a.local", "id_rsa.pub", "mykey.pem", "config.json", "a.c", "z", "t.txt", "end", "x"];
        let folders = [
            "",
            ".ssh",
            ".config",
            ".config/gcloud",
            "gcloud",
            ".docker",
            "top",
            "x",
            "y",
            "deep",
            "deep/er",
            "deep/er/x",
        ];
        for folder in folders {
            fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        for (folder, name) in folders.iter().flat_map(|folder| names.map(|name| (folder, name))) {
            let file = home.path().join(folder).join(name);
            if !file.exists() {
                fs::write(file, "").unwrap();
            }
        }
        std::os::unix::fs::symlink("/etc", home.path().join("top/.ssh")).unwrap();
        let all: Vec<Vec<&str>> =
            patterns.iter().map(|pattern| vec![*pattern]).chain([patterns[..11].to_vec()]).collect();
        for patterns in all {
            let deny = rules(&patterns);
            let mut plainly = Vec::new();
            find_plainly(home.path(), Path::new(""), &deny, &mut plainly);
            let mut found = find(home.path(), &deny, None).unwrap();
            plainly.sort();
            found.sort();
            assert_eq!(found, plainly, "{patterns:?}");
        }
    }

    #[test]
    fn s01_a_folder_that_cannot_be_looked_into_is_denied_and_a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join(".env"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), home.path().join("link")).unwrap();
        let closed = home.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let expected: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["closed"] };
        let found = find(home.path(), &rules(&["**/.env"]), None).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    /// A workspace of many folders, and a time at which all of it is at rest.
    fn at_rest() -> (tempfile::TempDir, PathBuf, StateFolder, SystemTime) {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        for number in 0..100 {
            fs::create_dir_all(workspace.join(format!("{number}/inner"))).unwrap();
        }
        fs::write(workspace.join("7/inner/.env"), "").unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        (home, workspace, state, SystemTime::now() + std::time::Duration::from_secs(60))
    }

    fn remembered(state: &StateFolder) -> usize {
        fs::read_dir(state.path().join("denied")).map_or(0, Iterator::count)
    }

    #[test]
    fn s01_what_was_remembered_never_hides_a_file_that_came_since() {
        let (_home, workspace, state, later) = at_rest();
        let deny = rules(&["**/.env", "**/.ssh/**"]);
        let look = || {
            let mut found = find_at(&workspace, &deny, Some(&state), later).unwrap();
            found.sort();
            found
        };
        let path = |path: &str| PathBuf::from(path);
        assert_eq!(look(), [path("7/inner/.env")]);
        assert_eq!(remembered(&state), 1, "the twin: it is remembered, or this test proves nothing");
        assert_eq!(look(), [path("7/inner/.env")]);
        // A plain new file; one whose folder got its old time of modification back; one that came by a rename; a folder.
        let times = fs::metadata(workspace.join("8/inner")).unwrap();
        fs::write(workspace.join("8/inner/.env"), "").unwrap();
        File::open(workspace.join("8/inner")).unwrap().set_modified(times.modified().unwrap()).unwrap();
        fs::write(workspace.join("9/harmless"), "").unwrap();
        assert_eq!(look(), [path("7/inner/.env"), path("8/inner/.env")]);
        fs::rename(workspace.join("9/harmless"), workspace.join("9/.env")).unwrap();
        fs::rename(workspace.join("10/inner"), workspace.join("10/.ssh")).unwrap();
        fs::rename(workspace.join("8"), workspace.join("11/moved")).unwrap();
        let expected = ["10/.ssh", "11/moved/inner/.env", "7/inner/.env", "9/.env"].map(path);
        assert_eq!(look(), expected);
        assert_eq!(look(), expected);
        fs::remove_file(workspace.join("9/.env")).unwrap();
        assert_eq!(look(), ["10/.ssh", "11/moved/inner/.env", "7/inner/.env"].map(path));
    }

    #[test]
    fn s01_a_folder_that_was_not_at_rest_is_not_remembered() {
        let (_home, workspace, state, _) = at_rest();
        let deny = rules(&["**/.env"]);
        assert_eq!(find_at(&workspace, &deny, Some(&state), SystemTime::now()).unwrap().len(), 1);
        assert_eq!(remembered(&state), 0);
    }

    #[test]
    fn f11_another_name_of_a_denied_file_is_denied_also_when_all_was_remembered() {
        let (home, workspace, state, later) = at_rest();
        let deny = rules(&["**/.env", "**/.ssh/**"]);
        fs::create_dir(workspace.join("5/.ssh")).unwrap();
        fs::write(workspace.join("5/.ssh/key"), "").unwrap();
        let look = |state: Option<&StateFolder>| {
            let mut found = find_at(&workspace, &deny, state, later).unwrap();
            found.sort();
            found
        };
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let plain = paths(&["5/.ssh", "7/inner/.env"]);
        assert_eq!(look(Some(&state)), plain);
        assert_eq!(remembered(&state), 1);
        // Outside the workspace a name shows nothing, and two denied names are denied already.
        fs::hard_link(workspace.join("7/inner/.env"), home.path().join("outside")).unwrap();
        assert_eq!(look(Some(&state)), plain);
        fs::hard_link(workspace.join("7/inner/.env"), workspace.join("8/notes.txt")).unwrap();
        fs::hard_link(workspace.join("5/.ssh/key"), workspace.join("9/inner/public\n")).unwrap();
        fs::write(workspace.join("8/one"), "").unwrap();
        fs::hard_link(workspace.join("8/one"), workspace.join("8/two")).unwrap();
        let all = paths(&["5/.ssh", "7/inner/.env", "8/notes.txt", "9/inner/public\n"]);
        for state in [Some(&state), Some(&state), None] {
            assert_eq!(look(state), all, "and a link between two files that are not denied is none of ours");
        }
        fs::remove_file(workspace.join("8/notes.txt")).unwrap();
        fs::remove_file(workspace.join("9/inner/public\n")).unwrap();
        assert_eq!(look(Some(&state)), plain);
    }

    #[test]
    fn s01_what_was_remembered_is_for_these_rules_and_only_when_it_is_whole() {
        let (_home, workspace, state, later) = at_rest();
        let look = |patterns: &[&str]| find_at(&workspace, &rules(patterns), Some(&state), later).unwrap().len();
        assert_eq!(look(&["**/.env"]), 1);
        assert_eq!(look(&["**/inner"]), 100);
        assert_eq!(remembered(&state), 2);
        for file in fs::read_dir(state.path().join("denied")).unwrap() {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            for length in [0, 1, 31, 32, bytes.len() / 2, bytes.len() - 1] {
                fs::write(&path, &bytes[..length]).unwrap();
                assert_eq!((look(&["**/.env"]), look(&["**/inner"])), (1, 100), "cut to {length}");
            }
            let mut changed = bytes.clone();
            let name = changed.windows(5).position(|five| five == b"inner").unwrap();
            changed[name] = b'x';
            fs::write(&path, &changed).unwrap();
            assert_eq!((look(&["**/.env"]), look(&["**/inner"])), (1, 100), "a name was changed");
        }
    }
}
