//! A machine of a Debian release: made once from packages, started in qemu without help from the host's processor.
//!
//! The program comes as a disk of its own, what the machine is to do in its boot parameters' script, and what it says leaves by a
//! second serial line, on which nothing else writes. It has no network.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Screen, capture};
use crate::tools::{Packages, debian_packages};
use crate::workspace::Workspace;

/// What makes a machine and starts it.
const PACKAGES: Packages =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs")];
/// What is on it: a system as people have it, with sessions and a bus for users, and what attacks are written in.
const CONTENTS: &str = "linux-image-amd64,initramfs-tools,systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd,apparmor,\
    python3,procps,iproute2";
/// Runs when the machine is up.
const UNIT: &str = include_str!("job.service");
/// What the unit starts: what the machine is for, and its end.
const JOB: &str = include_str!("job.sh");
/// Of the machine's disk.
const DISK: &str = "3G";
/// After so long a machine is ended from outside: without help of the processor everything takes ten times as long.
const SECONDS: &str = "1200";

/// A machine that can be started.
#[derive(Debug)]
pub(super) struct Machine {
    folder: PathBuf,
}

impl Machine {
    /// The machine of a Debian release; made when an earlier command did not.
    pub(super) fn of(suite: &str, workspace: &Workspace, screen: &Screen) -> Result<Self, Failure> {
        debian_packages(workspace, screen, PACKAGES)?;
        let parent = workspace.target.join("kernels");
        let failed = |attempt: String| move |error: std::io::Error| Failure::io(attempt, &error);
        fs::create_dir_all(&parent).map_err(failed(format!("make `{}`", parent.display())))?;
        let folder = parent.join(format!("{suite}-{:016x}", fingerprint(suite)));
        if folder.is_dir() {
            return Ok(Self { folder });
        }
        // Under its own name only when it is whole.
        let unfinished = parent.join(format!("{suite}.unfinished"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(failed(format!("remove `{}`", unfinished.display())))?;
        }
        let root = unfinished.join("root");
        fs::create_dir_all(&root).map_err(failed(format!("make `{}`", root.display())))?;
        for (name, text) in [("job.service", UNIT), ("job.sh", JOB)] {
            fs::write(unfinished.join(name), text).map_err(failed(format!("write {name}")))?;
        }
        capture(screen, recipe(suite, &unfinished, workspace))?.required()?;
        for (prefix, kept) in [("vmlinuz-", "kernel"), ("initrd.img-", "initrd")] {
            let boot = root.join("boot");
            let found = first_with(&boot, prefix)
                .ok_or_else(|| Failure::new(format!("`{suite}` came without a file {prefix}* in /boot")))?;
            fs::rename(&found, unfinished.join(kept)).map_err(failed(format!("keep `{}`", found.display())))?;
        }
        let mut disk = workspace.command("mke2fs");
        disk.args(["-q", "-t", "ext4", "-d"]).arg(&root).arg(unfinished.join("disk")).arg(DISK);
        capture(screen, disk)?.required()?;
        fs::remove_dir_all(&root).map_err(failed(format!("remove `{}`", root.display())))?;
        fs::rename(&unfinished, &folder).map_err(failed(format!("keep `{}`", folder.display())))?;
        Ok(Self { folder })
    }

    /// Starts it with `program`, has it run the lines of `script`, and returns what those said. The machine's own disk stays
    /// as it is.
    pub(super) fn run(
        &self,
        program: &Path,
        script: &str,
        workspace: &Workspace,
        screen: &Screen,
    ) -> Result<String, Failure> {
        let failed = |attempt: &str| {
            let attempt = attempt.to_owned();
            move |error: std::io::Error| Failure::io(attempt, &error)
        };
        // Script and program on one disk, one after the other: the machine is told how long each is. A disk has whole sectors.
        let (disk, said) = (self.folder.join("job"), self.folder.join("said"));
        let mut bytes = script.as_bytes().to_vec();
        bytes.extend(fs::read(program).map_err(failed("read the program"))?);
        let sizes = format!("ringfence.script={} ringfence.program={}", script.len(), bytes.len() - script.len());
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        fs::write(&disk, bytes).map_err(failed("write the machine's second disk"))?;
        File::create(&said).map_err(failed("make the file for what the machine says"))?;
        let mut command = workspace.command("timeout");
        command.args([SECONDS, "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-smp", "2", "-m", "2560", "-display", "none", "-no-reboot", "-nic", "none", "-serial", "stdio"]);
        command.arg("-serial").arg(format!("file:{}", said.display()));
        command.arg("-kernel").arg(self.folder.join("kernel")).arg("-initrd").arg(self.folder.join("initrd"));
        command.arg("-append").arg(format!("root=/dev/vda rw console=ttyS0 quiet {sizes}"));
        for (file, more) in [(self.folder.join("disk"), "snapshot=on"), (disk, "readonly=on")] {
            command.arg("-drive").arg(format!("file={},format=raw,if=virtio,{more}", file.display()));
        }
        let console = capture(screen, command)?.required()?;
        let text = fs::read(&said).map_err(failed("read what the machine said"))?;
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        if text.trim_end().ends_with(super::END) {
            return Ok(text);
        }
        Err(Failure { what: "the machine did not come to the end of its script".to_owned(), output: console + &text })
    }
}

/// How a machine's root folder is filled.
fn recipe(suite: &str, folder: &Path, workspace: &Workspace) -> Command {
    let mut command = workspace.command("mmdebstrap");
    command.args(["--variant=minbase", "--format=directory", "--dpkgopt=force-unsafe-io"]);
    command.arg(format!("--include={CONTENTS}"));
    // A mirror may lag behind. What it has is signed all the same, and nobody depends on such a machine.
    command.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    for path in ["doc", "man", "locale"] {
        command.arg(format!("--dpkgopt=path-exclude=/usr/share/{path}/*"));
    }
    let shown = folder.display();
    for hook in [
        format!("cp '{shown}/job.service' \"$1/etc/systemd/system/\" && cp '{shown}/job.sh' \"$1/srv/\""),
        "chroot \"$1\" systemctl enable job.service".to_owned(),
        "chroot \"$1\" useradd -m -s /bin/bash person".to_owned(),
        // So that the ordinary user has a systemd of its own without sitting at a terminal.
        "mkdir -p \"$1/var/lib/systemd/linger\" && touch \"$1/var/lib/systemd/linger/person\"".to_owned(),
    ] {
        command.arg(format!("--customize-hook={hook}"));
    }
    command.arg(suite).arg(folder.join("root"));
    command
}

fn fingerprint(suite: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (CONTENTS, UNIT, JOB, DISK, suite).hash(&mut hasher);
    hasher.finish()
}

fn first_with(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    found.sort();
    found.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_release_is_another_machine() {
        assert_ne!(fingerprint("bookworm"), fingerprint("trixie"));
        assert_eq!(fingerprint("bookworm"), fingerprint("bookworm"));
    }
}
