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
    send(socket, method, target, "")
}

/// Likewise, with a body in JSON.
fn send(socket: &Path, method: &str, target: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("{method} {target} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\n");
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
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
    json_in(&ask(&socket(wall), "GET", &format!("/v1.40/containers/{id}/json")))
}

fn json_in(answer: &str) -> serde_json::Value {
    let (Some(begin), Some(end)) = (answer.find('{'), answer.rfind('}')) else { return serde_json::Value::Null };
    serde_json::from_str(&answer[begin..=end]).unwrap_or_default()
}

/// Makes an image like the one of the tests, with a name and other instructions in it; not the same one twice.
pub(crate) fn make_image(wall: &Wall, (repository, tag): (&str, &str), changes: &[String]) {
    let (_, base) = wall.engine.as_ref().unwrap();
    let body = format!(r#"{{"Image":"{base}","Cmd":["true"]}}"#);
    let made = json_in(&send(&socket(wall), "POST", "/v1.40/containers/create", &body));
    let container = made["Id"].as_str().unwrap_or_else(|| panic!("{wall}: {made}"));
    let coded = |change: &String| change.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let changes: String = changes.iter().map(|change| format!("&changes={}", coded(change))).collect();
    let target = format!("/v1.40/commit?container={container}&repo={repository}&tag={tag}{changes}");
    let made = json_in(&send(&socket(wall), "POST", &target, "{}"));
    assert!(made["Id"].is_string(), "{wall}: {made}");
    remove(wall, container);
}

/// Gives an image another name.
pub(crate) fn name_image(wall: &Wall, image: &str, (repository, tag): (&str, &str)) {
    ask(&socket(wall), "POST", &format!("/v1.40/images/{image}/tag?repo={repository}&tag={tag}"));
}

/// Whether the engine knows an image by this name.
pub(crate) fn has_image(wall: &Wall, name: &str) -> bool {
    json_in(&ask(&socket(wall), "GET", &format!("/v1.40/images/{name}/json")))["Id"].is_string()
}

/// Takes a name away, and the image with its last one.
pub(crate) fn remove_image(wall: &Wall, name: &str) {
    ask(&socket(wall), "DELETE", &format!("/v1.40/images/{name}?force=true"));
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
