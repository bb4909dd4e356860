//! A socket between us and the guest of a container of this machine, instead of the streams that its engine attaches: each word
//! over those passes two other processes.
//!
//! It is made in a folder of the container before anything but the guest runs there, and its name is gone before anything
//! else does. Who connects must be the very process that was found to be the container's first. The engine's streams stay open:
//! when they end, the engine or the container is gone, and so is the guest for us.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ringfence_guest::far::FarOrder;
use ringfence_guest::protocol::{MOST_ORDER, encode};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::attached::{Attached, Input, Output};
use super::made::FirstProcess;
use crate::backend::inside::CODE;

/// How long a guest may take to come: its engine may not have let it begin yet.
const COMES: Duration = Duration::from_secs(60);
/// Its name there.
const NAME: &str = "meet";
/// What everything that can be written in a container lies on.
const TMPFS: u64 = 0x0102_1994;

/// What a guest says over the socket, for as long as its engine is there.
#[derive(Debug)]
pub(super) struct Heard<O = Output, I = Input> {
    socket: OwnedReadHalf,
    /// The engine's streams: nothing is said over them, and their end is an end.
    output: O,
    _input: I,
}

impl<O: AsyncRead + Unpin, I: Unpin> AsyncRead for Heard<O, I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // First: its last words come before the end of its container.
        if let Poll::Ready(read) = Pin::new(&mut self.socket).poll_read(cx, buffer) {
            return Poll::Ready(read);
        }
        let mut byte = [0u8; 1];
        // A guest that we met says nothing there, so whatever comes is an end.
        match Pin::new(&mut self.output).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
            Poll::Ready(_) => Poll::Ready(last_words(self.socket.as_ref(), buffer)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// What was said between our look at the socket and the end of the container. The event loop may not know of it yet, so the kernel
/// is asked.
fn last_words(socket: &UnixStream, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
    match rustix::net::recv(socket, buffer.initialize_unfilled(), RecvFlags::DONTWAIT) {
        Ok((_, read)) if read > 0 => {
            buffer.advance(read);
            Ok(())
        }
        Ok(_) | Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Tells the guest over the attached streams to meet us, and returns both ways of the socket. Nothing is said over those any
/// more.
pub(super) async fn meet(
    first: &FirstProcess,
    user: (u32, u32),
    mut attached: Attached,
) -> io::Result<(Heard, OwnedWriteHalf)> {
    let (folder, listener) = listen(first, user)?;
    let order = FarOrder::Meet { at: OsString::from(format!("{CODE}/{NAME}")) };
    let frame = encode(&order, MOST_ORDER).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let meet = async {
        attached.input.write_all(&frame).await?;
        attached.input.flush().await?;
        let mut nothing = [0u8; 1];
        // A guest says nothing before it is told to begin, so this is its end, and what it complained of was heard.
        tokio::select! {
            biased;
            accepted = listener.accept() => accepted.map(|(stream, _)| stream),
            _ = attached.output.read(&mut nothing) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    let met = tokio::time::timeout(COMES, meet).await;
    // Whatever came of it, nobody else is to find it.
    rustix::fs::unlinkat(&folder, NAME, AtFlags::empty())?;
    let stream = met.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    check(&stream, first, user)?;
    let (socket, input) = stream.into_split();
    let Attached { output, input: _input } = attached;
    Ok((Heard { socket, output, _input }, input))
}

/// A socket in a folder of the container.
fn listen(first: &FirstProcess, (uid, gid): (u32, u32)) -> io::Result<(OwnedFd, UnixListener)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{}/root", first.number), flags, Mode::empty())?;
    let folder = place(&root)?;
    // Its number was its own until now, and so what was opened is its container's.
    if !first.is_alive() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let listener = StdListener::bind(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd()))?;
    let (owner, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(folder.as_fd(), NAME, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    listener.set_nonblocking(true)?;
    Ok((folder, UnixListener::from_std(listener)?))
}

/// The folder for it below `root`.
fn place(root: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Links of the image lead to places of the image.
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let folder = rustix::fs::openat2(root, CODE.trim_start_matches('/'), flags, Mode::empty(), inside)?;
    if u64::try_from(rustix::fs::fstatfs(&folder)?.f_type) != Ok(TMPFS) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the engine made no place in memory there"));
    }
    Ok(folder)
}

/// Whether it is the container's first process that came.
fn check(stream: &UnixStream, first: &FirstProcess, (uid, gid): (u32, u32)) -> io::Result<()> {
    let who = stream.peer_cred()?;
    if (who.pid(), who.uid(), who.gid()) == (Some(first.number), uid, gid) && first.is_alive() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else came instead of the guest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a guest that is the process `number` of the user that we are would be believed to have come from here.
    async fn check(number: i32, uid: u32) -> io::Result<()> {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let gid = rustix::process::getegid().as_raw();
        super::check(&ours, &FirstProcess::stand_in(number), (uid, gid))
    }

    #[tokio::test]
    async fn only_the_process_that_was_found_to_be_the_first_is_met() {
        let (us, parent) = (rustix::process::getpid(), rustix::process::getppid().unwrap());
        let uid = rustix::process::geteuid().as_raw();
        check(us.as_raw_pid(), uid).await.unwrap();
        let others = [(parent.as_raw_pid(), uid), (us.as_raw_pid(), uid + 1)];
        for (number, uid) in others {
            assert_eq!(check(number, uid).await.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{number} {uid}");
        }
    }

    #[test]
    fn a_place_that_is_not_in_memory_is_none_to_meet_at() {
        let place_below = |folder: &std::path::Path| {
            let root = tempfile::tempdir_in(folder).unwrap();
            std::fs::create_dir_all(root.path().join(CODE.trim_start_matches('/'))).unwrap();
            place(&std::fs::File::open(root.path()).unwrap().into())
        };
        // Where this test was built to.
        let disk = std::env::current_exe().unwrap();
        let refused = place_below(disk.parent().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
        place_below("/dev/shm".as_ref()).expect("the twin: the same in memory");
    }

    /// An engine's stream that ends just when a guest says its last word.
    #[derive(Debug)]
    struct EndsAfter(Option<(std::os::unix::net::UnixStream, &'static [u8])>);

    impl AsyncRead for EndsAfter {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if let Some((mut guest, word)) = self.0.take() {
                std::io::Write::write_all(&mut guest, word).unwrap();
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_last_word_that_comes_with_the_end_of_the_container_is_heard_before_it() {
        for word in [&b"last"[..], b""] {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let (socket, _writer) = UnixStream::from_std(ours).unwrap().into_split();
            let held = theirs.try_clone().unwrap();
            let mut heard = Heard { socket, output: EndsAfter(Some((theirs, word))), _input: () };
            let mut said = Vec::new();
            let error = heard.read_to_end(&mut said).await.unwrap_err();
            assert_eq!((said.as_slice(), error.kind()), (word, io::ErrorKind::UnexpectedEof));
            drop(held);
        }
    }
}
