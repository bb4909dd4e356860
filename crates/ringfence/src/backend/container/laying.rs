//! Lays what can be written into a container of this machine, before anything runs there.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use ringfence_linux::launcher::Launcher;
use ringfence_linux::wall::{Entry, HOME, Identity, Laying, Marker};
use ringfence_policy::ResolvedPolicy;

use super::made::FirstProcess;
use super::places::files;
use super::standing::LaidWorkspace;
use crate::backend::inside::{CODE, Scene};
use crate::backend::native::view::{self, Seen, Trees};
use crate::backend::native::workspace::{self, Workspace};
use crate::backend::{Live, StartError, WallError};
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::layer::Lower;

/// What the kernel shows of itself and of cgroups.
const KERNELS_OWN: &str = "/sys";

/// What is in the container then.
#[derive(Debug, Default)]
pub(super) struct Laid {
    /// The workspace, when what is changed of it is kept.
    pub(super) workspace: Option<LaidWorkspace>,
    /// The copy of it that is shown, if one is.
    pub(super) copy: Option<Scratch>,
    /// What stays the host's own, where something in it is denied.
    pub(super) live: Option<Arc<Live>>,
}

/// What a container is to show, as it was found on the host.
#[derive(Debug)]
pub(super) struct Sight {
    entries: Vec<Entry>,
    /// All that was looked at to be shown.
    seen: Vec<Option<Seen>>,
    trees: Trees,
    lower: Option<Arc<Lower>>,
    copy: Option<Scratch>,
    live: Option<Arc<Live>>,
}

/// Looks at what a container shows in `scene`; with [`Trees::only_counted`] to compare it with what one shows.
pub(super) fn look(scene: Scene<'_>, state: &StateFolder, mut trees: Trees) -> Result<Sight, StartError> {
    let Scene { policy, workspace, at, .. } = scene;
    let user = policy.proc.user.value;
    let identity = Identity { uid: user.uid, gid: user.gid, host_uid: user.uid, host_gid: user.gid };
    let scratch = |path: &str, mode| Entry::Scratch { at: path.into(), mode, size: None };
    let mut entries = vec![scratch("/tmp", 0o1777), scratch("/dev/shm", 0o1777), scratch(HOME, 0o700)];
    let Workspace { entry, reviewed, copy } = workspace::workspace(scene, identity, state, &mut trees)?;
    entries.push(entry);
    let mut mounts = view::mounts(scene, &mut trees)?;
    let hidden = view::hide(&mut mounts, workspace, at, state)?;
    entries.extend(mounts.into_iter().chain(hidden).chain(view::caches(scene, state)?));
    let mut entries = view::without_replaced(entries);
    let lower = reviewed.map(|reviewed| reviewed.lower(at, &entries)).transpose()?;
    // Over the quota's own place, and so the last.
    entries.push(scratch(CODE, 0o700));
    let (seen, live) = (trees.all_seen(entries.iter()), trees.live(&policy.fs.deny, state));
    Ok(Sight { entries, seen, trees, lower, copy, live })
}

/// Lays what was found into the container whose first process is `first`.
pub(super) fn lay(
    launcher: &Launcher,
    policy: &ResolvedPolicy,
    sight: &Sight,
    first: &FirstProcess,
) -> Result<Handed, StartError> {
    let process = first.number;
    let map = fs::read_to_string(format!("/proc/{process}/uid_map")).map_err(io("look at the container's users"))?;
    if map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"] {
        return Err(wall(
            "the engine gives containers users of their own, which this version cannot lay a workspace for",
        ));
    }
    let (user, size) = (policy.proc.user.value, policy.fs.size.value.get());
    let laying = Laying {
        process,
        marker: Marker { at: first.at.as_str().into(), device: first.file.dev(), inode: first.file.ino() },
        user: (user.uid, user.gid),
        entries: sight.entries.clone(),
        // Some runtimes leave something open there.
        read_only: vec![KERNELS_OWN.into()],
        quota_at: CODE.into(),
        writable_bytes: size,
        writable_files: files(size),
    };
    let laid = launcher.lay(&laying, &sight.trees.held).map_err(io("lay the workspace into the container"))?;
    Ok(Handed(laid.kept))
}

/// What was handed over of a private layer: itself, and the folder with it as programs see it.
#[derive(Debug)]
pub(super) struct Handed(Option<(OwnedFd, OwnedFd)>);

impl Handed {
    /// What is in a container that was laid so and shows `sight`.
    pub(super) fn over(self, sight: Sight) -> Result<Laid, StartError> {
        let Sight { lower, copy, live, .. } = sight;
        let workspace = match (self.0, lower) {
            (Some((upper, merged)), Some(lower)) => Some(LaidWorkspace { upper, merged, lower }),
            (None, None) => None,
            // What a program changes would be lost without a word.
            (Some(_), None) | (None, Some(_)) => {
                return Err(wall("the private layer of the workspace was not handed over"));
            }
        };
        Ok(Laid { workspace, copy, live })
    }
}

/// What was laid into a container before anybody needed it.
#[derive(Debug)]
pub(super) struct Stands {
    entries: Vec<Entry>,
    seen: Vec<Option<Seen>>,
    handed: Handed,
}

impl Stands {
    pub(super) fn new(sight: Sight, handed: Handed) -> Self {
        let Sight { entries, seen, .. } = sight;
        Self { entries, seen, handed }
    }

    /// Whether what it shows is just what would be laid now.
    pub(super) fn shows(&self, now: &Sight) -> bool {
        self.entries == now.entries && self.seen == now.seen && self.seen.iter().all(Option::is_some)
    }

    pub(super) fn into_handed(self) -> Handed {
        self.handed
    }
}

fn io(attempt: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Io { attempt, source }
}

fn wall(why: &str) -> StartError {
    StartError::Wall(WallError(why.to_owned()))
}
