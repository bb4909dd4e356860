//! Process 1 on its way to be a guest: a view that is begun, and a whole wall that stands before it is known what for.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use libc::c_int;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::guest::{Behind, KilledFirst, WallDescriptors, WallLaunch};
use super::inside::{Building, Inside, LettingGo, SetupError};
use super::landlock::Fence;
use super::namespaces::Joined;
use super::network::Network;
use super::program::{Failed, Restrictions};
use super::view::{Entry, open_sources};
use super::{Wall, os_path};
use crate::keeper::{RlimitKind, place_descriptors};
use crate::keeper_process::{self, CONTROL};
use crate::program_process::set_limit;
use crate::report::Stage;
use crate::{privileges, seccomp};

/// All of a wall but its program, where that is counted, and what comes with it: files of the read-only root, in one folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeWall {
    /// By which a launch names it. No other wall of the same launcher has it.
    pub number: u64,
    /// What is shown.
    pub wall: Wall,
    /// What restricts every program.
    pub restrictions: Restrictions,
    /// A folder of the read-only root, one of the entries, in which files can still be made.
    #[serde(with = "os_path")]
    pub late: PathBuf,
}

/// Process 1 whose view is begun.
pub(super) struct Begun {
    building: Building,
    /// What can be written, in bytes and files.
    room: (u64, u64),
    preference: KilledFirst,
}

impl Begun {
    /// Begins the view of `wall` with all of its entries. This process is mapped, and the numbers that descriptors will be
    /// arranged at are taken.
    pub(super) fn begin(wall: &Wall, trees: &[OwnedFd]) -> Result<Self, Failed> {
        let failed = |error: io::Error| Failed::said(&error);
        // Opened while the file is ours: that of a process which may not be read is the host's root's.
        let preference = KilledFirst::open().map_err(failed)?;
        super::clock::begin_near_zero().map_err(|error| Failed::said(&error))?;
        privileges::set_not_dumpable().map_err(|error| Failed::said(&error))?;
        super::inside::forget_arguments().map_err(failed)?;
        super::inside::cut_off().map_err(setup)?;
        // Opened while we are who we are on the host.
        let sources = open_sources(&wall.entries, trees).map_err(setup)?;
        let room = (wall.writable_bytes, wall.writable_files);
        Ok(Self { building: Building::begin(wall, sources).map_err(setup)?, room, preference })
    }

    /// Adds the entries of `launch` after the first `built`, makes the view our root, and gives up every privilege.
    pub(super) fn finish<'a>(
        self,
        launch: &'a WallLaunch,
        built: usize,
        descriptors: WallDescriptors<'_>,
        joined: Joined,
        control: &mut c_int,
    ) -> Result<Behind<'a>, Failed> {
        let (inside, letting_go, preference) = self.enter(&launch.wall, built, descriptors.trees, None, || {
            arrange(descriptors)?;
            *control = CONTROL;
            Ok(())
        })?;
        joined.wait()?;
        // What else the supervisor had open ends here.
        inside.close_all_but_ours(CONTROL + 1, &[preference.descriptor()]).map_err(in_descriptors)?;
        let signals = keeper_process::child_signals().map_err(step)?;
        let doors = super::door::open(&launch.doors);
        let doors = doors.map_err(|error| Failed::Said(format!("could not listen in the wall's network: {error}")))?;
        let fence = give_up_everything(&launch.restrictions)?;
        // Before there is a program, and before a child could be taken for one.
        letting_go.wait().map_err(setup)?;
        Ok(Behind::behind_ours(launch, inside, fence, doors, preference, signals))
    }

    /// Likewise with `whole`, whose program is not known yet; of our descriptors `kept` stays open.
    pub(super) fn stand(
        self,
        whole: &WholeWall,
        built: usize,
        trees: Vec<OwnedFd>,
        network: io::Result<Network>,
        kept: c_int,
    ) -> Result<Standing, Failed> {
        let (inside, letting_go, preference) = self.enter(&whole.wall, built, &trees, Some(&whole.late), || Ok(()))?;
        // By their owner, before all else is closed by its number.
        drop(trees);
        Joined::join_network(network)?;
        inside.close_all_but_ours(CONTROL + 1, &[preference.descriptor(), kept]).map_err(in_descriptors)?;
        let fence = give_up_everything(&whole.restrictions)?;
        letting_go.wait().map_err(setup)?;
        Ok(Standing { inside, fence, preference })
    }

    /// Adds the entries of `wall` after the first `built` and makes the view our root. `arrange` is called when nothing more is
    /// opened by its number.
    fn enter(
        mut self,
        wall: &Wall,
        built: usize,
        trees: &[OwnedFd],
        late: Option<&Path>,
        arrange: impl FnOnce() -> Result<(), Failed>,
    ) -> Result<(Inside, LettingGo, KilledFirst), Failed> {
        let rest = wall.entries.get(built..).unwrap_or_default();
        // Opened before all else is closed: prepared trees are descriptors too.
        let sources = open_sources(rest, trees).map_err(setup)?;
        arrange()?;
        let room = (wall.writable_bytes, wall.writable_files);
        if room != self.room {
            self.building.resize(room).map_err(setup)?;
        }
        self.building.add(sources).map_err(setup)?;
        let (inside, letting_go) = self.building.enter(wall, late).map_err(setup)?;
        // Once more: becoming another user has set it to what the host prefers.
        privileges::set_not_dumpable().map_err(|error| Failed::said(&error))?;
        Ok((inside, letting_go, self.preference))
    }
}

/// Process 1 behind a whole wall, without any privilege, that does not know yet what for.
pub(super) struct Standing {
    inside: Inside,
    fence: Fence,
    preference: KilledFirst,
}

impl Standing {
    /// Goes by `join` where the program of `launch` is counted, makes `files`, and is a guest then. Descriptors are arranged.
    pub(super) fn go_on<'a>(
        mut self,
        launch: &'a WallLaunch,
        (late, files): (&Path, &[Entry]),
        join: impl FnOnce() -> io::Result<()>,
    ) -> Result<Behind<'a>, Failed> {
        // Before anything is written: that is counted where the program's memory is.
        Joined::join_groups(join())?;
        let umask = rustix::process::umask(Mode::empty());
        for file in files {
            self.inside.make_late(late, file).map_err(setup)?;
        }
        if let Some(name) = &launch.awaits {
            self.inside.await_late(name).map_err(setup)?;
        }
        rustix::process::umask(umask);
        let signals = keeper_process::child_signals().map_err(step)?;
        Ok(Behind::behind_ours(launch, self.inside, self.fence, Vec::new(), self.preference, signals))
    }
}

/// Gives the descriptors of a launch their numbers.
pub(super) fn arrange(descriptors: WallDescriptors<'_>) -> Result<(), Failed> {
    let [stdin, stdout, stderr] = descriptors.stdio.map(|fd| fd.as_raw_fd());
    place_descriptors([stdin, stdout, stderr, descriptors.control.as_raw_fd()]).map_err(step)
}

/// Nothing is left to do that needs a privilege. Every program's process inherits all of this, and proves it.
fn give_up_everything(restrictions: &Restrictions) -> Result<Fence, Failed> {
    privileges::set_no_new_privileges().map_err(|error| Failed::said(&error))?;
    let _bounding = privileges::drop_all().map_err(|error| Failed::said(&error))?;
    // Before the filter, which lets nobody change it.
    for limit in restrictions.rlimits.iter().filter(|limit| limit.kind == RlimitKind::Core) {
        set_limit(limit).map_err(step)?;
    }
    seccomp::install(seccomp::program()).map_err(|error| Failed::said(&error))?;
    Fence::make(&restrictions.paths).map_err(|error| Failed::said(&error))
}

fn setup(error: SetupError) -> Failed {
    Failed::said(&error)
}

fn step((stage, errno): (Stage, c_int)) -> Failed {
    Failed::Step(stage, errno)
}

fn in_descriptors(errno: c_int) -> Failed {
    Failed::Step(Stage::Descriptors, errno)
}
