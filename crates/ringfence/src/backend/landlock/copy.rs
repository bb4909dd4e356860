//! The private copy of a workspace that a program works in under review.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::super::native::deny;
use super::shown::{open, state_below};
use super::{StartError, refuse};
use crate::guarantee::Guarantee;
use crate::plan::Plan;
use crate::request::WorkspaceAt;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::copy::{Manifest, copy};
use crate::workspace::layer::{Lower, PrivateLayer};

/// A copy that is ready to be worked in.
#[derive(Debug)]
pub(super) struct Copied {
    folder: OwnedFd,
    lower: Lower,
    manifest: Manifest,
}

/// Copies the workspace to the empty folder `to`, without what the policy denies and without the state folder.
pub(super) fn make(plan: &Plan, state: &StateFolder, to: &Path) -> Result<Copied, StartError> {
    if plan.workspace_at() == &WorkspaceAt::Same {
        let why = "without namespaces a workspace under review is a copy, which cannot appear at the workspace's own place: \
                   leave out `--at same`, or choose `--mode read-only`";
        return Err(refuse(why.to_owned()));
    }
    let root = plan.workspace();
    let rules = &plan.policy().fs.deny;
    let mut absent: BTreeSet<PathBuf> = deny::find(root, rules, Some(state))?.into_iter().collect();
    absent.extend(state_below(root, state)?);
    let looked_at = |source| StartError::WorkingDirectory { path: root.to_owned(), source };
    let (from, folder) = (open(root)?, open(to)?);
    // By name once more: what came since it was looked for is not copied either.
    let is_denied = |path: &Path, kind| absent.contains(path) || deny::denies(rules, path, kind);
    let most = plan.policy().fs.size.value.get();
    let manifest = copy(from.as_fd(), folder.as_fd(), most, is_denied)?;
    let left_out = manifest.left_out().to_vec();
    let lower = Lower::new(from, root.to_owned(), left_out, Vec::new()).map_err(looked_at)?;
    Ok(Copied { folder, lower, manifest })
}

impl Copied {
    /// What can be told of it.
    pub(super) fn proof(&self) -> (String, String) {
        let copied = format!("a private copy of {} files and folders", self.manifest.len());
        let found = match self.manifest.left_out().len() {
            0 => copied,
            left_out => format!("{copied}, without {left_out} that are denied, another name of one, or closed"),
        };
        (Guarantee::FsWorkspaceMode.name().to_owned(), found)
    }

    /// The layer that is compared with the workspace at the end. The copy lies in `scratch`.
    pub(super) fn into_layer(self, scratch: Scratch) -> PrivateLayer {
        PrivateLayer::copy(self.folder, self.lower, self.manifest, scratch)
    }
}
