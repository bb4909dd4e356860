//! What stands inside: an image that a container engine fetches, or a folder of this machine.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::diagnostic::{Invalid, quote};
use crate::path::{FORBIDDEN_PATH, LiteralPath, check_source};

const BAD_IMAGE: &str = "policy::bad-image";
const HOW: &str = "write a folder such as `./rootfs` or `oci:./image`, or a reference for a container engine such as `python:3.14-slim` or `ghcr.io/acme/tools@sha256:…`";
const MOST: usize = 512;

/// What `image` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    text: String,
    kind: ImageKind,
}

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageKind {
    /// A reference that a container engine fetches.
    Reference,
    /// A folder with a root in it, or with an OCI layout, which it says itself.
    Folder(LiteralPath),
    /// A folder with a root in it: `rootfs:PATH`.
    Rootfs(LiteralPath),
    /// A folder with an OCI layout, and the name of an image in it: `oci:PATH` or `oci:PATH:NAME`.
    Layout {
        /// The folder.
        path: LiteralPath,
        /// Which of its images, when it has several.
        name: Option<String>,
    },
    /// A folder with a Dockerfile, or a Dockerfile, that a container engine builds an image from.
    Build(LiteralPath),
}

impl Image {
    /// What a container engine builds from `path`, a folder with a Dockerfile or a Dockerfile.
    ///
    /// All that lies in the folder goes to the engine, so the host's own system and homes are as forbidden as for a root.
    pub fn build(path: &str) -> Result<Self, Invalid> {
        let folder = parse_folder(path).map_err(|problem| match problem.code {
            FORBIDDEN_PATH => Invalid { advice: "name the folder that holds the Dockerfile".to_owned(), ..problem },
            _ => problem,
        })?;
        Ok(Self { text: path.to_owned(), kind: ImageKind::Build(folder) })
    }

    /// As it was written; of an image that is built, the path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it means.
    pub fn kind(&self) -> &ImageKind {
        &self.kind
    }
}

impl FromStr for Image {
    type Err = Invalid;

    /// Never an option: it may stand on the command line of a container engine.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.starts_with('-') {
            let message = format!("the image {} starts with `-`, like an option", quote(text));
            return Err(Invalid::new(BAD_IMAGE, message, HOW));
        }
        let kind = if let Some(path) = text.strip_prefix("rootfs:") {
            ImageKind::Rootfs(parse_folder(path)?)
        } else if let Some(rest) = text.strip_prefix("oci:") {
            let (path, name) = match rest.split_once(':') {
                Some((path, name)) => (path, Some(parse_name(name)?)),
                None => (rest, None),
            };
            ImageKind::Layout { path: parse_folder(path)?, name }
        } else if text.starts_with(['/', '.', '~', '$']) {
            ImageKind::Folder(parse_folder(text)?)
        } else {
            parse_reference(text)?;
            ImageKind::Reference
        };
        Ok(Self { text: text.to_owned(), kind })
    }
}

fn parse_reference(text: &str) -> Result<(), Invalid> {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_well || text.len() > MOST || !text.bytes().all(is_word) || text.contains("..") || text.contains("//") {
        return Err(Invalid::new(BAD_IMAGE, format!("{} is not an image", quote(text)), HOW));
    }
    Ok(())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b'@')
}

/// The name of an image in a layout, such as `3.14` or `docker.io/library/python:3.14`.
fn parse_name(name: &str) -> Result<String, Invalid> {
    let fits = |byte: u8| is_word(byte) || byte == b'+';
    if name.len() > MOST || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.bytes().all(fits) {
        let message = format!("{} is not the name of an image in a layout", quote(name));
        return Err(Invalid::new(BAD_IMAGE, message, "write it such as `oci:./image:3.14`"));
    }
    Ok(name.to_owned())
}

fn parse_folder(text: &str) -> Result<LiteralPath, Invalid> {
    let path: LiteralPath = text.parse()?;
    check_root(path.as_path())?;
    Ok(path)
}

/// Whether the folder `path` may stand as the root inside a sandbox: not when it is a part of the host's own system, or
/// somebody's home.
///
/// The planner asks again with the resolved path: a link may lead to what its name does not say.
pub fn check_root(path: &Path) -> Result<(), Invalid> {
    check_source(path)?;
    let shown = quote(&path.to_string_lossy());
    let refuse = |what: &str| {
        let message = format!("{shown} {what}");
        Err(Invalid::new(FORBIDDEN_PATH, message, "name a folder that holds a whole system of its own"))
    };
    if !path.is_absolute() {
        return Ok(());
    }
    let depth = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
    if depth < 2 || path.starts_with("/etc") || path.starts_with("/boot") {
        return refuse("is a part of the host's own system");
    }
    if depth == 2 && path.starts_with("/home") {
        return refuse("is somebody's home");
    }
    Ok(())
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            // With a space, which no reference has: `build:1` is an image of that name.
            ImageKind::Build(path) => write!(f, "build {path}"),
            ImageKind::Reference | ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. } => {
                f.write_str(&self.text)
            }
        }
    }
}

impl Serialize for Image {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            ImageKind::Build(path) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("build", path)?;
                map.end()
            }
            ImageKind::Reference | ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. } => {
                serializer.serialize_str(&self.text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `reference`, `folder PATH`, `rootfs PATH`, `layout PATH NAME`, or `refused`.
    fn check(text: &str, expected: &str) {
        let found = match text.parse::<Image>().as_ref().map(Image::kind) {
            Ok(ImageKind::Reference) => "reference".to_owned(),
            Ok(ImageKind::Folder(path)) => format!("folder {path}"),
            Ok(ImageKind::Rootfs(path)) => format!("rootfs {path}"),
            Ok(ImageKind::Layout { path, name }) => format!("layout {path} {}", name.as_deref().unwrap_or("-")),
            Ok(ImageKind::Build(path)) => format!("build {path}"),
            Err(_) => "refused".to_owned(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn an_image_is_a_reference_or_a_folder() {
        check("python:3.14-slim", "reference");
        check("ghcr.io/acme/tools@sha256:0123", "reference");
        check("./rootfs", "folder ./rootfs");
        check("/srv/images/debian", "folder /srv/images/debian");
        check("rootfs:deep/er", "rootfs deep/er");
        check("oci:./image", "layout ./image -");
        check("oci:/srv/images/python:3.14", "layout /srv/images/python 3.14");
        check("oci:image:docker.io/library/python:3.14", "layout image docker.io/library/python:3.14");
    }

    #[test]
    fn s14_an_image_is_never_an_option_and_has_no_odd_characters() {
        for hostile in
            ["--privileged", "-v/:/host", "a b", "a\nb", "oci:a:--x", "oci:a:", "oci:", "rootfs:", "", "a//b"]
        {
            check(hostile, "refused");
        }
        for hostile in ["./a\u{1b}b", "rootfs:a\0b", "../up", "oci:a/../../b", "~/rootfs", "$HOME/x", "./a*"] {
            check(hostile, "refused");
        }
    }

    #[test]
    fn the_hosts_own_system_and_homes_are_no_roots() {
        for hostile in ["/", "/.", "/home", "/home/me", "/etc", "/etc/ssl", "/root", "/usr", "/var", "/proc/1/root"] {
            check(hostile, "refused");
            check(&format!("rootfs:{hostile}"), "refused");
            check(&format!("oci:{hostile}"), "refused");
        }
        for hostile in ["/run", "/var/lib/docker/overlay2/x", "/var/run/docker/x"] {
            check(hostile, "refused");
        }
        check("/home/me/rootfs", "folder /home/me/rootfs");
        check("/var/lib/machines/x", "folder /var/lib/machines/x");
    }

    #[test]
    fn no_engine_builds_from_the_hosts_own_system_or_a_home() {
        for hostile in
            ["/", "/etc", "/home/me", "/root", "/proc/1/root", "/run", "/var/lib/docker/x", "../up", "", "~/x"]
        {
            assert!(Image::build(hostile).is_err(), "{hostile}");
        }
        for fine in ["./docker", "docker/Dockerfile", ".", "/home/me/project", "/srv/build/Dockerfile"] {
            let image = Image::build(fine).unwrap();
            assert_eq!(image.kind(), &ImageKind::Build(fine.parse().unwrap()), "{fine}");
            assert_eq!((image.as_str(), image.to_string()), (fine, format!("build {fine}")));
        }
    }
}
