//! Images made by hand: archives with any member, honest or not, and layouts that hold them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Trouble;

const BLOCK: usize = 512;

/// A file of an archive.
pub fn file(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Vec<u8> {
    member(b'0', name, "", 0o644, content)
}

/// A file that can be executed.
pub fn program(name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Vec<u8> {
    member(b'0', name, "", 0o755, content)
}

/// A folder of an archive.
pub fn folder(name: impl AsRef<[u8]>) -> Vec<u8> {
    member(b'5', name, "", 0o755, "")
}

/// A symbolic link of an archive.
pub fn link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Vec<u8> {
    member(b'2', name, target, 0o777, "")
}

/// A hard link of an archive.
pub fn hard_link(name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Vec<u8> {
    member(b'1', name, target, 0o644, "")
}

/// Any member of an archive: names are written as they are, with an extension header when they are long.
pub fn member(
    kind: u8,
    name: impl AsRef<[u8]>,
    target: impl AsRef<[u8]>,
    mode: u32,
    content: impl AsRef<[u8]>,
) -> Vec<u8> {
    let (name, target, content) = (name.as_ref(), target.as_ref(), content.as_ref());
    let mut bytes = Vec::new();
    for (long, kind) in [(name, b'L'), (target, b'K')] {
        if long.len() > 100 {
            bytes.extend(raw(kind, b"././@LongLink", b"", 0o644, &[long, b"\0"].concat()));
        }
    }
    bytes.extend(raw(kind, name, target, mode, content));
    bytes
}

/// An extension header with properties for the member that follows.
pub fn properties(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        // The length counts itself.
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length += 1;
        }
        content.extend_from_slice(format!("{length} {key}=").as_bytes());
        content.extend_from_slice(value);
        content.push(b'\n');
    }
    raw(b'x', b"PaxHeaders/x", b"", 0o644, &content)
}

/// One header and its data, with names cut to what a header holds.
pub fn raw(kind: u8, name: &[u8], target: &[u8], mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    let old = header.as_old_mut();
    old.name.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
    old.linkname.iter_mut().zip(target).for_each(|(to, from)| *to = *from);
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_mode(mode);
    header.set_mtime(1_000_000_000);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// Members as a whole archive.
pub fn archive(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = members.concat();
    bytes.resize(bytes.len() + 2 * BLOCK, 0);
    bytes
}

/// How a layer is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

/// A layout that is being put together.
#[derive(Debug)]
pub struct LayoutFolder {
    folder: PathBuf,
    manifests: Vec<Value>,
}

impl LayoutFolder {
    /// An empty layout at `folder`.
    pub fn make(folder: impl Into<PathBuf>) -> Result<Self, Trouble> {
        let folder = folder.into();
        fs::create_dir_all(folder.join("blobs/sha256")).map_err(Trouble::io("make a layout"))?;
        let layout = Self { folder, manifests: Vec::new() };
        layout.write("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }))?;
        layout.write_index()?;
        Ok(layout)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Adds a blob; says how documents refer to it.
    pub fn blob(&self, media_type: &str, content: &[u8]) -> Result<Value, Trouble> {
        let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(self.folder.join("blobs/sha256").join(&hex), content).map_err(Trouble::io("write a blob"))?;
        Ok(json!({ "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": content.len() }))
    }

    /// Adds a layer.
    pub fn layer(&self, archive: &[u8], packing: Packing) -> Result<Value, Trouble> {
        let kind = "application/vnd.oci.image.layer.v1.tar";
        match packing {
            Packing::Plain => self.blob(kind, archive),
            Packing::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                let packed = encoder.write_all(archive).and_then(|()| encoder.finish());
                self.blob(&format!("{kind}+gzip"), &packed.map_err(Trouble::io("pack a layer"))?)
            }
            Packing::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                self.blob(&format!("{kind}+zstd"), &ruzstd::encoding::compress_to_vec(archive, level))
            }
        }
    }

    /// Adds an image of `layers` for this machine; says how an index refers to it.
    pub fn image(&self, layers: &[Value], env: &[&str]) -> Result<Value, Trouble> {
        self.image_for(architecture(), layers, env)
    }

    /// Likewise, for another.
    pub fn image_for(&self, architecture: &str, layers: &[Value], env: &[&str]) -> Result<Value, Trouble> {
        let configuration = json!({
            "os": "linux",
            "architecture": architecture,
            "config": { "Env": env },
            "rootfs": { "type": "layers", "diff_ids": [] },
        });
        let configuration =
            self.blob("application/vnd.oci.image.config.v1+json", configuration.to_string().as_bytes())?;
        let manifest = json!({ "schemaVersion": 2, "config": configuration, "layers": layers });
        self.blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes())
    }

    /// Puts an image or a further index into the index, under a name.
    pub fn add(&mut self, mut image: Value, name: Option<&str>) -> Result<(), Trouble> {
        if let (Some(name), Some(fields)) = (name, image.as_object_mut()) {
            fields.insert("annotations".to_owned(), json!({ "org.opencontainers.image.ref.name": name }));
        }
        self.manifests.push(image);
        self.write_index()
    }

    fn write_index(&self) -> Result<(), Trouble> {
        self.write("index.json", &json!({ "schemaVersion": 2, "manifests": &self.manifests }))
    }

    fn write(&self, name: &str, content: &Value) -> Result<(), Trouble> {
        fs::write(self.folder.join(name), content.to_string()).map_err(Trouble::io("write a layout"))
    }
}

/// This machine, in the words of images.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
