//! Which file systems are mounted here, as far as it matters who is waited for.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A longer list is not read.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Kinds that answer from this machine's own disks and memory. Everything else may be a server that does not answer, or a program that
/// never does.
const LOCAL: [&str; 20] = [
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "ntfs3", "overlay",
    "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// The places where something is mounted, each with whether that is local.
#[derive(Debug)]
pub(super) struct Mounts(Vec<(PathBuf, bool)>);

impl Mounts {
    /// Where the list cannot be read nothing is local.
    pub(super) fn read() -> Self {
        let read = || -> io::Result<Vec<u8>> {
            let mut list = Vec::new();
            File::open("/proc/self/mountinfo")?.take(MOST_BYTES).read_to_end(&mut list)?;
            Ok(list)
        };
        match read() {
            Ok(list) if (list.len() as u64) < MOST_BYTES => Self::parse(&list),
            Ok(_) | Err(_) => Self(Vec::new()),
        }
    }

    fn parse(list: &[u8]) -> Self {
        let lines = list.split(|byte| *byte == b'\n');
        Self(
            lines
                .filter_map(|line| {
                    let mut fields = line.split(|byte| *byte == b' ');
                    let point = fields.nth(4)?;
                    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
                    let is_local = LOCAL.iter().any(|local| local.as_bytes() == kind);
                    Some((PathBuf::from(OsString::from_vec(unescaped(point))), is_local))
                })
                .collect(),
        )
    }

    /// Whether all that is mounted on the way from `from` to `path`, which lies below it, is local.
    pub(super) fn are_local(&self, from: &Path, path: &Path) -> bool {
        let mut on_the_way =
            self.0.iter().filter(|(point, _)| path.starts_with(point) && !from.starts_with(point)).peekable();
        on_the_way.peek().is_some() && on_the_way.all(|(_, is_local)| *is_local)
    }
}

/// The kernel writes white space and backslashes as three digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let byte = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        plain.push(byte.unwrap_or(*first));
        rest = match byte {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        30 22 0:30 / /home rw,nosuid shared:5 - btrfs /dev/vdb rw\n\
        31 22 0:31 / /mnt/far rw - nfs4 server:/x rw\n\
        32 30 0:32 / /home/me/with\\040space rw - fuse.sshfs me@x:/ rw\n\
        33 22 0:33 / /auto rw - autofs systemd-1 rw\n";

    #[test]
    fn a_server_or_a_program_on_the_way_is_not_waited_for() {
        let mounts = Mounts::parse(LIST);
        for (from, path, is_local) in [
            ("/", "/home/me/x", true),
            ("/", "/mnt/far", false),
            ("/", "/mnt/far/x/y", false),
            ("/", "/home/me/with space/x", false),
            ("/home/me", "/home/me/with space/x", false),
            ("/", "/auto/x", false),
            // The folder that the request is about is entered wherever it lies; nothing is mounted further down.
            ("/mnt/far/project", "/mnt/far/project/x", false),
        ] {
            assert_eq!(mounts.are_local(Path::new(from), Path::new(path)), is_local, "{from} {path}");
        }
        assert!(!Mounts::parse(b"").are_local(Path::new("/"), Path::new("/home")), "what is not known is not local");
    }
}
