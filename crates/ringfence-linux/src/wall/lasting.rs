//! Mounts that are put away after process 1 has ended, and not while it ends.
//!
//! Whoever waits for the last process of a mount namespace waits until its mounts are gone, too, for which the kernel waits for
//! all processors: twice where there is an overlay, and long on a busy machine. Yet a namespace also lasts as long as a descriptor of it. So
//! one is put into the queue of a socket, and that socket with it. When process 1 has ended, nobody can take them out any
//! more; the kernel finds out, and clears the queue in a thread of its own. Before Linux 6.10 whoever closes the socket
//! clears it: then all is as it would be without.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::view::ABOVE_ARRANGED;
use crate::keeper::message_sockets;
use crate::passing;

/// Lets our mounts last until after what is returned is closed, which the end of this process does. Where a user has too
/// many descriptors on their way it cannot be had, and the end takes longer: nothing else depends on it.
pub(super) fn outlast() -> Option<OwnedFd> {
    let mounts = rustix::fs::open("/proc/thread-self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let (way_in, queue) = message_sockets().ok()?;
    passing::send(way_in.as_fd(), b"m", &[mounts.as_fd(), queue.as_fd()]).ok()?;
    rustix::io::fcntl_dupfd_cloexec(&queue, ABOVE_ARRANGED).ok()
}
