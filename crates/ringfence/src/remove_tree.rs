//! Removing a folder that an untrusted program has filled: closed folders, links to anywhere, nesting without end.
//!
//! The standard library's way holds a descriptor for each level and gives up at a folder that it may not read; a program
//! could so leave something behind that stops every later start. This one brings each folder up to the top before it is
//! emptied, so it holds two descriptors however deep the tree is, and opens what is closed. Nothing of the program runs any
//! more, and no link is followed.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::run_id::RunId;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes `folder` and all below it. One that is not there is an error, as with the standard library.
pub(crate) fn remove_tree(folder: &Path) -> io::Result<()> {
    let top = rustix::fs::open(folder, FOLDER, Mode::empty())?;
    empty_tree(top.as_fd())?;
    Ok(rustix::fs::rmdir(folder)?)
}

/// Removes the folder `name` of `parent`, which may be closed, and all below it.
pub(crate) fn remove_tree_at(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let told = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
    if FileType::from_raw_mode(told) != FileType::Directory {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    // It is no link: nothing else runs in the tree.
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    let top = rustix::fs::openat(parent, name, FOLDER, Mode::empty())?;
    empty_tree(top.as_fd())?;
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

fn empty_tree(top: BorrowedFd<'_>) -> io::Result<()> {
    // Nobody could have known it, so no name of the tree begins with it.
    let prefix = format!("{}-", RunId::generate().map_err(io::Error::other)?);
    let mut raised = Raised { top, prefix, count: 0 };
    raised.empty(top)?;
    let mut done = 0;
    while done < raised.count {
        let name = raised.name(done);
        let below = rustix::fs::openat(top, &name, FOLDER, Mode::empty())?;
        raised.empty(below.as_fd())?;
        rustix::fs::unlinkat(top, &name, AtFlags::REMOVEDIR)?;
        done += 1;
    }
    Ok(())
}

/// The folders that were brought up to the top, under numbers of their own.
struct Raised<'a> {
    top: BorrowedFd<'a>,
    prefix: String,
    count: u64,
}

impl Raised<'_> {
    fn name(&self, number: u64) -> String {
        format!("{}{number}", self.prefix)
    }

    /// Unlinks what is in `folder`, and brings the folders in it up.
    fn empty(&mut self, folder: BorrowedFd<'_>) -> io::Result<()> {
        // A folder that changes while it is read may hide an entry: read it until nothing is left.
        loop {
            let mut found = 0u64;
            for entry in Dir::read_from(folder)? {
                let entry = entry?;
                let name = entry.file_name();
                let ours = name.to_bytes().starts_with(self.prefix.as_bytes());
                if ours || matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                found += 1;
                if kind_of(folder, name, entry.file_type())? == FileType::Directory {
                    // Moving a folder needs the right to write it, for its link to the one above. It is no link: nothing
                    // else runs in the tree.
                    rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
                    rustix::fs::renameat(folder, name, self.top, self.name(self.count))?;
                    self.count += 1;
                } else {
                    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
                }
            }
            if found == 0 {
                return Ok(());
            }
        }
    }
}

fn kind_of(folder: BorrowedFd<'_>, name: &CStr, told: FileType) -> io::Result<FileType> {
    match told {
        FileType::Unknown => {
            Ok(FileType::from_raw_mode(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
        }
        told => Ok(told),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn r04_a_tree_that_is_deeper_than_any_path_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let top = home.path().join("top");
        fs::create_dir(&top).unwrap();
        let mut folder = rustix::fs::open(&top, FOLDER, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
        drop(folder);
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn f01_closed_folders_odd_names_and_links_are_removed_and_what_links_lead_to_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (top, kept) = (home.path().join("top"), home.path().join("kept"));
        fs::create_dir_all(top.join("a/closed")).unwrap();
        fs::create_dir_all(top.join("x/x/x")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "here").unwrap();
        fs::write(top.join("a/closed/file"), "").unwrap();
        symlink(&kept, top.join("a/link")).unwrap();
        symlink(&kept, top.join("0")).unwrap();
        fs::set_permissions(top.join("a/closed"), fs::Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(top.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "here");
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_a_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(remove_tree(&home.path().join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(home.path().join("kept")).unwrap();
        symlink(home.path().join("kept"), home.path().join("link")).unwrap();
        assert!(remove_tree(&home.path().join("link")).is_err());
        assert!(home.path().join("kept").exists());
    }
}
