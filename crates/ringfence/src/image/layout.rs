//! An OCI image layout: finds the one image that is meant, for this machine.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::blob::{BlobError, BlobRef, Digest, read_document};
use super::compression::Compression;

const INDEX: &str = "index.json";
const MARK: &str = "oci-layout";
/// Indexes in indexes.
const MOST_NESTED: usize = 4;
/// Images that one index lists.
const MOST_MANIFESTS: usize = 1000;
const MOST_LAYERS: usize = 256;
/// The longest `PATH` that is taken from an image.
const MOST_SEARCH_PATH: usize = 4096;
/// Where an index says what an image is called.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Where it says that an entry is no image but a note about one.
const NOTE: &str = "vnd.docker.reference.type";

/// A folder with images in it.
#[derive(Debug)]
pub struct Layout {
    folder: OwnedFd,
}

/// The image that was meant.
#[derive(Debug, Clone)]
pub struct Chosen {
    digest: Digest,
    search_path: Option<String>,
    layers: Vec<(BlobRef, Compression)>,
}

impl Chosen {
    /// The digest of its manifest, which stands for all of it.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The folders of programs that its configuration names, with colons.
    pub fn search_path(&self) -> Option<&str> {
        self.search_path.as_deref()
    }

    pub(super) fn layers(&self) -> &[(BlobRef, Compression)] {
        &self.layers
    }
}

/// Why a folder gives no image.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// It could not be opened.
    #[error("could not open the folder")]
    Open(#[source] io::Error),
    /// A file of it is not fit.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A document that cannot be read.
    #[error("{path} of the image cannot be read")]
    Document {
        /// Which, relative to the layout.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A newer format.
    #[error("it is a layout of version `{0}`; 1.0.0 is known")]
    Version(String),
    /// A name that nothing has.
    #[error("it has no image that is called `{name}`; it has {known}")]
    NoSuchName {
        /// The one that was asked for.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// Several images, and nothing says which.
    #[error("it has several images, so its name must be given, as in `oci:PATH:NAME`; it has {0}")]
    Several(String),
    /// None for this machine.
    #[error("it has no image for linux/{wanted}{}", .found.as_deref().map(|it| format!(", but for {it}")).unwrap_or_default())]
    Platform {
        /// The machine's.
        wanted: &'static str,
        /// What it is for.
        found: Option<String>,
    },
    /// More of something than any honest image has.
    #[error("it has more {0} than are permitted")]
    TooMany(&'static str),
    /// A layer in a format that is not known, or something that is no image.
    #[error("`{0}` is not a kind of document or layer that is known")]
    MediaType(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutMark {
    image_layout_version: String,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: Option<String>,
    digest: Digest,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    #[serde(flatten)]
    platform: Platform,
    config: Option<Process>,
}

#[derive(Debug, Deserialize)]
struct Process {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
}

impl Descriptor {
    fn blob(&self) -> BlobRef {
        BlobRef { digest: self.digest.clone(), size: self.size }
    }

    fn name(&self) -> Option<&str> {
        self.annotations.get(NAME).map(String::as_str)
    }

    fn is_index(&self) -> bool {
        self.media_type.as_deref().is_some_and(|kind| {
            kind == "application/vnd.oci.image.index.v1+json"
                || kind == "application/vnd.docker.distribution.manifest.list.v2+json"
        })
    }
}

/// This machine, in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Layout {
    /// Whether a folder says that it is one.
    pub fn is_one(folder: &Path) -> bool {
        folder.join(MARK).symlink_metadata().is_ok()
    }

    /// Opens a folder, and checks that it is a layout.
    pub fn open(folder: &Path) -> Result<Self, LayoutError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| LayoutError::Open(errno.into()))?;
        let mark: LayoutMark = parse(&read_document(folder.as_fd(), Path::new(MARK))?, Path::new(MARK))?;
        if mark.image_layout_version != "1.0.0" {
            return Err(LayoutError::Version(mark.image_layout_version.chars().take(32).collect()));
        }
        Ok(Self { folder })
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The image called `name`, or the only one.
    pub fn choose(&self, name: Option<&str>) -> Result<Chosen, LayoutError> {
        let content = read_document(self.folder(), Path::new(INDEX))?;
        let index: Index = parse(&content, Path::new(INDEX))?;
        let manifests = images(index)?;
        let names: Vec<&str> = manifests.iter().filter_map(Descriptor::name).take(20).collect();
        let known = if names.is_empty() { "none with a name".to_owned() } else { names.join(", ") };
        let named: Vec<Descriptor> = match name {
            Some(wanted) => manifests.iter().filter(|it| it.name() == Some(wanted)).cloned().collect(),
            None => manifests.clone(),
        };
        if let (true, Some(name)) = (named.is_empty(), name) {
            return Err(LayoutError::NoSuchName { name: name.to_owned(), known });
        }
        let mut found = for_this_machine(named, &known)?;
        for _ in 0..MOST_NESTED {
            if !found.is_index() {
                return self.read_manifest(&found);
            }
            let index: Index = self.read(&found.blob())?;
            found = for_this_machine(images(index)?, "several for this machine")?;
        }
        Err(LayoutError::TooMany("indexes in indexes"))
    }

    fn read_manifest(&self, found: &Descriptor) -> Result<Chosen, LayoutError> {
        match found.media_type.as_deref() {
            None
            | Some("application/vnd.oci.image.manifest.v1+json")
            | Some("application/vnd.docker.distribution.manifest.v2+json") => {}
            Some(other) => return Err(LayoutError::MediaType(cut(other))),
        }
        let manifest: Manifest = self.read(&found.blob())?;
        if manifest.layers.len() > MOST_LAYERS {
            return Err(LayoutError::TooMany("layers"));
        }
        let configuration: Configuration = self.read(&manifest.config.blob())?;
        check_platform(&configuration.platform)?;
        let layers = manifest
            .layers
            .iter()
            .map(|layer| Ok((layer.blob(), compression(layer.media_type.as_deref().unwrap_or_default())?)))
            .collect::<Result<_, LayoutError>>()?;
        let env = configuration.config.and_then(|process| process.env).unwrap_or_default();
        let search_path = env.iter().find_map(|variable| variable.strip_prefix("PATH=")).and_then(absolute_entries);
        Ok(Chosen { digest: found.digest.clone(), search_path, layers })
    }

    fn read<T: DeserializeOwned>(&self, blob: &BlobRef) -> Result<T, LayoutError> {
        parse(&blob.read(self.folder())?, &blob.path())
    }
}

fn parse<T: DeserializeOwned>(content: &[u8], path: &Path) -> Result<T, LayoutError> {
    serde_json::from_slice(content).map_err(|source| LayoutError::Document { path: path.to_owned(), source })
}

/// The images of an index, without notes about them.
fn images(index: Index) -> Result<Vec<Descriptor>, LayoutError> {
    if index.manifests.len() > MOST_MANIFESTS {
        return Err(LayoutError::TooMany("images"));
    }
    Ok(index.manifests.into_iter().filter(|it| !it.annotations.contains_key(NOTE)).collect())
}

/// The one that is meant for this machine; one that does not say what it is for may be.
fn for_this_machine(manifests: Vec<Descriptor>, known: &str) -> Result<Descriptor, LayoutError> {
    let fits = |it: &&Descriptor| it.platform.as_ref().is_none_or(|platform| check_platform(platform).is_ok());
    let mut fitting = manifests.iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(found), None) => Ok(found.clone()),
        // Several names for the same.
        (Some(found), Some(other)) if manifests.iter().filter(fits).all(|it| it.digest == other.digest) => {
            Ok(found.clone())
        }
        (Some(_), Some(_)) => Err(LayoutError::Several(known.to_owned())),
        (None, _) => {
            let found = manifests.iter().find_map(|it| it.platform.as_ref()).map(show_platform);
            Err(LayoutError::Platform { wanted: architecture(), found })
        }
    }
}

fn check_platform(platform: &Platform) -> Result<(), LayoutError> {
    let said = |value: &str, expected: &str| value.is_empty() || value == expected;
    if said(&platform.os, "linux") && said(&platform.architecture, architecture()) {
        return Ok(());
    }
    Err(LayoutError::Platform { wanted: architecture(), found: Some(show_platform(platform)) })
}

fn show_platform(platform: &Platform) -> String {
    cut(&format!("{}/{}", platform.os, platform.architecture))
}

/// What an image says of itself, short and harmless in a message.
fn cut(text: &str) -> String {
    text.escape_debug().take(128).collect()
}

fn compression(media_type: &str) -> Result<Compression, LayoutError> {
    let packed = media_type
        .strip_prefix("application/vnd.oci.image.layer.v1.tar")
        .or_else(|| media_type.strip_prefix("application/vnd.oci.image.layer.nondistributable.v1.tar"))
        .or_else(|| media_type.strip_prefix("application/vnd.docker.image.rootfs.diff.tar"));
    match packed {
        Some("") => Ok(Compression::Plain),
        Some("+gzip" | ".gzip") => Ok(Compression::Gzip),
        Some("+zstd" | ".zstd") => Ok(Compression::Zstd),
        Some(_) | None => Err(LayoutError::MediaType(cut(media_type))),
    }
}

/// A relative entry would let a file of the workspace stand in for a program.
fn absolute_entries(path: &str) -> Option<String> {
    let entries: Vec<&str> = path.split(':').filter(|entry| entry.starts_with('/')).collect();
    let path = entries.join(":");
    (!path.is_empty() && path.len() <= MOST_SEARCH_PATH && !path.contains('\0')).then_some(path)
}
