//! The host's side of a guest.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringfence_linux::Layer;
use ringfence_linux::passing;
use ringfence_linux::wall::Raised;

use crate::protocol::{MOST_ORDER, Order, Reader, Report, encode};

/// How long it may take to end.
const ENDS: Duration = Duration::from_secs(2);
/// Read at once of reports.
const PIECE: usize = 4 * 1024;
/// Descriptors that came and no report took yet: those of one message.
const MOST_WAITING: usize = passing::MOST_DESCRIPTORS;

/// A guest behind its wall. Dropping it ends everything there.
#[derive(Debug)]
pub struct Guest {
    /// Taken out when dropped.
    raised: Option<Raised>,
    control: OwnedFd,
    incoming: Mutex<Incoming>,
    pid: i32,
    /// It said that nothing is left: all that it still does is end.
    gone: AtomicBool,
}

/// Guests that said that they are gone and were not yet reaped. The kernel takes a while to put their mounts away, and nobody
/// needs to wait for it.
static ENDING: Mutex<Vec<Raised>> = Mutex::new(Vec::new());

/// Waits for guests that said that they are gone, at most `limit` for each. For a program that ends: who adopts its children may
/// not know how to reap them.
pub fn reap_guests(limit: Duration) {
    let ending = std::mem::take(&mut *ENDING.lock().unwrap_or_else(PoisonError::into_inner));
    for raised in ending {
        raised.reap(limit);
    }
    ringfence_linux::wall::reap_holders();
}

/// Reaps those that have ended meanwhile.
fn reap_ended() {
    let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    ending.retain(|raised| !raised.reap(Duration::ZERO));
}

#[derive(Debug, Default)]
struct Incoming {
    reader: Reader,
    descriptors: Vec<OwnedFd>,
}

/// A report, and the descriptor that came with it.
#[derive(Debug)]
pub struct Received {
    /// What was told.
    pub report: Report,
    /// A terminal's end, with the report of a program that has one; a private layer, or a workspace, with a report that tells of it.
    /// Nothing about it is to be believed.
    pub descriptor: Option<OwnedFd>,
}

impl Guest {
    /// The guest that is process 1 of `raised`, at the other end of `control`.
    pub fn new(raised: Raised, control: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&control, true)?;
        reap_ended();
        let pid = raised.pid();
        Ok(Self { raised: Some(raised), control, incoming: Mutex::default(), pid, gone: AtomicBool::new(false) })
    }

    /// Its process id on the host; the root of the tree of everything behind the wall.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A second descriptor of the control socket, for an event loop that wants to own what it waits on.
    pub fn control(&self) -> io::Result<OwnedFd> {
        self.control.try_clone()
    }

    /// Gives an order; `descriptors` go with it.
    pub fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let frame = encode(order, MOST_ORDER).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        match passing::send(self.control.as_fd(), &frame, descriptors) {
            // It is gone, and with it all that it kept: what an order could have done, its end has.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            // A part of it may have been sent, and the next order would be read as its rest.
            Err(error) => {
                self.kill();
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// The next report; `WouldBlock` when there is none yet, nothing when the guest is gone. After any other error the
    /// guest cannot be trusted.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0u8; PIECE];
        loop {
            let report = incoming.reader.next_message();
            if let Some(report) = report.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                let takes = match report {
                    Report::Started { terminal, .. } => terminal,
                    Report::Door => true,
                    Report::Layer { comes } | Report::Workspace { comes } => comes,
                    Report::Gone { layer, .. } => layer == Layer::Changed,
                    _ => false,
                } && !incoming.descriptors.is_empty();
                let descriptor = takes.then(|| incoming.descriptors.remove(0));
                self.gone.fetch_or(matches!(report, Report::Gone { .. }), Ordering::Relaxed);
                return Ok(Some(Received { report, descriptor }));
            }
            let (received, came) = passing::receive(self.control.as_fd(), &mut bytes)?;
            if received == 0 {
                return Ok(None);
            }
            incoming.reader.push(bytes.get(..received).unwrap_or_default());
            incoming.descriptors.extend(came);
            if incoming.descriptors.len() > MOST_WAITING {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the guest sent descriptors nobody asked for"));
            }
        }
    }

    /// Kills it from outside, and with it everything behind the wall.
    pub fn kill(&self) {
        if let Some(raised) = &self.raised {
            raised.kill();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        reap_ended();
        let told = self.gone.load(Ordering::Relaxed) || self.send(&Order::End, &[]).is_ok();
        let Some(raised) = self.raised.take() else { return };
        if self.gone.load(Ordering::Relaxed) {
            // It may lie about its end, but not live on: it is killed all the same.
            raised.kill();
            ENDING.lock().unwrap_or_else(PoisonError::into_inner).push(raised);
            return;
        }
        // A guest that ends by itself reaps everything; the kernel does the same for one that is killed.
        if !told || !raised.reap(ENDS) {
            raised.kill();
            raised.reap(ENDS);
        }
    }
}
