//! Against real engines: `RINGFENCE_TEST_DOCKER_HOST` and `RINGFENCE_TEST_PODMAN_HOST` say where, such as
//! `unix:///run/docker.sock`. They have an image `rf-base:1` with a shell. The default runtime starts containers; `runsc` too,
//! where the engine is Docker and has it.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::address::{Address, EngineKind, Location};
use super::super::engine::{ContainerId, CreateError, Engine, LONG, SHORT, State, json};
use super::super::guest_volume;
use super::super::image::{Pull, Resolved, resolve};
use super::super::labels::{ContainerKind, Labels, Owner, SUPERVISOR};
use super::super::spec::{GuestFrom, Spec, Tmpfs, TmpfsOwner, tests::spec};
use super::super::sweep::sweep;

/// The engine, or nothing after saying so. One that is required and missing is a failure.
async fn engine(kind: EngineKind) -> Option<Engine> {
    let variable = format!("RINGFENCE_TEST_{}_HOST", kind.name().to_uppercase());
    let Some(host) = std::env::var(&variable).ok().filter(|host| !host.is_empty()) else {
        let required = std::env::var("RINGFENCE_TEST_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name.trim() == kind.name()),
            "{kind:?} is required, and {variable} is not set"
        );
        eprintln!("SKIPPED: {variable} is not set");
        return None;
    };
    let path = PathBuf::from(host.strip_prefix("unix://").unwrap());
    let address = Address { kind, location: Location::Local(path), said_by: None };
    Some(Engine::connect(&address, SHORT).await.unwrap())
}

async fn image(engine: &Engine) -> Resolved {
    let name = std::env::var("RINGFENCE_TEST_IMAGE").unwrap();
    resolve(engine, &name, Pull::Never, &|_| {}).await.unwrap()
}

async fn script(engine: &Engine, run: &str, words: &str) -> Spec {
    let image = image(engine).await;
    let labels = Labels::new(run, &Owner::current().unwrap(), ContainerKind::Once).unwrap();
    let seccomp = None;
    Spec {
        image: image.id.clone(),
        image_variables: image.variables(),
        image_volumes: image.volumes,
        guest: GuestFrom::Instead(vec!["/bin/sh".into(), "-c".into(), words.into()]),
        tmpfs: vec![
            Tmpfs { at: "/work".into(), bytes: 1 << 20, files: 100, whose: TmpfsOwner::User },
            Tmpfs { at: "/tmp".into(), bytes: 1 << 20, files: 100, whose: TmpfsOwner::Everybody },
        ],
        binds: Vec::new(),
        volumes: Vec::new(),
        // Less than this, and gVisor has no room for itself.
        memory_bytes: Some(256 << 20),
        seccomp,
        runtime: None,
        labels,
        engine_socket: None,
        ..spec()
    }
}

/// Waits until nothing of a container is left. An engine that removes one by itself says of a second removal that the first
/// goes on; until it is done, the container still holds its image.
async fn gone(engine: &Engine, id: &ContainerId) {
    let gone = async {
        while engine.state(id).await.unwrap() != State::Gone {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
}

/// Runs a container to its end: what it wrote, and what it ended with. Podman looks now and then whether a container has ended,
/// and does not know any more what one ended with that it removed in between.
async fn run(engine: &Engine, spec: &Spec, input: &[u8]) -> (String, Option<i64>) {
    let id = engine.create(spec).await.unwrap();
    let mut attached = match engine.attach(&id).await {
        Ok(attached) => attached,
        Err(error) => {
            engine.remove(&id).await.unwrap();
            panic!("{error:?}");
        }
    };
    let waiting = tokio::spawn({
        let (engine, id) = (engine.clone(), id.clone());
        async move {
            match engine.kind() {
                EngineKind::Docker => engine.wait(&id).await.unwrap(),
                EngineKind::Podman => None,
            }
        }
    });
    if let Err(error) = engine.start(&id).await {
        engine.remove(&id).await.unwrap();
        panic!("{error:?}");
    }
    attached.input.write_all(input).await.unwrap();
    attached.input.flush().await.unwrap();
    let mut output = String::new();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), attached.output.read_to_end(&mut bytes)).await;
    output.push_str(&String::from_utf8_lossy(&bytes));
    let complaint = attached.output.complaint().text();
    let code = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    engine.remove(&id).await.unwrap();
    gone(engine, &id).await;
    // Podman may leave the stream open when the container has ended.
    if let Ok(read) = read {
        read.unwrap();
    }
    (format!("{output}{complaint}"), code.unwrap().unwrap())
}

const LOOK: &str = "read line; echo got=$line; echo uid=$(id -u):$(id -g); grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' \
    /proc/self/status; touch /x 2>/dev/null && echo ROOT-WRITABLE; touch /work/x && echo work=ok; touch /tmp/x && echo tmp=ok; \
    touch /run/x /var/tmp/x 2>/dev/null && echo ELSEWHERE-WRITABLE; \
    dd if=/dev/zero of=/work/big bs=1M count=3 2>/dev/null || echo quota=ok; ls /sys/class/net | tr '\\n' ' '; \
    env | grep -c SECRET; exit 7";

fn check_look(output: &str) {
    for expected in ["got=hello\n", "uid=1000:1001\n", "CapEff:\t0000000000000000", "work=ok", "tmp=ok", "quota=ok"] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    assert!(!output.contains("WRITABLE"), "{output}");
    assert!(!output.contains("eth0"), "{output}");
}

#[tokio::test]
async fn a_container_of_docker_is_behind_its_wall_and_is_spoken_to() {
    let Some(engine) = engine(EngineKind::Docker).await else { return };
    let facts = engine.facts(SHORT).await.unwrap();
    let mut runtimes = vec![None];
    runtimes.extend(facts.runtimes.contains("runsc").then(|| Some("runsc".to_owned())));
    for runtime in runtimes {
        let spec = Spec { runtime, ..script(&engine, "look", LOOK).await };
        let (output, code) = run(&engine, &spec, b"hello\n").await;
        check_look(&output);
        assert_eq!(code, Some(7), "{output}");
        // gVisor shows no such line, and filters by no profile of the engine: what was seen from inside is all that is known.
        assert!(spec.runtime.is_some() || output.contains("NoNewPrivs:\t1\nSeccomp:\t2"), "{output}");
    }
}

#[tokio::test]
async fn a_container_of_podman_is_behind_its_wall_and_is_spoken_to() {
    let Some(engine) = engine(EngineKind::Podman).await else { return };
    assert_eq!(engine.kind(), EngineKind::Podman);
    let spec = script(&engine, "look", LOOK).await;
    let (output, _) = run(&engine, &spec, b"hello\n").await;
    check_look(&output);
}

#[tokio::test]
async fn a_container_ends_and_is_removed_when_its_supervisor_lets_go() {
    let Some(engine) = engine(EngineKind::Docker).await else { return };
    let id = engine.create(&script(&engine, "let-go", "cat >/dev/null").await).await.unwrap();
    let attached = engine.attach(&id).await.unwrap();
    engine.start(&id).await.unwrap();
    assert_eq!(engine.state(&id).await.unwrap(), State::NotEnded, "it waits for more");
    drop(attached);
    gone(&engine, &id).await;
    engine.remove(&id).await.unwrap();
    engine.kill(&id).await.unwrap();
}

#[tokio::test]
async fn a_killed_container_says_what_it_was_killed_with() {
    let Some(engine) = engine(EngineKind::Docker).await else { return };
    let id = engine.create(&script(&engine, "killed", "cat").await).await.unwrap();
    let _attached = engine.attach(&id).await.unwrap();
    let waiting = tokio::spawn({
        let (engine, id) = (engine.clone(), id.clone());
        async move { engine.wait(&id).await.unwrap() }
    });
    engine.start(&id).await.unwrap();
    engine.kill(&id).await.unwrap();
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap().unwrap(), Some(137));
    engine.remove(&id).await.unwrap();
}

#[tokio::test]
async fn a_volume_that_an_image_declares_is_covered_and_an_uncovered_one_is_refused() {
    let Some(engine) = engine(EngineKind::Docker).await else { return };
    let base = engine.create(&script(&engine, "volume-base", "true").await).await.unwrap();
    let name = format!("rf-engine-test-{}:1", std::process::id());
    let (repository, tag) = name.split_once(':').unwrap();
    let path = format!(
        "/commit?container={}&repo={repository}&tag={tag}&changes=VOLUME%20%2Fdata%0AVOLUME%20%2Fwork%0AENV%20SECRET%3Dx",
        base.as_str()
    );
    engine.call(Method::POST, &path, json(b"{}".to_vec()), LONG, "commit").await.unwrap();
    engine.remove(&base).await.unwrap();
    let image = resolve(&engine, &name, Pull::Never, &|_| {}).await.unwrap();
    let words = "touch /data/x 2>/dev/null && echo DATA-WRITABLE; touch /work/x && echo work=ok; grep -c ' /data ' /proc/mounts; echo secret=$SECRET.";
    let covered = Spec {
        image: image.id.clone(),
        image_volumes: image.volumes.clone(),
        image_variables: image.variables(),
        ..script(&engine, "volume", words).await
    };
    let (output, _) = run(&engine, &covered, b"").await;
    let uncovered = engine.create(&Spec { image_volumes: Vec::new(), ..covered.clone() }).await;
    engine.call(Method::DELETE, &format!("/images/{name}"), json(Vec::new()), LONG, "remove the image").await.unwrap();
    let mut volumes = image.volumes.clone();
    volumes.sort();
    assert_eq!(volumes, ["/data", "/work"]);
    assert!(output.contains("work=ok") && output.contains("secret=.") && !output.contains("WRITABLE"), "{output}");
    assert!(matches!(uncovered, Err(CreateError::Different { .. })), "{uncovered:?}");
}

#[tokio::test]
async fn a_guest_in_a_volume_is_put_there_once_and_put_right_when_it_is_wrong() {
    for kind in [EngineKind::Docker, EngineKind::Podman] {
        let Some(engine) = engine(kind).await else { continue };
        let image = image(&engine).await;
        let labels = Labels::new("courier", &Owner::current().unwrap(), ContainerKind::Courier).unwrap();
        let guest = format!("not really a guest {}", std::process::id());
        let name = guest_volume::put(&engine, guest.as_bytes(), &image.id, &labels).await.unwrap();
        assert_eq!(guest_volume::put(&engine, guest.as_bytes(), &image.id, &labels).await.unwrap(), name);
        let path = format!("/volumes/{name}");
        engine.call(Method::DELETE, &path, json(Vec::new()), LONG, "remove the volume").await.unwrap();
    }
}

#[tokio::test]
async fn what_a_dead_supervisor_left_is_swept_and_nothing_else() {
    for kind in [EngineKind::Docker, EngineKind::Podman] {
        let Some(engine) = engine(kind).await else { continue };
        let make = async |run: &str| -> (ContainerId, String) {
            let spec = script(&engine, run, "true").await;
            (engine.create(&spec).await.unwrap(), spec.labels.as_map()[SUPERVISOR].clone())
        };
        let (left, dead) = make(&format!("left-{}", std::process::id())).await;
        let (kept, _) = make(&format!("kept-{}", std::process::id())).await;
        let swept = sweep(&engine, &Owner::current().unwrap(), &|supervisor| supervisor != dead).await;
        let states = (engine.state(&left).await, engine.state(&kept).await);
        engine.remove(&kept).await.unwrap();
        assert_eq!(swept.unwrap().containers, 1);
        assert_eq!((states.0.unwrap(), states.1.unwrap()), (State::Gone, State::NotEnded));
    }
}
