//! Things on the host whose change shows that a probe got through. They ask the kernel and the disk, never the probe.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Trouble;

/// Between two looks at something that moves.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A text that nobody else has.
pub fn secret() -> Result<String, Trouble> {
    let mut random = [0u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(Trouble::io("read random bytes"))?;
    Ok(format!("canary-{}", random.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// A tree of files, each with the hash of its content, as it was when the canary was set.
#[derive(Debug)]
pub struct FileCanary {
    root: PathBuf,
    before: BTreeMap<PathBuf, blake3::Hash>,
}

impl FileCanary {
    /// Remembers everything at or below `root`, which may be missing.
    pub fn set(root: impl Into<PathBuf>) -> Result<Self, Trouble> {
        let root = root.into();
        let before = hash_tree(&root)?;
        Ok(Self { root, before })
    }

    /// What is different now, if anything is.
    pub fn change(&self) -> Result<Option<String>, Trouble> {
        let now = hash_tree(&self.root)?;
        let changed = now.iter().find(|(path, hash)| self.before.get(*path) != Some(hash));
        let removed = self.before.keys().find(|path| !now.contains_key(*path));
        Ok(match (changed, removed) {
            (Some((path, _)), _) if self.before.contains_key(path) => Some(format!("{} was changed", path.display())),
            (Some((path, _)), _) => Some(format!("{} was made", path.display())),
            (None, Some(path)) => Some(format!("{} was removed", path.display())),
            (None, None) => None,
        })
    }
}

fn hash_tree(path: &Path) -> Result<BTreeMap<PathBuf, blake3::Hash>, Trouble> {
    let failed = || format!("look at {}", path.display());
    let mut found = BTreeMap::new();
    let Ok(metadata) = path.symlink_metadata() else { return Ok(found) };
    if metadata.is_dir() {
        for entry in fs::read_dir(path).map_err(Trouble::io(failed()))? {
            found.extend(hash_tree(&entry.map_err(Trouble::io(failed()))?.path())?);
        }
        found.insert(path.to_owned(), blake3::hash(b"folder"));
    } else if metadata.is_file() {
        found.insert(path.to_owned(), blake3::hash(&fs::read(path).map_err(Trouble::io(failed()))?));
    } else {
        found.insert(path.to_owned(), blake3::hash(b"neither file nor folder"));
    }
    Ok(found)
}

/// A listener on the loopback of the host that counts who knocks.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    hits: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens on a free port.
    pub fn start() -> Result<Self, Trouble> {
        let failed = || "listen on the loopback";
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Trouble::io(failed()))?;
        listener.set_nonblocking(true).map_err(Trouble::io(failed()))?;
        let address = listener.local_addr().map_err(Trouble::io(failed()))?;
        let (hits, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (Arc::clone(&hits), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok(_) => {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => thread::sleep(LOOK_EVERY),
                }
            }
        });
        Ok(Self { address, hits, stop, thread: Some(thread) })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections were made. Waits a moment for one that is on its way.
    pub fn hits(&self) -> usize {
        thread::sleep(LOOK_EVERY * 5);
        self.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has stopped counting too.
            thread.join().ok();
        }
    }
}

/// A process of the host, outside every sandbox, with a secret on its command line.
#[derive(Debug)]
pub struct ProcessCanary {
    child: Child,
    secret: String,
}

impl ProcessCanary {
    /// Starts it.
    pub fn start() -> Result<Self, Trouble> {
        let secret = secret()?;
        let child = Command::new("sleep")
            .arg0(&secret)
            .arg("300")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Trouble::io("start a process to watch"))?;
        Ok(Self { child, secret })
    }

    /// Its number on the host.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What only those can know who saw its command line.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// Whether somebody ended it. Waits a moment for a death that is on its way.
    pub fn died(&self) -> bool {
        until(LOOK_EVERY * 20, || !is_alive(self.pid()))
    }
}

impl Drop for ProcessCanary {
    fn drop(&mut self) {
        // It may be dead already, which is as good.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A process that must not outlive its run writes into this file again and again. It stops by itself when the canary is
/// dropped, and after half a minute.
#[derive(Debug)]
pub struct Heartbeat {
    folder: PathBuf,
}

impl Heartbeat {
    /// A loop for a shell that beats in its working directory.
    pub const LOOP: &'static str =
        ": > go; n=0; while [ $n -lt 300 ] && [ -e go ]; do n=$((n+1)); echo $n > beat || exit; sleep 0.1; done";

    /// Watches the file `beat` in `folder`.
    pub fn watch(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Waits for the first beat; says whether it came.
    pub fn has_begun(&self, limit: Duration) -> bool {
        until(limit, || fs::metadata(self.folder.join("beat")).is_ok_and(|metadata| metadata.len() > 0))
    }

    /// Whether it still beats.
    pub fn goes_on(&self) -> bool {
        let beat = || fs::read(self.folder.join("beat")).unwrap_or_default();
        // One beat may be under way when the run ends.
        thread::sleep(Duration::from_millis(150));
        let first = beat();
        until(Duration::from_millis(700), || beat() != first)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // What goes on has seen it before its folder is removed; a file that it makes meanwhile would be left behind.
        if fs::remove_file(self.folder.join("go")).is_ok() {
            thread::sleep(Duration::from_millis(300));
        }
    }
}

/// A descriptor of this process that a careless application did not close, and that leads to a secret.
#[derive(Debug)]
pub struct LeakedDescriptor {
    file: File,
    secret: String,
}

impl LeakedDescriptor {
    /// Opens it. The file has no name: only the descriptor leads to it.
    pub fn open() -> Result<Self, Trouble> {
        let failed = || "leak a descriptor";
        let secret = secret()?;
        let mut file = tempfile::tempfile().map_err(Trouble::io(failed()))?;
        file.write_all(secret.as_bytes()).map_err(Trouble::io(failed()))?;
        file.seek(SeekFrom::Start(0)).map_err(Trouble::io(failed()))?;
        let copy = rustix::io::dup(&file).map_err(Trouble::io(failed()))?;
        rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).map_err(Trouble::io(failed()))?;
        Ok(Self { file: File::from(copy), secret })
    }

    /// Its number.
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// What can be read through it.
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

/// What the kernel says about a process while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// `/proc/PID/status`, by its names.
    pub status: BTreeMap<String, String>,
    /// `/proc/PID/limits`.
    pub limits: String,
    /// User and system time so far, in clock ticks.
    pub cpu_ticks: u64,
}

/// Looks, from the host, at the process whose command line holds a mark, until it is dropped or asked.
#[derive(Debug)]
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<Seen>>>,
}

impl Witness {
    /// Begins to look.
    pub fn start(mark: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut last = None;
            while !stopped.load(Ordering::Relaxed) {
                if let Some(seen) = find_marked(&mark).and_then(look) {
                    last = Some(seen);
                }
                thread::sleep(LOOK_EVERY);
            }
            last
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends the looking; what was seen last, if the process was seen at all.
    pub fn finish(mut self) -> Option<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).flatten()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The newest process with `mark` among its arguments that is none of ours: a wrapper comes before what it wraps.
fn find_marked(mark: &str) -> Option<u32> {
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
        })
        .collect();
    found.sort_unstable();
    found.pop()
}

/// Whether a process with `mark` among its arguments lives, in whatever namespace.
pub fn is_marked_alive(mark: &str) -> bool {
    find_marked(mark).is_some_and(is_alive)
}

fn look(pid: u32) -> Option<Seen> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Fields 14 and 15 of the whole line: user and system time.
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
    Some(Seen {
        status: status
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
        limits,
        cpu_ticks: ticks(11)? + ticks(12)?,
    })
}

/// Whether a process of the host lives; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X'])))
}

/// Waits until `done`, at most `limit`; says whether it came true.
pub fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_canary_sees_changed_new_and_removed_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        let canary = FileCanary::set(folder.path()).unwrap();
        assert_eq!(canary.change().unwrap(), None);
        fs::write(folder.path().join("a"), "2").unwrap();
        assert!(canary.change().unwrap().unwrap().ends_with("a was changed"));
        fs::write(folder.path().join("a"), "1").unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        assert!(canary.change().unwrap().unwrap().ends_with("b was made"));
        fs::remove_file(folder.path().join("b")).unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        assert!(canary.change().unwrap().unwrap().ends_with("a was removed"));
    }

    #[test]
    fn a_listener_counts_and_a_process_dies_with_its_canary() {
        let listener = Listener::start().unwrap();
        assert_eq!(listener.hits(), 0);
        std::net::TcpStream::connect(("127.0.0.1", listener.port())).unwrap();
        assert_eq!(listener.hits(), 1);
        let process = ProcessCanary::start().unwrap();
        let pid = process.pid();
        assert!(is_alive(pid) && !process.died());
        drop(process);
        assert!(!is_alive(pid));
    }

    #[test]
    fn a_witness_sees_a_process_by_its_mark() {
        let mark = secret().unwrap();
        let witness = Witness::start(mark.clone());
        let status = Command::new("sh").args(["-c", "sleep 2; :", &mark]).status().unwrap();
        assert!(status.success());
        assert!(witness.finish().unwrap().status.contains_key("NoNewPrivs"));
        assert_eq!(Witness::start("nobody has this".to_owned()).finish(), None);
    }
}
