//! Lays something over what is shown already.

use std::os::fd::AsFd;
use std::path::Path;

use super::mount_api::{INERT, READ_ONLY, attach, clone_below};
use super::quota::Quota;
use super::root::Root;
use super::view::{kind_of, restrict};
use super::{SetupError, at};

/// Puts nothing over what is there.
pub(super) fn mask(root: &mut Root, path: &Path, quota: &Quota) -> Result<(), SetupError> {
    let found = root.find(path)?;
    let tree = quota.nothing(kind_of(&found)?)?;
    restrict(path, &tree, INERT | READ_ONLY | libc::MOUNT_ATTR_NOEXEC)?;
    attach(tree.as_fd(), found.as_fd()).map_err(at(format_args!("mask {}", path.display())))
}

/// Shows the file that we made at `from` over the one at `path`.
pub(super) fn show_again(root: &mut Root, from: &Path, path: &Path) -> Result<(), SetupError> {
    let found = root.find(path)?;
    let tree = clone_below(root.folder().as_fd(), from).map_err(at(format_args!("show {} again", from.display())))?;
    restrict(path, &tree, INERT | READ_ONLY | libc::MOUNT_ATTR_NOEXEC)?;
    attach(tree.as_fd(), found.as_fd()).map_err(at(format_args!("cover {}", path.display())))
}
