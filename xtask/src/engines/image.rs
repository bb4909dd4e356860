//! The image that engine tests run in: a small Debian from packages, made once and kept in the target folder.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use crate::step::{Failure, Screen, capture};
use crate::workspace::Workspace;

/// What the engines know it as.
pub(crate) const NAME: &str = "ringfence-test/base:1";

/// What the probes use beyond the essential packages: modules of Python that the minimal one lacks, and bash for `/dev/tcp`, and clients
/// that bring their own ways to trust somebody.
const RECIPE: &[&str] = &[
    "--variant=essential",
    "--include=python3,bash,curl,git",
    "--format=tar",
    "--aptopt=Acquire::Languages \"none\"",
    // Nothing of it must survive a power cut.
    "--dpkgopt=force-unsafe-io",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    // As in images of ours and of others: what the host wrote there is about itself.
    r#"--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname""#,
];

/// The archive with the image's files; made when it is not there yet.
pub(super) fn archive(workspace: &Workspace, screen: &Screen) -> Result<PathBuf, Failure> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = codename(&release)
        .ok_or_else(|| Failure::new("/etc/os-release names no Debian release to make an image of"))?
        .to_owned();
    let folder = workspace.target.join("engines");
    fs::create_dir_all(&folder).map_err(|error| Failure::io(format!("make `{}`", folder.display()), &error))?;
    let archive = folder.join(format!("base-{:016x}.tar", fingerprint(&suite)));
    if archive.is_file() {
        return Ok(archive);
    }
    // Under its own name only when it is whole.
    let unfinished = folder.join(format!("base-{}.unfinished", std::process::id()));
    let mut command = workspace.command("mmdebstrap");
    command.args(RECIPE).arg(&suite).arg(&unfinished);
    let made = capture(screen, command)?.required().and_then(|_| {
        fs::rename(&unfinished, &archive)
            .map_err(|error| Failure::io(format!("keep the image as `{}`", archive.display()), &error))
    });
    if made.is_err() {
        // What failed may have left nothing.
        drop(fs::remove_file(&unfinished));
    }
    made.map(|()| archive)
}

fn fingerprint(suite: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (RECIPE, suite).hash(&mut hasher);
    hasher.finish()
}

fn codename(os_release: &str) -> Option<&str> {
    let value = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"'))
        .filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_and_an_odd_one_is_none() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"trixie\"\n"), Some("trixie"));
        for odd in ["", "ID=alpine\n", "VERSION_CODENAME=\n", "VERSION_CODENAME=--x\n"] {
            assert_eq!(codename(odd), None, "{odd}");
        }
    }

    #[test]
    fn another_release_is_another_image() {
        assert_ne!(fingerprint("bookworm"), fingerprint("trixie"));
        assert_eq!(fingerprint("bookworm"), fingerprint("bookworm"));
    }
}
