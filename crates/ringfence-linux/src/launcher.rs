//! A process with one thread that raises walls for a process with many.
//!
//! Ordinary code may go on after a fork only in a process with one thread. A program that has not started any may raise
//! walls itself; every other one asks a launcher: a copy of its binary that does nothing else. The launcher trusts who
//! started it, and nobody else can talk to it: its socket has no name.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use crate::keeper::{message_sockets, stream_sockets};
use crate::wall::{self, Life, Raised, WallDescriptors, WallLaunch};

/// Stdin, stdout, stderr, control, and the request itself.
const FIXED_DESCRIPTORS: usize = 5;
const MOST_TREES: usize = 16;
/// Code and files travel in a request.
const MOST_REQUEST: u64 = 128 * 1024 * 1024;
/// Where a launcher finds its socket.
const SOCKET: i32 = 0;
const ANSWER: usize = 8;

/// Who raises the walls of this process.
#[derive(Debug)]
pub enum Launcher {
    /// This process itself, as long as it has one thread.
    Here,
    /// A process that was started for it.
    Process(Mutex<OwnedFd>),
}

impl Launcher {
    /// Starts `program` with `arguments` as a launcher; it must call [`serve`] at once. It runs as long as we do.
    pub fn process(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let (ours, theirs) = message_sockets()?;
        // A group of its own, so that a signal for ours does not end it while guests are being made.
        Command::new(program).args(arguments).env_clear().stdin(theirs).process_group(0).spawn()?;
        Ok(Self::Process(Mutex::new(ours)))
    }

    /// Raises the wall of `launch`, in which process 1 lives `life`; see [`wall::start`]. A launcher of its own process was
    /// told which life when it began to serve. Returns process 1 and our end of its control socket.
    pub fn start(
        &self,
        launch: &WallLaunch,
        stdio: [BorrowedFd<'_>; 3],
        trees: &[OwnedFd],
        life: Life,
    ) -> io::Result<(Raised, OwnedFd)> {
        let (ours, theirs) = stream_sockets()?;
        let descriptors = WallDescriptors { stdio, control: theirs.as_fd(), trees };
        let raised = match self {
            Self::Here => wall::start(launch, descriptors, life)?,
            Self::Process(socket) => {
                let socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
                ask(&socket, launch, descriptors)?
            }
        };
        Ok((raised.counted(), ours))
    }
}

fn ask(socket: &OwnedFd, launch: &WallLaunch, descriptors: WallDescriptors<'_>) -> io::Result<Raised> {
    if descriptors.trees.len() > MOST_TREES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
    }
    let encoded = postcard::to_stdvec(launch).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut request = File::from(rustix::fs::memfd_create("ringfence-request", MemfdFlags::CLOEXEC)?);
    request.write_all(&encoded)?;
    let mut sent: Vec<BorrowedFd<'_>> = descriptors.stdio.to_vec();
    sent.extend([descriptors.control, request.as_fd()]);
    sent.extend(descriptors.trees.iter().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FIXED_DESCRIPTORS + MOST_TREES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&sent)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(b"raise")], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut answer = [0u8; ANSWER];
    // An answer that is not waited for would be taken for the next one's.
    let (length, mut received) = loop {
        match receive(socket, &mut answer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => break received?,
        }
    };
    let [kind, value] = [answer[..4].try_into(), answer[4..].try_into()].map(|word| word.map_or(0, i32::from_le_bytes));
    match (length, kind, received.pop()) {
        (ANSWER, 1, Some(pidfd)) => Ok(Raised::new(value, pidfd)),
        (ANSWER, 2, None) => Err(io::Error::from_raw_os_error(value)),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the launcher is gone")),
    }
}

fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FIXED_DESCRIPTORS + MOST_TREES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    Ok((received.bytes, descriptors))
}

/// The work of a launcher: raises walls, in which process 1 lives `life`, until its owner is gone.
pub fn serve(life: Life) -> io::Result<()> {
    if !wall::is_single_threaded()? {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a launcher must have one thread"));
    }
    // SAFETY: whoever starts a launcher gives it this descriptor, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    loop {
        let mut word = [0u8; 16];
        let (length, descriptors) = match receive(&socket, &mut word) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            received => received?,
        };
        if length == 0 {
            return Ok(());
        }
        let raised = raise(descriptors, life);
        reap_all();
        let (kind, value) = match &raised {
            Ok(raised) => (1i32, raised.pid()),
            Err(error) => (2i32, error.raw_os_error().unwrap_or(libc::EINVAL)),
        };
        let mut answer = [0u8; ANSWER];
        answer[..4].copy_from_slice(&kind.to_le_bytes());
        answer[4..].copy_from_slice(&value.to_le_bytes());
        let pidfd = raised.ok().map(Raised::into_pidfd);
        let sent: Vec<BorrowedFd<'_>> = pidfd.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !sent.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&sent)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(&socket, &[IoSlice::new(&answer)], &mut ancillary, SendFlags::NOSIGNAL)?;
    }
}

fn raise(descriptors: Vec<OwnedFd>, life: Life) -> io::Result<Raised> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    let (stdin, stdout, stderr, control, request) = (next()?, next()?, next()?, next()?, next()?);
    let trees: Vec<OwnedFd> = descriptors.collect();
    let mut request = File::from(request);
    request.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    request.take(MOST_REQUEST).read_to_end(&mut bytes)?;
    let launch: WallLaunch =
        postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    wall::start(&launch, WallDescriptors { stdio, control: control.as_fd(), trees: &trees }, life)
}

/// Guests that ended are our children, whoever watches them.
fn reap_all() {
    // SAFETY: null pointers are allowed for the status and the usage. `__WALL`, because a guest's end sends no signal.
    while unsafe { libc::wait4(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL, std::ptr::null_mut()) } > 0 {}
}
