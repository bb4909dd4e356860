//! What a container's guest tells of its workspace becomes a private layer: it is written into the copy that the container was
//! filled from, which is then compared with the workspace.

use std::io;

use ringfence_guest::far::Node;

use crate::backend::copied::Copied;
use crate::backend::far::Bringing;
use crate::scratch::Scratch;
use crate::workspace::layer::PrivateLayer;
use crate::workspace::mirror::Taking;

/// More files and folders than this are not taken: the harvest would not look through them either.
const MOST_ENTRIES: usize = 200_000;

/// A copy that waits for what differs.
#[derive(Debug)]
pub(super) struct Brought {
    copied: Copied,
    scratch: Scratch,
    taking: Taking,
}

impl Brought {
    /// What differs from `copied`, which lies in `scratch`, may have so many bytes.
    pub(super) fn new(copied: Copied, scratch: Scratch, most_bytes: u64) -> io::Result<Self> {
        let folder = copied.folder().try_clone_to_owned()?;
        Ok(Self { copied, scratch, taking: Taking::new(folder, most_bytes, MOST_ENTRIES) })
    }
}

impl Bringing for Brought {
    fn bring(&mut self, nodes: Vec<Node>) -> io::Result<()> {
        self.taking.take(nodes).map_err(io::Error::other)
    }

    fn finish(self: Box<Self>) -> io::Result<PrivateLayer> {
        let Self { copied, scratch, taking } = *self;
        taking.finish().map_err(io::Error::other)?;
        Ok(copied.into_layer(scratch))
    }
}
