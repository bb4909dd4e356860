//! Finds the files of a workspace that the policy denies. Bounded: a tree that is too large to look through is refused.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_policy::{Glob, Sourced};

use super::{StartError, WallError};

/// More entries than this are not looked through.
const MOST_ENTRIES: usize = 200_000;
/// More matches than this are not masked one by one.
const MOST_MATCHES: usize = 4_096;

/// The denied paths below `workspace`, relative to it. What lies below a denied folder is not listed again.
pub(in crate::backend) fn find(workspace: &Path, deny: &[Sourced<Glob>]) -> Result<Vec<PathBuf>, StartError> {
    if deny.is_empty() {
        return Ok(Vec::new());
    }
    let too_large = |what: &str| {
        Err(StartError::Wall(WallError(format!(
            "the workspace has {what}, so `fs.deny` could not be held: name a smaller folder with --workspace"
        ))))
    };
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(folder) = left.pop() {
        let entries = match fs::read_dir(workspace.join(&folder)) {
            Ok(entries) => entries,
            // What is in it is not known. The program may know, or may open it: inside, it is the owner of its copy.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && !folder.as_os_str().is_empty() => {
                found.push(folder);
                continue;
            }
            // Its kind could not be told, and it is no folder.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => continue,
            Err(source) => return Err(StartError::WorkingDirectory { path: workspace.join(&folder), source }),
        };
        for entry in entries {
            let entry = entry.map_err(|source| StartError::WorkingDirectory { path: folder.clone(), source })?;
            seen += 1;
            if seen > MOST_ENTRIES {
                return too_large("more than 200,000 entries");
            }
            let path = folder.join(entry.file_name());
            // What cannot be told is looked into.
            let is_folder = entry.file_type().map_or(true, |kind| kind.is_dir());
            if matches(deny, &path, is_folder) {
                found.push(path);
                if found.len() > MOST_MATCHES {
                    return too_large("more than 4,096 denied files");
                }
            } else if is_folder {
                left.push(path);
            }
        }
    }
    Ok(found)
}

/// A rule for all below a folder is a rule for the folder.
fn matches(deny: &[Sourced<Glob>], path: &Path, is_folder: bool) -> bool {
    let below = is_folder.then(|| path.join("x"));
    deny.iter().any(|glob| glob.value.matches(path) || below.as_ref().is_some_and(|below| glob.value.matches(below)))
}
