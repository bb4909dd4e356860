//! The kernel's mount calls that take descriptors instead of paths.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick, move_mount, open_tree,
};

#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

/// What a mount forbids.
pub(super) const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
/// No set-user-id and no device ever counts inside.
pub(super) const INERT: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// A copy of the mounts at `path`, attached nowhere. [`make_private_with`] cuts it off from the host's.
pub(super) fn clone_tree(path: &Path) -> rustix::io::Result<OwnedFd> {
    open_tree(
        CWD,
        path,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE,
    )
}

/// A copy of what is at `path` below a folder of a mount of ours, attached nowhere.
pub(super) fn clone_below(folder: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    open_tree(folder, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// Sets attributes on a whole tree and makes it private: nothing goes from it to the host's mounts or back.
pub(super) fn make_private_with(tree: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    change(tree, &MountAttributes { set, propagation: libc::MS_PRIVATE, ..MountAttributes::default() })
}

/// Sets attributes on one mount, not on those below it.
pub(super) fn set_attributes_of_one(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    change_with(mount, &MountAttributes { set, ..MountAttributes::default() }, libc::AT_EMPTY_PATH)
}

fn change(tree: BorrowedFd<'_>, attributes: &MountAttributes) -> io::Result<()> {
    change_with(tree, attributes, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)
}

fn change_with(tree: BorrowedFd<'_>, attributes: &MountAttributes, flags: i32) -> io::Result<()> {
    // SAFETY: the path is an empty NUL-terminated constant; `attributes` is a `struct mount_attr` of the given size,
    // and outlives the call.
    let changed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    if changed < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A copy of the folder at `path` in which owners are mapped by `user_namespace`. Needs privileges on the host.
pub fn idmapped_tree(path: &Path, user_namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let tree = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let attributes = MountAttributes {
        set: libc::MOUNT_ATTR_IDMAP,
        // A copy of a shared mount is a peer of it: what is laid over it inside would be laid over the host's as well.
        propagation: libc::MS_PRIVATE,
        userns_fd: u64::try_from(user_namespace.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?,
        ..MountAttributes::default()
    };
    change_with(tree.as_fd(), &attributes, libc::AT_EMPTY_PATH)?;
    Ok(tree)
}

/// A new file system with `options`, attached nowhere. An option without a value is a flag.
pub(super) fn new_file_system(kind: &str, options: &[(&str, &str)], attributes: u64) -> rustix::io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, *name)?;
        } else {
            fsconfig_set_string(&context, *name, *value)?;
        }
    }
    fsconfig_create(&context)?;
    let attributes = u32::try_from(attributes).map_err(|_| rustix::io::Errno::INVAL)?;
    let attributes = MountAttrFlags::from_bits_retain(attributes);
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Changes `options` of the file system of a mount of ours.
pub(super) fn reconfigure(mount: BorrowedFd<'_>, options: &[(&str, &str)]) -> rustix::io::Result<()> {
    let context = fspick(mount, "", FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH)?;
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value)?;
    }
    fsconfig_reconfigure(&context)
}

/// Attaches a detached tree over `target`, which is the very folder or file and no name that could lead elsewhere.
pub(super) fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", both)
}

/// Attaches a detached tree over the entry `name` of `folder`, which the caller has just made.
pub(super) fn attach_named(tree: BorrowedFd<'_>, folder: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    move_mount(tree, "", folder, name, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Attaches a detached tree over a folder of the host, as only we see it.
pub(super) fn attach_over(tree: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<()> {
    move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}
