//! Proof from inside: the program's own process, restricted as the program will be, looks and tries before it executes.
//!
//! Each proof reads what the kernel says or does the forbidden thing and sees it fail. One that fails stops the start.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;

use super::Identity;
use crate::kernel_file;
use crate::privileges::{self, Status};

/// A longer file of `/proc` is not believed to be one.
const MOST_TEXT: u64 = 1024 * 1024;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// What it proves; a stable name.
    pub name: String,
    /// What was found.
    pub found: String,
}

/// Something was not as it must be.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unproven {
    /// A forbidden act succeeded, or the kernel says otherwise.
    #[error("{name} does not hold: {found}")]
    Broken {
        /// What was to be proven.
        name: &'static str,
        /// What was found instead.
        found: String,
    },
    /// It could not be looked at.
    #[error("could not look at {name}")]
    Unreadable {
        /// What was to be proven.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// What the caller expects to find.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) identity: Identity,
    pub(super) shown: usize,
    pub(super) landlock: i32,
}

/// Proves everything, in a fixed order.
pub(super) fn prove(expected: &Expected) -> Result<Vec<Proof>, Unproven> {
    let mut proofs = Vec::new();
    let mut add = |name: &'static str, found: Result<String, Unproven>| -> Result<(), Unproven> {
        proofs.push(Proof { name: name.to_owned(), found: found? });
        Ok(())
    };
    let status = privileges::read_status().map_err(|source| Unproven::Unreadable { name: "priv.none", source })?;
    add("priv.none", no_privileges(&status, expected.identity))?;
    add("priv.no-new", no_new_privileges(&status))?;
    add("kernel.filter", filtered(&status))?;
    add("proc.hidden", few_processes())?;
    add("net.none", no_network())?;
    add("fs.confined", confined(expected))?;
    add("fd.clean", clean_descriptors())?;
    Ok(proofs)
}

fn no_privileges(status: &Status, identity: Identity) -> Result<String, Unproven> {
    let name = "priv.none";
    let sets = status.cap_eff | status.cap_prm | status.cap_inh | status.cap_amb | status.cap_bnd;
    let uid = rustix::process::getuid().as_raw();
    let map = read(name, "/proc/self/uid_map")?;
    let map: Vec<&str> = map.split_whitespace().collect();
    if sets != 0 {
        return Err(Unproven::Broken { name, found: format!("capabilities {sets:x}") });
    }
    if uid != identity.uid || map.len() != 3 || map.get(2) != Some(&"1") || uid == 0 {
        return Err(Unproven::Broken { name, found: format!("uid {uid}, map {map:?}") });
    }
    let groups =
        rustix::process::getgroups().map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?.len();
    Ok(format!("uid {uid}, one id mapped, no capability in any set, {groups} further groups of the host"))
}

fn no_new_privileges(status: &Status) -> Result<String, Unproven> {
    let name = "priv.no-new";
    if status.no_new_privs {
        Ok("NoNewPrivs 1".to_owned())
    } else {
        Err(Unproven::Broken { name, found: "NoNewPrivs 0".to_owned() })
    }
}

fn filtered(status: &Status) -> Result<String, Unproven> {
    let name = "kernel.filter";
    if status.seccomp != 2 {
        return Err(Unproven::Broken { name, found: format!("Seccomp {}", status.seccomp) });
    }
    // SAFETY: takes one integer. If it succeeded we would be in a new user namespace, which the error says.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    let error = io::Error::last_os_error();
    if unshared == 0 || error.raw_os_error() != Some(libc::EPERM) {
        return Err(Unproven::Broken { name, found: "a user namespace could be made".to_owned() });
    }
    Ok("Seccomp 2, unshare refused".to_owned())
}

fn few_processes() -> Result<String, Unproven> {
    let name = "proc.hidden";
    let entries = fs::read_dir("/proc").map_err(|source| Unproven::Unreadable { name, source })?;
    let processes = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())))
        .count();
    // The guest and ourselves.
    if processes == 2 {
        Ok("2 processes".to_owned())
    } else {
        Err(Unproven::Broken { name, found: format!("{processes} processes") })
    }
}

fn no_network() -> Result<String, Unproven> {
    let name = "net.none";
    let devices = read(name, "/proc/self/net/dev")?;
    let interfaces: Vec<&str> =
        devices.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    if interfaces != ["lo"] {
        return Err(Unproven::Broken { name, found: format!("interfaces {interfaces:?}") });
    }
    // An address for documentation: nobody has it, and with any route at all this would succeed without a packet.
    let reached = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.connect(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9)));
    match reached {
        Err(error) if error.raw_os_error() == Some(libc::ENETUNREACH) => Ok("only lo, no route".to_owned()),
        Err(error) => Err(Unproven::Broken { name, found: format!("unexpected: {error}") }),
        Ok(()) => Err(Unproven::Broken { name, found: "there is a route".to_owned() }),
    }
}

fn confined(expected: &Expected) -> Result<String, Unproven> {
    let name = "fs.confined";
    for path in ["/etc/shadow", "/sys", "/boot", "/.quota", "/.masked"] {
        if Path::new(path).symlink_metadata().is_ok() {
            return Err(Unproven::Broken { name, found: format!("{path} is there") });
        }
    }
    let mounts = read(name, "/proc/self/mountinfo")?;
    if mounts.lines().any(|line| line.contains(" shared:") || line.contains(" master:")) {
        return Err(Unproven::Broken { name, found: "a mount is tied to the host's".to_owned() });
    }
    for path in ["/.probe", "/usr/.probe", "/dev/.probe"] {
        match fs::File::create(path) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES)) => {}
            Err(error) => return Err(Unproven::Unreadable { name, source: error }),
            Ok(_) => return Err(Unproven::Broken { name, found: format!("{path} could be made") }),
        }
    }
    Ok(format!("{} paths shown, root and system read-only, Landlock {}", expected.shown, expected.landlock))
}

fn clean_descriptors() -> Result<String, Unproven> {
    let name = "fd.clean";
    let mut open = 0;
    for entry in fs::read_dir("/proc/self/fd").map_err(|source| Unproven::Unreadable { name, source })?.flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if fd > 2 {
            // SAFETY: integers only. One that was closed meanwhile, as the one that lists, gives an error.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                return Err(Unproven::Broken { name, found: format!("descriptor {fd} would stay open") });
            }
        } else {
            open += 1;
        }
    }
    Ok(format!("{open} descriptors stay open"))
}

/// Reads a file of `/proc`.
fn read(name: &'static str, path: &str) -> Result<String, Unproven> {
    fs::File::open(path)
        .and_then(|file| kernel_file::read_open(file, MOST_TEXT))
        .map_err(|source| Unproven::Unreadable { name, source })
}
