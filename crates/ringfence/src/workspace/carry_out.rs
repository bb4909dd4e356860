//! Makes steps on the host: for each place the old node is saved and the intent written down, the new node is made beside
//! it, and the two change places in one call of the kernel. What comes out is looked at: if it is not what was saved, the
//! two change places again. At every moment the place holds the old node or the new one, whole.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::rc::Rc;

use super::beneath::{Folder, Found, FoundKind, Held, Onto, finish, found_open, is_no_way, last};
use super::change::{Node, OtherKind, Place};
use super::compare::{Conflict, Exact};
use super::journal::{Fate, Intent, Journal};
use super::objects::{FEW, ObjectId, Objects};
use super::swap::{Made, Swap, is_not_empty};

/// Steps that are written down together.
const BATCH: usize = 64;

/// What must be at a place for a step to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Nothing,
    /// This, unchanged.
    This(Found),
    /// A folder: what is in it is looked at entry by entry.
    Folder,
}

/// One place that is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where.
    pub place: Place,
    /// What must be there.
    pub expected: Expected,
    /// What will be there.
    pub to: Option<Exact>,
    /// Its contents, where they are not kept anywhere yet: what the host and the program wrote, merged.
    pub merged: Option<Vec<u8>>,
}

impl Step {
    /// Whether a folder stands there before.
    pub(super) fn begins_as_folder(&self) -> bool {
        match &self.expected {
            Expected::Nothing => false,
            Expected::This(found) => found.kind == FoundKind::Folder,
            Expected::Folder => true,
        }
    }

    /// Whether a folder stands there after.
    pub(super) fn ends_as_folder(&self) -> bool {
        matches!(self.to, Some(Exact { node: Node::Folder { .. }, .. }))
    }
}

/// Why a place was left as it is.
#[derive(Debug)]
pub enum Why {
    /// The host is not as it would have to be.
    Conflict(Conflict),
    /// It would do something on the host, and nobody said that it may.
    Flagged(Vec<String>),
    /// The policy forbids it.
    Denied(String),
    /// Such a thing is never carried over.
    NotCarried(OtherKind),
    /// We could not.
    Failed(io::Error),
}

/// A place that was left as it is.
#[derive(Debug)]
pub struct Left {
    /// Where.
    pub place: Place,
    /// Why.
    pub why: Why,
}

/// What became of steps.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Places that were changed.
    pub done: Vec<Place>,
    /// Places that were not.
    pub left: Vec<Left>,
}

/// Makes `steps`, whose contents are in `contents`. An error means that the journal cannot be written, and nothing more
/// was done.
pub(super) fn carry_out(
    host: &Held,
    journal: &mut Journal,
    contents: &Objects,
    steps: Vec<Step>,
) -> io::Result<Report> {
    let mut carrier = Carrier { host, journal, contents, report: Report::default() };
    let mut folders: Vec<Place> = steps.iter().map(|step| step.place.clone()).collect();
    for phase in phases(steps) {
        let mut phase = phase.into_iter().peekable();
        while phase.peek().is_some() {
            carrier.make(phase.by_ref().take(BATCH).collect())?;
        }
    }
    let mut report = carrier.report;
    folders.dedup_by(|one, other| one.folder() == other.folder());
    if folders.len() > FEW {
        host.sync_all()?;
    } else {
        for place in &folders {
            match host.folder_of(place) {
                Ok(folder) => folder.sync()?,
                Err(error) if is_no_way(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    report.done.sort_unstable();
    report.done.dedup();
    report.left.sort_by(|one, other| one.place.cmp(&other.place));
    // A folder is opened first and closed last; it was not changed if one of the two failed.
    report.done.retain(|place| report.left.binary_search_by(|left| left.place.cmp(place)).is_err());
    Ok(report)
}

/// The steps in an order in which each can be made: folders that are closed are opened; what must go before something else
/// can be made goes; folders, then files; then the rest goes, deepest first; and folders are closed.
fn phases(steps: Vec<Step>) -> [Vec<Step>; 6] {
    let [mut open, mut clear, mut folders, mut files, mut remove, mut close] = [const { Vec::new() }; 6];
    let places: Vec<Place> = steps.iter().map(|step| step.place.clone()).collect();
    let has_steps_below = |place: &Place| {
        let after = places.partition_point(|other| other <= place);
        places.get(after).is_some_and(|next| next.as_path().starts_with(place.as_path()))
    };
    let mut becomes_other: Option<Place> = None;
    for mut step in steps {
        let inside_other =
            becomes_other.as_ref().is_some_and(|folder| step.place.as_path().starts_with(folder.as_path()));
        let below = has_steps_below(&step.place);
        if let Expected::This(Found { kind: FoundKind::Folder, mode, owner, .. }) = &step.expected
            && below
            && mode & 0o700 != 0o700
        {
            let to = Some(Exact { node: Node::Folder { mode: mode | 0o700 }, owner: Some(*owner) });
            open.push(Step { place: step.place.clone(), expected: step.expected, to, merged: None });
            step.expected = Expected::Folder;
        }
        let begins_as_folder = step.begins_as_folder();
        match &mut step.to {
            Some(Exact { node: Node::Folder { .. }, .. }) if begins_as_folder => close.push(step),
            Some(Exact { node: Node::Folder { mode }, .. }) => {
                let last = *mode;
                if below && last & 0o700 != 0o700 {
                    *mode |= 0o700;
                    let to = Some(Exact { node: Node::Folder { mode: last }, owner: None });
                    close.push(Step { place: step.place.clone(), expected: Expected::Folder, to, merged: None });
                }
                folders.push(step);
            }
            Some(_) => {
                if begins_as_folder {
                    becomes_other = Some(step.place.clone());
                }
                files.push(step);
            }
            None if inside_other => clear.push(step),
            None => remove.push(step),
        }
    }
    for deepest_first in [&mut clear, &mut remove, &mut close] {
        deepest_first.reverse();
    }
    [open, clear, folders, files, remove, close]
}

fn content_of(exact: &Exact) -> Option<ObjectId> {
    match exact.node {
        Node::File { content, .. } => Some(content),
        Node::Link { .. } | Node::Folder { .. } | Node::Other(_) => None,
    }
}

/// A step whose intent is written down.
struct Ready<'a> {
    step: Step,
    /// The folder in which something was laid out for it.
    folder: Option<Rc<Folder<'a>>>,
    found: Option<Found>,
    intent: Intent,
}

struct Carrier<'a> {
    host: &'a Held,
    journal: &'a mut Journal,
    contents: &'a Objects,
    report: Report,
}

impl From<Conflict> for Why {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl<'a> Carrier<'a> {
    fn leave(&mut self, place: Place, why: Why) {
        self.report.left.push(Left { place, why });
    }

    fn make(&mut self, steps: Vec<Step>) -> io::Result<()> {
        let mut ready = Vec::new();
        let mut saved = Vec::new();
        for mut step in steps {
            match self.save(&mut step) {
                Ok((found, from)) => {
                    // What will be there is in this journal only where it was merged.
                    let merged = step.to.as_ref().filter(|_| step.merged.is_some());
                    saved.extend([from.as_ref(), merged].into_iter().flatten().filter_map(content_of));
                    let number = self.journal.next() + ready.len() as u64;
                    let aside = format!(".ringfence-{}-{number}", self.journal.recorded().head.id);
                    let intent = Intent { number, place: step.place.clone(), from, to: step.to.clone(), aside };
                    ready.push(Ready { step, folder: None, found, intent });
                }
                Err(why) => self.leave(step.place, why),
            }
        }
        self.journal.objects().sync(&saved)?;
        let intents: Vec<Intent> = ready.iter().map(|ready| ready.intent.clone()).collect();
        self.journal.intend(&intents)?;
        let ready = self.lay_out(ready)?;
        for ready in ready {
            let made = self.swap_in(&ready);
            let (fate, made) = match made {
                Ok(Made::Yes) => (Fate::Done, Ok(())),
                Ok(Made::Needless) => (Fate::Dropped, Ok(())),
                // How far it came is looked at by the next apply or undo.
                Err(Why::Failed(error)) => (Fate::Open, Err(Why::Failed(error))),
                Err(why) => (Fate::Dropped, Err(why)),
            };
            self.journal.settle(ready.intent.number, fate)?;
            match made {
                Ok(()) => self.report.done.push(ready.step.place),
                Err(why) => self.leave(ready.step.place, why),
            }
        }
        Ok(())
    }

    /// Saves what is at the place of `step`, if it is what is expected.
    fn save(&self, step: &mut Step) -> Result<(Option<Found>, Option<Exact>), Why> {
        if let (Some(merged), Some(Exact { node: Node::File { content, .. }, .. })) = (&step.merged, &step.to) {
            let (id, _) = self.journal.objects().add(&mut merged.as_slice(), merged.len() as u64)?;
            debug_assert_eq!(id, *content);
        }
        let found = self.host.look(&step.place)?;
        let found = match (&step.expected, found) {
            (Expected::Nothing, None) => return Ok((None, None)),
            (Expected::Nothing, Some(found)) if step.ends_as_folder() && found.kind == FoundKind::Folder => {
                step.expected = Expected::Folder;
                let exact = Exact { node: Node::Folder { mode: found.mode }, owner: Some(found.owner) };
                step.to = Some(exact);
                found
            }
            (Expected::Nothing, Some(_)) => return Err(Conflict::MadeMeanwhile.into()),
            (Expected::This(seen), Some(found)) if found.is_still(seen) => found,
            (Expected::Folder, Some(found)) if found.kind == FoundKind::Folder => found,
            (Expected::This(_) | Expected::Folder, _) => return Err(Conflict::Written.into()),
        };
        let node = match &found.kind {
            FoundKind::Folder => Node::Folder { mode: found.mode },
            FoundKind::Link(target) => Node::Link { target: target.clone() },
            FoundKind::Other(_) => return Err(Conflict::Special.into()),
            FoundKind::File => {
                let mut file = self.host.folder_of(&step.place)?.read(last(&step.place)?)?;
                let (content, size) = match self.journal.objects().add(&mut file, found.stamp.size) {
                    Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Err(Conflict::Written.into()),
                    added => added?,
                };
                if found_open(&file)? != found {
                    return Err(Conflict::Written.into());
                }
                Node::File { content, size, mode: found.mode, modified: found.stamp.modified }
            }
        };
        let exact = Exact { node, owner: Some(found.owner) };
        Ok((Some(found), Some(exact)))
    }

    /// Makes new files and links beside their places, and waits until they are on the disk.
    fn lay_out(&mut self, all: Vec<Ready<'a>>) -> io::Result<Vec<Ready<'a>>> {
        let mut files = Vec::new();
        let mut laid: Vec<Ready<'a>> = Vec::new();
        for mut ready in all {
            // Many in one folder share its descriptor.
            let before = laid.last().filter(|before| before.step.place.folder() == ready.step.place.folder());
            ready.folder = before.and_then(|before| before.folder.clone());
            match self.lay_out_one(&mut ready) {
                Ok(file) => {
                    files.extend(file);
                    laid.push(ready);
                }
                Err(error) => {
                    give_up(&ready);
                    self.journal.settle(ready.intent.number, Fate::Dropped)?;
                    self.leave(ready.step.place, Why::Failed(error));
                }
            }
        }
        if files.len() > FEW {
            self.host.sync_all()?;
        } else {
            for file in files {
                file.sync_all()?;
            }
        }
        Ok(laid)
    }

    fn lay_out_one(&self, ready: &mut Ready<'a>) -> io::Result<Option<File>> {
        let Some(Exact { node, owner }) = &ready.step.to else { return Ok(None) };
        let aside = OsStr::new(&ready.intent.aside);
        if matches!(node, Node::Folder { .. } | Node::Other(_)) {
            return Ok(None);
        }
        let folder = match ready.folder.take() {
            Some(folder) => folder,
            None => Rc::new(self.host.folder_of(&ready.step.place)?),
        };
        ready.folder = Some(Rc::clone(&folder));
        match node {
            Node::File { content, mode, modified, .. } => {
                // Half a file has a name of its own, so that whoever finds the other name knows that it is whole.
                let part = part_of(&ready.intent);
                let mut file = folder.make_file(part.as_ref())?;
                let merged = ready.step.merged.is_some();
                let objects = if merged { &self.journal.objects() } else { self.contents };
                let size = objects.copy(*content, &mut Holes(&mut file))?;
                file.set_len(size)?;
                finish(&file, *mode, *owner, Some(*modified))?;
                folder.swap(part.as_ref(), aside, Onto::Nothing)?;
                Ok(Some(file))
            }
            Node::Link { target } => {
                folder.make_link(aside, target, *owner)?;
                Ok(None)
            }
            Node::Folder { .. } | Node::Other(_) => Ok(None),
        }
    }

    /// The folder of a step, which must still be the one in which something was laid out.
    fn same_folder(&self, ready: &Ready<'a>) -> Result<Folder<'a>, Why> {
        let now = match self.host.folder_of(&ready.step.place) {
            Err(error) if is_no_way(&error) => None,
            folder => Some(folder?),
        };
        let same = match (&now, &ready.folder) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(now), Some(laid)) => now.is(laid)?,
        };
        now.filter(|_| same).ok_or_else(|| {
            give_up(ready);
            let parent = ready.step.place.folder().unwrap_or_else(|| ready.step.place.clone());
            Conflict::NoFolder(parent).into()
        })
    }

    fn swap_in(&self, ready: &Ready<'a>) -> Result<Made, Why> {
        let folder = self.same_folder(ready)?;
        let name = last(&ready.step.place)?;
        let saved = ready.intent.from.as_ref();
        let swap = Swap { folder: &folder, name, aside: OsStr::new(&ready.intent.aside), saved };
        match (&ready.found, &ready.step.to) {
            (None, None) => Ok(Made::Needless),
            (None, Some(to)) => swap.put(to),
            (Some(found), Some(to)) if found.kind == FoundKind::Folder && ready.step.ends_as_folder() => match &to.node
            {
                Node::Folder { mode } if *mode == found.mode => Ok(Made::Needless),
                Node::Folder { mode } => {
                    folder.set_folder_mode(name, *mode)?;
                    Ok(Made::Yes)
                }
                Node::File { .. } | Node::Link { .. } | Node::Other(_) => Ok(Made::Needless),
            },
            (Some(found), Some(to)) => swap.exchange(found, to),
            (Some(found), None) if found.kind == FoundKind::Folder => match folder.remove(name, &found.kind) {
                Err(error) if is_not_empty(&error) => {
                    let holds = folder.names(name)?.into_iter().next().unwrap_or_default();
                    Err(Conflict::Holds(holds).into())
                }
                removed => removed.map(|()| Made::Yes).map_err(Why::Failed),
            },
            (Some(found), None) => swap.take_away(found),
        }
    }
}

/// Removes what was laid out for a step that is not made; whatever cannot be removed now is found by the next apply.
fn give_up(ready: &Ready<'_>) {
    let Some(folder) = &ready.folder else { return };
    for name in [part_of(&ready.intent).as_ref(), OsStr::new(&ready.intent.aside)] {
        if let Ok(Some(found)) = folder.look(name) {
            folder.remove(name, &found.kind).ok();
        }
    }
}

/// The name of a file that is being written.
pub(super) fn part_of(intent: &Intent) -> String {
    format!("{}.part", intent.aside)
}

/// Leaves out zeros: a file that is mostly holes must not fill the host's disk.
pub(super) struct Holes<'a>(pub(super) &'a mut File);

impl Write for Holes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|byte| *byte == 0) {
            let length = i64::try_from(bytes.len()).map_err(io::Error::other)?;
            self.0.seek(SeekFrom::Current(length))?;
        } else {
            self.0.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
