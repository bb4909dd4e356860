//! What was done to a workspace, written down before it is done, with what was there before: so that whoever comes after a
//! killed apply knows what it was at, and an undo knows what to bring back.
//!
//! One folder for each apply or undo below the state folder, with a file of entries and the contents that were replaced. Each
//! entry carries its hash; a file that ends in the middle of one was not synced, and nothing was done for that entry.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::change::{Moment, Place};
use super::compare::Exact;
use super::objects::{ObjectId, Objects};
use crate::remove_tree::remove_tree;
use crate::run_id::RunId;
use crate::state::StateFolder;

const FOLDER: &str = "undo";
const ENTRIES: &str = "entries";
const OBJECTS: &str = "objects";
/// Of a file of entries; the format before it is not read.
const VERSION: &[u8; 8] = b"RFUNDO01";
const HASH: usize = 16;
const MOST_BYTES: u64 = 1024 * 1024 * 1024;
const MOST_ENTRY: usize = 1024 * 1024;
/// Of one workspace; older ones are forgotten.
const MOST_JOURNALS: usize = 50;
/// A folder without entries that is older was left by somebody who was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// What is being done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// A set is applied.
    Apply,
    /// What that journal says is taken back.
    Undo(RunId),
}

/// What a journal is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its name.
    pub id: RunId,
    /// What is done.
    pub act: Act,
    /// The run whose changes they are.
    pub run: RunId,
    /// Names the set by all of it.
    pub set: ObjectId,
    /// What was run, for people.
    pub subject: String,
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// The folder that it was: device and number.
    pub workspace_is: (u64, u64),
    /// When it began.
    pub began: Moment,
}

/// What is about to be done at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Counted through the journal.
    pub number: u64,
    /// Where.
    pub place: Place,
    /// What is there.
    pub from: Option<Exact>,
    /// What will be.
    pub to: Option<Exact>,
    /// The name in the same folder under which the new node waits, and then the old one.
    pub aside: String,
}

/// What became of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nobody knows: whoever wrote it was killed.
    Open,
    /// It was done.
    Done,
    /// It was not done, and nothing is left of it.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Entry {
    Began(Head),
    Intends(Intent),
    Done(u64),
    Dropped(u64),
    Finished,
    TakenBack,
}

/// A journal, open to be added to.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    file: File,
    read: Recorded,
}

/// What a journal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// What it is about.
    pub head: Head,
    /// What was to be done, in this order, and what became of it.
    pub intents: Vec<(Intent, Fate)>,
    /// Whoever wrote it came to the end.
    pub finished: bool,
    /// It was undone.
    pub taken_back: bool,
}

impl Recorded {
    fn take(&mut self, entry: Entry) -> Option<()> {
        let mut fate = |number: u64, fate| {
            let (intent, known) = self.intents.get_mut(usize::try_from(number).ok()?)?;
            (intent.number == number).then(|| *known = fate)
        };
        match entry {
            Entry::Began(_) => None,
            Entry::Intends(intent) => {
                let fits = intent.number == self.intents.len() as u64;
                fits.then(|| self.intents.push((intent, Fate::Open)))
            }
            Entry::Done(number) => fate(number, Fate::Done),
            Entry::Dropped(number) => fate(number, Fate::Dropped),
            Entry::Finished => {
                self.finished = true;
                Some(())
            }
            Entry::TakenBack => {
                self.taken_back = true;
                Some(())
            }
        }
    }

    /// How many places it changed.
    pub fn changed(&self) -> usize {
        let mut places: Vec<&Place> =
            self.intents.iter().filter(|(_, fate)| *fate == Fate::Done).map(|(intent, _)| &intent.place).collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    }
}

fn encode(entry: &Entry, to: &mut Vec<u8>) -> io::Result<()> {
    let body = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= MOST_ENTRY);
    to.extend_from_slice(&length.ok_or(io::ErrorKind::InvalidInput)?.to_le_bytes());
    to.extend_from_slice(&body);
    to.extend_from_slice(blake3::hash(&body).as_bytes().get(..HASH).unwrap_or_default());
    Ok(())
}

/// The next whole entry of `bytes`, and what follows it.
fn decode(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= MOST_ENTRY)?;
    let (body, rest) = rest.split_at_checked(length)?;
    let (hash, rest) = rest.split_at_checked(HASH)?;
    if blake3::hash(body).as_bytes().get(..HASH) != Some(hash) {
        return None;
    }
    match postcard::take_from_bytes(body) {
        Ok((entry, [])) => Some((entry, rest)),
        Ok(_) | Err(_) => None,
    }
}

/// Reads what `bytes` say, and how much of them that is. Nothing when they do not even say what they are about.
pub fn decode_all(bytes: &[u8]) -> Option<(Recorded, usize)> {
    let mut rest = bytes.strip_prefix(VERSION)?;
    let (Entry::Began(head), after) = decode(rest)? else { return None };
    rest = after;
    let mut read = Recorded { head, intents: Vec::new(), finished: false, taken_back: false };
    while let Some((entry, after)) = decode(rest) {
        // One that does not fit was not written by us: nothing after it counts.
        if read.take(entry).is_none() {
            break;
        }
        rest = after;
    }
    Some((read, bytes.len() - rest.len()))
}

impl Journal {
    /// Begins one. It is on the disk when this returns.
    pub fn begin(state: &StateFolder, head: Head) -> io::Result<Self> {
        let all = state.path().join(FOLDER);
        let folder = all.join(head.id.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        DirBuilder::new().mode(0o700).create(&folder)?;
        let mut bytes = VERSION.to_vec();
        encode(&Entry::Began(head.clone()), &mut bytes)?;
        // Under another name until it is whole: entries that are there can be read, or are damaged.
        let new = folder.join("entries.new");
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(new, folder.join(ENTRIES))?;
        for folder in [&folder, &all] {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { folder, file, read: Recorded { head, intents: Vec::new(), finished: false, taken_back: false } })
    }

    /// Opens one to go on with it. What was cut off at its end is cut away.
    pub fn open(state: &StateFolder, id: &RunId) -> io::Result<Self> {
        let folder = state.path().join(FOLDER).join(id.as_str());
        let file = OpenOptions::new().read(true).append(true).open(folder.join(ENTRIES))?;
        let (read, whole) = read_file(&file)?;
        if read.head.id != *id {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the journal is of another name"));
        }
        file.set_len(whole as u64)?;
        Ok(Self { folder, file, read })
    }

    /// What it says so far.
    pub fn recorded(&self) -> &Recorded {
        &self.read
    }

    /// The contents that were replaced, and those that were put together by a merge.
    pub fn objects(&self) -> Objects {
        Objects::at(self.folder.join(OBJECTS))
    }

    /// The number of the next intent.
    pub fn next(&self) -> u64 {
        self.read.intents.len() as u64
    }

    /// Writes intents down; they are on the disk when this returns.
    pub fn intend(&mut self, intents: &[Intent]) -> io::Result<()> {
        let entries: Vec<Entry> = intents.iter().cloned().map(Entry::Intends).collect();
        self.append(&entries)?;
        self.file.sync_data()
    }

    /// Writes down what became of an intent. A loss is found out by looking.
    pub fn settle(&mut self, number: u64, fate: Fate) -> io::Result<()> {
        match fate {
            Fate::Open => Ok(()),
            Fate::Done => self.append(&[Entry::Done(number)]),
            Fate::Dropped => self.append(&[Entry::Dropped(number)]),
        }
    }

    /// Writes down that everything was done or left.
    pub fn finish(&mut self) -> io::Result<()> {
        self.append(&[Entry::Finished])?;
        self.file.sync_data()
    }

    /// Writes down that an undo took it all back.
    pub fn take_back(&mut self) -> io::Result<()> {
        self.append(&[Entry::TakenBack])?;
        self.file.sync_data()
    }

    fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in entries {
            encode(entry, &mut bytes)?;
        }
        self.file.write_all(&bytes)?;
        for entry in entries {
            self.read.take(entry.clone()).ok_or(io::ErrorKind::InvalidInput)?;
        }
        Ok(())
    }
}

fn read_file(file: &File) -> io::Result<(Recorded, usize)> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    decode_all(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it was damaged"))
}

/// Every workspace that something was applied to, and the folder that it was; the newest first.
pub fn workspaces(state: &StateFolder) -> io::Result<Vec<(PathBuf, (u64, u64))>> {
    let mut found: Vec<(PathBuf, (u64, u64))> = Vec::new();
    for (_, folder) in folders(state)? {
        let file = match File::open(folder.join(ENTRIES)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let Head { workspace, workspace_is, .. } = read_file(&file)?.0.head;
        if !found.iter().any(|(_, is)| *is == workspace_is) {
            found.push((workspace, workspace_is));
        }
    }
    Ok(found)
}

/// Every journal of the workspace with this device and number, newest first. One that cannot be read is an error: what it
/// would have said must not be passed over.
pub fn of_workspace(state: &StateFolder, workspace_is: (u64, u64)) -> io::Result<Vec<Recorded>> {
    let mut found = Vec::new();
    for (id, folder) in folders(state)? {
        let file = match File::open(folder.join(ENTRIES)) {
            Ok(file) => file,
            // Just being made, or just being removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let (read, _) = read_file(&file).map_err(|error| {
            let text = format!("the journal {} cannot be read: {error}", folder.display());
            io::Error::new(error.kind(), text)
        })?;
        if read.head.id == id && read.head.workspace_is == workspace_is {
            found.push(read);
        }
    }
    Ok(found)
}

/// The folders of journals, newest first.
fn folders(state: &StateFolder) -> io::Result<Vec<(RunId, PathBuf)>> {
    let mut folders = Vec::new();
    let entries = match fs::read_dir(state.path().join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(folders),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<RunId>().ok()) {
            folders.push((id, entry.path()));
        }
    }
    folders.sort_unstable_by(|one, other| other.cmp(one));
    Ok(folders)
}

/// Forgets all but the newest `most` journals of a workspace; says how many. Not below the lock of another workspace.
pub fn prune(state: &StateFolder, workspace_is: (u64, u64), most: Option<usize>) -> io::Result<usize> {
    let mut removed = 0;
    for old in of_workspace(state, workspace_is)?.iter().skip(most.unwrap_or(MOST_JOURNALS)) {
        remove(&state.path().join(FOLDER).join(old.head.id.as_str()))?;
        removed += 1;
    }
    for (_, folder) in folders(state)? {
        let age = fs::metadata(&folder).and_then(|metadata| metadata.modified());
        let old = age.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > ABANDONED));
        if old && !folder.join(ENTRIES).exists() {
            remove(&folder)?;
        }
    }
    Ok(removed)
}

fn remove(folder: &Path) -> io::Result<()> {
    // First the entries: half of what was replaced must never be taken for all of it.
    match fs::remove_file(folder.join(ENTRIES)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    remove_tree(folder)
}

/// The right to change one workspace, as long as it is held.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Takes the lock of a workspace; nothing when another has it.
pub fn lock(state: &StateFolder, workspace_is: (u64, u64)) -> io::Result<Option<Lock>> {
    let all = state.path().join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
    let path = all.join(format!("{:x}-{:x}.lock", workspace_is.0, workspace_is.1));
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
