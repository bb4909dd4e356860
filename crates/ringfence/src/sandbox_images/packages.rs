//! Puts a root together from Debian packages, by `mmdebstrap` on this machine.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use sha2::{Digest as _, Sha256};

use super::bundle::{Bundle, Content, Layer, show};
use super::plan::{PackagesPlan, Privileges, Wish, from_packages};
use super::recipe::Recipe;
use super::{Listener, Progress, cut};
use crate::run_id::{NoRandomness, RunId};
use crate::scratch::{Scratch, ScratchError};
use crate::state::StateFolder;

const PROGRAM: &str = "mmdebstrap";
/// No image of ours is near it.
const MOST_ROOT: u64 = 16 << 30;
/// Lines of `mmdebstrap` that are told when it fails.
const LAST_LINES: usize = 8;
/// The longest line that is read whole.
const MOST_READ: u64 = 64 * 1024;
const PIECE: usize = 256 * 1024;

/// Why there is no root.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// The tool is missing.
    #[error("mmdebstrap is not installed, and it puts images together from Debian packages")]
    NotInstalled,
    /// It could not be started or watched.
    #[error("could not run mmdebstrap")]
    Run(#[source] io::Error),
    /// It failed.
    #[error("mmdebstrap failed ({status}):\n{last}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The last that it said.
        last: String,
        /// Who ran it.
        privileges: Privileges,
    },
    /// It wrote too much.
    #[error("mmdebstrap wrote more than {MOST_ROOT} bytes")]
    TooLarge,
    /// There was no place for it.
    #[error("could not write the root")]
    Write(#[source] io::Error),
    /// There was no place for it.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// There was no name for the place.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
}

impl PackagesError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotInstalled => {
                "install the package `mmdebstrap` (and `uidmap`, unless you are root), or build from a registry's base with \
                 `--from registry`"
            }
            Self::Failed { privileges: Privileges::User, .. } => {
                "an ordinary user needs the package `uidmap` and a line in /etc/subuid and /etc/subgid; if packages could \
                 not be fetched, name where they are with --mirror; or build from a registry's base with `--from registry`"
            }
            Self::Failed { privileges: Privileges::Root, .. } => {
                "if packages could not be fetched, name where they are with --mirror, or build from a registry's base \
                 with `--from registry`; if the release is unknown, upgrade `mmdebstrap` and `debian-archive-keyring`"
            }
            Self::TooLarge => "look whether --mirror names a mirror of Debian",
            Self::Run(_) | Self::Write(_) | Self::Scratch(_) => {
                "make room in the state folder, or set RINGFENCE_STATE_DIR to a folder on a larger disk"
            }
            Self::Randomness(_) => "try again",
        }
    }
}

/// Puts the image of `recipe` together. Takes a minute or more, and blocks.
pub fn make_bundle(
    state: &StateFolder,
    recipe: &Recipe,
    wish: &Wish,
    listener: &Listener,
) -> Result<Bundle, PackagesError> {
    let privileges = Privileges::ours();
    let plan = from_packages(recipe, wish, privileges);
    let scratch = Scratch::create(state, &RunId::generate()?)?;
    let path = scratch.path().join("root.tar");
    listener(Progress::Step(format!("putting {} together from Debian packages", recipe.name())));
    let root = make_root(&plan, privileges, &path, listener)?;
    Bundle::new(recipe, wish.built_at, root, Some(scratch)).map_err(PackagesError::Write)
}

/// A process that does not outlive us by an early return.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Only when we gave up: otherwise it was waited for, and both say so by an error.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn make_root(
    plan: &PackagesPlan,
    privileges: Privileges,
    path: &Path,
    listener: &Listener,
) -> Result<Layer, PackagesError> {
    let mut command = Command::new(PROGRAM);
    command.args(&plan.arguments).envs(plan.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => PackagesError::NotInstalled,
        _ => PackagesError::Run(error),
    })?;
    let mut running = Running(child);
    let (Some(stdout), Some(stderr)) = (running.0.stdout.take(), running.0.stderr.take()) else {
        return Err(PackagesError::Run(io::ErrorKind::BrokenPipe.into()));
    };
    let lines = follow(stderr, listener.clone()).map_err(PackagesError::Run)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(PackagesError::Write)?;
    let (digest, size) = keep(stdout, file)?;
    let status = running.0.wait().map_err(PackagesError::Run)?;
    let last = lines.join().unwrap_or_default();
    if !status.success() || size == 0 {
        return Err(PackagesError::Failed { status, last: Vec::from(last).join("\n"), privileges });
    }
    Ok(Layer { content: Content::File(path.to_owned()), digest, size })
}

/// Tells what the tool says, and keeps the last of it.
fn follow(stderr: ChildStderr, listener: Listener) -> io::Result<JoinHandle<VecDeque<String>>> {
    std::thread::Builder::new().name("mmdebstrap".to_owned()).spawn(move || {
        let mut last = VecDeque::new();
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        while matches!(reader.by_ref().take(MOST_READ).read_until(b'\n', &mut line), Ok(1..)) {
            let text = cut(&String::from_utf8_lossy(&line));
            line.clear();
            if text.is_empty() {
                continue;
            }
            listener(Progress::Detail(text.strip_prefix("I: ").unwrap_or(&text).to_owned()));
            if last.len() == LAST_LINES {
                last.pop_front();
            }
            last.push_back(text);
        }
        last
    })
}

/// Writes the archive down and says what its hash and size are.
fn keep(mut from: impl Read, mut to: File) -> Result<(String, u64), PackagesError> {
    let mut hasher = Sha256::new();
    let mut size = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok((show(hasher.finalize().as_slice()), size)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(PackagesError::Run(error)),
        };
        size += read as u64;
        if size > MOST_ROOT {
            return Err(PackagesError::TooLarge);
        }
        hasher.update(&piece[..read]);
        to.write_all(&piece[..read]).map_err(PackagesError::Write)?;
    }
}
