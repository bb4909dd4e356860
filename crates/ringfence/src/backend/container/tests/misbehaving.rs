use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::backend::Unavailable;

use super::super::engine::{ContainerId, CreateError, Engine};
use super::super::failure::EngineFailure;
use super::super::image::{Pull, ResolveError, resolve};
use super::super::made::remove;
use super::super::spec::tests::spec;
use super::at;

const LIMIT: Duration = Duration::from_secs(2);
const GREETING: &[u8] = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK";
const VERSION: &str = r#"{"Version":"28.0.0","ApiVersion":"1.41","Components":[{"Name":"runc","Version":"1.1.5"}]}"#;

/// What a false engine does with a request: the bytes that it answers, and whether it then keeps the connection.
type Answer = dyn Fn(&str) -> Reply + Send + Sync;

pub(super) enum Reply {
    Bytes(Vec<u8>),
    /// So much later.
    After(Duration, Vec<u8>),
    Endless,
    Nothing,
}

pub(super) struct FalseEngine {
    _folder: TempDir,
    path: PathBuf,
}

fn listen(answer: Arc<Answer>) -> FalseEngine {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, answer.clone()));
        }
    });
    FalseEngine { _folder: folder, path }
}

async fn serve(mut stream: UnixStream, answer: Arc<Answer>) {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut piece).await {
            Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    // What is sent meanwhile is taken to its end: an engine answers after that.
    let is_sent_in_pieces =
        String::from_utf8_lossy(&request).to_ascii_lowercase().contains("transfer-encoding: chunked");
    while is_sent_in_pieces && !request.ends_with(b"0\r\n\r\n") {
        match stream.read(&mut piece).await {
            Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let first = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    match answer(&first) {
        Reply::Bytes(bytes) => {
            // A client that has heard enough closes.
            stream.write_all(&bytes).await.ok();
        }
        Reply::After(pause, bytes) => {
            tokio::time::sleep(pause).await;
            stream.write_all(&bytes).await.ok();
        }
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.ok();
            let chunk = [&b"10000\r\n"[..], &vec![b' '; 65536], b"\r\n"].concat();
            while stream.write_all(&chunk).await.is_ok() {}
        }
        Reply::Nothing => tokio::time::sleep(Duration::from_secs(600)).await,
    }
}

pub(super) fn http(status: u16, body: &str) -> Reply {
    Reply::Bytes(written(status, body))
}

pub(super) fn written(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn refused(answer: Arc<Answer>) -> Unavailable {
    let engine = listen(answer);
    let begun = Instant::now();
    let refused = Engine::connect(&at(&engine.path), LIMIT).await.unwrap_err();
    assert!(begun.elapsed() < LIMIT + Duration::from_secs(1), "{refused:?} took {:?}", begun.elapsed());
    assert!(!refused.fix.is_empty());
    assert!(refused.reason.len() < 1000 && !refused.reason.contains(char::is_control), "{refused:?}");
    refused
}

/// An engine that says what it is, and does `more` with everything else.
pub(super) async fn connected(more: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (FalseEngine, Engine) {
    let answer = move |first: &str| {
        if first.starts_with("GET /_ping ") { Reply::Bytes(GREETING.to_vec()) } else { more(first) }
    };
    let server = listen(Arc::new(answer));
    let engine = Engine::connect(&at(&server.path), LIMIT).await.unwrap();
    (server, engine)
}

#[tokio::test]
async fn a_socket_that_is_not_there_or_that_nobody_serves_is_an_engine_that_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let absent = Engine::connect(&at(&path), LIMIT).await.unwrap_err();
    assert!(absent.reason.contains("docker is not running: there is nothing at"), "{absent:?}");
    drop(UnixListener::bind(&path).unwrap());
    let left = Engine::connect(&at(&path), LIMIT).await.unwrap_err();
    assert!(left.reason.contains("docker is not running: nobody listens at"), "{left:?}");
    assert!(left.fix.contains("systemctl start docker"), "{left:?}");
}

#[tokio::test]
async fn a_socket_without_permission_says_what_the_group_means() {
    let server = listen(Arc::new(|_: &str| Reply::Bytes(GREETING.to_vec())));
    std::fs::set_permissions(&server.path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let connected = Engine::connect(&at(&server.path), LIMIT).await;
    if rustix::process::geteuid().is_root() {
        // Root may all the same; what would be said to others is known without a socket.
        connected.unwrap();
        let failure = EngineFailure::Connect(std::io::ErrorKind::PermissionDenied.into());
        let said = super::super::failure::unavailable(&at(&server.path), &failure);
        assert!(said.reason.contains("no permission"), "{said:?}");
        assert!(said.fix.contains("as good as root") && said.fix.contains("rootless"), "{said:?}");
    } else {
        let said = connected.unwrap_err();
        assert!(said.reason.contains("no permission") && said.fix.contains("as good as root"), "{said:?}");
    }
}

#[tokio::test]
async fn an_engine_that_never_answers_is_given_up_in_time() {
    let silent = refused(Arc::new(|_: &str| Reply::Nothing)).await;
    assert!(silent.reason.contains("did not answer within 2 seconds"), "{silent:?}");
    let half = Arc::new(|_: &str| Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{".to_vec()));
    let half = refused(half).await;
    assert!(half.reason.contains("broke the connection"), "{half:?}");
}

#[tokio::test]
async fn garbage_is_not_taken_for_an_engine() {
    for bytes in [
        &b"SSH-2.0-OpenSSH_9.6\r\n"[..],
        b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<!doctype",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nApi-Version: one\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.41.1\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nApi-Version: -1.41\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nApi-Version: 99999999999.1\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
    ] {
        let said = refused(Arc::new(move |_: &str| Reply::Bytes(bytes.to_vec()))).await;
        let known =
            said.reason.contains("does not speak as docker does") || said.reason.contains("broke the connection");
        assert!(known, "{said:?}");
    }
    let rude = refused(Arc::new(|_: &str| http(500, "{\"message\":\"no\\u001b[2J\\nway\"}"))).await;
    assert!(rude.reason.contains("refused: no [2J way"), "{rude:?}");
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_off() {
    let endless = refused(Arc::new(|_: &str| Reply::Endless)).await;
    assert!(endless.reason.contains("too long"), "{endless:?}");
}

#[tokio::test]
async fn requests_are_of_the_version_that_was_agreed_on() {
    let (_server, engine) = connected(|first| {
        if first.starts_with("GET /v1.41/version ") {
            return http(200, VERSION);
        }
        assert!(first.starts_with("GET /v1.41/info "), "{first}");
        http(200, r#"{"ServerVersion":"28.0.0","CgroupVersion":"2","CgroupDriver":"systemd","SecurityOptions":["name=rootless","name=seccomp,profile=x"],"Runtimes":{"runc":{},"runsc":{}}}"#)
    })
    .await;
    let facts = engine.all_facts(LIMIT).await.unwrap();
    assert!(facts.rootless && facts.seccomp && facts.runtimes.contains("runsc"), "{facts:?}");
    let warnings = facts.warnings();
    assert!(warnings.iter().any(|warning| warning.contains("CVE-2024-21626")), "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("cannot limit memory, swap")), "{warnings:?}");
}

#[tokio::test]
async fn a_container_that_is_not_what_was_asked_for_is_removed_and_not_used() {
    const ID: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    let honest = serde_json::json!({
        "Image": format!("sha256:{}", "a".repeat(64)),
        "State": { "Status": "created", "ExitCode": 0 },
        "Config": { "User": "1000:1001" },
        "Mounts": [{ "Type": "bind", "Destination": "/deps", "RW": false }, { "Type": "tmpfs", "Destination": "/data", "RW": true }],
        "HostConfig": { "NetworkMode": "none", "Privileged": false, "ReadonlyRootfs": true, "Memory": 512 << 20, "PidsLimit": 256, "Runtime": "runsc" },
    });
    let create = async |inspected: serde_json::Value| {
        let removed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = removed.clone();
        let (_server, engine) = connected(move |first| {
            if first.contains("/containers/create") {
                http(201, &format!(r#"{{"Id":"{ID}","Warnings":[]}}"#))
            } else if first.starts_with("DELETE") {
                seen.store(true, std::sync::atomic::Ordering::SeqCst);
                http(204, "")
            } else {
                http(200, &inspected.to_string())
            }
        })
        .await;
        (engine.create(&spec()).await, removed.load(std::sync::atomic::Ordering::SeqCst))
    };
    let (created, removed) = create(honest.clone()).await;
    assert_eq!(created.unwrap().as_str(), ID);
    assert!(!removed);
    for (pointer, value) in [
        ("/Image", serde_json::json!(format!("sha256:{}", "c".repeat(64)))),
        ("/Image", serde_json::json!("debian:12")),
        ("/Config/User", serde_json::json!("")),
        ("/HostConfig/NetworkMode", serde_json::json!("default")),
        ("/HostConfig/Privileged", serde_json::json!(true)),
        ("/HostConfig/ReadonlyRootfs", serde_json::json!(false)),
        ("/HostConfig/Memory", serde_json::json!(0)),
        ("/HostConfig/PidsLimit", serde_json::json!(null)),
        ("/HostConfig/Runtime", serde_json::json!("runc")),
        ("/Mounts/0", serde_json::json!({ "Type": "volume", "Destination": "/data", "RW": true })),
    ] {
        let mut changed = honest.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let (created, removed) = create(changed).await;
        assert!(matches!(created, Err(CreateError::Different { .. })), "{pointer}: {created:?}");
        assert!(removed, "{pointer}");
    }
}

#[tokio::test]
async fn an_id_that_is_a_path_is_not_used() {
    let (_server, engine) = connected(|_| http(201, r#"{"Id":"../../x"}"#)).await;
    let created = engine.create(&spec()).await;
    assert!(matches!(created, Err(CreateError::Engine(_))), "{created:?}");
}

#[tokio::test]
async fn an_image_that_is_absent_is_fetched_only_when_that_is_permitted() {
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = asked.clone();
    let (_server, engine) = connected(move |first| {
        seen.lock().unwrap().push(first.to_owned());
        if first.contains("/images/create") {
            http(200, "{\"status\":\"Pulling\"}\n{\"errorDetail\":{\"message\":\"x\"},\"error\":\"denied\"}\n")
        } else {
            http(404, r#"{"message":"No such image: tools:1"}"#)
        }
    })
    .await;
    let never = resolve(&engine, "tools:1", Pull::Never, &|_| {}).await.unwrap_err();
    assert!(matches!(never, ResolveError::Absent(_)), "{never:?}");
    assert!(never.hint().contains("image.pull: allow") && never.hint().contains("ringfence image build"));
    assert!(!asked.lock().unwrap().iter().any(|first| first.contains("create")), "nothing was fetched");
    let denied = resolve(&engine, "tools", Pull::Allow, &|_| {}).await.unwrap_err();
    assert!(matches!(denied, ResolveError::Engine(_)), "{denied:?}");
    let asked = asked.lock().unwrap();
    assert!(asked.iter().any(|first| first.contains("/images/create?fromImage=tools%3Alatest ")), "{asked:?}");
}

#[tokio::test]
async fn an_engine_that_does_not_remove_a_container_is_not_waited_for() {
    const WITHIN: Duration = Duration::from_millis(300);
    const ID: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    let id = ContainerId::parse(ID).unwrap();
    let bad: [fn(&str) -> Reply; 4] = [
        |_| http(500, r#"{"message":"no"}"#),
        |_| http(409, r#"{"message":"removal is in progress"}"#),
        |_| Reply::Nothing,
        // It says that it did, and did not.
        |first| if first.starts_with("DELETE") { http(204, "") } else { Reply::Nothing },
    ];
    for answer in bad {
        let (_server, engine) = connected(answer).await;
        let begun = Instant::now();
        assert!(!remove(&engine, &id, WITHIN).await);
        assert!(begun.elapsed() < 3 * WITHIN, "it took {:?}", begun.elapsed());
    }
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (_server, engine) = connected(move |first| match (first.starts_with("DELETE"), asked.load(SeqCst)) {
        (true, 0..2) => {
            asked.fetch_add(1, SeqCst);
            http(500, r#"{"message":"busy"}"#)
        }
        (true, _) => http(204, ""),
        (false, _) => http(404, r#"{"message":"No such container"}"#),
    })
    .await;
    assert!(remove(&engine, &id, LIMIT).await, "the twin: one that was busy is asked again");
}
