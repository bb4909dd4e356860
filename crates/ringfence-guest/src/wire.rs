//! Bytes and descriptors over a unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// How long the other end may leave an order unread. It reads at once; one that does not is stuck.
const TAKES_ORDER: Duration = Duration::from_secs(2);
/// With one frame.
pub(crate) const MOST_DESCRIPTORS: usize = 3;

/// Sends a whole frame; the descriptors go with its first byte.
pub(crate) fn send(socket: BorrowedFd<'_>, frame: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut rest = frame;
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
    let limit = Timespec { tv_sec: TAKES_ORDER.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::OUT)], Some(&limit)) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives what there is, at most as much as `bytes` holds. Descriptors that came are closed on execution.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], flags: RecvFlags) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC) {
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
    Ok((received.bytes, descriptors))
}
