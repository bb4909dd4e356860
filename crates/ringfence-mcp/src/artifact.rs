//! Pictures and documents that a program wrote: a few small ones come back at once, the others can be asked for.

use std::collections::VecDeque;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence::workspace::kept;
use ringfence::workspace::{Node, ObjectId};
use ringfence::{Outcome, RunId, StateFolder};
use rmcp::model::{ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};

use crate::call::{Call, hex};
use crate::client::Sandbox;
use crate::server::random;
use crate::tools::inside_file;

/// Of a picture that comes back at once.
const MOST_INLINE: usize = 1024 * 1024;
/// Of those in one result.
const MOST_PICTURES: usize = 4;
/// Of what can be asked for.
const MOST_BYTES: u64 = 8 * 1024 * 1024;
/// Of what one run offers.
const MOST_OF_A_RUN: usize = 16;
/// Of what one client can ask for.
const MOST_KEPT: usize = 128;
/// Where they are said to be. What follows is random.
const SCHEME: &str = "ringfence://artifacts/";

/// Endings of names, the types that they stand for, and how such a file begins.
const TYPES: &[(&str, &str, &[u8])] = &[
    ("png", "image/png", b"\x89PNG\r\n\x1a\n"),
    ("jpg", "image/jpeg", b"\xff\xd8\xff"),
    ("jpeg", "image/jpeg", b"\xff\xd8\xff"),
    ("gif", "image/gif", b"GIF8"),
    ("webp", "image/webp", b"RIFF"),
    ("svg", "image/svg+xml", b""),
    ("pdf", "application/pdf", b"%PDF-"),
    ("html", "text/html", b""),
    ("csv", "text/csv", b""),
];

fn type_of(path: &Path) -> Option<(&'static str, &'static [u8])> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    TYPES.iter().find(|(name, ..)| *name == ending).map(|(_, mime, magic)| (*mime, *magic))
}

/// Whether a client can show it as a picture: by its name, and by how it begins.
fn is_picture(mime: &str, magic: &[u8], bytes: &[u8]) -> bool {
    mime.starts_with("image/") && !magic.is_empty() && bytes.starts_with(magic)
}

#[derive(Debug, Clone)]
struct Artifact {
    uri: String,
    name: String,
    mime: &'static str,
    size: u64,
    run: RunId,
    content: ObjectId,
}

impl Artifact {
    fn resource(&self) -> Resource {
        Resource::new(self.uri.clone(), self.name.clone()).with_mime_type(self.mime).with_size(self.size)
    }

    fn listed(&self) -> Value {
        json!({ "uri": self.uri, "path": self.name, "mimeType": self.mime, "size": self.size })
    }
}

/// What a client can ask for, newest last.
#[derive(Debug, Default)]
pub(crate) struct Artifacts(VecDeque<Artifact>);

impl Artifacts {
    pub(crate) fn resources(&self) -> Vec<Resource> {
        self.0.iter().map(Artifact::resource).collect()
    }

    fn add(&mut self, artifact: Artifact) {
        if self.0.len() == MOST_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(artifact);
    }

    /// What is behind an address, to be read with [`Readable::read`].
    pub(crate) fn find(&self, uri: &str) -> Option<Readable> {
        self.0.iter().find(|artifact| artifact.uri == uri).cloned().map(Readable)
    }
}

/// Something that can be asked for.
pub(crate) struct Readable(Artifact);

impl Readable {
    /// Its contents, as long as what the run changed is kept. Waits for the disk.
    pub(crate) fn read(&self, state: &StateFolder) -> Option<ResourceContents> {
        let Artifact { uri, mime, run, content, .. } = &self.0;
        let bytes = kept::of(state, run).objects().bytes(*content, MOST_BYTES).ok().flatten()?;
        let contents = match String::from_utf8(bytes) {
            Ok(text) if mime.starts_with("text/") || *mime == "image/svg+xml" => {
                ResourceContents::text(text, uri.clone())
            }
            Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri.clone()),
            Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri.clone()),
        };
        Some(contents.with_mime_type(*mime))
    }
}

/// What was found for one result.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) listed: Vec<Value>,
    pub(crate) content: Vec<ContentBlock>,
    pub(crate) notes: Vec<String>,
}

/// What a run in a sandbox of its own wrote into the workspace.
pub(crate) async fn of_run(call: &Call, outcome: &Outcome) -> Found {
    if outcome.changes.is_none() {
        return Found::default();
    }
    let (state, run) = (call.shared.setup.state.clone(), outcome.run_id.clone());
    // What cannot be read now is still there for `changes_diff`.
    let found = tokio::task::spawn_blocking(move || look(&state, &run)).await.unwrap_or_default();
    let mut told = Found::default();
    let mut artifacts = call.client.artifacts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (artifact, picture) in found {
        told.listed.push(artifact.listed());
        match picture {
            Some(bytes) => told.content.push(ContentBlock::image(STANDARD.encode(bytes), artifact.mime)),
            None => told.content.push(ContentBlock::resource_link(artifact.resource())),
        }
        artifacts.add(artifact);
    }
    told
}

/// Artifacts of a run, each with its bytes where it is a picture that comes back at once.
fn look(state: &StateFolder, run: &RunId) -> Vec<(Artifact, Option<Vec<u8>>)> {
    let kept = kept::of(state, run);
    let Ok(set) = kept.load() else { return Vec::new() };
    let (objects, mut found, mut pictures) = (kept.objects(), Vec::new(), 0);
    for change in &set.changes {
        let Some(Node::File { content, size, .. }) = &change.after else { continue };
        let Some((mime, magic)) = type_of(change.place.as_path()).filter(|_| *size <= MOST_BYTES) else { continue };
        if found.len() == MOST_OF_A_RUN {
            break;
        }
        let Ok(id) = random::<16>() else { break };
        let artifact = Artifact {
            uri: format!("{SCHEME}{}", hex(&id)),
            name: change.place.as_path().to_string_lossy().into_owned(),
            mime,
            size: *size,
            run: run.clone(),
            content: *content,
        };
        let mut bytes = None;
        if pictures < MOST_PICTURES && *size <= MOST_INLINE as u64 {
            bytes = objects.bytes(*content, MOST_INLINE as u64).ok().flatten();
            bytes = bytes.filter(|bytes| is_picture(mime, magic, bytes));
            pictures += usize::from(bytes.is_some());
        }
        found.push((artifact, bytes));
    }
    found
}

/// Pictures of a sandbox that were asked for by name, read from inside.
pub(crate) async fn of_sandbox(call: &Call, sandbox: &Sandbox, paths: &[String]) -> Found {
    let mut told = Found::default();
    for path in paths {
        match picture_in(call, sandbox, path).await {
            Ok((mime, bytes)) => {
                told.listed.push(json!({ "path": path, "mimeType": mime, "size": bytes.len() }));
                told.content.push(ContentBlock::image(STANDARD.encode(bytes), mime));
            }
            Err(why) => told.notes.push(format!("artifact {path}: {why}")),
        }
    }
    told
}

async fn picture_in(call: &Call, sandbox: &Sandbox, path: &str) -> Result<(&'static str, Vec<u8>), String> {
    let (mime, magic) = type_of(Path::new(path)).ok_or("its name is not that of a picture")?;
    let bytes = inside_file(call, sandbox, path, MOST_INLINE).await.map_err(|problem| problem.said().text)?;
    if bytes.len() > MOST_INLINE {
        return Err(format!("it is larger than {MOST_INLINE} bytes"));
    }
    if is_picture(mime, magic, &bytes) { Ok((mime, bytes)) } else { Err("it is no picture".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_one_by_its_name_and_by_how_it_begins() {
        let check = |name: &str, bytes: &[u8]| {
            type_of(Path::new(name)).is_some_and(|(mime, magic)| is_picture(mime, magic, bytes))
        };
        assert!(check("a/plot.PNG", b"\x89PNG\r\n\x1a\nrest"));
        assert!(!check("plot.png", b"<script>"));
        assert!(!check("plot.svg", b"<svg>"), "a text that a client may execute comes as a link");
        assert!(!check("plot.txt", b"\x89PNG\r\n\x1a\n") && !check("png", b""));
    }
}
