//! What was written down of the images that we made: an engine's word is held against it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::image::Digest;
use crate::state::StateFolder;

const FOLDER: &str = "built-images";
const MOST_RECORD: u64 = 64 * 1024;

/// An image that we made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) recipe: String,
    pub(super) id: String,
    pub(super) layers: Vec<String>,
    pub(super) built_at: u64,
}

/// Writes `record` down, in the place of one of the same image.
pub(super) fn keep(state: &StateFolder, record: &Record) -> io::Result<()> {
    let path = path(state, &record.id).ok_or_else(|| io::Error::other("the engine calls the image by no digest"))?;
    let folder = path.parent().map(PathBuf::from).unwrap_or_default();
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let unfinished = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(serde_json::to_string(record)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)
}

/// What was written down of the image `id`; nothing when we did not make it.
pub(super) fn of(state: &StateFolder, id: &str) -> io::Result<Option<Record>> {
    let Some(path) = path(state, id) else { return Ok(None) };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MOST_RECORD).read_to_string(&mut text)?;
    Ok(Some(serde_json::from_str(&text)?))
}

/// Whether an image of this recipe was ever made or taken here.
pub(super) fn knows(state: &StateFolder, name: &str, recipe: &str) -> io::Result<bool> {
    let entries = match fs::read_dir(state.path().join(FOLDER)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let file_name = entry?.file_name();
        let Some(id) = file_name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        if of(state, id)?.is_some_and(|record| record.name == name && record.recipe == recipe) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Forgets an image that is gone.
pub(super) fn forget(state: &StateFolder, id: &str) -> io::Result<()> {
    match path(state, id).map(fs::remove_file) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Some(Ok(()) | Err(_)) | None => Ok(()),
    }
}

/// Only a digest becomes a path. Engines write it with or without what comes before the digits.
fn path(state: &StateFolder, id: &str) -> Option<PathBuf> {
    let id: Digest = canonical(id).parse().ok()?;
    Some(state.path().join(FOLDER).join(format!("{}.json", id.hex())))
}

/// An id with what comes before its digits.
pub(super) fn canonical(id: &str) -> String {
    if id.starts_with("sha256:") { id.to_owned() } else { format!("sha256:{id}") }
}
