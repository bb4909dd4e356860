//! Files that `fs.deny` names and that come into the workspace while a wall shows it.
//!
//! No fence of the kernel knows patterns, so this is a watch and no wall: what comes is taken away when it is seen, and what
//! was not seen in time is told. Before a program of a session starts, everything is looked at first.

mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringfence_policy::{Glob, Sourced};
use rustix::fs::{AtFlags, FileType};
use tokio::task::AbortHandle;

use self::watch::Watch;
use super::native::deny;
use super::{StartError, WallError};
use crate::event::{LATER_FILES, Violation};
use crate::outcome::{Failure, FailureKind};
use crate::state::StateFolder;
use crate::waiting::waiting;
use crate::workspace::copy::Kind;
use crate::workspace::layer::Lower;
use crate::workspace::take_away::{Behind, Taken};

/// How `fs.deny` is kept where the host's own folder is shown.
pub(crate) const BY_TAKING_AWAY: &str =
    "what matched when the program was started is absent; what comes later is taken away when it is seen";

/// The time between two looks, unless they take long: then this many times as long as the last one took.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const REST: u32 = 50;
/// What lives longer is watched: to let go of a watch takes the kernel some milliseconds, which a short run would notice.
const WATCHED_AFTER: Duration = Duration::from_secs(1);
/// A look fails when the host removes a folder at the same moment. So often it is begun again.
const LOOKS: u32 = 3;
/// Of those that came, these are kept to be told, and so many are named.
const MOST_CAME: usize = 4_096;
const MOST_NAMED: usize = 8;

/// What is denied of one workspace, and comes later.
#[derive(Debug)]
pub(crate) struct Later {
    lower: Arc<Lower>,
    deny: Vec<Sourced<Glob>>,
    state: StateFolder,
    seen: Mutex<Seen>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Where programs see the workspace, while they do.
    behind: Option<Behind>,
    watch: Option<Watch>,
    /// Why there is no watch, where one was wanted.
    unwatched: Option<String>,
    came: Vec<Came>,
    /// Places that are tried again with each look: they could not be taken away, or not as a whole.
    again: Vec<PathBuf>,
    /// Why the last look told nothing.
    failed: Option<String>,
}

/// Something denied that was there when a program ran.
#[derive(Debug)]
struct Came {
    path: PathBuf,
    at: Instant,
    /// Why it is still there.
    stays: Option<String>,
}

/// How it is known that something denied is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It was seen.
    Found,
    /// It came, and may have gone again.
    Heard,
}

impl Later {
    /// For the workspace `lower`, if something is denied there. What was absent from the start is known to it.
    pub(crate) fn new(lower: &Arc<Lower>, deny: &[Sourced<Glob>], state: &StateFolder) -> Option<Arc<Self>> {
        (!deny.is_empty()).then(|| {
            Arc::new(Self {
                lower: Arc::clone(lower),
                deny: deny.to_vec(),
                state: state.clone(),
                seen: Mutex::default(),
                task: Mutex::default(),
            })
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known where programs see the workspace.
    pub(crate) fn stands(&self) -> bool {
        self.seen().behind.is_some()
    }

    /// Begins to look and then to watch: programs see the workspace in `merged`, with the private layer `upper`.
    pub(crate) fn stand(self: &Arc<Self>, upper: OwnedFd, merged: OwnedFd) -> io::Result<()> {
        self.seen().behind = Some(Behind::new(upper, merged)?);
        let task = tokio::spawn(watch_over(Arc::downgrade(self)));
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
        Ok(())
    }

    /// Takes away what came until now, before a program starts. What cannot be taken away keeps it from starting.
    pub(crate) fn settle(&self) -> Result<(), StartError> {
        let mut seen = self.seen();
        waiting(|| self.catch_up(&mut seen))?;
        let stays = |came: &&Came| came.stays.is_some() && seen.again.contains(&came.path);
        match seen.came.iter().rev().find(stays) {
            None => Ok(()),
            Some(Came { path, stays, .. }) => Err(StartError::Wall(WallError(format!(
                "{path:?} came into the workspace and is denied, and could not be taken away here; in a new session it is absent: {}",
                stays.as_deref().unwrap_or_default()
            )))),
        }
    }

    /// No program sees the workspace any more.
    pub(crate) fn end(&self) {
        self.stop();
        self.seen().behind = None;
    }

    /// Likewise, and what came until now is known as no change of theirs. Who lists changes afterwards does without what could not be
    /// looked at: what is denied is never applied, whatever a list says.
    pub(crate) fn close(&self) {
        self.end();
        let mut seen = self.seen();
        waiting(|| self.catch_up(&mut seen)).ok();
    }

    /// What came after `since`, once everything was looked at for a last time.
    pub(crate) fn violations(&self, since: Instant) -> Vec<Violation> {
        let mut seen = self.seen();
        let looked = waiting(|| self.catch_up(&mut seen));
        let violation = |message| Violation { rule: LATER_FILES.to_owned(), message };
        let (away, stayed): (Vec<&Came>, Vec<&Came>) =
            seen.came.iter().filter(|came| came.at > since).partition(|came| came.stays.is_none());
        let mut violations = Vec::new();
        if !away.is_empty() {
            let names = named(away.iter().map(|came| came.path.as_path()));
            violations.push(violation(format!(
                "denied files came into the workspace on the host while the program ran, and may have been read there: {names}"
            )));
        }
        if let Some(Came { stays: Some(why), .. }) = stayed.first() {
            let names = named(stayed.iter().map(|came| came.path.as_path()));
            violations.push(violation(format!(
                "denied files came into the workspace on the host while the program ran, and could not be taken away: {names} ({why})"
            )));
        }
        if let Err(error) = looked {
            let why = Failure::new(FailureKind::Start, &error).chain.join(": ");
            violations.push(violation(format!(
                "whether denied files came into the workspace while the program ran is not known: {why}"
            )));
        }
        violations
    }

    /// How later files were looked for.
    pub(crate) fn evidence(&self) -> String {
        let seen = self.seen();
        match (&seen.watch, &seen.unwatched) {
            (Some(_), _) => "later ones were watched for".to_owned(),
            (None, None) => "later ones were looked for until its end".to_owned(),
            (None, Some(why)) => format!("later ones were looked for until its end, and not watched for: {why}"),
        }
    }

    fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Deals with all that came until now.
    fn catch_up(&self, seen: &mut Seen) -> Result<(), StartError> {
        let dealt = match seen.watch.as_mut().map(Watch::hear) {
            None => self.look(seen),
            Some(heard) if heard.lost || seen.failed.is_some() => self.look(seen),
            Some(heard) => self.take(seen, heard.names),
        };
        seen.failed = dealt.as_ref().err().map(ToString::to_string);
        for path in std::mem::take(&mut seen.again) {
            self.take_away(seen, path, Known::Found);
        }
        dealt
    }

    /// Looks at everything. Folders that came are watched, too, if any are.
    fn look(&self, seen: &mut Seen) -> Result<(), StartError> {
        let mut tried = 0;
        let found = loop {
            match self.find(Path::new(""), seen) {
                Err(_) if tried + 1 < LOOKS => tried += 1,
                found => break found?,
            }
        };
        if seen.watch.as_ref().is_some_and(|watch| watch.refused().is_some()) {
            // What is not watched in full is looked at.
            seen.unwatched = seen.watch.take().and_then(|watch| watch.refused().map(str::to_owned));
        }
        self.take_all(seen, found);
        Ok(())
    }

    /// What is denied below a folder.
    fn find(&self, from: &Path, seen: &mut Seen) -> Result<Vec<PathBuf>, StartError> {
        let mut each = |folder: &Path| {
            if let Some(watch) = &mut seen.watch {
                watch.add(folder);
            }
        };
        let workspace = (self.lower.path(), self.lower.held());
        deny::find_from(workspace, from, &self.deny, Some(&self.state), &mut each)
    }

    /// Deals with names that came.
    fn take(&self, seen: &mut Seen, names: Vec<(PathBuf, Kind)>) -> Result<(), StartError> {
        let mut has_other_names = false;
        for (path, kind) in names {
            has_other_names |= kind == Kind::Leaf && self.has_other_names(&path);
            if deny::denies(&self.deny, &path, kind) {
                self.take_away(seen, path, Known::Heard);
            } else if kind == Kind::Folder {
                match self.find(&path, seen) {
                    Ok(found) => self.take_all(seen, found),
                    // It is gone; if it went somewhere else here, that is told as well.
                    Err(_) if !self.is_there(&path) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let refused = seen.watch.as_ref().is_some_and(|watch| watch.refused().is_some());
        if has_other_names || refused { self.look(seen) } else { Ok(()) }
    }

    /// Whether a file has more than one name. One of them may be denied.
    fn has_other_names(&self, path: &Path) -> bool {
        let stat = rustix::fs::statat(self.lower.held(), path, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory && stat.st_nlink > 1)
    }

    fn is_there(&self, path: &Path) -> bool {
        rustix::fs::statat(self.lower.held(), path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn take_all(&self, seen: &mut Seen, found: Vec<PathBuf>) {
        for path in found {
            self.take_away(seen, path, Known::Found);
        }
    }

    fn take_away(&self, seen: &mut Seen, path: PathBuf, known: Known) {
        let was_absent = self.lower.is_in_absent(&path);
        // Before it is: who lists what was changed meanwhile must not take it for something that a program removed.
        self.lower.count_as_absent(&path);
        let taken = seen.behind.as_ref().map(|behind| behind.take_away(&path));
        let stays = match &taken {
            Some(Err(error)) => Some(error.to_string()),
            _ => None,
        };
        let came = match &taken {
            Some(Ok(Taken::Away(place))) => {
                self.lower.count_as_absent(place);
                true
            }
            // It came and went.
            Some(Ok(Taken::Nothing)) => known == Known::Heard,
            Some(Ok(Taken::Before | Taken::Own)) => false,
            Some(Ok(Taken::Half(removed))) => *removed > 0,
            Some(Err(_)) => true,
            // Nobody is there any more who could see it. Somebody was, unless it had been taken away.
            None => !was_absent,
        };
        if came {
            seen.came.retain(|known| known.path != path || known.stays.is_none());
            if seen.came.len() < MOST_CAME {
                seen.came.push(Came { path: path.clone(), at: Instant::now(), stays });
            }
        }
        if matches!(taken, Some(Err(_) | Ok(Taken::Half(_)))) && !seen.again.contains(&path) {
            seen.again.push(path);
        }
    }

    /// Watches every folder from now on, if that can be had.
    fn begin_to_watch(&self, seen: &mut Seen) -> Result<(), StartError> {
        if deny::is_changed_here_only(self.lower.held()) {
            match Watch::new(self.lower.held()) {
                Ok(watch) => seen.watch = Some(watch),
                Err(error) => seen.unwatched = Some(error),
            }
        } else {
            seen.unwatched = Some("the file system may be changed from elsewhere".to_owned());
        }
        let looked = self.look(seen);
        if looked.is_err() {
            seen.watch = None;
        }
        looked
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks for a while, then watches, for as long as somebody needs it.
async fn watch_over(later: Weak<Later>) {
    let began = Instant::now();
    let mut rest = LOOK_EVERY;
    loop {
        tokio::time::sleep(rest).await;
        let events = {
            let Some(later) = later.upgrade() else { return };
            let mut seen = later.seen();
            let look = Instant::now();
            let wanted = began.elapsed() >= WATCHED_AFTER && seen.unwatched.is_none();
            let looked = waiting(|| if wanted { later.begin_to_watch(&mut seen) } else { later.catch_up(&mut seen) });
            seen.failed = looked.err().map(|error| error.to_string());
            // Letting go of a watch that could not be had in full takes time, and is no look.
            rest = if wanted { LOOK_EVERY } else { LOOK_EVERY.max(look.elapsed() * REST) };
            seen.watch.as_ref().map(Watch::events)
        };
        let Some(events) = events else { continue };
        // An error means that nobody tells any more: then it is looked at as before.
        while events.readable().await.is_ok() {
            let Some(later) = later.upgrade() else { return };
            let mut seen = later.seen();
            let deal = || {
                // What failed is looked at again when something comes, or somebody asks.
                waiting(|| later.catch_up(&mut seen)).ok();
                // All that had come was read.
                Err::<(), io::Error>(io::ErrorKind::WouldBlock.into())
            };
            events.try_io(deal).ok();
            if seen.watch.is_none() {
                break;
            }
        }
    }
}

/// Some paths, and how many more there are.
fn named<'a>(paths: impl Iterator<Item = &'a Path>) -> String {
    let paths: Vec<&Path> = paths.collect();
    let mut named: Vec<String> = paths.iter().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
    if paths.len() > MOST_NAMED {
        named.push(format!("and {} more", paths.len() - MOST_NAMED));
    }
    named.join(", ")
}
