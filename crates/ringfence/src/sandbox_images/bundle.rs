//! An image that was put together on this machine: its layers, its configuration, and both as engines read them.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::SEARCH_PATH;
use super::plan::{labels, time};
use super::recipe::Recipe;
use crate::scratch::Scratch;

const BLOCK: u64 = 512;

/// One layer: an archive, not packed.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) content: Content,
    /// `sha256:` and digits.
    pub(super) digest: String,
    pub(super) size: u64,
}

#[derive(Debug)]
pub(super) enum Content {
    File(PathBuf),
    Memory(Vec<u8>),
}

impl Layer {
    pub(super) fn in_memory(content: Vec<u8>) -> Self {
        Self { digest: digest(&content), size: content.len() as u64, content: Content::Memory(content) }
    }

    pub(super) fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(match &self.content {
            Content::File(path) => Box::new(File::open(path)?),
            Content::Memory(bytes) => Box::new(Cursor::new(bytes.clone())),
        })
    }

    /// Its file's name in archives and layouts.
    pub(super) fn hex(&self) -> &str {
        self.digest.strip_prefix("sha256:").unwrap_or(&self.digest)
    }
}

/// An image that was put together and lies in a folder of ours until this is dropped.
#[derive(Debug)]
pub struct Bundle {
    pub(super) name: String,
    pub(super) tags: Vec<String>,
    pub(super) layers: Vec<Layer>,
    pub(super) configuration: Vec<u8>,
    /// Removed with it.
    _scratch: Option<Scratch>,
}

impl Bundle {
    /// The image of `recipe` on `root`.
    pub(super) fn new(recipe: &Recipe, built_at: u64, root: Layer, scratch: Option<Scratch>) -> io::Result<Self> {
        let mut layers = vec![root];
        if !recipe.files().is_empty() {
            layers.push(Layer::in_memory(files_of(recipe, built_at)?));
        }
        let configuration = configuration(recipe, built_at, &layers);
        Ok(Self {
            name: recipe.name().to_owned(),
            tags: vec![recipe.reference(), format!("{}:latest", recipe.repository())],
            layers,
            configuration,
            _scratch: scratch,
        })
    }

    /// The bytes of all layers.
    pub fn size(&self) -> u64 {
        self.layers.iter().map(|layer| layer.size).sum()
    }

    /// The digests of its layers.
    pub fn layers(&self) -> Vec<String> {
        self.layers.iter().map(|layer| layer.digest.clone()).collect()
    }

    /// The digest of its configuration, by which most engines call it.
    pub fn id(&self) -> String {
        digest(&self.configuration)
    }

    /// The one archive that `load` of an engine takes.
    pub(super) fn archive(&self) -> io::Result<Box<dyn Read + Send>> {
        let id = self.id();
        let configuration = format!("{}.json", id.strip_prefix("sha256:").unwrap_or(&id));
        let names: Vec<String> = self.layers.iter().map(|layer| format!("{}.tar", layer.hex())).collect();
        let manifest = json!([{ "Config": configuration, "RepoTags": self.tags, "Layers": names }]).to_string();
        let mut all: Box<dyn Read + Send> = Box::new(io::empty());
        for (layer, name) in self.layers.iter().zip(&names) {
            all = Box::new(all.chain(member(name, layer.size, layer.open()?)?));
        }
        for (name, content) in
            [(configuration.as_str(), self.configuration.clone()), ("manifest.json", manifest.into())]
        {
            all = Box::new(all.chain(member(name, content.len() as u64, Box::new(Cursor::new(content)))?));
        }
        Ok(Box::new(all.chain(io::repeat(0).take(2 * BLOCK))))
    }
}

/// `sha256:` and digits.
pub(super) fn digest(content: &[u8]) -> String {
    show(Sha256::digest(content).as_slice())
}

pub(super) fn show(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// What stands before a member of an archive: root's, and the same for the same.
pub(super) fn header(mode: u32, size: u64, time: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_size(size);
    header
}

fn member(name: &str, size: u64, content: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let mut header = header(0o644, size, 0);
    header.set_path(name)?;
    header.set_cksum();
    let padding = size.next_multiple_of(BLOCK) - size;
    // A file that shrank meanwhile ends the archive too soon, and the engine refuses it; one that grew is cut.
    let content = content.take(size).chain(io::repeat(0).take(padding));
    Ok(Box::new(Cursor::new(header.as_bytes().to_vec()).chain(content)))
}

/// The further files as a layer.
fn files_of(recipe: &Recipe, built_at: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for file in recipe.files() {
        let mut header = header(file.mode, file.content.len() as u64, built_at);
        let path = Path::new(&file.to).strip_prefix("/").unwrap_or(Path::new(&file.to));
        archive.append_data(&mut header, path, file.content.as_bytes())?;
    }
    archive.into_inner()
}

fn configuration(recipe: &Recipe, built_at: u64, layers: &[Layer]) -> Vec<u8> {
    let labels: serde_json::Map<_, _> = labels(recipe.name(), recipe.hash(), built_at)
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    let history = layers.iter().map(|_| json!({ "created": time(built_at), "created_by": "ringfence image build" }));
    let configuration = json!({
        "architecture": architecture(),
        "os": "linux",
        "created": time(built_at),
        "config": { "Env": [SEARCH_PATH], "Cmd": ["bash"], "Labels": labels },
        "rootfs": { "type": "layers", "diff_ids": layers.iter().map(|layer| &layer.digest).collect::<Vec<_>>() },
        "history": history.collect::<Vec<_>>(),
    });
    configuration.to_string().into_bytes()
}

/// This machine, in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
