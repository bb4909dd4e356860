//! Images as an OCI layout, which the native wall takes as `image: oci:DIR`.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bundle::{Bundle, digest};

/// Why there is no layout.
#[derive(Debug, thiserror::Error)]
pub enum LayoutWriteError {
    /// Something is there already.
    #[error("{0} is there already and is not empty")]
    Occupied(PathBuf),
    /// It could not be written.
    #[error("could not write {path}")]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LayoutWriteError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Occupied(_) => "name a new folder, or empty this one first",
            Self::Io { .. } => "name a folder that you may write to, on a disk with room for it",
        }
    }
}

/// Writes `bundles` to the new or empty folder `folder`, each under its name.
pub fn write_layout(folder: &Path, bundles: &[Bundle]) -> Result<(), LayoutWriteError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LayoutWriteError::Io { path, source }
    };
    let blobs = folder.join("blobs/sha256");
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(LayoutWriteError::Occupied(folder.to_owned()));
    }
    DirBuilder::new().recursive(true).create(&blobs).map_err(failed(&blobs))?;
    let mut manifests = Vec::new();
    for bundle in bundles {
        let mut layers = Vec::new();
        for layer in &bundle.layers {
            let path = blobs.join(layer.hex());
            let written = File::create(&path).and_then(|mut file| io::copy(&mut layer.open()?, &mut file));
            written.map_err(failed(&path))?;
            layers.push(descriptor("application/vnd.oci.image.layer.v1.tar", &layer.digest, layer.size));
        }
        let blob = |kind: &str, content: &[u8]| {
            let digest = digest(content);
            let path = blobs.join(digest.strip_prefix("sha256:").unwrap_or(&digest));
            fs::write(&path, content).map_err(failed(&path))?;
            Ok(descriptor(kind, &digest, content.len() as u64))
        };
        let configuration = blob("application/vnd.oci.image.config.v1+json", &bundle.configuration)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration,
            "layers": layers,
        });
        let mut manifest = blob(MANIFEST, manifest.to_string().as_bytes())?;
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert("annotations".to_owned(), json!({ "org.opencontainers.image.ref.name": bundle.name }));
        }
        manifests.push(manifest);
    }
    // The index comes last: without it nothing takes the folder for a layout.
    for (name, content) in [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        ("index.json", json!({ "schemaVersion": 2, "manifests": manifests })),
    ] {
        let path = folder.join(name);
        fs::write(&path, content.to_string()).map_err(failed(&path))?;
    }
    Ok(())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": digest, "size": size })
}
