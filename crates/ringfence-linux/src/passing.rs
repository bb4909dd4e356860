//! Bytes and descriptors over a unix socket whose other end is ours as well.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// With one message.
pub(crate) const MOST_DESCRIPTORS: usize = 48;

/// Sends all of `bytes`; the descriptors go with the first of them.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
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
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Receives what there is, at most as much as `bytes` holds. Descriptors that came are closed on execution.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
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
    Ok((received.bytes, descriptors))
}
