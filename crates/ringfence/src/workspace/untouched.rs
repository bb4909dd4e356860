//! What the host's workspace, or the copy that is shown in its place, has where programs behind a wall changed nothing, so that it can be brought back to them. What they
//! could not see there, they do not get by this way either.

use std::io;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::beneath::last;
use super::between::Beneath;
use super::change::{Node, Place};
use super::flag::Denied;
use super::layer::Lower;
use super::merged::PutError;
use super::node::{hold, is_the_same_node, kind_of, link_target, moment, open_file, other_kind, stat_of};
use super::objects::Objects;

/// The host's workspace, as programs see it without their changes.
pub struct Untouched<'a> {
    lower: &'a Lower,
    denied: Denied,
    objects: &'a Objects,
    /// Bytes of contents that may still be read.
    left: u64,
}

impl<'a> Untouched<'a> {
    /// The workspace `lower` under a policy that denies `deny`. At most `most_bytes` of contents are read, to `objects`.
    pub fn new(lower: &'a Lower, deny: &[String], objects: &'a Objects, most_bytes: u64) -> Self {
        Self { lower, denied: Denied::by(deny), objects, left: most_bytes }
    }

    fn look(&mut self, place: &Place) -> io::Result<Option<Node>> {
        let parent = place.as_path().parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = match hold(self.lower.shown(), parent.unwrap_or_else(|| Path::new("."))) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            parent => parent?,
        };
        let name = last(place)?;
        let stat = match stat_of(&parent, name) {
            // The host has put something else in the place of its folder.
            Err(Errno::NOTDIR) => return Ok(None),
            stat => stat?,
        };
        let Some(stat) = stat else { return Ok(None) };
        let mode = stat.st_mode & 0o7777;
        Ok(Some(match kind_of(&stat) {
            FileType::Directory => Node::Folder { mode },
            FileType::Symlink => Node::Link { target: link_target(&parent, name)? },
            FileType::RegularFile => {
                if !self.is_readable_inside(&stat) {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, "programs could not read it"));
                }
                let changing = || io::Error::new(io::ErrorKind::InvalidData, "the host writes to it");
                let mut file = open_file(&parent, name)?;
                if !is_the_same_node(&file, &stat) {
                    return Err(changing());
                }
                let (content, size) = self.objects.add(&mut file, self.left)?;
                if !is_the_same_node(&file, &stat) {
                    return Err(changing());
                }
                self.left -= size;
                Node::File { content, size, mode, modified: moment(stat.st_mtime, stat.st_mtime_nsec) }
            }
            kind => Node::Other(other_kind(kind)),
        }))
    }

    /// Root reads everything; programs behind root's walls are the workspace's owner.
    fn is_readable_inside(&self, stat: &Stat) -> bool {
        let (user, group) = self.lower.owner();
        let by_group = stat.st_gid == group && stat.st_mode & 0o040 != 0;
        !rustix::process::geteuid().is_root() || stat.st_uid == user || by_group || stat.st_mode & 0o004 != 0
    }
}

impl Beneath for Untouched<'_> {
    type Error = PutError;

    fn node(&mut self, place: &Place) -> Result<Option<Node>, PutError> {
        // Taken away at the start, or denied by its name since.
        if self.lower.is_in_absent(place.as_path()) || self.denied.names(place) {
            return Ok(None);
        }
        let failed = |source| PutError { attempt: "read the host's", place: place.as_path().to_owned(), source };
        self.look(place).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn s01_what_was_taken_away_or_is_denied_is_not_read_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir_all(work.join("a")).unwrap();
        for name in ["plain", "a/plain", ".env", "a/later.key", "gone"] {
            fs::write(work.join(name), name).unwrap();
        }
        symlink("a", work.join("link")).unwrap();
        let lower =
            Lower::new(File::open(&work).unwrap().into(), work.clone(), vec!["gone".into()], Vec::new()).unwrap();
        let objects = Objects::at(folder.path().join("objects"));
        let deny = ["**/.env".to_owned(), "**/*.key".to_owned()];
        let mut untouched = Untouched::new(&lower, &deny, &objects, 100);
        let mut check = |path: &str, expected: Option<&str>| {
            let node = untouched.node(&Place::new(path).unwrap()).unwrap();
            let found = node.map(|node| match node {
                Node::File { content, .. } => String::from_utf8(objects.bytes(content, 100).unwrap().unwrap()).unwrap(),
                Node::Link { .. } => "a link".to_owned(),
                Node::Folder { .. } => "a folder".to_owned(),
                Node::Other(_) => "other".to_owned(),
            });
            assert_eq!(found.as_deref(), expected, "{path}");
        };
        check("plain", Some("plain"));
        check("a/plain", Some("a/plain"));
        check("a", Some("a folder"));
        check("link", Some("a link"));
        for hidden in [".env", "a/later.key", "gone", "link/plain", "missing", "plain/x"] {
            check(hidden, None);
        }
        assert!(Untouched::new(&lower, &deny, &objects, 4).node(&Place::new("plain").unwrap()).is_err(), "too much");
        assert!(
            Untouched::new(&lower, &["[".to_owned()], &objects, 9).node(&Place::new("a").unwrap()).unwrap().is_none()
        );
    }
}
