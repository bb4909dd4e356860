//! What of the host a program may open: a system to work with, the workspace without what is denied, its own folders.
//!
//! Landlock lets everything below a folder be reached, and can take nothing away again. A folder with something denied in
//! it is therefore not let in as a whole: its other entries are, one by one. What is made in such a folder later stays
//! closed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_linux::fence::{Reach, Rules};
use ringfence_linux::wall::LandlockError;
use ringfence_policy::WorkspaceMode;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::super::native::{LiveFolder, deny, toolchain};
use super::{StartError, overlap, refuse};
use crate::plan::Plan;
use crate::state::StateFolder;

/// Folders of the system; on most hosts all but the first are links into it.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs need of `/etc`, everybody may read, and holds no secret.
const FROM_ETC: [&str; 27] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "debian_version",
    "fonts",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];
/// Settings of interpreters, by the beginning of their names.
const FROM_ETC_BY_START: [&str; 3] = ["python", "perl", "java-"];
/// About the machine, not about a process. A process's own folder cannot be told from another's before it is there, so all
/// of them stay closed, the program's own included.
const FROM_PROC: [&str; 10] = [
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "stat",
    "sys/kernel/osrelease",
    "sys/kernel/pid_max",
    "sys/vm/overcommit_memory",
    "uptime",
    "version",
];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// A folder with more entries beside a denied one is not let in one by one.
const MOST_RULES: usize = 20_000;

/// The rules of one run: `code` may be read, `writable` be written. With the workspace, when it is the host's own.
pub(super) fn rules(
    plan: &Plan,
    state_folder: &StateFolder,
    code: &Path,
    writable: &[PathBuf],
) -> Result<(Rules, Option<LiveFolder>), StartError> {
    let mut list = List { rules: Rules::new().map_err(failed)?, count: 0 };
    let state = real(state_folder)?;
    for folder in system(plan) {
        let real = match folder.canonicalize() {
            Ok(real) => real,
            Err(error) if is_absent(&error) => continue,
            Err(error) => return Err(refuse(format!("could not look at {}: {error}", folder.display()))),
        };
        // Landlock could not take them out again.
        for (what, path) in [("the workspace", plan.workspace()), ("the folder of the ledger", &state)] {
            if path.starts_with(&real) {
                let (path, real) = (path.display(), real.display());
                return Err(refuse(format!(
                    "{what}, {path}, lies in {real}, which is shown as a whole: choose another"
                )));
            }
        }
        list.allow_if_there(&real, Reach::Read)?;
    }
    for name in FROM_PROC {
        list.allow_if_there(&Path::new("/proc").join(name), Reach::Read)?;
    }
    for name in DEVICES {
        list.allow_if_there(&Path::new("/dev").join(name), Reach::Device)?;
    }
    list.allow(&open(code)?, Reach::Read)?;
    for folder in writable {
        list.allow(&open(folder)?, Reach::Write)?;
    }
    let live = match plan.policy().fs.mode.value {
        WorkspaceMode::ReadOnly | WorkspaceMode::Direct => Some(workspace(plan, state_folder, &mut list)?),
        // The program has one of its own.
        WorkspaceMode::Ephemeral | WorkspaceMode::Review => None,
    };
    Ok((list.rules, live))
}

/// What the system and the toolchains on `PATH` consist of.
fn system(plan: &Plan) -> Vec<PathBuf> {
    let etc = Path::new("/etc");
    let mut folders: Vec<PathBuf> = SYSTEM.map(PathBuf::from).to_vec();
    folders.extend(FROM_ETC.map(|name| etc.join(name)));
    // What is not readable is not needed.
    let named = fs::read_dir(etc).into_iter().flatten().flatten().map(|entry| entry.path());
    let starts = |path: &Path| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| FROM_ETC_BY_START.iter().any(|start| name.starts_with(start)))
    };
    folders.extend(named.filter(|path| starts(path)));
    let path = plan.env().iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone()).unwrap_or_default();
    folders.extend(toolchain::paths(&path, plan.workspace()));
    folders
}

/// Where the state folder really is.
fn real(state: &StateFolder) -> Result<PathBuf, StartError> {
    state.path().canonicalize().map_err(|error| refuse(format!("could not find the state folder: {error}")))
}

/// The state folder, relative to a workspace that it lies in.
pub(in crate::backend) fn state_below(workspace: &Path, state: &StateFolder) -> Result<Option<PathBuf>, StartError> {
    match real(state)?.strip_prefix(workspace) {
        Ok(below) if below.as_os_str().is_empty() => {
            let why = "the workspace is the folder that holds the ledger: name another with --workspace";
            Err(refuse(why.to_owned()))
        }
        Ok(below) => Ok(Some(below.to_owned())),
        Err(_) => Ok(None),
    }
}

fn workspace(plan: &Plan, state: &StateFolder, list: &mut List) -> Result<LiveFolder, StartError> {
    let root = plan.workspace();
    let mut denied: BTreeSet<PathBuf> = deny::find(root, &plan.policy().fs.deny, None)?.into_iter().collect();
    // The ledger is outside, also when it lies below the workspace.
    denied.extend(state_below(root, state)?);
    let opened = open(root)?;
    if denied.is_empty() {
        list.allow(&opened, Reach::Read)?;
        return Ok(LiveFolder::as_it_is(root, opened, denied));
    }
    // Its names may be listed; without that hardly a program finds anything.
    list.allow(&opened, Reach::Names)?;
    let mut left = vec![PathBuf::new()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root.join(&folder)).map_err(|source| unreadable(root, &folder, source))? {
            let entry = entry.map_err(|source| unreadable(root, &folder, source))?;
            let path = folder.join(entry.file_name());
            if denied.contains(&path) {
                continue;
            }
            if denied.iter().any(|denied| overlap(denied, &path)) {
                left.push(path);
                continue;
            }
            // A rule on a link would be one on what it leads to.
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            match beneath(opened.as_fd(), &path) {
                Ok(file) => list.allow(&file, Reach::Read)?,
                // Removed or exchanged meanwhile: it stays closed.
                Err(error)
                    if is_absent(&error) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {}
                Err(source) => return Err(unreadable(root, &path, source)),
            }
        }
    }
    Ok(LiveFolder::as_it_is(root, opened, denied))
}

struct List {
    rules: Rules,
    count: usize,
}

impl List {
    fn allow(&mut self, file: &OwnedFd, reach: Reach) -> Result<(), StartError> {
        self.count += 1;
        if self.count > MOST_RULES {
            let why =
                format!("more than {MOST_RULES} files lie beside denied ones: name a smaller folder with --workspace");
            return Err(refuse(why));
        }
        self.rules.allow(file.as_fd(), reach).map_err(failed)
    }

    fn allow_if_there(&mut self, path: &Path, reach: Reach) -> Result<(), StartError> {
        match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => self.allow(&file, reach),
            Err(errno) if is_absent(&errno.into()) => Ok(()),
            Err(errno) => Err(refuse(format!("could not open {}: {errno}", path.display()))),
        }
    }
}

pub(in crate::backend) fn open(path: &Path) -> Result<OwnedFd, StartError> {
    rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| StartError::WorkingDirectory { path: path.to_owned(), source: errno.into() })
}

/// Opens what lies at `path` below `root`, through no link.
fn beneath(root: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)?)
}

/// Not there, or closed to the user as well: nothing to show.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory)
}

fn failed(error: LandlockError) -> StartError {
    refuse(format!("could not make Landlock rules: {error}"))
}

fn unreadable(root: &Path, path: &Path, source: io::Error) -> StartError {
    StartError::WorkingDirectory { path: root.join(path), source }
}
