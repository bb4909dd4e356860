//! Lays what can be written into a container of this machine, before anything runs there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use ringfence_linux::wall::{Entry, HOME, Identity, Laying, Marker};

use super::Containers;
use super::made::FirstProcess;
use super::places::files;
use super::standing::LaidWorkspace;
use crate::backend::inside::{CODE, Scene};
use crate::backend::native::view;
use crate::backend::native::workspace::{self, Workspace};
use crate::backend::{Live, StartError, WallError};
use crate::plan::Plan;
use crate::scratch::Scratch;

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

/// Lays all that can be written into the container whose first process is `first`.
pub(super) fn lay(containers: &Containers, plan: &Plan, at: &Path, first: &FirstProcess) -> Result<Laid, StartError> {
    let process = first.number;
    let map = fs::read_to_string(format!("/proc/{process}/uid_map")).map_err(io("look at the container's users"))?;
    if map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"] {
        return Err(wall(
            "the engine gives containers users of their own, which this version cannot lay a workspace for",
        ));
    }
    let user = plan.policy().proc.user.value;
    let identity = Identity { uid: user.uid, gid: user.gid, host_uid: user.uid, host_gid: user.gid };
    let scene = Scene::of(plan, at);
    let mut trees = view::Trees::default();
    let scratch = |path: &str, mode| Entry::Scratch { at: path.into(), mode, size: None };
    let mut entries = vec![scratch("/tmp", 0o1777), scratch("/dev/shm", 0o1777), scratch(HOME, 0o700)];
    let Workspace { entry, reviewed, copy } = workspace::workspace(scene, identity, &containers.state, &mut trees)?;
    entries.push(entry);
    let mut mounts = view::mounts(scene, &mut trees)?;
    let hidden = view::hide(&mut mounts, plan.workspace(), at, &containers.state)?;
    entries.extend(mounts.into_iter().chain(hidden).chain(view::caches(scene, &containers.state)?));
    let mut entries = view::without_replaced(entries);
    let lower = reviewed.map(|reviewed| reviewed.lower(at, &entries)).transpose()?;
    // Over the quota's own place, and so the last.
    entries.push(scratch(CODE, 0o700));
    let size = plan.policy().fs.size.value.get();
    let laying = Laying {
        process,
        marker: Marker { at: first.at.as_str().into(), device: first.file.dev(), inode: first.file.ino() },
        user: (user.uid, user.gid),
        entries,
        // Some runtimes leave something open there.
        read_only: vec![KERNELS_OWN.into()],
        quota_at: CODE.into(),
        writable_bytes: size,
        writable_files: files(size),
    };
    let laid = containers.launcher.lay(&laying, &trees.held).map_err(io("lay the workspace into the container"))?;
    let workspace = match (laid.kept, lower) {
        (Some((upper, merged)), Some(lower)) => Some(LaidWorkspace { upper, merged, lower }),
        (None, None) => None,
        // What a program changes would be lost without a word.
        (Some(_), None) | (None, Some(_)) => {
            return Err(wall("the private layer of the workspace was not handed over"));
        }
    };
    Ok(Laid { workspace, copy, live: trees.live(&plan.policy().fs.deny, &containers.state) })
}

fn io(attempt: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Io { attempt, source }
}

fn wall(why: &str) -> StartError {
    StartError::Wall(WallError(why.to_owned()))
}
