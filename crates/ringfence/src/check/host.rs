//! What the host sees of an attack. Nothing here asks the attacking program.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::OFlags;

use super::CheckError;

/// Between two looks at the host's processes.
const LOOK_EVERY: Duration = Duration::from_millis(15);
/// Read of one file of `/proc`.
const MOST: u64 = 64 * 1024;
/// The permissions by which a file is executed as somebody else.
const SET_ID: u32 = 0o6000;

/// A text that nobody else has.
pub(super) fn secret() -> Result<String, CheckError> {
    let mut random = [0u8; 12];
    let mut filled = 0;
    while filled < random.len() {
        filled += rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| CheckError::io("get random bytes from the kernel")(errno.into()))?;
    }
    Ok(format!("canary-{}", random.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// A span of time that nobody else sleeps, so that the host can find who does.
#[derive(Debug, Clone)]
pub(super) struct Nap {
    /// In seconds, as `sleep` takes it.
    pub(super) span: String,
    wake: Wake,
}

/// Whether a sleeper is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// By its end, as soon as it was looked at: what follows need not wait.
    OnceSeen,
    Never,
}

impl Nap {
    /// Long enough for the host to look, and ended by it then.
    pub(super) fn until_seen() -> Result<Self, CheckError> {
        Ok(Self { span: unlike_others(3)?, wake: Wake::OnceSeen })
    }

    /// As long as the run lasts, and longer.
    pub(super) fn long() -> Result<Self, CheckError> {
        Ok(Self { span: unlike_others(20)?, wake: Wake::Never })
    }

    /// Living processes of the host that sleep for it.
    pub(super) fn sleepers(&self) -> Vec<u32> {
        let line = format!("sleep\0{}\0", self.span);
        fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| read(&format!("/proc/{pid}/cmdline")).is_some_and(|found| found == line))
            .collect()
    }

    /// Ends whoever sleeps for it.
    pub(super) fn end(&self) {
        for pid in self.sleepers() {
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                // It may end by itself meanwhile.
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
    }

    /// Looks for sleepers until it is dropped.
    pub(super) async fn watch(&self, seen: &mut Sightings) {
        loop {
            let found = self.sleepers();
            seen.most = seen.most.max(found.len());
            if let Some(look) = found.first().and_then(|pid| Look::at(*pid)) {
                seen.look = Some(look);
                if self.wake == Wake::OnceSeen {
                    self.end();
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn unlike_others(seconds: u32) -> Result<String, CheckError> {
    let digits: String = secret()?.bytes().filter(u8::is_ascii_digit).map(char::from).take(10).collect();
    Ok(format!("{seconds}.0{digits}1"))
}

/// A tree of files as it was when it was remembered.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    before: BTreeMap<PathBuf, blake3::Hash>,
}

impl Tree {
    pub(super) fn remember(root: PathBuf) -> Result<Self, CheckError> {
        let before = hash_tree(&root)?;
        Ok(Self { root, before })
    }

    /// What is different now, if anything is.
    pub(super) fn change(&self) -> Result<Option<String>, CheckError> {
        let now = hash_tree(&self.root)?;
        let name = |path: &Path| path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
        let changed = now.iter().find(|(path, hash)| self.before.get(*path) != Some(hash));
        let removed = self.before.keys().find(|path| !now.contains_key(*path));
        Ok(match (changed, removed) {
            (Some((path, _)), _) if self.before.contains_key(path) => Some(format!("`{}` was changed", name(path))),
            (Some((path, _)), _) => Some(format!("`{}` was made", name(path))),
            (None, Some(path)) => Some(format!("`{}` was removed", name(path))),
            (None, None) => None,
        })
    }
}

/// The first below `folder` that is no plain file, folder or link, or makes whoever executes it somebody else.
pub(super) fn odd_file(folder: &Path) -> Result<Option<String>, CheckError> {
    let failed = || format!("look at {}", folder.display());
    for entry in fs::read_dir(folder).map_err(CheckError::io(failed()))? {
        let entry = entry.map_err(CheckError::io(failed()))?;
        let metadata = entry.path().symlink_metadata().map_err(CheckError::io(failed()))?;
        let name = entry.file_name().display().to_string();
        if metadata.is_file() && metadata.permissions().mode() & SET_ID != 0 {
            return Ok(Some(format!("`{name}` makes whoever executes it somebody else")));
        }
        if !metadata.is_file() && !metadata.is_dir() && !metadata.is_symlink() {
            return Ok(Some(format!("`{name}` is a device or a pipe")));
        }
    }
    Ok(None)
}

fn hash_tree(path: &Path) -> Result<BTreeMap<PathBuf, blake3::Hash>, CheckError> {
    let failed = || format!("look at {}", path.display());
    let mut found = BTreeMap::new();
    let Ok(metadata) = path.symlink_metadata() else { return Ok(found) };
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(CheckError::io(failed()))? {
            found.extend(hash_tree(&entry.map_err(CheckError::io(failed()))?.path())?);
        }
        found.insert(path.to_owned(), blake3::hash(b"folder"));
    } else if metadata.is_file() {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&metadata.len().to_le_bytes());
        let mut start = Vec::new();
        // Where everybody may write, it may be a link or a pipe by now.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)
            .and_then(|file| file.take(MOST).read_to_end(&mut start))
            .map_err(CheckError::io(failed()))?;
        hasher.update(&start);
        found.insert(path.to_owned(), hasher.finalize());
    } else {
        found.insert(path.to_owned(), blake3::hash(b"neither file nor folder"));
    }
    Ok(found)
}

/// A service of the host. The kernel keeps who connected until we look.
#[derive(Debug)]
pub(super) enum Service {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Service {
    /// On the loopback, with its port.
    pub(super) fn tcp() -> Result<(Self, u16), CheckError> {
        let listen = || {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            listener.set_nonblocking(true)?;
            let port = listener.local_addr()?.port();
            Ok((Self::Tcp(listener), port))
        };
        listen().map_err(CheckError::io("listen on the loopback"))
    }

    /// On a socket with a name and no file.
    pub(super) fn abstract_socket(name: &str) -> Result<Self, CheckError> {
        SocketAddr::from_abstract_name(name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .and_then(Self::unix)
            .map_err(CheckError::io("listen on an abstract socket"))
    }

    /// On a socket that is a file, which everybody may connect to.
    pub(super) fn socket_file(folder: &Path, name: &str) -> Result<Self, CheckError> {
        let listen = || {
            // By the folder's descriptor: the length of a socket's path is limited.
            let folder = File::open(folder)?;
            let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            Self::unix(listener)
        };
        listen().map_err(CheckError::io(format!("listen in {}", folder.display())))
    }

    fn unix(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener))
    }

    /// Whether somebody connected since it was made.
    pub(super) fn was_reached(&self) -> bool {
        match self {
            Self::Tcp(listener) => listener.accept().is_ok(),
            Self::Unix(listener) => listener.accept().is_ok(),
        }
    }
}

/// A process of the host with a secret on its command line and in its environment. It ends when it is dropped, and when we
/// are killed: then its input ends.
#[derive(Debug)]
pub(super) struct Bystander {
    child: Child,
    pub(super) secret: String,
}

impl Bystander {
    pub(super) fn start() -> Result<Self, CheckError> {
        let secret = secret()?;
        let child = Command::new("sh")
            .args(["-c", "read line; :", &secret])
            .env_clear()
            .env(super::arena::VARIABLE, &secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(CheckError::io("start a process to aim at"))?;
        Ok(Self { child, secret })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether somebody ended it.
    pub(super) fn died(&mut self) -> Result<bool, CheckError> {
        let ended = self.child.try_wait().map_err(CheckError::io("look at the process that was aimed at"))?;
        Ok(ended.is_some())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It may be dead already, which is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A descriptor of ours that a careless application did not close, and that leads to a secret.
#[derive(Debug)]
pub(super) struct LeakedDescriptor {
    file: File,
    pub(super) secret: String,
}

impl LeakedDescriptor {
    /// Opens it, and reads the secret through its number as a program would that inherited it.
    pub(super) fn open() -> Result<Self, CheckError> {
        let secret = secret()?;
        let leak = || {
            let mut file = File::from(rustix::fs::memfd_create("canary", rustix::fs::MemfdFlags::empty())?);
            file.write_all(secret.as_bytes())?;
            file.seek(SeekFrom::Start(0))?;
            let flags = rustix::io::fcntl_getfd(&file)?;
            let read = fs::read_to_string(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
            if flags.contains(rustix::io::FdFlags::CLOEXEC) || read != secret {
                return Err(io::Error::other("the descriptor would not be inherited"));
            }
            Ok(file)
        };
        let file = leak().map_err(CheckError::io("leave a descriptor open"))?;
        Ok(Self { file, secret })
    }

    /// Writes through its number, as a program would that inherited it, and sees that it is seen. What was written is taken
    /// back.
    pub(super) fn writable() -> Result<Self, CheckError> {
        let leaked = Self::open()?;
        let write = || {
            fs::write(format!("/proc/self/fd/{}", leaked.number()), "written")?;
            let was_seen = leaked.content()? == "written";
            leaked.file.set_len(0)?;
            leaked.file.write_all_at(leaked.secret.as_bytes(), 0)?;
            if was_seen { Ok(()) } else { Err(io::Error::other("the descriptor could not be written")) }
        };
        write().map_err(CheckError::io("write to a descriptor that is left open"))?;
        Ok(leaked)
    }

    /// Whether somebody wrote to it.
    pub(super) fn was_written(&self) -> Result<bool, CheckError> {
        let content = self.content().map_err(CheckError::io("look at a descriptor that was left open"))?;
        Ok(content != self.secret)
    }

    fn content(&self) -> io::Result<String> {
        fs::read_to_string(format!("/proc/self/fd/{}", self.number()))
    }

    pub(super) fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// What the kernel says about a process that was seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    status: String,
    limits: String,
    /// The size of the file `fill` in the folder that the process is in.
    pub(super) filled: u64,
}

impl Look {
    fn at(pid: u32) -> Option<Self> {
        let place = |rest: &str| format!("/proc/{pid}/{rest}");
        Some(Self {
            status: read(&place("status"))?,
            limits: read(&place("limits"))?,
            filled: fs::symlink_metadata(place("cwd/fill")).map_or(0, |metadata| metadata.len()),
        })
    }

    /// A field of `/proc/PID/status`.
    pub(super) fn status(&self, name: &str) -> &str {
        field(&self.status, name)
    }

    /// The soft limit of that name.
    pub(super) fn limit(&self, name: &str) -> &str {
        let line = self.limits.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default()
    }
}

/// A field of our own `/proc/self/status`.
pub(super) fn own_status(name: &str) -> String {
    read("/proc/self/status").map_or_else(String::new, |text| field(&text, name).to_owned())
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map_or("", str::trim)
}

/// Who was seen to sleep for a span that nobody else sleeps.
#[derive(Debug, Clone, Default)]
pub(super) struct Sightings {
    /// At once, at most.
    pub(super) most: usize,
    /// At one of them.
    pub(super) look: Option<Look>,
}

fn read(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_a_file_that_makes_others_somebody_else_and_a_pipe_are_found_and_links_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.path().join("link")).unwrap();
        assert_eq!(odd_file(folder.path()).unwrap(), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(odd_file(folder.path()).unwrap().unwrap().starts_with("`file`"));
        fs::remove_file(&file).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
        assert!(odd_file(folder.path()).unwrap().unwrap().starts_with("`file`"));
    }

    #[test]
    fn s05_what_is_written_to_a_descriptor_that_was_left_open_is_seen() {
        let leaked = LeakedDescriptor::writable().unwrap();
        assert!(!leaked.was_written().unwrap(), "what we tried ourselves was taken back");
        fs::write(format!("/proc/self/fd/{}", leaked.number()), "forged").unwrap();
        assert!(leaked.was_written().unwrap());
    }
}
