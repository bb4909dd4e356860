//! A workspace in a volume, on an engine that says whatever a test wants: nobody takes the volume for one that nothing uses, and an empty
//! one in its place is not shown.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::engine::Engine;
use super::super::failure::EngineError;
use super::super::labels::Labels;
use super::super::leaving::Leaving;
use super::super::spec::{ImageId, User};
use super::super::workspace_volume::{WorkspaceVolume, put};
use super::misbehaving::{FalseEngine, Reply, connected, http, written};

const COURIER: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

const OURS: &str = r#"{"dev.ringfence.owner":"m-b-1000"}"#;

/// What an engine was asked for, in order, in words of these tests.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<&'static str>>>);

impl Asked {
    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

/// An engine that makes a volume `after` so long, and says of it that it has `labels`.
async fn engine(after: Duration, labels: &'static str) -> (FalseEngine, Engine, Asked) {
    let asked = Asked::default();
    let seen = asked.clone();
    let (server, engine) = connected(move |first| {
        let (what, reply) = match first {
            _ if first.contains("/volumes/create ") => ("make volume", Reply::After(after, written(201, "{}"))),
            _ if first.contains("/containers/create ") => {
                ("make courier", http(201, &format!(r#"{{"Id":"{COURIER}"}}"#)))
            }
            _ if first.contains("/archive?") => ("fill", http(200, "")),
            _ if first.starts_with("GET ") => ("ask", http(200, &format!(r#"{{"Name":"x","Labels":{labels}}}"#))),
            _ if first.contains("/containers/") => ("remove courier", http(204, "")),
            _ => ("remove volume", http(204, "")),
        };
        seen.0.lock().unwrap().push(what);
        reply
    })
    .await;
    (server, engine, asked)
}

async fn put_one(engine: &Engine, folder: &Path, all: &Leaving) -> Result<WorkspaceVolume, EngineError> {
    let folder = File::open(folder).unwrap();
    let (user, image) = (User { uid: 1, gid: 1 }, ImageId::parse(&"a".repeat(64)).unwrap());
    put(engine, (folder.as_fd(), Path::new("/workspace")), user, &image, (&Labels::fixed(), all)).await
}

#[tokio::test]
async fn a_volume_is_used_by_what_filled_it_until_its_container_was_made() {
    let (folder, leaving) = (tempfile::tempdir().unwrap(), Leaving::default());
    std::fs::write(folder.path().join("note"), "a note").unwrap();
    let (_server, engine, asked) = engine(Duration::ZERO, OURS).await;
    let volume = put_one(&engine, folder.path(), &leaving).await.unwrap();
    assert_eq!(asked.all(), ["make volume", "make courier", "fill"]);
    volume.hand_over().await.unwrap();
    assert_eq!(asked.all()[3..], ["ask", "remove courier"]);
    volume.remove().await.unwrap();
    assert_eq!(asked.all()[5..], ["remove volume"]);
    drop(volume);
    leaving.all().await;
    assert_eq!(asked.all().len(), 6, "it is removed once");
}

#[tokio::test]
async fn an_empty_volume_that_an_engine_made_in_its_place_is_not_handed_over() {
    let (folder, leaving) = (tempfile::tempdir().unwrap(), Leaving::default());
    for labels in ["null", "{}", r#"{"com.docker.volume.anonymous":""}"#] {
        let (_server, engine, asked) = engine(Duration::ZERO, labels).await;
        let volume = put_one(&engine, folder.path(), &leaving).await.unwrap();
        let refused = volume.hand_over().await.unwrap_err();
        assert!(refused.failure.to_string().contains("would show an empty workspace"), "{labels}: {refused:?}");
        drop(volume);
        leaving.all().await;
        assert_eq!(asked.all()[3..], ["ask", "remove courier", "remove volume"], "{labels}");
    }
}

#[tokio::test]
async fn a_volume_that_is_being_made_for_somebody_who_was_cancelled_is_removed() {
    let (folder, leaving) = (tempfile::tempdir().unwrap(), Leaving::default());
    let (_server, engine, asked) = engine(Duration::from_millis(300), OURS).await;
    let cancelled = tokio::time::timeout(Duration::from_millis(100), put_one(&engine, folder.path(), &leaving)).await;
    assert!(cancelled.is_err(), "the twin: it waits for the volume");
    leaving.all().await;
    let asked = asked.all();
    assert_eq!(asked[..1], ["make volume"]);
    assert_eq!(asked[asked.len() - 2..], ["remove courier", "remove volume"], "{asked:?}");
}
