//! A workspace as programs behind a wall see it, reached from the host: the folder with its private layer. Places of it are
//! made to be what they were. Every name is looked up beneath the folder and through no link, nothing is ever followed, and
//! nothing is done that a program behind the wall could not do itself.
//!
//! Decides nothing, and keeps no journal: who is interrupted here has all contents elsewhere, and begins again.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::beneath::{finish, last};
use super::carry_out::Holes;
use super::change::{Node, OtherKind, Place};
use super::objects::Objects;

/// What lays a private layer over a folder.
const OVERLAY: u64 = 0x794c_7630;
const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What the owner of a folder needs to change what is in it.
const OPEN: u32 = 0o700;

/// A place that could not be made what it was.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt} {place:?}")]
pub struct PutError {
    /// What was attempted.
    pub attempt: &'static str,
    /// Where in the workspace.
    pub place: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// A place, and what shall be there.
pub type Step<'a> = (&'a Place, Option<&'a Node>);

/// A workspace behind a wall, whose places can be made to be what they were.
pub trait PutBack: fmt::Debug + Send {
    /// Makes every place what its step says. `steps` are sorted by place and say all that differs, so that a folder which goes
    /// is empty by then. The first that fails ends it; what was done until then stays. Blocks, and is no work for a thread of
    /// an event loop.
    fn put(&self, steps: &[Step<'_>], contents: &Objects) -> Result<(), PutError>;
}

/// A workspace with its private layer, as a guest handed it out.
#[derive(Debug)]
pub struct Merged {
    folder: OwnedFd,
    /// Who its programs are for the kernel, when we are root, who is nobody there.
    identity: Option<(u32, u32)>,
}

impl Merged {
    /// The workspace in `folder`, which a guest sent. It must be what such a folder is.
    pub fn new(folder: OwnedFd) -> io::Result<Self> {
        let bad = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
        let stat = rustix::fs::fstat(&folder)?;
        let on = u64::try_from(rustix::fs::fstatfs(&folder)?.f_type).unwrap_or(0);
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || on != OVERLAY {
            return Err(bad("the guest sent something that is no workspace with a private layer"));
        }
        let identity = match rustix::process::geteuid().is_root() {
            // The owner of root's workspace is shown as the one user that programs are.
            true if stat.st_uid == 0 || stat.st_gid == 0 => return Err(bad("the workspace behind the wall is root's")),
            true => Some((stat.st_uid, stat.st_gid)),
            false => None,
        };
        Ok(Self { folder, identity })
    }

    /// A folder that stands for one.
    #[cfg(test)]
    pub(super) fn unchecked(folder: OwnedFd) -> Self {
        Self { folder, identity: None }
    }

    /// Does something as the user that programs are.
    fn act<T>(&self, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.identity {
            Some(identity) => ringfence_linux::acting::as_user(identity, act)?,
            None => act(),
        }
    }

    /// Opens folders that their owner has closed and in which something is to be done; says what they were.
    fn open_up<'a>(&self, steps: &[Step<'a>]) -> Result<BTreeMap<&'a Path, u32>, PutError> {
        let above = steps.iter().flat_map(|(place, _)| place.as_path().ancestors().skip(1));
        let folders: BTreeMap<&Path, ()> =
            above.filter(|path| !path.as_os_str().is_empty()).map(|it| (it, ())).collect();
        let mut closed = BTreeMap::new();
        // A folder comes before what is in it.
        for (path, ()) in folders {
            let opened = self.act(|| {
                let folder = match rustix::fs::openat2(&self.folder, path, FOLDER, Mode::empty(), STRICT) {
                    Ok(folder) => folder,
                    // It is none yet, or will be none any more.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    Err(errno) => return Err(errno.into()),
                };
                let mode = rustix::fs::fstat(&folder)?.st_mode & 0o7777;
                if mode & OPEN == OPEN {
                    return Ok(None);
                }
                set_mode(&folder, mode | OPEN)?;
                Ok(Some(mode))
            });
            if let Some(mode) = opened.map_err(at("open up the folder", path))? {
                closed.insert(path, mode);
            }
        }
        Ok(closed)
    }

    /// Removes what has to go, deepest first: what shall not be there, and what shall be something else.
    fn clear(&self, steps: &[Step<'_>]) -> Result<(), PutError> {
        for (place, node) in steps.iter().rev() {
            let removed = self.act(|| {
                let Some(folder) = self.folder_of(place)? else { return Ok(()) };
                let name = last(place)?;
                let stat = match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => return Ok(()),
                    stat => stat?,
                };
                let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                let flags = match (is_folder, node) {
                    (true, Some(Node::Folder { .. })) => return Ok(()),
                    (true, _) => AtFlags::REMOVEDIR,
                    (false, _) => AtFlags::empty(),
                };
                Ok(rustix::fs::unlinkat(&folder, name, flags)?)
            });
            removed.map_err(at("remove", place.as_path()))?;
        }
        Ok(())
    }

    /// Makes what shall be there, a folder before what is in it.
    fn make(&self, steps: &[Step<'_>], contents: &Objects) -> Result<(), PutError> {
        for (place, node) in steps {
            let Some(node) = node else { continue };
            self.make_one(place, node, contents).map_err(at("bring back", place.as_path()))?;
        }
        Ok(())
    }

    fn make_one(&self, place: &Place, node: &Node, contents: &Objects) -> io::Result<()> {
        let name = last(place)?;
        let folder = self.act(|| self.folder_of(place))?;
        let folder = folder.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "its folder is none any more"))?;
        match node {
            Node::Folder { .. } => self.act(|| match rustix::fs::mkdirat(&folder, name, Mode::RWXU) {
                // Its permissions come last.
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno.into()),
            }),
            Node::Link { target } => self.act(|| Ok(rustix::fs::symlinkat(target, &folder, name)?)),
            Node::File { content, mode, modified, .. } => {
                let mut file = self.act(|| make_file(&folder, name))?;
                // What is kept is ours to read, and a file that is open is written by whoever has it.
                let size = contents.copy(*content, &mut Holes(&mut file))?;
                file.set_len(size)?;
                file.flush()?;
                self.act(|| finish(&file, *mode, None, Some(*modified)))
            }
            Node::Other(kind) => {
                let kind = match kind {
                    OtherKind::Pipe => FileType::Fifo,
                    OtherKind::Socket => FileType::Socket,
                    OtherKind::Device => return Err(io::Error::new(io::ErrorKind::Unsupported, "it was a device")),
                };
                let mode = Mode::RUSR | Mode::WUSR;
                self.act(|| Ok(rustix::fs::mknodat(&folder, name, kind, mode, 0)?))
            }
        }
    }

    /// Gives folders their permissions, deepest first: those of the steps, and those that were opened up.
    fn shut(&self, steps: &[Step<'_>], closed: &BTreeMap<&Path, u32>) -> Result<(), PutError> {
        let mut modes = closed.clone();
        for (place, node) in steps {
            match node {
                Some(Node::Folder { mode }) => modes.insert(place.as_path(), *mode),
                Some(Node::File { .. } | Node::Link { .. } | Node::Other(_)) | None => modes.remove(place.as_path()),
            };
        }
        for (path, mode) in modes.into_iter().rev() {
            let shut = self.act(|| {
                let folder = rustix::fs::openat2(&self.folder, path, FOLDER, Mode::empty(), STRICT)?;
                if rustix::fs::fstat(&folder)?.st_mode & 0o7777 == mode { Ok(()) } else { set_mode(&folder, mode) }
            });
            shut.map_err(at("set the permissions of", path))?;
        }
        Ok(())
    }

    /// The folder that `place` is in; nothing when there is no such folder.
    fn folder_of(&self, place: &Place) -> io::Result<Option<OwnedFd>> {
        let parent = place.as_path().parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        match rustix::fs::openat2(&self.folder, parent, FOLDER, Mode::empty(), STRICT) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl PutBack for Merged {
    fn put(&self, steps: &[Step<'_>], contents: &Objects) -> Result<(), PutError> {
        let closed = self.open_up(steps)?;
        let put = self.clear(steps).and_then(|()| self.make(steps, contents));
        let shut = self.shut(steps, &closed);
        put.and(shut)
    }
}

fn make_file(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Sets the permissions of exactly the folder that is held, whatever its name means by now.
fn set_mode(folder: impl AsFd, mode: u32) -> io::Result<()> {
    let held = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    Ok(rustix::fs::chmod(held, Mode::from_raw_mode(mode))?)
}

fn at(attempt: &'static str, place: &Path) -> impl FnOnce(io::Error) -> PutError {
    let place = place.to_owned();
    move |source| PutError { attempt, place, source }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::workspace::change::Moment;
    use crate::workspace::objects::ObjectId;

    const THEN: Moment = Moment { seconds: 1_000_000_000, nanoseconds: 5 };

    fn file(objects: &Objects, text: &str, mode: u32) -> Node {
        let (content, size) = objects.add(&mut text.as_bytes(), text.len() as u64).unwrap();
        Node::File { content, size, mode, modified: THEN }
    }

    fn place(path: &str) -> Place {
        Place::new(path).unwrap()
    }

    fn put(work: &Path, objects: &Objects, steps: &[(&str, Option<Node>)]) -> Result<(), PutError> {
        let merged = Merged::unchecked(File::open(work).unwrap().into());
        let mut steps: Vec<(Place, Option<Node>)> =
            steps.iter().map(|(path, node)| (place(path), node.clone())).collect();
        steps.sort_by(|one, other| one.0.cmp(&other.0));
        let steps: Vec<Step<'_>> = steps.iter().map(|(place, node)| (place, node.as_ref())).collect();
        merged.put(&steps, objects)
    }

    #[test]
    fn every_kind_becomes_every_other_in_closed_folders_too() {
        let folder = tempfile::tempdir().unwrap();
        let (work, objects) = (folder.path().join("work"), Objects::at(folder.path().join("objects")));
        fs::create_dir_all(work.join("closed/gone")).unwrap();
        fs::create_dir_all(work.join("becomes-file/a")).unwrap();
        fs::write(work.join("closed/gone/x"), "x").unwrap();
        fs::write(work.join("becomes-file/a/b"), "x").unwrap();
        fs::write(work.join("becomes-folder"), "x").unwrap();
        symlink("nowhere", work.join("becomes-pipe")).unwrap();
        fs::set_permissions(work.join("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        let steps = [
            ("closed/gone", None),
            ("closed/gone/x", None),
            ("closed/new", Some(file(&objects, "new", 0o4751))),
            ("becomes-file", Some(file(&objects, "", 0o400))),
            ("becomes-file/a", None),
            ("becomes-file/a/b", None),
            ("becomes-folder", Some(Node::Folder { mode: 0o510 })),
            ("becomes-folder/in it\n", Some(Node::Link { target: "/etc".into() })),
            ("becomes-pipe", Some(Node::Other(OtherKind::Pipe))),
        ];
        put(&work, &objects, &steps).unwrap();
        let mode = |name: &str| fs::symlink_metadata(work.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!([mode("closed"), mode("closed/new"), mode("becomes-folder")], [0o500, 0o4751, 0o510]);
        assert_eq!(fs::read_to_string(work.join("closed/new")).unwrap(), "new");
        assert!(!work.join("closed/gone").exists() && work.join("becomes-file").is_file());
        assert_eq!(fs::read_link(work.join("becomes-folder/in it\n")).unwrap(), Path::new("/etc"));
        // Once more: what is as it shall be is no error.
        put(&work, &objects, &steps).unwrap();
        for folder in ["closed", "becomes-folder"] {
            fs::set_permissions(work.join(folder), fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn f02_nothing_is_written_or_removed_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (work, outside) = (folder.path().join("work"), folder.path().join("outside"));
        let objects = Objects::at(folder.path().join("objects"));
        fs::create_dir(&work).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(&outside, work.join("link")).unwrap();
        let written = put(&work, &objects, &[("link/new", Some(file(&objects, "x", 0o644)))]);
        assert!(written.is_err());
        put(&work, &objects, &[("link/kept", None)]).unwrap();
        let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["kept"]);
        // The twin: whoever follows the link reaches both.
        fs::write(work.join("link/new"), "x").unwrap();
        fs::remove_file(work.join("link/kept")).unwrap();
        assert!(outside.join("new").exists() && !outside.join("kept").exists());
        // With a step for the link itself, it becomes a folder of the workspace.
        let steps = [("link", Some(Node::Folder { mode: 0o755 })), ("link/new", Some(file(&objects, "own", 0o644)))];
        put(&work, &objects, &steps).unwrap();
        assert_eq!(fs::read_to_string(work.join("link/new")).unwrap(), "own");
        assert_eq!(fs::read_to_string(outside.join("new")).unwrap(), "x");
    }

    #[test]
    fn a_folder_that_holds_more_than_was_said_and_lost_contents_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let (work, objects) = (folder.path().join("work"), Objects::at(folder.path().join("objects")));
        fs::create_dir_all(work.join("folder")).unwrap();
        fs::write(work.join("folder/more"), "x").unwrap();
        assert!(put(&work, &objects, &[("folder", None)]).is_err());
        assert!(work.join("folder/more").exists());
        let lost = Node::File { content: ObjectId::of(b"lost"), size: 4, mode: 0o644, modified: THEN };
        assert!(put(&work, &objects, &[("lost", Some(lost))]).is_err());
    }

    #[test]
    fn what_a_guest_sends_must_be_a_workspace_with_a_private_layer() {
        for path in ["/dev/shm", "/", "/proc/self", "/dev/null"] {
            let sent = File::open(path).unwrap();
            let on = u64::try_from(rustix::fs::fstatfs(&sent).unwrap().f_type).unwrap();
            // Some machines have such a layer for their own root; for root it is root's, and refused for that.
            if on != OVERLAY || rustix::process::geteuid().is_root() {
                assert!(Merged::new(sent.into()).is_err(), "{path}");
            }
        }
    }
}
