//! Bytes and descriptors over a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// With one message.
pub const MOST_DESCRIPTORS: usize = 48;
/// How long the other end may leave bytes unread, where we do not wait by ourselves. It reads at once; one that does not is
/// stuck.
const TAKES_THEM: Duration = Duration::from_secs(2);

/// Sends all of `bytes`; the descriptors go with the first of them.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut rest = bytes;
    let mut descriptors = descriptors;
    while !rest.is_empty() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match sendmsg(socket, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                rest = rest.get(sent..).unwrap_or_default();
                descriptors = &[];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => wait_for_room(socket)?,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// For the end that does not wait by itself.
fn wait_for_room(socket: BorrowedFd<'_>) -> io::Result<()> {
    wait_for(socket, PollFlags::OUT, TAKES_THEM)
}

/// Waits until there is something to receive, or the other end is closed, at most so long.
pub(crate) fn wait_until_readable(socket: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    wait_for(socket, PollFlags::IN, limit)
}

fn wait_for(socket: BorrowedFd<'_>, what: PollFlags, limit: Duration) -> io::Result<()> {
    let limit = Timespec { tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(socket, what)], Some(&limit)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives what there is, at most as much as `bytes` holds. Descriptors that came are closed on execution; that some could
/// not come is an error.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let descriptors = ancillary
        .drain()
        .flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        })
        .collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors were lost on the way"));
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn descriptors_come_with_the_first_bytes_and_too_many_are_refused() {
        let (one, other) = crate::keeper::stream_sockets().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        send(one.as_fd(), b"hello", &[null.as_fd(), null.as_fd()]).unwrap();
        let mut bytes = [0u8; 8];
        let (received, came) = receive(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..received], came.len()), (b"hello".as_slice(), 2));
        assert!(send(one.as_fd(), b"x", &[null.as_fd(); MOST_DESCRIPTORS + 1]).is_err());
    }
}
