//! The moment at which a place changes: the new node comes, the old one goes out and is looked at, and comes back if it is
//! not the one that was saved.

use std::ffi::OsStr;
use std::io;

use rustix::io::Errno;

use super::beneath::{Folder, Found, Onto};
use super::carry_out::Why;
use super::change::{Moment, Node};
use super::compare::{Conflict, Exact, hash_in};

/// A file that was written this shortly ago may have been written again without its time showing it.
const RECENT_SECONDS: i64 = 3;

/// What became of one step.
pub(super) enum Made {
    /// It was made.
    Yes,
    /// It was there already.
    Needless,
}

pub(super) fn is_not_empty(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTEMPTY | Errno::EXIST))
}

fn exists(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::EXIST)
}

/// Two names in one folder.
pub(super) struct Swap<'a> {
    pub(super) folder: &'a Folder<'a>,
    /// The place.
    pub(super) name: &'a OsStr,
    /// Where the new node waits, and then the old one.
    pub(super) aside: &'a OsStr,
    /// What was saved.
    pub(super) saved: Option<&'a Exact>,
}

impl Swap<'_> {
    fn make_aside_folder(&self, to: &Exact) -> io::Result<()> {
        match &to.node {
            Node::Folder { mode } => self.folder.make_folder(self.aside, *mode, to.owner),
            Node::File { .. } | Node::Link { .. } | Node::Other(_) => Ok(()),
        }
    }

    fn remove_aside(&self) -> io::Result<()> {
        match self.folder.look(self.aside)? {
            Some(found) => self.folder.remove(self.aside, &found.kind),
            None => Ok(()),
        }
    }

    /// Puts the new node where nothing is.
    pub(super) fn put(&self, to: &Exact) -> Result<Made, Why> {
        self.make_aside_folder(to)?;
        match self.folder.swap(self.aside, self.name, Onto::Nothing) {
            Ok(()) => Ok(Made::Yes),
            Err(error) => {
                self.remove_aside()?;
                let conflict = exists(&error);
                Err(if conflict { Conflict::MadeMeanwhile.into() } else { error.into() })
            }
        }
    }

    /// Puts the new node in the place of the old one.
    pub(super) fn exchange(&self, found: &Found, to: &Exact) -> Result<Made, Why> {
        self.make_aside_folder(to)?;
        let ours = self.folder.look(self.aside)?;
        let unchanged = self.folder.look(self.name)?.is_some_and(|now| now.is_still(found));
        if !unchanged {
            self.remove_aside()?;
            return Err(Conflict::Written.into());
        }
        if let Err(error) = self.folder.swap(self.aside, self.name, Onto::Another) {
            self.remove_aside()?;
            return Err(error.into());
        }
        if self.came_out(found)? {
            match self.remove_aside() {
                // Something was put into the folder that was to go.
                Err(error) if is_not_empty(&error) => {}
                removed => return removed.map(|()| Made::Yes).map_err(Why::Failed),
            }
        }
        let is_ours = |name| -> io::Result<bool> {
            let now = self.folder.look(name)?;
            Ok(matches!((&now, &ours), (Some(now), Some(ours)) if now.is_still(ours)))
        };
        // A second writer wrote over ours: theirs is newer than what came out.
        if !is_ours(self.name)? {
            return Err(self.stranded());
        }
        self.folder.swap(self.aside, self.name, Onto::Another)?;
        if is_ours(self.aside)? {
            self.remove_aside()?;
            return Err(Conflict::Written.into());
        }
        Err(self.stranded())
    }

    /// Takes the old node away.
    pub(super) fn take_away(&self, found: &Found) -> Result<Made, Why> {
        let unchanged = self.folder.look(self.name)?.is_some_and(|now| now.is_still(found));
        if !unchanged {
            return Err(Conflict::Written.into());
        }
        self.folder.swap(self.name, self.aside, Onto::Nothing)?;
        if self.came_out(found)? {
            self.remove_aside()?;
            return Ok(Made::Yes);
        }
        match self.folder.swap(self.aside, self.name, Onto::Nothing) {
            Ok(()) => Err(Conflict::Written.into()),
            Err(error) if exists(&error) => Err(self.stranded()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether what lies aside now is what was saved.
    fn came_out(&self, found: &Found) -> io::Result<bool> {
        let Some(out) = self.folder.look(self.aside)? else { return Ok(false) };
        if !out.is_still(found) {
            return Ok(false);
        }
        match self.saved {
            Some(Exact { node: Node::File { content, modified, .. }, .. })
                if modified.seconds.saturating_add(RECENT_SECONDS) >= Moment::now().seconds =>
            {
                Ok(hash_in(self.folder, self.aside)? == *content)
            }
            _ => Ok(true),
        }
    }

    /// Two writers came between: what one of them wrote is kept beside the place.
    fn stranded(&self) -> Why {
        let text =
            format!("somebody wrote it twice while it was being replaced; one of the two is now in {:?}", self.aside);
        Why::Failed(io::Error::other(text))
    }
}
