//! A container that was made and started, whose guest was told nothing yet.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ahead::Ahead;
use super::attached::Complaint;
use super::could_not;
use super::engine::{ContainerId, Engine, State};
use super::failure::{EngineError, EngineFailure};
use super::guest_path::GuestPath;
use super::labels::{ContainerKind, Labels, Owner};
use super::laying::Stands;
use super::leaving::{Leaving, LeavingOne};
use super::meeting::meet;
use super::pool::{self, Key};
use super::spec::{GuestFrom, GuestPlace, Spec};
use super::standing::complaining;
use super::wanted::naming;
use super::ways::Way;
use super::workspace_volume::WorkspaceVolume;
use crate::backend::far::FarLink;
use crate::backend::{StartError, WallError};
use crate::run_id::RunId;

/// How often, and how far apart, a container's first process is looked for.
const LOOKS: usize = 400;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How long one may take to be removed, and how far apart its engine is asked.
const REMOVES: Duration = Duration::from_secs(10);
const BETWEEN_REMOVALS: Duration = Duration::from_millis(50);

/// How a container is made: nothing of one run is in it but the first labels.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) key: Key,
    pub(super) engine: Engine,
    pub(super) owner: Owner,
    pub(super) way: Way,
    pub(super) leaving: Leaving,
    pub(super) spec: Spec,
    /// What is done with those that wait.
    pub(super) ahead: Option<Arc<Ahead>>,
}

/// One that was made. Dropping it kills its guest and removes the container.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) far: Arc<FarLink>,
    pub(super) complaint: Complaint,
    /// Its first process, where that is one of this machine that we are to join.
    pub(super) first: Option<FirstProcess>,
    /// What was laid into it, and proven, before anybody needed it.
    pub(super) stands: Option<Stands>,
    // Last: nobody is in it then.
    pub(super) place: MadePlace,
}

/// The first process of a container of this machine.
#[derive(Debug)]
pub(super) struct FirstProcess {
    /// Its number here.
    pub(super) number: i32,
    /// The file of ours that it executes.
    pub(super) file: fs::Metadata,
    /// Where only its container shows that.
    pub(super) at: GuestPlace,
    /// The process itself, whatever else may get its number.
    descriptor: OwnedFd,
}

impl FirstProcess {
    /// A process that is the first of no container.
    #[cfg(test)]
    pub(super) fn stand_in(number: i32) -> Self {
        let descriptor = pidfd_open(Pid::from_raw(number).unwrap(), PidfdFlags::empty()).unwrap();
        Self { number, file: fs::metadata("/proc/self/exe").unwrap(), at: GuestPlace::fixed(), descriptor }
    }

    /// Whether it has not ended. When it has, the kernel has ended everything in its container.
    pub(super) fn is_alive(&self) -> bool {
        matches!(ended(&self.descriptor), Ok(false))
    }
}

/// Whether a process has ended.
fn ended(process: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    Ok(poll(&mut polled, Some(&Timespec::default()))? > 0)
}

/// The container itself. Dropping it removes it.
#[derive(Debug)]
pub(super) struct MadePlace {
    engine: Engine,
    id: ContainerId,
    leaving: Leaving,
    is_removed: AtomicBool,
    /// What it alone shows, which is removed after it.
    volume: Option<WorkspaceVolume>,
}

impl MadePlace {
    /// It goes soon: who ends everything waits for that until this is dropped.
    pub(super) fn leaves(&self) -> LeavingOne {
        self.leaving.one()
    }

    /// How it is.
    pub(super) async fn state(&self) -> Result<State, EngineError> {
        self.engine.state(&self.id).await
    }

    /// Removes it now, and not when nobody is there any more to do it.
    pub(super) async fn remove(&self) {
        // What cannot be removed is tried once more when it is dropped, and found by its labels later.
        let gone = remove_with(&self.engine, &self.id, self.volume.as_ref()).await;
        self.is_removed.fetch_or(gone, Ordering::Relaxed);
    }
}

/// Removes a container within a time, and says whether it is gone. An engine that is removing it already, because it ended, says
/// so before it is done; one that cannot, or does not answer, is not waited for.
pub(super) async fn remove(engine: &Engine, id: &ContainerId, within: Duration) -> bool {
    let until_gone = async {
        let mut pause = BETWEEN_LOOKS;
        loop {
            let state = match engine.remove(id).await {
                Ok(()) => engine.state(id).await,
                Err(error) => Err(error),
            };
            match state {
                Ok(State::Gone) => return true,
                Ok(State::Ended(_) | State::NotEnded) => {}
                // It answers, and may be busy with just this container.
                Err(EngineError { failure: EngineFailure::Refused { .. } | EngineFailure::Conflict(_), .. }) => {}
                Err(_) => return false,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BETWEEN_REMOVALS);
        }
    };
    tokio::time::timeout(within, until_gone).await.unwrap_or(false)
}

/// Removes a container, and then what it alone showed; says whether both are gone.
async fn remove_with(engine: &Engine, id: &ContainerId, volume: Option<&WorkspaceVolume>) -> bool {
    let gone = remove(engine, id, REMOVES).await;
    match volume {
        Some(volume) => volume.remove().await.is_ok() && gone,
        None => gone,
    }
}

impl Drop for MadePlace {
    fn drop(&mut self) {
        if self.is_removed.load(Ordering::Relaxed) {
            return;
        }
        let (engine, id, one) = (self.engine.clone(), self.id.clone(), self.leaving.one());
        let volume = self.volume.take();
        // Its guest ends by itself and the engine removes it then; this is for one that does not. Without an event loop, the
        // next start finds it by its labels.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                remove_with(&engine, &id, volume.as_ref()).await;
                drop(one);
            });
        }
    }
}

impl Recipe {
    /// Makes one for a run or a session, whose workspace is in `volume` where it is in one. That is removed with it, also when it cannot be
    /// made.
    pub(super) async fn make_for(
        &self,
        run: &RunId,
        kind: ContainerKind,
        volume: Option<WorkspaceVolume>,
    ) -> Result<Made, StartError> {
        let held = volume.clone();
        let made = self.make_with(run, kind, volume).await;
        if let (Err(_), Some(volume)) = (&made, held) {
            // What is left is found by its labels.
            volume.remove().await.ok();
        }
        made
    }

    async fn make_with(
        &self,
        run: &RunId,
        kind: ContainerKind,
        volume: Option<WorkspaceVolume>,
    ) -> Result<Made, StartError> {
        let labels = Labels::new(run.as_str(), &self.owner, kind).map_err(naming)?;
        let guest_at = GuestPlace::new().map_err(|error| could_not(&error))?;
        let mut spec = Spec { labels, guest_at, ..self.spec.clone() };
        spec.volumes.extend(volume.as_ref().map(WorkspaceVolume::shown));
        let path = match &spec.guest {
            GuestFrom::File(guest) => {
                let gone = |source| StartError::Io { attempt: "find our own binary in the state folder", source };
                Some(GuestPath::look(guest).map_err(gone)?)
            }
            GuestFrom::Volume(_) => None,
            #[cfg(test)]
            GuestFrom::Instead(_) => None,
        };
        let made = self.engine.create(&spec).await;
        if let Some(path) = path {
            path.remove_what_came();
        }
        let id = made.map_err(|error| could_not(&error))?;
        let (engine, leaving) = (self.engine.clone(), self.leaving.clone());
        let place = MadePlace { engine, id, leaving, is_removed: AtomicBool::new(false), volume };
        match self.begin(&spec, &place).await {
            Ok((far, complaint, first)) => Ok(Made { far, complaint, first, stands: None, place }),
            Err(error) => {
                // What was started may not be what we meant to start.
                place.remove().await;
                Err(error)
            }
        }
    }

    async fn begin(
        &self,
        spec: &Spec,
        place: &MadePlace,
    ) -> Result<(Arc<FarLink>, Complaint, Option<FirstProcess>), StartError> {
        let (engine, id) = (&self.engine, &place.id);
        if let Some(volume) = &place.volume {
            volume.hand_over().await.map_err(|error| could_not(&error))?;
        }
        let attached = engine.attach(id).await.map_err(|error| could_not(&error))?;
        engine.start(id).await.map_err(|error| could_not(&error))?;
        let complaint = attached.output.complaint();
        let (killing, killed) = (engine.clone(), id.clone());
        let kill = |first: Option<OwnedFd>| {
            move || async move {
                // An engine may be gone, and what it started not.
                if let Some(first) = first {
                    end_process(first).await.ok();
                }
                // One that cannot be killed is told to by its end of input, and found again by its labels.
                killing.kill(&killed).await.ok();
            }
        };
        let (far, first) = match self.way {
            Way::Laid => {
                let told = engine.process(id).await.map_err(|error| could_not(&error))?;
                let first = first_process(spec, told).await?;
                let io = |source| StartError::Io { attempt: "meet the guest", source };
                let descriptor = first.descriptor.try_clone().map_err(io)?;
                match meet(&first, (spec.user.uid, spec.user.gid), attached).await.map_err(io) {
                    Ok((heard, input)) => (FarLink::new(heard, input, kill(Some(descriptor)), None), Some(first)),
                    Err(error) => return Err(complaining(error, &complaint, place).await),
                }
            }
            Way::Filled => (FarLink::new(attached.output, attached.input, kill(None), None), None),
        };
        Ok((Arc::new(far), complaint, first))
    }
}

/// Kills a process and waits for its end. With the first of a container the kernel ends everything in it before.
async fn end_process(descriptor: OwnedFd) -> io::Result<()> {
    match pidfd_send_signal(&descriptor, Signal::KILL) {
        // It is gone already, or about to be.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    while !matches!(ended(&descriptor), Ok(true)) {
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Ok(())
}

/// The container's first process, as it is numbered here. What an engine says it has started may not have become our binary
/// yet.
async fn first_process(spec: &Spec, told: i32) -> Result<FirstProcess, StartError> {
    let look = |source| StartError::Io { attempt: "look at our own binary", source };
    let GuestFrom::File(guest) = &spec.guest else { return Err(wall("the engine is on another machine")) };
    let file = fs::metadata(guest).map_err(look)?;
    for _ in 0..LOOKS {
        if let Some((number, descriptor)) = find_process(told, spec.guest_at.as_str(), &file) {
            return Ok(FirstProcess { number, file, at: spec.guest_at.clone(), descriptor });
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    Err(wall(
        "its processes cannot be seen from here, although its socket is here: name the engine by tcp:// or ssh://",
    ))
}

/// The first process of a container, as it is numbered here: an engine in namespaces of its own has other numbers. What runs is
/// our binary, and only in this container it is at this place.
fn find_process(told: i32, at: &str, file: &fs::Metadata) -> Option<(i32, OwnedFd)> {
    let is_it = |process: &i32| {
        let runs = fs::metadata(format!("/proc/{process}/exe"));
        runs.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
            && fs::symlink_metadata(format!("/proc/{process}/root{at}")).is_ok()
    };
    let numbers = || {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    let number = Some(told).filter(is_it).or_else(|| numbers().find(is_it))?;
    let descriptor = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
    // Once more: the number is its own for as long as the descriptor says that it lives.
    is_it(&number).then_some((number, descriptor))
}

fn wall(why: &str) -> StartError {
    StartError::Wall(WallError(why.to_owned()))
}

impl pool::Recipe for Recipe {
    type Made = Made;

    fn key(&self) -> Key {
        self.key
    }

    async fn make(&self) -> Result<Made, StartError> {
        let unique = RunId::generate().map_err(|_| naming(io::ErrorKind::Other.into()))?;
        let made = self.make_for(&unique, ContainerKind::Pool, None).await?;
        match &self.ahead {
            Some(ahead) => ahead.stand(made).await,
            None => Ok(made),
        }
    }

    async fn is_alive(made: &mut Made) -> bool {
        let is_alive = match &made.first {
            Some(first) => first.is_alive(),
            None => matches!(made.place.state().await, Ok(State::NotEnded)),
        };
        is_alive && !made.far.is_over()
    }

    async fn end(made: Made) {
        made.place.remove().await;
        drop(made);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_guest_is_killed_and_waited_for_without_its_engine() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let first = FirstProcess::stand_in(number);
        assert!(first.is_alive(), "the twin");
        let ended = end_process(first.descriptor.try_clone().unwrap());
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap().unwrap();
        assert!(!first.is_alive());
        let status = child.try_wait().unwrap().unwrap();
        assert_eq!(status.signal(), Some(9));
        // One that is gone already is not waited for.
        end_process(first.descriptor).await.unwrap();
    }
}
