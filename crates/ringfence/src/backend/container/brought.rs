//! What a container's guest tells of its workspace becomes a private layer: it is written into the copy that the container was
//! filled from, which is then compared with the workspace.
//!
//! A guest tells each difference once, so there is one copy for all looks. One look at a time writes to it or reads it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_guest::far::Node;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::backend::copied::Copied;
use crate::backend::far::Bringing;
use crate::scratch::Scratch;
use crate::workspace::layer::{Life, PrivateLayer};
use crate::workspace::mirror::Taking;

/// More files and folders than this are not taken: the harvest would not look through them either.
const MOST_ENTRIES: usize = 200_000;

/// A copy that waits for what differs.
#[derive(Debug)]
pub(super) struct Copy {
    copied: Copied,
    _scratch: Scratch,
    most_bytes: u64,
    turn: Arc<Mutex<()>>,
    /// The guest believes that we know what we could not write down. Nothing that is said of the copy would be true.
    is_lost: AtomicBool,
}

/// Whose turn it is to write to the copy.
#[derive(Debug)]
enum Turn {
    /// Nobody else's until the layer is gone.
    Ours(OwnedMutexGuard<()>),
    /// Whoever had this look begun holds a layer of it.
    Callers,
    /// It comes when the guest ends: then others are waited for.
    AtTheEnd,
}

/// One look at what differs.
#[derive(Debug)]
pub(super) struct Brought {
    copy: Arc<Copy>,
    taking: Option<Taking>,
    turn: Turn,
}

impl Copy {
    /// What differs from `copied`, which lies in `scratch`, may have so many bytes.
    pub(super) fn new(copied: Copied, scratch: Scratch, most_bytes: u64) -> Arc<Self> {
        let (turn, is_lost) = (Arc::default(), AtomicBool::new(false));
        Arc::new(Self { copied, _scratch: scratch, most_bytes, turn, is_lost })
    }

    /// Takes what differs at the end.
    pub(super) fn at_the_end(self: &Arc<Self>) -> io::Result<Brought> {
        self.look(Turn::AtTheEnd)
    }

    /// Takes what differs now; its layer is nobody else's while it is there.
    pub(super) async fn now(self: &Arc<Self>) -> io::Result<Brought> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.look(Turn::Ours(turn))
    }

    /// Takes what differs now, for somebody who holds a layer already.
    pub(super) fn once_more(self: &Arc<Self>) -> io::Result<Brought> {
        self.look(Turn::Callers)
    }

    fn look(self: &Arc<Self>, turn: Turn) -> io::Result<Brought> {
        let folder = self.copied.folder().try_clone_to_owned()?;
        let taking = Some(Taking::new(folder, self.most_bytes, MOST_ENTRIES));
        Ok(Brought { copy: Arc::clone(self), taking, turn })
    }
}

impl Brought {
    fn taking(&mut self) -> io::Result<&mut Taking> {
        if let Turn::AtTheEnd = self.turn {
            self.turn = Turn::Ours(Arc::clone(&self.copy.turn).blocking_lock_owned());
        }
        match &mut self.taking {
            Some(taking) if !self.copy.is_lost.load(Ordering::Relaxed) => Ok(taking),
            _ => Err(io::Error::other("what was changed could not be written down at an earlier look")),
        }
    }

    /// Folders get their permissions. What was taken only in part is told again; what could not be taken is not.
    fn close(&mut self) -> io::Result<()> {
        let Some(taking) = self.taking.take() else { return Ok(()) };
        let closed = taking.finish();
        self.copy.is_lost.fetch_or(closed.is_err(), Ordering::Relaxed);
        closed.map_err(io::Error::other)
    }
}

impl Bringing for Brought {
    fn bring(&mut self, nodes: Vec<Node>) -> io::Result<()> {
        let taken = self.taking()?.take(nodes);
        self.copy.is_lost.fetch_or(taken.is_err(), Ordering::Relaxed);
        taken.map_err(io::Error::other)
    }

    fn finish(mut self: Box<Self>) -> io::Result<PrivateLayer> {
        self.taking()?;
        self.close()?;
        let copy = Arc::clone(&self.copy);
        match std::mem::replace(&mut self.turn, Turn::Callers) {
            Turn::Ours(turn) => copy.copied.layer((turn, Arc::clone(&copy)), Life::Rests),
            Turn::Callers | Turn::AtTheEnd => copy.copied.layer(Arc::clone(&copy), Life::Rests),
        }
    }
}

impl Drop for Brought {
    fn drop(&mut self) {
        // One that never had its turn wrote nothing.
        if !matches!(self.turn, Turn::AtTheEnd) {
            self.close().ok();
        }
    }
}
