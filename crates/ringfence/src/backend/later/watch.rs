//! Hears of names that come into the folders of a workspace.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;

use crate::workspace::copy::Kind;

/// More folders than this are not watched: each is memory of the kernel, and of a number that all programs of a user share.
const MOST_FOLDERS: usize = 16_384;
/// Names that are kept until they are looked at; with more, everything is looked at.
const MOST_NAMES: usize = 65_536;
/// Read at once.
const PIECE: usize = 16 * 1024;

/// Folders that are watched.
#[derive(Debug)]
pub(super) struct Watch {
    /// In the event loop, which only tells that something came.
    events: Arc<Receiver>,
    /// The workspace itself, as a path of this process.
    root: PathBuf,
    folders: HashMap<i32, PathBuf>,
    refused: Option<String>,
}

/// What came, relative to the workspace.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) names: Vec<(PathBuf, Kind)>,
    /// There was more than the kernel keeps.
    pub(super) lost: bool,
}

impl Watch {
    /// Watches nothing yet of the workspace that `root` holds, and that is held for as long. Or says why not.
    pub(super) fn new(root: &OwnedFd) -> Result<Self, String> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|errno| match errno {
            Errno::MFILE => "this user watches too much already (fs.inotify.max_user_instances)".to_owned(),
            errno => io::Error::from(errno).to_string(),
        })?;
        let events = Receiver::from_owned_fd_unchecked(events).map_err(|error| error.to_string())?;
        Ok(Self {
            events: Arc::new(events),
            root: PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd())),
            folders: HashMap::new(),
            refused: None,
        })
    }

    /// To wait for something to come.
    pub(super) fn events(&self) -> Arc<Receiver> {
        Arc::clone(&self.events)
    }

    /// Watches a folder, too. To be called before its names are read, so that none is missed.
    pub(super) fn add(&mut self, folder: &Path) {
        if self.refused.is_some() {
            return;
        }
        if self.folders.len() >= MOST_FOLDERS {
            self.refused = Some(format!("more than {MOST_FOLDERS} folders"));
            return;
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            | WatchFlags::EXCL_UNLINK;
        let path = if folder.as_os_str().is_empty() { self.root.join(".") } else { self.root.join(folder) };
        match inotify::add_watch(&*self.events, path, flags) {
            // One that was moved is known by its new name.
            Ok(number) => drop(self.folders.insert(number, folder.to_owned())),
            // It is gone, or a link by now: who watches the folder above hears of what comes in its place. One that may not be
            // read is denied as a whole.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
            Err(Errno::NOSPC) => {
                self.refused = Some("this user may watch no more folders (fs.inotify.max_user_watches)".to_owned());
            }
            Err(errno) => self.refused = Some(io::Error::from(errno).to_string()),
        }
    }

    /// Why not everything is watched.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// What came until now, and was not told yet.
    pub(super) fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let mut piece = Vec::<u8>::with_capacity(PIECE);
        let mut reader = Reader::new(self.events.as_fd(), piece.spare_capacity_mut());
        loop {
            match reader.next() {
                Ok(event) => {
                    let what = event.events();
                    if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                        heard.lost = true;
                    } else if what.contains(ReadFlags::IGNORED) {
                        self.folders.remove(&event.wd());
                    } else if let (Some(folder), Some(name)) = (self.folders.get(&event.wd()), event.file_name()) {
                        let kind = if what.contains(ReadFlags::ISDIR) { Kind::Folder } else { Kind::Leaf };
                        heard.names.push((folder.join(OsStr::from_bytes(name.to_bytes())), kind));
                    }
                    if heard.names.len() >= MOST_NAMES {
                        heard.lost = true;
                        return heard;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return heard,
                Err(_) => {
                    heard.lost = true;
                    return heard;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn heard(watch: &mut Watch) -> Vec<(PathBuf, Kind)> {
        let heard = watch.hear();
        assert!(!heard.lost && watch.refused().is_none());
        heard.names
    }

    #[tokio::test]
    async fn every_name_that_comes_into_a_watched_folder_is_heard_by_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(folder.path()).unwrap().into();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("one/inner")).unwrap();
        let mut watch = Watch::new(&root).unwrap();
        ["", "one", "one/inner", "gone"].iter().for_each(|folder| watch.add(Path::new(folder)));
        assert_eq!(heard(&mut watch), []);
        fs::write(at("plain"), "").unwrap();
        fs::rename(at("plain"), at("one/inner/moved")).unwrap();
        fs::hard_link(at("one/inner/moved"), at("linked")).unwrap();
        fs::create_dir(at("one/new")).unwrap();
        fs::write(at("one/new/unheard"), "").unwrap();
        let leaf = |name: &str| (PathBuf::from(name), Kind::Leaf);
        let new = (PathBuf::from("one/new"), Kind::Folder);
        assert_eq!(heard(&mut watch), [leaf("plain"), leaf("one/inner/moved"), leaf("linked"), new]);
        // One that was moved has its new name as soon as it was told.
        fs::rename(at("one"), at("two")).unwrap();
        assert_eq!(heard(&mut watch), [(PathBuf::from("two"), Kind::Folder)]);
        ["two", "two/inner", "two/new"].iter().for_each(|folder| watch.add(Path::new(folder)));
        fs::write(at("two/inner/x"), "").unwrap();
        assert_eq!(heard(&mut watch), [leaf("two/inner/x")]);
    }

    #[tokio::test]
    async fn what_cannot_be_watched_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let root: OwnedFd = File::open(folder.path()).unwrap().into();
        let mut watch = Watch::new(&root).unwrap();
        watch.add(Path::new(&"x".repeat(5_000)));
        assert!(watch.refused().is_some());
    }
}
