//! Lays what can be written into a container that an engine made, from outside and before anything runs there: one quota for
//! all of it, and private layers over folders of the host.
//!
//! An engine gives each place a file system of its own, and would have to copy a workspace. Where we may join the container's
//! mounts, it gets the same layers as a wall that we raise ourselves.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

use super::inside::{SetupError, raise_capabilities};
use super::layer::PrivateLayer;
use super::mount_api::{READ_ONLY, make_private_with};
use super::quota::Quota;
use super::root::Root;
use super::view::{Entry, build, open_sources};
use super::{at, inside_path, is_single_threaded, os_path, os_paths};
use crate::keeper::stream_sockets;
use crate::passing::{receive, send, wait_until_readable};
use crate::program_process::exit;

/// Of a failure in words.
const MOST_WORDS: usize = 4096;
const DONE: &[u8] = b"done";
/// How long laying may take.
const LAYS: Duration = Duration::from_secs(10);

/// What is laid into which container. Plain data: it can be sent to the process that does it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Laying {
    /// A process of the container, by its number on the host.
    pub process: i32,
    /// What only this container shows: a number that became another process's must not lead us into that one's mounts.
    pub marker: Marker,
    /// Who the programs are, inside and on the host.
    pub user: (u32, u32),
    /// What is laid, in order. The places are there already.
    pub entries: Vec<Entry>,
    /// Mounts that are made read-only with all below them, whatever whoever made them left open.
    #[serde(with = "os_paths")]
    pub read_only: Vec<PathBuf>,
    /// Where the quota's own file system is attached; the last of the entries lies over it.
    #[serde(with = "os_path")]
    pub quota_at: PathBuf,
    /// All that can be written together, in bytes.
    pub writable_bytes: u64,
    /// All files that can be made together.
    pub writable_files: u64,
}

/// A file that is known by its place inside and by what it is.
#[derive(Debug, Serialize, Deserialize)]
pub struct Marker {
    /// Where it is inside.
    pub at: OsString,
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// What was laid.
#[derive(Debug)]
pub struct LaidOut {
    /// The file system of all that can be written.
    pub quota: OwnedFd,
    /// The private layer that is kept, and the folder with it as programs see it; where there is one.
    pub kept: Option<(OwnedFd, OwnedFd)>,
}

impl LaidOut {
    /// Waits for what [`begin`] sends, but not for ever: who has the program's user on the host may stop the one that sends.
    pub(crate) fn receive(from: OwnedFd) -> io::Result<Self> {
        wait_until_readable(from.as_fd(), LAYS)?;
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "whoever was to lay it ended");
        let mut words = vec![0u8; MOST_WORDS];
        let (length, descriptors) = receive(from.as_fd(), &mut words)?;
        let words = words.get(..length).unwrap_or_default();
        let mut descriptors = descriptors.into_iter();
        match (words, descriptors.next()) {
            (DONE, Some(quota)) => Ok(Self { quota, kept: descriptors.next().zip(descriptors.next()) }),
            ([], _) | (DONE, None) => Err(gone()),
            (words, _) => Err(io::Error::other(String::from_utf8_lossy(words).into_owned())),
        }
    }
}

/// Lays `laying` in a process of its own, which tells `told`; returns its number. This process must have one thread.
pub(crate) fn begin(laying: &Laying, trees: &[OwnedFd], told: BorrowedFd<'_>) -> io::Result<i32> {
    if !is_single_threaded()? {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "mounts can be joined only by a process with one thread",
        ));
    }
    // SAFETY: this process has one thread, so the copy may go on with ordinary code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let sent = match lay(laying, trees) {
                Ok((quota, layers)) => {
                    let quota = quota.into_tree();
                    let kept = layers.iter().find_map(|layer| layer.kept().zip(layer.shown()));
                    let mut descriptors = vec![quota.as_fd()];
                    descriptors.extend(kept.into_iter().flat_map(|(upper, merged)| [upper, merged]));
                    send(told, DONE, &descriptors)
                }
                Err(error) => {
                    let words = crate::wall::program::chain(&error);
                    send(told, words.as_bytes().get(..MOST_WORDS.min(words.len())).unwrap_or_default(), &[])
                }
            };
            exit(i32::from(sent.is_err()))
        }
        pid => Ok(pid),
    }
}

/// Likewise, and waits for it.
pub(crate) fn lay_here(laying: &Laying, trees: &[OwnedFd]) -> io::Result<LaidOut> {
    let (ours, theirs) = stream_sockets()?;
    let pid = begin(laying, trees, theirs.as_fd())?;
    drop(theirs);
    let laid = LaidOut::receive(ours);
    // SAFETY: integers, and a null pointer, which is allowed for the status. The process is our child, and nobody else waits
    // for it, so its number is still its own.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    laid
}

fn lay(laying: &Laying, trees: &[OwnedFd]) -> Result<(Quota, Vec<PrivateLayer>), SetupError> {
    // Opened while we see the host's files.
    let opened = open_sources(&laying.entries, trees)?;
    // Likewise: what the process executes, whatever its container shows.
    let running = format!("/proc/{}/exe", laying.process);
    let running = rustix::fs::open(running, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("look at what runs in the container"))?;
    laying.marker.check(running.as_fd(), "something else runs in it")?;
    join(laying)?;
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("open the container's root"))?;
    let mut root = Root::new(root);
    for path in &laying.read_only {
        let tree = root.find(&inside_path(path))?;
        make_private_with(tree.as_fd(), READ_ONLY).map_err(|source| SetupError::Step {
            step: format!("make {} of the container read-only", path.display()),
            source,
        })?;
    }
    // Ours while we are root: nobody in there may look into it and change what we lay.
    let place = root.find(&inside_path(&laying.quota_at))?;
    let mut quota = Quota::attached(laying.writable_bytes, laying.writable_files, &laying.quota_at, place.as_fd())?;
    become_user(laying.user)?;
    rustix::process::umask(Mode::empty());
    let layers = build(&mut root, opened, &mut quota)?;
    Ok((quota, layers))
}

impl Marker {
    /// Whether `found` is the file.
    fn check(&self, found: BorrowedFd<'_>, otherwise: &str) -> Result<(), SetupError> {
        let found = rustix::fs::fstat(found).map_err(at("look at our own binary there"))?;
        if (found.st_dev, found.st_ino) == (self.device, self.inode) {
            return Ok(());
        }
        let step = format!("join the container's mounts: {otherwise}");
        Err(SetupError::Step { step, source: io::ErrorKind::InvalidData.into() })
    }
}

/// Joins the container's mounts, and makes sure that they are its.
fn join(laying: &Laying) -> Result<(), SetupError> {
    let wrong = |what: &str| SetupError::Step {
        step: format!("join the container's mounts: {what}"),
        source: io::ErrorKind::InvalidData.into(),
    };
    let io_at = |step: &str| {
        let step = step.to_owned();
        move |source: io::Error| SetupError::Step { step, source }
    };
    let mounts = format!("/proc/{}/ns/mnt", laying.process);
    let mounts = File::open(&mounts).map_err(io_at("find the container's mounts"))?;
    let ours = File::open("/proc/self/ns/mnt").map_err(io_at("look at our own mounts"))?;
    let is = |file: &File| rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino));
    let (theirs_is, ours_is) = (is(&mounts).map_err(at("look at them"))?, is(&ours).map_err(at("look at ours"))?);
    if theirs_is == ours_is {
        return Err(wrong("they are the host's"));
    }
    rustix::thread::move_into_link_name_space(mounts.as_fd(), Some(rustix::thread::LinkNameSpaceType::Mount))
        .map_err(at("join the container's mounts"))?;
    let marker = Path::new(&laying.marker.at);
    let found = rustix::fs::open(marker, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("find our own binary there"))?;
    laying.marker.check(found.as_fd(), "they are another's")
}

/// What is made is the programs' own; what we may do stays.
fn become_user((uid, gid): (u32, u32)) -> Result<(), SetupError> {
    rustix::thread::set_keep_capabilities(true).map_err(at("keep what we may do"))?;
    rustix::thread::set_thread_groups(&[]).map_err(at("leave our groups"))?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at("become the program's group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at("become the program's user"))?;
    raise_capabilities()
}
