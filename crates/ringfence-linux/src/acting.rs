//! Touching files as somebody else: for root's processes, which are nobody where a program's own user is.

use std::io;
use std::marker::PhantomData;

use rustix::process::DumpableBehavior;

/// Sets who the calling thread is for files, and says whether it is that now.
fn become_for_files(user: u32, group: u32) -> bool {
    // No user and no group has this number: asked for it, the kernel changes nothing and says who we are.
    const NOBODY: u32 = u32::MAX;
    // SAFETY: four calls with integers only. They change nothing but the calling thread's identity for files, on which no
    // memory of ours depends. By number: libc's own functions may be cancellation points or change every thread.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, group);
        libc::syscall(libc::SYS_setfsuid, user);
        (libc::syscall(libc::SYS_setfsuid, NOBODY), libc::syscall(libc::SYS_setfsgid, NOBODY))
    };
    now == (i64::from(user), i64::from(group))
}

/// The calling thread is somebody else for files until this is dropped.
struct Acting {
    before: (u32, u32),
    dumpable: Option<DumpableBehavior>,
    // The thread that began it ends it.
    _here: PhantomData<*const ()>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        if !become_for_files(self.before.0, self.before.1) {
            // Whatever this thread did next, it would do as somebody else.
            std::process::abort();
        }
        if let Some(dumpable) = self.dumpable {
            // Taken away with the first change of identity. Without it we are only harder to look at.
            rustix::process::set_dumpable_behavior(dumpable).ok();
        }
    }
}

/// Calls `act` while this thread is `user` and `group` for files, with nothing that root may do beyond them; needs root.
/// Groups that this process has besides stay.
pub fn as_user<T>((user, group): (u32, u32), act: impl FnOnce() -> T) -> io::Result<T> {
    if user == 0 || group == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "files of a program are never touched as root"));
    }
    let before = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let dumpable = rustix::process::dumpable_behavior().ok();
    let acting = Acting { before, dumpable, _here: PhantomData };
    if !become_for_files(user, group) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "could not become the program's user"));
    }
    let done = act();
    drop(acting);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_file_is_made_as_somebody_else_and_the_next_as_ourselves() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(as_user((0, 1), || ()).is_err() && as_user((1, 0), || ()).is_err(), "never root");
        let made = as_user((1_900_000_001, 1_900_000_002), || fs::write(folder.path().join("theirs"), "x"));
        fs::write(folder.path().join("ours"), "x").unwrap();
        let owner = |name: &str| fs::metadata(folder.path().join(name)).map(|found| (found.uid(), found.gid())).ok();
        let ours = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(owner("ours").map(|(user, _)| user), Some(ours.0));
        if ours.0 == 0 {
            made.unwrap().unwrap();
            assert_eq!(owner("theirs"), Some((1_900_000_001, 1_900_000_002)));
            let closed = folder.path().join("closed");
            fs::write(&closed, "x").unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(as_user((1_900_000_001, 1_900_000_002), || fs::read(&closed)).unwrap().is_err());
            assert!(fs::read(&closed).is_ok(), "the twin");
        } else {
            assert!(made.is_err() && owner("theirs").is_none(), "an ordinary user becomes nobody else");
        }
    }
}
