//! What overlay wrote about a node of a private layer, in attributes that an ordinary user may set. A program behind a wall
//! cannot: overlay gives its own attributes of such names others.

use std::os::fd::AsFd;

use rustix::io::Errno;

/// What all of them begin with.
const OWN: &[u8] = b"user.overlay.";
/// Names of a node's attributes: what they mostly need, and what the kernel lists at most.
const FEW_NAMES: usize = 1024;
const MOST_NAMES: usize = 64 * 1024;
/// Those that matter here, for a node with more names than can be listed.
const KNOWN: [&str; 5] = ["opaque", "whiteout", "origin", "redirect", "metacopy"];

/// The marks of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// What the folder below has is not seen in this one.
    pub(super) opaque: bool,
    /// It stands for something that was removed.
    pub(super) whiteout: bool,
    /// It was copied from below before it was changed.
    pub(super) copied_up: bool,
}

/// Why the marks of a node are not known.
#[derive(Debug)]
pub(super) enum MarksError {
    /// They could not be read.
    Read(Errno),
    /// They mean nothing that is known here.
    NotUnderstood(&'static str),
}

/// Reads the marks of `node`. Where the file system keeps no such attributes, there are none.
pub(super) fn marks_of(node: impl AsFd) -> Result<Marks, MarksError> {
    let node = node.as_fd();
    let mut names = vec![0u8; FEW_NAMES];
    let listed = match rustix::fs::flistxattr(node, &mut names) {
        Err(Errno::RANGE) => {
            names.resize(MOST_NAMES, 0);
            rustix::fs::flistxattr(node, &mut names)
        }
        listed => listed,
    };
    let mut marks = Marks::default();
    match listed {
        Ok(length) => {
            let names = names.get(..length).unwrap_or_default().split(|byte| *byte == 0);
            for name in names.filter_map(|name| name.strip_prefix(OWN)) {
                marks.add(node, name)?;
            }
        }
        Err(Errno::NOTSUP) => {}
        // A program gave it more names than the kernel lists.
        Err(Errno::RANGE | Errno::TOOBIG) => {
            for name in KNOWN {
                match rustix::fs::fgetxattr(node, format!("user.overlay.{name}"), &mut [0u8; 0]) {
                    Ok(_) => marks.add(node, name.as_bytes())?,
                    Err(Errno::NODATA) => {}
                    Err(errno) => return Err(MarksError::Read(errno)),
                }
            }
        }
        Err(errno) => return Err(MarksError::Read(errno)),
    }
    Ok(marks)
}

impl Marks {
    fn add(&mut self, node: impl AsFd, name: &[u8]) -> Result<(), MarksError> {
        match name {
            b"opaque" => {
                let mut value = [0u8; 8];
                let read = rustix::fs::fgetxattr(node, "user.overlay.opaque", &mut value);
                match value.get(..read.map_err(MarksError::Read)?) {
                    Some(b"y") => self.opaque = true,
                    // Whiteouts in it may be attributes of files.
                    Some(b"x") => {}
                    _ => return Err(MarksError::NotUnderstood("user.overlay.opaque")),
                }
            }
            b"whiteout" => self.whiteout = true,
            b"origin" => self.copied_up = true,
            // Both would mean that contents, or what is below, are somewhere else; no wall asks overlay for them.
            b"redirect" => return Err(MarksError::NotUnderstood("user.overlay.redirect")),
            b"metacopy" => return Err(MarksError::NotUnderstood("user.overlay.metacopy")),
            b"impure" | b"nlink" | b"upper" | b"uuid" | b"protattr" => {}
            // A program's own attribute of such a name, which overlay sets apart.
            name if name.starts_with(b"overlay.") => {}
            _ => return Err(MarksError::NotUnderstood("user.overlay")),
        }
        Ok(())
    }
}
