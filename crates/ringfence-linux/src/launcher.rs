//! A process with one thread that raises walls for a process with many.
//!
//! Ordinary code may go on after a fork only in a process with one thread. A program that has not started any may raise
//! walls itself; every other one asks a launcher: a copy of its binary that does nothing else. The launcher trusts who
//! started it, and nobody else can talk to it: its socket has no name.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::keeper::{message_sockets, stream_sockets};
use crate::orphans::add_keeper;
use crate::passing::{receive, send};
use crate::wall::{
    self, Identity, LaidOut, Laying, Life, Raised, Refused, Spare, Wall, WallDescriptors, WallLaunch, WholeWall,
};

/// Code and files travel in a request.
const MOST_REQUEST: u64 = 128 * 1024 * 1024;
/// Prepared trees that a launch may have.
pub const MOST_TREES: usize = 16;
/// Where a launcher finds its socket.
const SOCKET: i32 = 0;
const ANSWER: usize = 8;
const PREPARE: &[u8] = b"prepare";
const COMPLETE: &[u8] = b"complete";
const RAISE: &[u8] = b"raise";
/// After that word: the groups that the launch names are made, or cannot be.
const GROUPED: &[u8] = b"grouped";
const NO_GROUPS: &[u8] = b"no groups";
const LAY: &[u8] = b"lay";
const ATTEMPT: &[u8] = b"attempt";
/// What follows [`ATTEMPT`] where it could not be tried: no need's number, and the error's.
const NOT_TRIED: i32 = -1;

/// Who raises the walls of this process.
#[derive(Debug)]
pub struct Launcher {
    raiser: Raiser,
    /// What this process, or the one that was started, executes.
    binary: PathBuf,
    /// What this process may have while walls stand.
    threads: Threads,
}

/// How many threads a process may have once a wall stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// One: it may have to raise another wall.
    One,
    /// As many as it likes.
    Any,
}

#[derive(Debug)]
enum Raiser {
    /// This process itself, as long as it has one thread; perhaps with a guest that it made before.
    Here(Mutex<Option<Spare>>),
    /// A process that was started for it.
    Process(Mutex<OwnedFd>),
}

/// How often a launcher can be told what a wall begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepares {
    /// Never.
    Nothing,
    /// Once: there is a guest that waits for it.
    Once,
    /// Whenever the last one was used.
    Again,
}

impl Launcher {
    /// This process, which must have one thread whenever a wall is raised.
    pub fn here() -> Self {
        Self::by_ourselves(None)
    }

    /// Likewise, with a guest that is made now: while it comes to life we can find out what it is for. It lives `life`.
    pub fn ahead(life: Life) -> io::Result<Self> {
        Ok(Self::by_ourselves(Some(Spare::begin(life)?)))
    }

    /// Starts `program` with `arguments` as a launcher; it must call [`serve`] at once. It runs as long as we do.
    pub fn process(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = message_sockets()?;
        // A group of its own, so that a signal for ours does not end it while guests are being made.
        let child = Command::new(program).args(arguments).env_clear().stdin(theirs).process_group(0).spawn()?;
        // It is no orphan, also where those are adopted and killed.
        add_keeper(i32::try_from(child.id()).map_err(io::Error::other)?);
        Ok(Self { raiser: Raiser::Process(Mutex::new(ours)), binary: program.to_owned(), threads: Threads::Any })
    }

    fn by_ourselves(spare: Option<Spare>) -> Self {
        Self { raiser: Raiser::Here(Mutex::new(spare)), binary: "/proc/self/exe".into(), threads: Threads::One }
    }

    /// The same for a process that raises no wall while another one stands: when it has its wall, it may have more threads.
    #[must_use]
    pub fn for_one_wall(self) -> Self {
        Self { threads: Threads::Any, ..self }
    }

    /// How many threads this process may have once a wall stands.
    pub fn threads(&self) -> Threads {
        self.threads
    }

    /// The binary that raises walls. It can live as a guest, too, where somebody else raised the wall.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Whether [`Launcher::prepare`] does something.
    pub fn prepares(&self) -> Prepares {
        match &self.raiser {
            Raiser::Here(spare) if lock(spare).is_some() => Prepares::Once,
            Raiser::Here(_) => Prepares::Nothing,
            Raiser::Process(_) => Prepares::Again,
        }
    }

    /// Begins a wall that is not needed yet: the next one that begins like `wall` is raised sooner.
    pub fn prepare(&self, wall: &Wall) -> io::Result<()> {
        match &self.raiser {
            Raiser::Here(spare) => match &mut *lock(spare) {
                Some(spare) => spare.prepare(wall.clone()),
                None => Ok(()),
            },
            Raiser::Process(socket) => {
                let request = request(wall)?;
                send(lock(socket).as_fd(), PREPARE, &[request.as_fd()])
            }
        }
    }

    /// Raises a whole wall that is not needed yet, and that goes on as the prepared one has begun: a launch that
    /// [is it](WallLaunch::stands) has nothing left to raise.
    pub fn complete(&self, whole: &WholeWall, trees: &[OwnedFd]) -> io::Result<()> {
        if trees.len() > MOST_TREES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
        }
        match &self.raiser {
            Raiser::Here(spare) => match &mut *lock(spare) {
                Some(spare) => spare.complete(whole.clone(), trees),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
            Raiser::Process(socket) => {
                let request = request(whole)?;
                let mut sent = vec![request.as_fd()];
                sent.extend(trees.iter().map(AsFd::as_fd));
                send(lock(socket).as_fd(), COMPLETE, &sent)
            }
        }
    }

    /// What the guest that this process made has begun with.
    pub fn begun(&self) -> Option<Wall> {
        match &self.raiser {
            Raiser::Here(spare) => lock(spare).as_ref().and_then(Spare::begun).cloned(),
            Raiser::Process(_) => None,
        }
    }

    /// Ends what was prepared: it is not how things are any more.
    pub fn forget(&self) -> io::Result<()> {
        match &self.raiser {
            Raiser::Here(spare) => {
                drop(lock(spare).take());
                Ok(())
            }
            Raiser::Process(socket) => send(lock(socket).as_fd(), PREPARE, &[]),
        }
    }

    /// Lays `laying` into a container that somebody else made.
    pub fn lay(&self, laying: &Laying, trees: &[OwnedFd]) -> io::Result<LaidOut> {
        if trees.len() > MOST_TREES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
        }
        match &self.raiser {
            Raiser::Here(_) => wall::lay_here(laying, trees),
            Raiser::Process(socket) => {
                let (ours, theirs) = stream_sockets()?;
                let request = request(laying)?;
                let mut sent = vec![theirs.as_fd(), request.as_fd()];
                sent.extend(trees.iter().map(AsFd::as_fd));
                send(lock(socket).as_fd(), LAY, &sent)?;
                drop(theirs);
                LaidOut::receive(ours)
            }
        }
    }

    /// What this host refuses of a wall for a program of `identity`; see [`wall::attempt`].
    pub fn attempt(&self, identity: Identity) -> io::Result<Option<Refused>> {
        match &self.raiser {
            Raiser::Here(_) => wall::attempt(identity),
            Raiser::Process(socket) => {
                let request = request(&identity)?;
                let socket = lock(socket);
                send(socket.as_fd(), ATTEMPT, &[request.as_fd()])?;
                let mut answer = [0u8; ANSWER];
                let (length, _) = receive(socket.as_fd(), &mut answer)?;
                match answer.split_at(4) {
                    (kind, errno) if length == ANSWER && kind == NOT_TRIED.to_le_bytes() => {
                        let errno = errno.try_into().map_or(libc::EINVAL, i32::from_le_bytes);
                        Err(io::Error::from_raw_os_error(errno))
                    }
                    _ => Refused::decode(answer.get(..length).unwrap_or_default()),
                }
            }
        }
    }

    /// Raises the wall of `launch`, in which process 1 lives `life`; see [`wall::start`]. A launcher of its own process was
    /// told which life when it began to serve. `make_groups` makes the groups that the launch names, and is called once: while a
    /// guest that waited goes on, or before. Returns process 1 and our end of its control socket. A launch that is a whole wall
    /// which does not stand (any more) fails as [`is_gone`] tells, before it has changed anything.
    pub fn start(
        &self,
        launch: &WallLaunch,
        stdio: [BorrowedFd<'_>; 3],
        trees: &[OwnedFd],
        life: Life,
        make_groups: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<(Raised, OwnedFd)> {
        let (ours, theirs) = stream_sockets()?;
        let descriptors = WallDescriptors { stdio, control: theirs.as_fd(), trees };
        if trees.len() > MOST_TREES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
        }
        let raised = match &self.raiser {
            Raiser::Here(spare) => {
                let mut spare = lock(spare);
                let raised = raise(&mut spare, launch, descriptors, life, make_groups);
                // It was for this one alone.
                drop(spare.take());
                raised?
            }
            Raiser::Process(socket) => ask(&lock(socket), launch, descriptors, make_groups)?,
        };
        Ok((raised.counted(), ours))
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Raises a wall by the guest that was made before, if it is the right one.
fn raise(
    spare: &mut Option<Spare>,
    launch: &WallLaunch,
    descriptors: WallDescriptors<'_>,
    life: Life,
    make_groups: impl FnOnce() -> io::Result<()>,
) -> io::Result<Raised> {
    match spare.take_if(|spare| spare.suits(launch)) {
        Some(spare) => spare.raise(launch, descriptors, make_groups),
        None => {
            // One that began otherwise is of no use any more. A whole wall is another launch's, which may be on its way.
            drop(spare.take_if(|spare| !spare.is_whole()));
            // What its program is to wait for can only be made where files can be made later.
            if launch.stands.is_some() || launch.awaits.is_some() {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            make_groups()?;
            wall::start(launch, descriptors, life)
        }
    }
}

/// Whether a launch failed because the whole wall that it names does not stand.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}

fn request<T: Serialize>(content: &T) -> io::Result<File> {
    let encoded = postcard::to_stdvec(content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut request = File::from(rustix::fs::memfd_create("ringfence-request", MemfdFlags::CLOEXEC)?);
    request.write_all(&encoded)?;
    Ok(request)
}

fn read<T: DeserializeOwned>(request: OwnedFd) -> io::Result<T> {
    let mut request = File::from(request);
    request.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    request.take(MOST_REQUEST).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn ask(
    socket: &OwnedFd,
    launch: &WallLaunch,
    descriptors: WallDescriptors<'_>,
    make_groups: impl FnOnce() -> io::Result<()>,
) -> io::Result<Raised> {
    let request = request(launch)?;
    let mut sent: Vec<BorrowedFd<'_>> = descriptors.stdio.to_vec();
    sent.extend([descriptors.control, request.as_fd()]);
    sent.extend(descriptors.trees.iter().map(AsFd::as_fd));
    send(socket.as_fd(), RAISE, &sent)?;
    // It always waits for this word, and a wall without the groups that it is to have is not raised.
    let made = make_groups();
    send(socket.as_fd(), if made.is_ok() { GROUPED } else { NO_GROUPS }, &[])?;
    let mut answer = [0u8; ANSWER];
    // An answer that is not waited for would be taken for the next one's.
    let (length, mut received) = receive(socket.as_fd(), &mut answer)?;
    let [kind, value] = [answer[..4].try_into(), answer[4..].try_into()].map(|word| word.map_or(0, i32::from_le_bytes));
    made?;
    match (length, kind, received.pop()) {
        (ANSWER, 1, Some(pidfd)) => Ok(Raised::new(value, pidfd)),
        (ANSWER, 2, None) => Err(io::Error::from_raw_os_error(value)),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the launcher is gone")),
    }
}

/// The work of a launcher: raises walls, in which process 1 lives `life`, until its owner is gone.
pub fn serve(life: Life) -> io::Result<()> {
    if !wall::is_single_threaded()? {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a launcher must have one thread"));
    }
    // SAFETY: whoever starts a launcher gives it this descriptor, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let mut spare = None;
    loop {
        let mut word = [0u8; 16];
        let (length, mut descriptors) = receive(socket.as_fd(), &mut word)?;
        let raised = match word.get(..length).unwrap_or_default() {
            [] => return Ok(()),
            PREPARE => {
                drop(spare.take());
                // Without one, the next wall takes a little longer.
                spare = descriptors.pop().and_then(|request| begin(request, life).ok());
                reap_all();
                continue;
            }
            COMPLETE => {
                // One that could not be completed is none: a launch that is it must not find another.
                spare = spare.take().and_then(|spare| complete(spare, descriptors).ok());
                reap_all();
                continue;
            }
            LAY => {
                // Whoever waits for it sees by the end of its socket that nothing comes.
                lay_for_another(descriptors).ok();
                reap_all();
                continue;
            }
            ATTEMPT => {
                let request = descriptors.pop().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
                let answer = match request.and_then(read).and_then(wall::attempt) {
                    Ok(found) => Refused::encode(found),
                    Err(error) => encode(NOT_TRIED, error.raw_os_error().unwrap_or(libc::EINVAL)),
                };
                send(socket.as_fd(), &answer, &[])?;
                continue;
            }
            RAISE => {
                let mut grouped = Grouped { socket: &socket, heard: None };
                let raised = raise_for_another(&mut spare, descriptors, life, || grouped.hear());
                grouped.hear().ok();
                raised
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        };
        reap_all();
        let (kind, value) = match &raised {
            Ok(raised) => (1i32, raised.pid()),
            Err(error) => (2i32, error.raw_os_error().unwrap_or(libc::EINVAL)),
        };
        let answer = encode(kind, value);
        let pidfd = raised.ok().map(Raised::into_pidfd);
        let sent: Vec<BorrowedFd<'_>> = pidfd.iter().map(AsFd::as_fd).collect();
        send(socket.as_fd(), &answer, &sent)?;
    }
}

fn encode(kind: i32, value: i32) -> [u8; ANSWER] {
    let mut answer = [0u8; ANSWER];
    answer[..4].copy_from_slice(&kind.to_le_bytes());
    answer[4..].copy_from_slice(&value.to_le_bytes());
    answer
}

fn begin(request: OwnedFd, life: Life) -> io::Result<Spare> {
    let mut spare = Spare::begin(life)?;
    spare.prepare(read(request)?)?;
    Ok(spare)
}

fn complete(mut spare: Spare, descriptors: Vec<OwnedFd>) -> io::Result<Spare> {
    let mut descriptors = descriptors.into_iter();
    let request = descriptors.next().ok_or(io::ErrorKind::InvalidInput)?;
    spare.complete(read(request)?, &descriptors.collect::<Vec<_>>())?;
    Ok(spare)
}

/// The word about the groups of a launch, which comes once after it.
struct Grouped<'a> {
    socket: &'a OwnedFd,
    heard: Option<bool>,
}

impl Grouped<'_> {
    /// Waits for it, once.
    fn hear(&mut self) -> io::Result<()> {
        let made = match self.heard {
            Some(made) => made,
            None => {
                let mut word = [0u8; 16];
                let (length, _) = receive(self.socket.as_fd(), &mut word)?;
                word.get(..length) == Some(GROUPED)
            }
        };
        self.heard = Some(made);
        if made { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// The process that does it is reaped with the guests.
fn lay_for_another(descriptors: Vec<OwnedFd>) -> io::Result<i32> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    let (told, request) = (next()?, next()?);
    let trees: Vec<OwnedFd> = descriptors.collect();
    wall::begin_laying(&read(request)?, &trees, told.as_fd())
}

fn raise_for_another(
    spare: &mut Option<Spare>,
    descriptors: Vec<OwnedFd>,
    life: Life,
    make_groups: impl FnOnce() -> io::Result<()>,
) -> io::Result<Raised> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    let (stdin, stdout, stderr, control, request) = (next()?, next()?, next()?, next()?, next()?);
    let trees: Vec<OwnedFd> = descriptors.collect();
    let launch: WallLaunch = read(request)?;
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    raise(spare, &launch, WallDescriptors { stdio, control: control.as_fd(), trees: &trees }, life, make_groups)
}

/// Guests that ended are our children, whoever watches them.
fn reap_all() {
    // SAFETY: null pointers are allowed for the status and the usage. `__WALL`, because a guest's end sends no signal.
    while unsafe { libc::wait4(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL, std::ptr::null_mut()) } > 0 {}
}
