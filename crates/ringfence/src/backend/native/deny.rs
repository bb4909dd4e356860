//! Finds the files of a workspace that the policy denies. Bounded: a tree that is too large to look through is refused.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_policy::{Glob, Sourced};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::{StartError, WallError};

/// More entries than this are not looked through.
const MOST_ENTRIES: usize = 200_000;
/// More matches than this are not masked one by one.
const MOST_MATCHES: usize = 4_096;
/// A folder's names are read in pieces of this size.
const PIECE: usize = 64 * 1024;

/// The denied paths below `workspace`, relative to it. What lies below a denied folder is not listed again.
pub(super) fn find(workspace: &Path, deny: &[Sourced<Glob>]) -> Result<Vec<PathBuf>, StartError> {
    if deny.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |folder: &Path, errno: Errno| StartError::WorkingDirectory {
        path: workspace.join(folder),
        source: errno.into(),
    };
    let too_large = |what: &str| {
        Err(StartError::Wall(WallError(format!(
            "the workspace has {what}, so `fs.deny` could not be held: name a smaller folder with --workspace"
        ))))
    };
    let root = rustix::fs::open(workspace, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed(Path::new(""), errno))?;
    let mut piece = vec![MaybeUninit::uninit(); PIECE];
    let mut found = Vec::new();
    let mut left = vec![(PathBuf::new(), FileType::Directory)];
    let mut seen = 0;
    while let Some((folder, kind)) = left.pop() {
        let opened = match open(&root, &folder) {
            Ok(opened) => opened,
            // What is in it is not known. The program may know, or may open it: inside, it is the owner of its copy.
            Err(Errno::ACCESS | Errno::PERM) if !folder.as_os_str().is_empty() => {
                found.push(folder);
                continue;
            }
            // Its kind could not be told, and it is no folder. One that was a folder a moment ago may have gone where we
            // have looked already: that is an error, as every other is.
            Err(Errno::NOTDIR | Errno::LOOP) if kind == FileType::Unknown => continue,
            Err(errno) => return Err(failed(&folder, errno)),
        };
        let mut entries = RawDir::new(opened, &mut piece);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|errno| failed(&folder, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            seen += 1;
            if seen > MOST_ENTRIES {
                return too_large("more than 200,000 entries");
            }
            // What cannot be told is looked into.
            let kind = entry.file_type();
            let is_folder = matches!(kind, FileType::Directory | FileType::Unknown);
            if is_denied(deny, &folder, name, is_folder) {
                found.push(folder.join(name));
                if found.len() > MOST_MATCHES {
                    return too_large("more than 4,096 denied files");
                }
            } else if is_folder {
                left.push((folder.join(name), kind));
            }
        }
    }
    Ok(found)
}

/// Opens a folder below the workspace. No link is followed: one that came in its place since leads elsewhere.
fn open(root: &OwnedFd, folder: &Path) -> rustix::io::Result<OwnedFd> {
    let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
}

/// Whether a rule matches what `folder` has under `name`. A rule for all below a folder is a rule for the folder.
///
/// Nothing above it matched, or we would not be here: so a rule that cannot end in this name does not match, and nearly
/// all are ruled out without a path.
fn is_denied(deny: &[Sourced<Glob>], folder: &Path, name: &OsStr, is_folder: bool) -> bool {
    let mut candidates = deny.iter().map(|glob| &glob.value).filter(|glob| glob.may_end_in(name)).peekable();
    if candidates.peek().is_none() {
        return false;
    }
    let path = folder.join(name);
    let below = is_folder.then(|| path.join("x"));
    candidates.any(|glob| glob.matches(&path) || below.as_ref().is_some_and(|below| glob.matches(below)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Layer, Origin};
    use std::fs;

    fn rules(patterns: &[&str]) -> Vec<Sourced<Glob>> {
        let rule = |pattern: &&str| Sourced {
            value: pattern.parse().unwrap(),
            origin: Origin { layer: Layer::Project, place: None },
        };
        patterns.iter().map(rule).collect()
    }

    /// Every path below `folder` is asked about with each rule, with nothing ruled out before.
    fn find_plainly(root: &Path, folder: &Path, deny: &[Sourced<Glob>], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let is_folder = entry.file_type().unwrap().is_dir();
            let matches = |path: &Path| deny.iter().any(|glob| glob.value.matches(path));
            if matches(&path) || (is_folder && matches(&path.join("x"))) {
                found.push(path);
            } else if is_folder {
                find_plainly(root, &path, deny, found);
            }
        }
    }

    #[test]
    fn s01_ruling_out_by_the_last_name_finds_just_what_asking_every_rule_does() {
        let patterns = [
            "**/.env",
            "**/.env.*.local",
            "**/id_rsa*",
            "**/*key.pem",
            "**/.ssh/**",
            "**/.config/gcloud/**",
            "**/.docker/config.json",
            "top/*.txt",
            "**/[ab].c",
            "**/{x,y}/z",
            "**",
            "deep/**/end",
        ];
        let home = tempfile::tempdir().unwrap();
        let names = [".env", ".env.a.local", "id_rsa.pub", "mykey.pem", "config.json", "a.c", "z", "t.txt", "end", "x"];
        let folders = [
            "",
            ".ssh",
            ".config",
            ".config/gcloud",
            "gcloud",
            ".docker",
            "top",
            "x",
            "y",
            "deep",
            "deep/er",
            "deep/er/x",
        ];
        for folder in folders {
            fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        for (folder, name) in folders.iter().flat_map(|folder| names.map(|name| (folder, name))) {
            let file = home.path().join(folder).join(name);
            if !file.exists() {
                fs::write(file, "").unwrap();
            }
        }
        std::os::unix::fs::symlink("/etc", home.path().join("top/.ssh")).unwrap();
        let all: Vec<Vec<&str>> =
            patterns.iter().map(|pattern| vec![*pattern]).chain([patterns[..11].to_vec()]).collect();
        for patterns in all {
            let deny = rules(&patterns);
            let mut plainly = Vec::new();
            find_plainly(home.path(), Path::new(""), &deny, &mut plainly);
            let mut found = find(home.path(), &deny).unwrap();
            plainly.sort();
            found.sort();
            assert_eq!(found, plainly, "{patterns:?}");
        }
    }

    #[test]
    fn s01_a_folder_that_cannot_be_looked_into_is_denied_and_a_link_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join(".env"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), home.path().join("link")).unwrap();
        let closed = home.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let expected: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["closed"] };
        let found = find(home.path(), &rules(&["**/.env"])).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }
}
