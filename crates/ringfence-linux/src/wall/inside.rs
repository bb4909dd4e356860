//! The first steps of process 1 behind a new wall.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libc::{c_int, c_void};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};

use super::awaited::Awaited;
use super::companion::Companion;
use super::layer::PrivateLayer;
use super::mount_api::{
    INERT, READ_ONLY, attach_over, clone_below, make_private_with, new_file_system, set_attributes_of_one,
};
use super::quota::Quota;
use super::root::Root;
use super::view::{Entry, Opened, build};
use super::{Wall, at, inside_path};
use crate::kernel_file;
use crate::program_process::{close_between, close_from};
use crate::report::{Layer, Room};

/// Which step of raising the wall failed.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A system call.
    #[error("could not {step}")]
    Step {
        /// What was attempted.
        step: String,
        /// Why it failed.
        source: io::Error,
    },
}

/// A view that is being put together, over which the host's files can still be seen.
#[derive(Debug)]
pub(super) struct Building {
    root: Root,
    quota: Quota,
    layers: Vec<PrivateLayer>,
    /// How many mounts lie beneath our root, of which the host's is one.
    beneath: usize,
    umask: Mode,
    lasting: Option<OwnedFd>,
}

impl Building {
    /// Becomes the program's user and begins the view of `wall` with `opened`, its first entries. Must be called by process 1
    /// of new namespaces. What comes from the host was opened while we could see it as the host's user.
    pub(super) fn begin(wall: &Wall, mut opened: Vec<Opened<'_>>) -> Result<Self, SetupError> {
        become_user(wall)?;
        let lasting = super::lasting::outlast();
        let root = new_file_system("tmpfs", &[("mode", "0755"), ("size", "256m"), ("nr_inodes", "16384")], INERT)
            .map_err(at("make the root"))?;
        let mut quota = Quota::new(wall.writable_bytes, wall.writable_files)?;
        attach_over(root.as_fd(), Path::new("/")).map_err(at("attach the root"))?;
        let umask = rustix::process::umask(Mode::empty());
        let (mut root, beneath) = super::ground::lay(Root::new(root), &mut opened, &mut quota)?;
        let layers = build(&mut root, opened, &mut quota)?;
        Ok(Self { root, quota, layers, beneath, umask, lasting })
    }

    /// Lets so many bytes and files be written, and no others than were said before.
    pub(super) fn resize(&self, (bytes, files): (u64, u64)) -> Result<(), SetupError> {
        self.quota.resize(bytes, files)
    }

    /// Goes on with `opened`.
    pub(super) fn add(&mut self, opened: Vec<Opened<'_>>) -> Result<(), SetupError> {
        self.layers.extend(build(&mut self.root, opened, &mut self.quota)?);
        Ok(())
    }

    /// Makes the view our root. The host's is out of reach then, once what is returned beside has ended. In the folder `late` of
    /// the root, which is read-only from here on, we ourselves can still make files.
    pub(super) fn enter(self, wall: &Wall, late: Option<&Path>) -> Result<(Inside, LettingGo), SetupError> {
        let step = |step: &str| {
            let step = step.to_owned();
            move |source: io::Error| SetupError::Step { step, source }
        };
        rustix::process::umask(self.umask);
        // A mount of its own, which is not closed with the root's. Where it is attached goes away with the host's root: one that
        // never was would make our end wait for all processors.
        let late = late.map(|late| clone_below(self.root.folder().as_fd(), &inside_path(late))).transpose();
        let late = late.map_err(at("keep a folder for later"))?;
        if let Some(late) = &late {
            attach_over(late.as_fd(), Path::new("/dev")).map_err(at("keep a folder for later"))?;
        }
        let late = late.map(Root::new);
        rustix::process::fchdir(self.root.folder()).map_err(at("enter the root"))?;
        rustix::process::pivot_root(".", ".").map_err(at("change the root"))?;
        let letting_go = LettingGo::begin(self.beneath).map_err(step("let go of the host's root"))?;
        rustix::process::chdir("/").map_err(at("enter the new root"))?;
        // Only the root itself: what is mounted in it has its own restrictions.
        set_attributes_of_one(self.root.folder().as_fd(), READ_ONLY | INERT).map_err(step("close the root"))?;
        rustix::system::sethostname(std::os::unix::ffi::OsStrExt::as_bytes(wall.hostname.as_os_str()))
            .map_err(at("set the name of the machine"))?;
        let quota = self.quota.into_tree();
        let inside = Inside { layers: self.layers, quota, lasting: self.lasting, late, awaited: None };
        Ok((inside, letting_go))
    }
}

/// Mounts that lay beneath our root and lie over it now, the host's at the bottom, on their way out. For each the kernel waits for all
/// processors, so a process of its own does it while we go on. A proof looks whether any is left.
#[must_use = "a program may not exist before it has ended"]
pub(super) struct LettingGo(Companion);

impl LettingGo {
    /// Begins to take the first `count` away from the working directory, which is our root.
    fn begin(count: usize) -> io::Result<Self> {
        // SAFETY: `let_go` calls the kernel by rustix, which has no `errno`. What it is given is a number and no address.
        let letting_go = unsafe { Companion::start(let_go, std::ptr::without_provenance_mut(count), 0) }.map(Self);
        // It hardly works, and waits: beside us once it has begun, after us if it has to wait for us first.
        rustix::thread::sched_yield();
        letting_go
    }

    /// Returns once they are gone.
    pub(super) fn wait(self) -> Result<(), SetupError> {
        let failed = |source| SetupError::Step { step: "let go of the host's root".to_owned(), source };
        match self.0.wait().map_err(failed)? {
            0 => Ok(()),
            errno => Err(failed(io::Error::from_raw_os_error(errno))),
        }
    }
}

/// The whole life of the process that does it; its exit status is what went wrong.
extern "C" fn let_go(count: *mut c_void) -> c_int {
    let gone = (0..count.addr()).try_for_each(|_| rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH));
    gone.map_or_else(rustix::io::Errno::raw_os_error, |()| 0)
}

/// The proof that this process is behind the wall, with its own root.
#[derive(Debug)]
pub(super) struct Inside {
    layers: Vec<PrivateLayer>,
    /// The file system of all that can be written.
    quota: OwnedFd,
    /// What our mounts outlast us by.
    lasting: Option<OwnedFd>,
    /// A folder of the read-only root in which we can make files.
    late: Option<Root>,
    /// What the program waits for there.
    awaited: Option<Box<Awaited>>,
}

impl Inside {
    /// Makes `entry`, a file below `late`, the folder that was kept for it.
    pub(super) fn make_late(&mut self, late: &Path, entry: &Entry) -> Result<(), SetupError> {
        let missing = || at("make a file later")(rustix::io::Errno::BADF);
        let root = self.late.as_mut().ok_or_else(missing)?;
        let Entry::File { at: path, content } = entry else {
            return Err(at("make anything but a file later")(rustix::io::Errno::INVAL));
        };
        let below = path.strip_prefix(late).map_err(|_| rustix::io::Errno::INVAL);
        root.make_file(below.map_err(at(format_args!("make {} later", path.display())))?, content)
    }

    /// Lets a file below the folder that was kept for it be called `name` whose content comes later: until then it is a pipe.
    pub(super) fn await_late(&mut self, name: &OsStr) -> Result<(), SetupError> {
        let late = self.late.as_ref().ok_or(rustix::io::Errno::BADF).map_err(at("make a pipe later"))?;
        self.awaited = Some(Box::new(Awaited::begin(late, name)?));
        Ok(())
    }

    /// Whether something is waited for.
    pub(super) fn awaits(&self) -> bool {
        self.awaited.is_some()
    }

    /// Lets `content` be what was waited for; whoever opened the pipe already is to get it there.
    pub(super) fn put_awaited(&mut self, content: &[u8]) -> Result<OwnedFd, SetupError> {
        match (self.awaited.take(), &mut self.late) {
            (Some(awaited), Some(late)) => awaited.put(late, content),
            _ => Err(at("find what waits for this")(rustix::io::Errno::BADF)),
        }
    }

    /// Whether the program wrote to a private layer.
    pub(super) fn layer(&self) -> Layer {
        if self.layers.iter().any(PrivateLayer::is_changed) { Layer::Changed } else { Layer::Unchanged }
    }

    /// The private layer that is handed to the host.
    pub(super) fn kept_layer(&self) -> Option<BorrowedFd<'_>> {
        self.layers.iter().find_map(PrivateLayer::kept)
    }

    /// The folder with that layer, as programs see it.
    pub(super) fn shown(&self) -> Option<BorrowedFd<'_>> {
        self.layers.iter().find_map(PrivateLayer::shown)
    }

    /// Whether more could be written. What cannot be looked at is not said to be full.
    pub(super) fn room(&self) -> Room {
        let is_full = |stat: rustix::fs::StatFs| stat.f_bfree == 0 || stat.f_ffree == 0;
        if rustix::fs::fstatfs(&self.quota).is_ok_and(is_full) { Room::Full } else { Room::Left }
    }

    /// Closes every descriptor from `first` on but our own and `others`.
    pub(super) fn close_all_but_ours(&self, first: i32, others: &[i32]) -> Result<(), i32> {
        let layers = self.layers.iter().flat_map(PrivateLayer::descriptors);
        let lasting = self.lasting.iter().map(AsRawFd::as_raw_fd);
        let late = self.late.iter().map(|late| late.folder().as_raw_fd());
        let ours = layers.chain(lasting).chain(late).chain([self.quota.as_raw_fd()]);
        let mut kept: Vec<i32> = ours.chain(others.iter().copied()).collect();
        kept.sort_unstable();
        let mut next = first;
        for descriptor in kept {
            close_between(next, descriptor - 1)?;
            next = descriptor + 1;
        }
        close_from(next)
    }
}

/// Cuts our mounts off from the host's, before anything is taken from them.
pub(super) fn cut_off() -> Result<(), SetupError> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("open the root"))?;
    make_private_with(root.as_fd(), 0)
        .map_err(|source| SetupError::Step { step: "cut our mounts off from the host's".to_owned(), source })
}

/// From here on we are the program's user, inside and on the host; what we may do inside stays.
fn become_user(wall: &Wall) -> Result<(), SetupError> {
    rustix::thread::set_keep_capabilities(true).map_err(at("keep what we may do inside"))?;
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) => {}
        // An ordinary user may map a group only by giving up to change its groups. The kernel still counts those that
        // the user has; the proof says how many.
        Err(rustix::io::Errno::PERM)
            if kernel_file::read("/proc/self/setgroups").is_ok_and(|word| word == "deny\n") => {}
        Err(errno) => return Err(at("leave the host's groups")(errno)),
    }
    let (uid, gid) = (Uid::from_raw(wall.identity.uid), Gid::from_raw(wall.identity.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at("become the program's group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at("become the program's user"))?;
    raise_capabilities()
}

/// Changing the user clears the effective set; the permitted one was kept.
pub(super) fn raise_capabilities() -> Result<(), SetupError> {
    let mut sets = rustix::thread::capabilities(None).map_err(at("read capabilities"))?;
    sets.effective = sets.permitted;
    rustix::thread::set_capabilities(None, sets).map_err(at("use capabilities inside"))
}

/// Clears what `/proc/1/cmdline` would show: the supervisor's own arguments. The environment goes too, although nobody
/// inside may read it.
pub(super) fn forget_arguments() -> io::Result<()> {
    rustix::thread::set_name(c"ringfence-guest")?;
    let stat = kernel_file::read("/proc/self/stat")?;
    // After the name in brackets, which may hold anything, the third field comes first.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    for (start, end) in [(field(48), field(49)), (field(50), field(51))] {
        if start != 0 && end == start {
            // There is nothing to forget.
            continue;
        }
        if start == 0 || end < start || end - start > 16 << 20 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "/proc/self/stat does not say where our arguments are",
            ));
        }
        // SAFETY: the kernel put our arguments and environment into these bytes of our stack, which stay mapped and
        // writable. This process has one thread and is a copy that reads neither again.
        unsafe { std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(start), 0, end - start) };
    }
    Ok(())
}
