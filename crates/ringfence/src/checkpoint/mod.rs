//! Checkpoints of a session: its workspace as it was at a moment, to be looked at and gone back to.
//!
//! A checkpoint is of the workspace only: not of `/tmp`, the home, or processes. It is a list of all that differs from the
//! host's workspace, with contents that all checkpoints of a session share. What was made lives as long as the session does,
//! in a private folder that the next start removes if this process is killed.

mod failure;
mod point;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::OwnedRwLockWriteGuard;

pub use self::failure::CheckpointError;
use self::point::MOST_NAME;
pub use self::point::{CheckpointName, Point};
use crate::ledger::{Durability, Kind, LedgerError};
use crate::outcome::{Outcome, Status};
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::session::{Active, Open, Session};
use crate::workspace::between::between;
use crate::workspace::change::WasKind;
use crate::workspace::harvest::{Remembered, harvest_again};
use crate::workspace::kept::Kept;
use crate::workspace::layer::PrivateLayer;
use crate::workspace::merged::{PutBack, PutError, Step};
use crate::workspace::untouched::Untouched;
use crate::workspace::{self, Before, Change, ChangeSet, Counts, Node, ObjectId, Objects};

/// Of one session.
const MOST_CHECKPOINTS: usize = 256;
/// Runs that a checkpoint lists; of more, the oldest are only counted.
const MOST_RUNS: usize = 1000;
/// Letters of what was run, in that list.
const MOST_SUBJECT: usize = 200;
/// What a program that was just killed may take to be gone.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
const OBJECTS: &str = "objects";

/// A run that ended between two checkpoints. Its JSON names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSince {
    /// Its id, as the ledger has it.
    pub run: RunId,
    /// What was run, for people.
    pub subject: String,
    /// How it ended.
    pub status: Status,
    /// With which code, when it exited.
    pub exit_code: Option<i32>,
}

/// What is known about a checkpoint. Its JSON names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// From 1, in the order in which they were made.
    pub number: u64,
    /// What somebody called it.
    pub name: Option<String>,
    /// When it was made.
    pub made_at: String,
    /// How much differs from the host's workspace.
    pub changes: Counts,
    /// The runs that ended since the last one.
    pub runs: Vec<RunSince>,
    /// Runs before those, which are not listed.
    pub runs_left_out: u64,
    /// Whether programs ran while it was made: what they wrote meanwhile may be in it in part.
    pub while_programs_ran: bool,
}

/// What became of a workspace. Its JSON names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// The checkpoint that it is as, or 0.
    pub number: u64,
    /// How many places became different by it.
    pub changes: Counts,
    /// The checkpoint of what was there before; nothing when nothing differed.
    pub before: Option<Checkpoint>,
}

/// What becomes of programs that earlier runs left in the background when the workspace is to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftBehind {
    /// They go on, and nothing is restored.
    Kept,
    /// They are killed first.
    Killed,
}

/// What differs between two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// All of it. What was before is what the first state had.
    pub set: ChangeSet,
    /// Where the contents are, as long as the session is open.
    pub objects: PathBuf,
}

/// The runs of a session, as its checkpoints list them.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    going: Vec<(RunId, String)>,
    ended: Vec<RunSince>,
    left_out: u64,
}

impl Runs {
    pub(crate) fn begin(&mut self, run: &RunId, subject: String) {
        self.going.push((run.clone(), subject.chars().take(MOST_SUBJECT).collect()));
    }

    pub(crate) fn end(&mut self, outcome: &Outcome) {
        let Some((_, subject)) = self.going.iter().find(|(run, _)| *run == outcome.run_id) else { return };
        let (run, status, exit_code) = (outcome.run_id.clone(), outcome.status, outcome.exit_code);
        self.ended.push(RunSince { run, subject: subject.clone(), status, exit_code });
        if self.ended.len() > MOST_RUNS {
            self.ended.remove(0);
            self.left_out += 1;
        }
    }

    pub(crate) fn forget(&mut self, run: &RunId) {
        self.going.retain(|(going, _)| going != run);
    }
}

/// The checkpoints of a session.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: Scratch,
    last: u64,
    checkpoints: Vec<Checkpoint>,
    /// Of the last look while nothing ran.
    known: Remembered,
}

impl Shelf {
    fn objects(&self) -> Objects {
        Objects::at(self.folder.path().join(OBJECTS))
    }

    fn kept(&self, number: u64) -> Kept {
        Kept::at(self.folder.path().join(number.to_string()))
    }

    /// The number of a checkpoint; 0 for the host's workspace, nothing for the present.
    fn number(&self, point: &Point) -> Result<Option<u64>, CheckpointError> {
        let mut newest_first = self.checkpoints.iter().rev();
        let found = match point {
            Point::Now => return Ok(None),
            Point::Number(0) => Some(0),
            Point::Number(number) => newest_first.map(|one| one.number).find(|one| one == number),
            Point::Name(name) => newest_first.find(|one| one.name.as_ref() == Some(name)).map(|one| one.number),
        };
        let short = || point.to_string().chars().take(MOST_NAME).collect();
        found.map(Some).ok_or_else(|| CheckpointError::Unknown(short()))
    }

    fn load(&self, number: u64) -> Result<Vec<Change>, CheckpointError> {
        match number {
            0 => Ok(Vec::new()),
            number => {
                let set = self.kept(number).load();
                set.map(|set| set.changes).map_err(|source| CheckpointError::Load { number, source })
            }
        }
    }
}

/// Whether nothing runs in a session.
#[derive(Debug)]
enum Quiet {
    /// Nothing does, and nothing begins before this is dropped.
    Yes(#[allow(dead_code, reason = "held, and never looked at")] OwnedRwLockWriteGuard<()>),
    No {
        left: u64,
    },
}

/// A session at work on its checkpoints, on a thread of its own.
struct Work<'a> {
    open: &'a Open,
    shelf: &'a mut Shelf,
    layer: &'a PrivateLayer,
    quiet: &'a Quiet,
}

impl Session {
    /// Remembers the workspace as it is. While programs run, a file that changes while it is read is kept as it was read.
    pub async fn checkpoint(&self, name: Option<CheckpointName>) -> Result<Checkpoint, CheckpointError> {
        let name = name.map(|CheckpointName(name)| name);
        self.work(move |mut work| {
            let taken = work.shelf.checkpoints.iter().find(|one| name.is_some() && one.name == name);
            if let Some(taken) = taken {
                return Err(CheckpointError::NameTaken(taken.number));
            }
            let changes = work.look()?;
            work.keep(name, changes)
        })
        .await
    }

    /// What there are, oldest first.
    pub fn checkpoints(&self) -> Vec<Checkpoint> {
        let shelf = self.open.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.as_ref().map_or_else(Vec::new, |shelf| shelf.checkpoints.clone())
    }

    /// What differs between two states; without the first, from the newest checkpoint on.
    pub async fn compare(&self, from: Option<Point>, to: Point) -> Result<Compared, CheckpointError> {
        self.work(move |mut work| {
            let newest = || Point::Number(work.shelf.checkpoints.last().map_or(0, |newest| newest.number));
            let from = from.unwrap_or_else(newest);
            let (from, to) = (work.shelf.number(&from)?, work.shelf.number(&to)?);
            let mut state = |number| match number {
                Some(number) => work.shelf.load(number),
                None => work.look(),
            };
            let (from, to) = (state(from)?, state(to)?);
            let changes = work.between(&from, &to).map_err(CheckpointError::Host)?;
            let set = workspace::set_of(work.layer, work.open.about(), changes);
            Ok(Compared { set, objects: work.shelf.folder.path().join(OBJECTS) })
        })
        .await
    }

    /// Makes the workspace what it was: contents, permissions and links, what was removed and what was added. What is there now
    /// becomes a checkpoint first. Refused while a run goes on in the session.
    pub async fn restore(&self, point: Point, behind: LeftBehind) -> Result<Restored, CheckpointError> {
        if behind == LeftBehind::Killed
            && let Ok(alone) = Arc::clone(&self.open.gate).try_write_owned()
        {
            // Nothing but what runs left is there, and no run begins before it is gone.
            self.open.with.wall.kill_programs().map_err(CheckpointError::Layer)?;
            drop(alone);
        }
        let merged = self.open.with.wall.workspace().await.map_err(CheckpointError::Layer)?;
        let merged = merged.ok_or(CheckpointError::NoLayer)?;
        self.work(move |mut work| {
            if let Quiet::No { left } = work.quiet {
                return Err(CheckpointError::Busy { runs: work.open.runs().going.clone(), left: *left });
            }
            let number = work.shelf.number(&point)?.ok_or_else(|| CheckpointError::Unknown(point.to_string()))?;
            work.restore(number, merged.as_ref())
        })
        .await
    }

    /// Forgets checkpoints, or all of them, and says how many. What only they held is removed.
    pub async fn drop_checkpoints(&self, which: Option<Vec<Point>>) -> Result<usize, CheckpointError> {
        self.work(move |work| {
            let shelf = work.shelf;
            let gone: Vec<u64> = match &which {
                None => shelf.checkpoints.iter().map(|one| one.number).collect(),
                Some(points) => {
                    let known = |point: &Point| match shelf.number(point)? {
                        Some(number @ 1..) => Ok(number),
                        Some(0) | None => Err(CheckpointError::Unknown(point.to_string())),
                    };
                    points.iter().map(known).collect::<Result<_, _>>()?
                }
            };
            let before = shelf.checkpoints.len();
            // What is remembered may have contents that nothing else has.
            shelf.known = Remembered::default();
            for number in gone {
                shelf.checkpoints.retain(|one| one.number != number);
                match shelf.kept(number).remove() {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(CheckpointError::Keep(error)),
                    Ok(()) | Err(_) => {}
                }
            }
            let mut needed = HashSet::new();
            for one in &shelf.checkpoints {
                needed.extend(shelf.load(one.number)?.iter().flat_map(contents_of));
            }
            shelf.objects().keep_only(&needed).map_err(CheckpointError::Keep)?;
            Ok(before - shelf.checkpoints.len())
        })
        .await
    }

    /// Whether nothing runs in it. What was just killed may take a moment to be gone.
    async fn quiet(&self) -> Result<Quiet, CheckpointError> {
        let Ok(alone) = Arc::clone(&self.open.gate).try_write_owned() else { return Ok(Quiet::No { left: 0 }) };
        let mut looks = 0;
        loop {
            let left = self.measure().await.map_err(CheckpointError::Layer)?.tasks;
            looks += 1;
            match left {
                0 => return Ok(Quiet::Yes(alone)),
                left if looks == LOOKS => return Ok(Quiet::No { left }),
                _ => tokio::time::sleep(BETWEEN_LOOKS).await,
            }
        }
    }

    /// Does something with the checkpoints, on a thread of its own: it may take long, and others are watched meanwhile.
    async fn work<T: Send + 'static>(
        &self,
        act: impl FnOnce(Work<'_>) -> Result<T, CheckpointError> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let active = Active::beside(&self.open);
        let quiet = self.quiet().await?;
        let layer = self.open.with.wall.layer().await.map_err(CheckpointError::Layer)?;
        let layer = layer.ok_or(CheckpointError::NoLayer)?;
        let open = Arc::clone(&self.open);
        let (sender, done) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || {
                let worked =
                    on_the_shelf(&open, |shelf| act(Work { open: &open, shelf, layer: &layer, quiet: &quiet }));
                drop((quiet, active));
                // Who does not wait any more does not need it.
                sender.send(worked).ok();
            })
            .map_err(CheckpointError::Keep)?;
        done.await.map_err(|_| CheckpointError::Ended)?
    }
}

/// Calls `act` with the shelf of a session, which is made for the first who needs it.
fn on_the_shelf<T>(
    open: &Open,
    act: impl FnOnce(&mut Shelf) -> Result<T, CheckpointError>,
) -> Result<T, CheckpointError> {
    // The end of the session waits until this is done, and takes the shelf then.
    let _one = open.keeping.lock().unwrap_or_else(PoisonError::into_inner);
    if open.is_ending() {
        return Err(CheckpointError::Ended);
    }
    let mut shelf = open.shelf.lock().unwrap_or_else(PoisonError::into_inner);
    let shelf = match &mut *shelf {
        Some(shelf) => shelf,
        empty => {
            let folder = Scratch::create(&open.engine.state, &RunId::generate()?)?;
            empty.insert(Shelf { folder, last: 0, checkpoints: Vec::new(), known: Remembered::default() })
        }
    };
    act(shelf)
}

impl Work<'_> {
    /// What differs from the host's workspace now.
    fn look(&mut self) -> Result<Vec<Change>, CheckpointError> {
        let (bounds, objects) = (workspace::bounds(self.open.about()), self.shelf.objects());
        let (changes, seen) = harvest_again(self.layer, bounds, &objects, &self.shelf.known)?;
        // A program that has a file mapped can write to it and leave no trace: its times say nothing then.
        self.shelf.known = match self.quiet {
            Quiet::Yes(_) => seen,
            Quiet::No { .. } => Remembered::default(),
        };
        Ok(changes)
    }

    /// Makes a checkpoint of `changes`.
    fn keep(&mut self, name: Option<String>, changes: Vec<Change>) -> Result<Checkpoint, CheckpointError> {
        if self.shelf.checkpoints.len() >= MOST_CHECKPOINTS {
            return Err(CheckpointError::TooMany);
        }
        let number = self.shelf.last + 1;
        let set = workspace::set_of(self.layer, self.open.about(), changes);
        let list = self.shelf.kept(number).keep(&set).map_err(CheckpointError::Keep)?;
        let mut runs = self.open.runs();
        let checkpoint = Checkpoint {
            number,
            name,
            made_at: crate::session::now(),
            changes: set.counts(),
            runs: runs.ended.clone(),
            runs_left_out: runs.left_out,
            while_programs_ran: matches!(self.quiet, Quiet::No { .. }),
        };
        let ids: Vec<&RunId> = checkpoint.runs.iter().map(|run| &run.run).collect();
        let body = json!({
            "checkpoint": number,
            "name": checkpoint.name,
            "changes": checkpoint.changes,
            "list": list,
            "runs": ids,
        });
        self.write_down(Kind::Checkpointed, body)?;
        (runs.ended, runs.left_out) = (Vec::new(), 0);
        self.shelf.last = number;
        self.shelf.checkpoints.push(checkpoint.clone());
        Ok(checkpoint)
    }

    fn write_down(&self, kind: Kind, body: serde_json::Value) -> Result<(), LedgerError> {
        let entry = self.open.engine.entry(&self.open.with.id, kind, body);
        self.open.engine.append(&[entry], Durability::Written)
    }

    fn between(&self, from: &[Change], to: &[Change]) -> Result<Vec<Change>, PutError> {
        let policy = &self.open.with.policy;
        let deny: Vec<String> = policy.fs.deny.iter().map(|glob| glob.value.as_str().to_owned()).collect();
        let (objects, most) = (self.shelf.objects(), workspace::bounds(self.open.about()).most_bytes);
        let lower = self.layer.lower();
        let mut changes = between(from, to, &mut Untouched::new(lower, &deny, &objects, most))?;
        // Folders on the way to something of the wall's own are listed only while programs have something in them. They
        // are there all the time.
        let is_said =
            |set: &[Change], change: &Change| set.binary_search_by(|one| one.place.cmp(&change.place)).is_ok();
        changes.retain(|change| {
            let is_there = lower.leads_to_made(change.place.as_path());
            let gone = change.after.is_none() && !is_said(to, change);
            let came = change.before == Before::Nothing && !is_said(from, change);
            !(is_there && (gone || came))
        });
        Ok(changes)
    }

    fn restore(&mut self, number: u64, merged: &dyn PutBack) -> Result<Restored, CheckpointError> {
        let wanted = self.shelf.load(number)?;
        let now = self.look()?;
        let changes = self.between(&now, &wanted).map_err(CheckpointError::Host)?;
        if changes.is_empty() {
            return Ok(Restored { number, changes: Counts::default(), before: None });
        }
        let before = self.keep(Some(format!("before restore of {number}")), now)?;
        self.write_down(Kind::Restored, json!({ "checkpoint": number, "before": before.number }))?;
        let steps: Vec<Step<'_>> = changes.iter().map(|change| (&change.place, change.after.as_ref())).collect();
        merged.put(&steps, &self.shelf.objects()).map_err(CheckpointError::Put)?;
        let now = self.look()?;
        if let Some(other) = self.between(&now, &wanted).map_err(CheckpointError::Host)?.into_iter().next() {
            return Err(CheckpointError::NotWhole(other.place.as_path().to_owned()));
        }
        let changes = workspace::set_of(self.layer, self.open.about(), changes).counts();
        Ok(Restored { number, changes, before: Some(before) })
    }
}

/// The contents that a change needs.
fn contents_of(change: &Change) -> impl Iterator<Item = ObjectId> {
    let before = match &change.before {
        Before::Was(was) => match was.kind {
            WasKind::File(content) => content,
            WasKind::Link(_) | WasKind::Folder | WasKind::Other(_) => None,
        },
        Before::Nothing | Before::Unknown => None,
    };
    let after = match change.after {
        Some(Node::File { content, .. }) => Some(content),
        Some(Node::Link { .. } | Node::Folder { .. } | Node::Other(_)) | None => None,
    };
    before.into_iter().chain(after)
}
