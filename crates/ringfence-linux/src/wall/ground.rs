//! What a view is put together on: an empty root, or the root of an image with a private layer over it.

use std::path::{Path, PathBuf};

use super::quota::Quota;
use super::root::Root;
use super::view::{Access, Entry, Opened, copy_on_write};
use super::{SetupError, inside_path};

/// Where the root of an image is attached until it becomes ours.
const ROOT: &str = "root";

/// The root to put entries into: `empty`, unless the first of them stands at `/` itself.
///
/// Also how many mounts there are beneath it, of which the host's root is one. The first entry is taken off the list. Until the
/// view is complete, what it needs can be made in its private layer; then the whole root is closed, as an empty one is.
pub(super) fn lay(
    mut empty: Root,
    opened: &mut Vec<Opened<'_>>,
    quota: &mut Quota,
) -> Result<(Root, usize), SetupError> {
    let at_root = |first: &Opened<'_>| matches!(first.entry, Entry::CopyOnWrite { at, .. } if at == Path::new("/"));
    if !opened.first().is_some_and(at_root) {
        return Ok((empty, 1));
    }
    let Opened { entry, tree } = opened.remove(0);
    let (Entry::CopyOnWrite { absent, .. }, Some(tree)) = (entry, tree) else {
        let step = "show an image that was not opened".to_owned();
        return Err(SetupError::Step { step, source: std::io::ErrorKind::NotFound.into() });
    };
    let changed: Vec<PathBuf> = opened.iter().filter_map(|it| it.entry.place()).map(|at| inside_path(&at)).collect();
    // What is written to this layer is ours, so nobody asks whether it was changed.
    copy_on_write(&mut empty, Path::new(ROOT), &tree, (absent, &changed), Access::ReadWrite, quota)?;
    Ok((Root::new(empty.find(Path::new(ROOT))?), 2))
}
