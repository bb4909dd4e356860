//! Sets that are made by hand, applied to workspaces of the host and taken back.

mod applying;
mod conflicts;
mod interruptions;
mod races;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use tempfile::TempDir;

use super::apply::{self, Applied, Flagged, Proposal, Site};
use super::beneath;
use super::beneath::{FoundKind, Held};
use super::change::{Before, Change, ChangeSet, Moment, Node, Place, Was, WasKind};
use super::diff::HostFiles;
use super::flag::{Flag, Judgement};
use super::kept::{self, Kept};
use super::objects::ObjectId;
use super::selection::Selection;
use super::undo::{self, Since};
use crate::ledger::Ledger;
use crate::run_id::RunId;
use crate::state::StateFolder;

/// When everything that programs write in these tests was written.
const THEN: Moment = Moment { seconds: 1_600_000_000, nanoseconds: 123_456_789 };

/// A workspace, a state folder, and something outside that must stay as it is.
struct Bench {
    home: TempDir,
    state: StateFolder,
    ledger: Ledger,
    run: RunId,
    changes: BTreeMap<Place, Change>,
}

/// All of a tree: kind, permissions, time of files, contents or target.
type Picture = BTreeMap<PathBuf, (String, u32, Option<(i64, i64)>, Vec<u8>)>;

fn place(path: impl Into<PathBuf>) -> Place {
    Place::new(path).unwrap()
}

fn picture(folder: &Path) -> Picture {
    let mut all = Picture::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode() & 0o7777;
            let seen = if metadata.is_dir() {
                left.push(path.clone());
                ("folder".to_owned(), mode, None, Vec::new())
            } else if metadata.is_symlink() {
                ("link".to_owned(), 0, None, fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if metadata.is_file() {
                let time = Some((metadata.mtime(), metadata.mtime_nsec()));
                ("file".to_owned(), mode, time, fs::read(&path).unwrap())
            } else {
                ("other".to_owned(), mode, None, Vec::new())
            };
            all.insert(path, seen);
        }
    }
    all
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        fs::create_dir(home.path().join("outside")).unwrap();
        fs::write(home.path().join("outside/canary"), "alive").unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let ledger = Ledger::open(&state).unwrap();
        Self { home, state, ledger, run: RunId::generate().unwrap(), changes: BTreeMap::new() }
    }

    fn work(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap().join("work")
    }

    fn outside(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap().join("outside")
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.work().join(path)
    }

    /// Writes a file of the host.
    fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let time = Timespec { tv_sec: 1_500_000_000, tv_nsec: 42 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn link(&self, path: impl AsRef<Path>, target: impl AsRef<Path>) {
        symlink(target, self.at(path)).unwrap();
    }

    fn folder(&self, path: impl AsRef<Path>) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    fn mode(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read(self.at(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What stands at `path` of the host now, as a change would begin from it.
    fn before(&self, path: &Path) -> Before {
        let Some(found) = self.host().look(&place(path)).unwrap() else { return Before::Nothing };
        let kind = match found.kind {
            FoundKind::Folder => WasKind::Folder,
            FoundKind::Link(target) => WasKind::Link(target),
            FoundKind::Other(kind) => WasKind::Other(kind),
            FoundKind::File => {
                let mut file = fs::File::open(self.at(path)).unwrap();
                WasKind::File(Some(self.kept().objects().add(&mut file, u64::MAX).unwrap().0))
            }
        };
        Before::Was(Was { kind, mode: found.mode, stamp: found.stamp })
    }

    /// The program left this at `path`; the host is as it is now.
    fn changes(&mut self, path: impl AsRef<Path>, after: Option<Node>) {
        let path = path.as_ref();
        let before = self.before(path);
        self.changes.insert(place(path), Change { place: place(path), before, after });
    }

    fn file_node(&self, text: impl AsRef<[u8]>, mode: u32) -> Node {
        let text = text.as_ref();
        let (content, size) = self.kept().objects().add(&mut &*text, u64::MAX).unwrap();
        Node::File { content, size, mode, modified: THEN }
    }

    fn changes_file(&mut self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let node = self.file_node(text, 0o644);
        self.changes(path, Some(node));
    }

    fn changes_link(&mut self, path: impl AsRef<Path>, target: impl Into<OsString>) {
        self.changes(path, Some(Node::Link { target: target.into() }));
    }

    fn changes_folder(&mut self, path: impl AsRef<Path>, mode: u32) {
        self.changes(path, Some(Node::Folder { mode }));
    }

    fn removes(&mut self, path: impl AsRef<Path>) {
        self.changes(path, None);
    }

    fn kept(&self) -> Kept {
        kept::of(&self.state, &self.run)
    }

    fn workspace_is(&self) -> (u64, u64) {
        let metadata = fs::metadata(self.work()).unwrap();
        (metadata.dev(), metadata.ino())
    }

    fn set(&self) -> ChangeSet {
        ChangeSet {
            run_id: self.run.clone(),
            workspace: self.work(),
            workspace_is: self.workspace_is(),
            subject: "make".to_owned(),
            deny: Vec::new(),
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            began: THEN,
            ended: THEN,
            changes: self.changes.values().cloned().collect(),
        }
    }

    fn host(&self) -> Held {
        Held::open(&self.work(), self.workspace_is()).unwrap()
    }

    fn site(&self) -> Site {
        Site::open(&self.state, &self.work(), self.workspace_is()).unwrap()
    }

    fn propose(&self) -> Proposal {
        let set = self.set();
        propose_free(&set, &self.kept(), &self.host(), &Selection::all(&set))
    }

    /// Applies all of it.
    fn apply(&self) -> Applied {
        self.kept().keep(&self.set()).unwrap();
        let site = self.site();
        let applied = apply::apply(&site, &self.ledger, &self.kept(), &self.set(), self.propose()).unwrap();
        assert_eq!(self.asides(), Vec::<PathBuf>::new(), "something lies aside");
        applied
    }

    /// Applies all of it, and nothing is left.
    #[track_caller]
    fn apply_whole(&self) -> Applied {
        let applied = self.apply();
        assert!(applied.left.is_empty(), "{:?}", applied.left);
        applied
    }

    fn undo(&self, since: Since) -> Applied {
        let site = self.site();
        let next = undo::next(&site).unwrap();
        let proposal = undo::propose(&next, site.host(), since);
        let undone = undo::undo(&site, &self.state, &self.ledger, &next, since, proposal).unwrap();
        assert_eq!(self.asides(), Vec::<PathBuf>::new(), "something lies aside");
        undone
    }

    #[track_caller]
    fn undo_whole(&self) -> Applied {
        let undone = self.undo(Since::Leave);
        assert!(undone.left.is_empty(), "{:?}", undone.left);
        undone
    }

    fn picture(&self) -> Picture {
        picture(&self.work())
    }

    /// Names of ours that lie in the workspace.
    fn asides(&self) -> Vec<PathBuf> {
        let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b".ringfence-"));
        self.picture().into_keys().filter(ours).collect()
    }

    /// The canary is as it was, and alone.
    #[track_caller]
    fn nothing_happened_outside(&self) {
        let outside = picture(&self.outside());
        assert_eq!(outside.len(), 1, "{outside:?}");
        assert_eq!(fs::read(self.outside().join("canary")).unwrap(), b"alive");
    }
}

/// What would be done if nothing were held back.
fn propose_free(set: &ChangeSet, kept: &Kept, host: &Held, selection: &Selection) -> Proposal {
    let free = vec![Judgement::Free; set.changes.len()];
    apply::propose_judged(set, &free, kept, host, selection, Flagged::Leave)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn object(text: &str) -> ObjectId {
    ObjectId::of(text.as_bytes())
}
