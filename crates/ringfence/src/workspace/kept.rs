//! Change sets that wait to be looked at: one folder for each below the state folder, named by its run.
//!
//! A set is made elsewhere and moved here when it is whole. Inside, contents come first and the list last, so a folder without
//! a list was never finished and is nobody's.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::RenameFlags;

use super::change::ChangeSet;
use super::objects::Objects;
use crate::remove_tree::remove_tree;
use crate::run_id::RunId;
use crate::state::StateFolder;

const FOLDER: &str = "changes";
const LIST: &str = "list";
const OBJECTS: &str = "objects";
/// Of a list on disk; the format before it is not read.
pub(super) const VERSION: &[u8; 8] = b"RFCHNG02";
const HASH: usize = 32;
const MOST_BYTES: u64 = 512 * 1024 * 1024;
/// What the kernel counts a file's blocks in.
const BLOCK: u64 = 512;

/// One run's folder.
#[derive(Debug, Clone)]
pub struct Kept {
    folder: PathBuf,
}

/// The folder of `run`, whether something is kept there or not.
pub fn of(state: &StateFolder, run: &RunId) -> Kept {
    Kept { folder: state.path().join(FOLDER).join(run.as_str()) }
}

/// Every run whose changes are kept, oldest first.
pub fn runs(state: &StateFolder) -> io::Result<Vec<RunId>> {
    let mut runs = Vec::new();
    let entries = match fs::read_dir(state.path().join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(runs),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let run = entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok());
        if let Some(run) = run
            && of(state, &run).is_complete()
        {
            runs.push(run);
        }
    }
    runs.sort();
    Ok(runs)
}

/// Why a set was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The folder cannot be read.
    #[error("could not read the changes that are kept")]
    Io(#[from] io::Error),
    /// No set has such a name.
    #[error("no changes are kept of a run that begins with `{0}`; `ringfence changes` lists those that are")]
    NoSuchRun(String),
    /// More than one has.
    #[error("changes of {count} runs that begin with `{prefix}` are kept; write more of the id")]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// How many fit.
        count: usize,
    },
}

/// The run whose id begins with `prefix`, of those whose changes are kept.
pub fn find(state: &StateFolder, prefix: &str) -> Result<RunId, FindError> {
    let mut fitting = runs(state)?;
    fitting.retain(|run| !prefix.is_empty() && run.as_str().starts_with(prefix));
    let short = || prefix.chars().take(64).collect();
    match fitting.len() {
        1 => fitting.pop().ok_or_else(|| FindError::NoSuchRun(short())),
        0 => Err(FindError::NoSuchRun(short())),
        count => Err(FindError::Ambiguous { prefix: short(), count }),
    }
}

impl Kept {
    /// A set in a folder of its own, wherever that is.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Moves a set that is whole to where it is looked for, instead of one that may be there.
    pub(super) fn put_at(&self, other: &Self) -> io::Result<()> {
        if let Some(parent) = other.folder.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let there = rustix::fs::CWD;
        match rustix::fs::renameat_with(there, &self.folder, there, &other.folder, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // Never without one of the two in between; the old one is removed with the folder that this one was made in.
            Err(rustix::io::Errno::EXIST) => {
                rustix::fs::renameat_with(there, &self.folder, there, &other.folder, RenameFlags::EXCHANGE)?;
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// How many bytes it takes on the disk.
    pub fn size(&self) -> io::Result<u64> {
        let mut size = 0;
        for folder in [self.folder.clone(), self.folder.join(OBJECTS)] {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let metadata = entry?.metadata()?;
                if metadata.is_file() {
                    size += metadata.blocks() * BLOCK;
                }
            }
        }
        Ok(size)
    }

    /// Where more about this set may be kept.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// The state folder that it is in.
    pub fn state_folder(&self) -> Option<&std::path::Path> {
        self.folder.parent().and_then(std::path::Path::parent)
    }

    /// The contents of its files.
    pub fn objects(&self) -> Objects {
        Objects::at(self.folder.join(OBJECTS))
    }

    /// Whether there is a set.
    pub fn is_complete(&self) -> bool {
        self.folder.join(LIST).exists()
    }

    /// Keeps `set`, whose contents are in [`Kept::objects`] already. Returns the hash that its list ends in.
    pub fn keep(&self, set: &ChangeSet) -> io::Result<String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let body = postcard::to_extend(set, VERSION.to_vec()).map_err(io::Error::other)?;
        let new = self.folder.join("list.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&body)?;
        let hash = blake3::hash(&body);
        file.write_all(hash.as_bytes())?;
        fs::rename(new, self.folder.join(LIST))?;
        Ok(hash.to_hex().to_string())
    }

    /// The set. One that was cut short or changed is an error, never a shorter list.
    pub fn load(&self) -> io::Result<ChangeSet> {
        let bad = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut bytes = Vec::new();
        fs::File::open(self.folder.join(LIST))?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let body = bytes.len().checked_sub(HASH).ok_or_else(|| bad("the list of changes was cut short"))?;
        let (body, hash) = bytes.split_at(body);
        if blake3::hash(body).as_bytes() != hash {
            return Err(bad("the list of changes was cut short or changed"));
        }
        let encoded = body.strip_prefix(VERSION).ok_or_else(|| bad("the list of changes is of another version"))?;
        match postcard::take_from_bytes(encoded) {
            Ok((set, [])) => Ok(set),
            Ok(_) | Err(_) => Err(bad("the list of changes means nothing")),
        }
    }

    /// When it was put here.
    pub fn since(&self) -> io::Result<SystemTime> {
        fs::metadata(self.folder.join(LIST))?.modified()
    }

    /// Removes it all.
    pub fn remove(&self) -> io::Result<()> {
        // First the list: half a set must never be taken for a whole one.
        match fs::remove_file(self.folder.join(LIST)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        remove_tree(&self.folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::change::{Before, Change, Moment, Node, Place};

    fn set(run_id: RunId) -> ChangeSet {
        let moment = Moment { seconds: 1, nanoseconds: 2 };
        let change = Change {
            place: Place::new("a/b").unwrap(),
            before: Before::Nothing,
            after: Some(Node::Link { target: "/etc".into() }),
        };
        ChangeSet {
            run_id,
            workspace: "/w".into(),
            workspace_is: (1, 2),
            subject: "x".to_owned(),
            began: moment,
            ended: moment,
            deny: Vec::new(),
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            changes: vec![change],
        }
    }

    #[test]
    fn a_set_is_kept_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(folder.path().join("state")).unwrap();
        let run = RunId::generate().unwrap();
        let kept = of(&state, &run);
        assert_eq!(runs(&state).unwrap(), []);
        kept.objects().add(&mut b"x".as_slice(), 1).unwrap();
        assert_eq!(runs(&state).unwrap(), [], "contents without a list");
        kept.keep(&set(run.clone())).unwrap();
        assert_eq!(runs(&state).unwrap(), std::slice::from_ref(&run));
        assert_eq!(kept.load().unwrap(), set(run));
        let list = kept.folder().join(LIST);
        let whole = fs::read(&list).unwrap();
        for cut in [0, 31, whole.len() - 1] {
            fs::write(&list, &whole[..cut]).unwrap();
            assert_eq!(kept.load().unwrap_err().kind(), io::ErrorKind::InvalidData, "cut at {cut}");
        }
        kept.remove().unwrap();
        assert!(!kept.folder().exists());
    }
}
