//! The engine's own view, asked past our program; and a socket between our program and the engine that is slow or cut.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_testkit::backends::Wall;

/// Where the engine listens.
pub(crate) fn socket(wall: &Wall) -> PathBuf {
    let (host, _) = wall.engine.as_ref().unwrap();
    host.strip_prefix("unix://").unwrap_or_else(|| panic!("{host} is no socket of this machine")).into()
}

/// The engine's answer to one request, whole.
fn ask(socket: &Path, method: &str, target: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{method} {target} HTTP/1.0\r\nHost: engine\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// All containers, running or not, as the engine's JSON.
pub(crate) fn containers(wall: &Wall) -> String {
    ask(&socket(wall), "GET", "/v1.40/containers/json?all=1")
}

/// Whether the engine has a volume with a workspace in it.
pub(crate) fn has_workspaces(wall: &Wall) -> bool {
    ask(&socket(wall), "GET", "/v1.40/volumes").contains("ringfence-workspace-")
}

/// The ids of the containers whose description mentions `text`.
pub(crate) fn containers_with(wall: &Wall, text: &str) -> Vec<String> {
    let answer = containers(wall);
    let (Some(begin), Some(end)) = (answer.find('['), answer.rfind(']')) else { return Vec::new() };
    let list: serde_json::Value = serde_json::from_str(&answer[begin..=end]).unwrap_or_default();
    let all = list.as_array().cloned().unwrap_or_default();
    let ours = all.iter().filter(|one| one.to_string().contains(text));
    ours.filter_map(|one| one["Id"].as_str().map(str::to_owned)).collect()
}

/// Removes a container by force, as somebody else would.
pub(crate) fn remove(wall: &Wall, id: &str) {
    ask(&socket(wall), "DELETE", &format!("/v1.40/containers/{id}?force=1"));
}

/// Ends all that runs in a container, as somebody else would.
pub(crate) fn kill(wall: &Wall, id: &str) {
    ask(&socket(wall), "POST", &format!("/v1.40/containers/{id}/kill"));
}

/// What the engine says about a container.
pub(crate) fn inspect(wall: &Wall, id: &str) -> serde_json::Value {
    let answer = ask(&socket(wall), "GET", &format!("/v1.40/containers/{id}/json"));
    let (Some(begin), Some(end)) = (answer.find('{'), answer.rfind('}')) else { return serde_json::Value::Null };
    serde_json::from_str(&answer[begin..=end]).unwrap_or_default()
}

/// A socket that leads to the engine's, with a delay for each piece, until it is cut.
#[derive(Debug)]
pub(crate) struct Between {
    path: PathBuf,
    cut: Arc<AtomicBool>,
}

impl Between {
    pub(crate) fn start(wall: &Wall, path: PathBuf, delay: Duration) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let target = socket(wall);
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if is_cut.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(far) = UnixStream::connect(&target) else { continue };
                for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    let is_cut = Arc::clone(&is_cut);
                    std::thread::spawn(move || carry(from, to, delay, &is_cut));
                }
            }
        });
        Self { path, cut }
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.path.display())
    }

    /// Nothing goes through from now on, and who asks is sent away.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        // Wakes the one that waits for somebody.
        UnixStream::connect(&self.path).ok();
        std::fs::remove_file(&self.path).ok();
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream, delay: Duration, is_cut: &AtomicBool) {
    from.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut piece = [0u8; 16 * 1024];
    while !is_cut.load(Ordering::Relaxed) {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                std::thread::sleep(delay);
                if to.write_all(&piece[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let how = if is_cut.load(Ordering::Relaxed) { std::net::Shutdown::Both } else { std::net::Shutdown::Write };
    // The other side may be gone already.
    to.shutdown(how).ok();
}
