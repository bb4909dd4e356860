//! What was changed in a session, listed while it goes on.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::fs;
use std::path::PathBuf;

use ringfence::workspace::kept;
use ringfence::{Request, SessionRequest, StateFolder, Work};
use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{Presence, REQUIRED, presence};
use ringfence_testkit::place::Place;

/// The binary that raises walls for these tests; the variable is set where they were moved after they were built.
fn launcher() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_ringfence-testkit-launcher");
    std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher").map_or_else(|| built.into(), PathBuf::from)
}

/// Swaps a folder for a link to a folder of the host, and writes and removes, without end.
const RESTLESS: &str = "mkdir -p d/d; while :; do echo x > d/secret; mv d e; ln -s \"$1\" d; rm d; mv e d; \
                        chmod 700 d; ln -s \"$1/secret\" l; rm l; echo y >> grows; rm -f d/secret; done";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_in_a_session_can_be_listed_while_programs_write() {
    let place = Place::new(launcher()).unwrap();
    let engine = place.engine("version: 1\nbackend: native\n", Vec::new()).unwrap();
    let required = std::env::var(REQUIRED).unwrap_or_default();
    match presence(&engine, BackendKind::Native, &required).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    fs::write(place.outside().join("secret"), "of the host").unwrap();
    place.write("old", "old").unwrap();
    let session = engine.open_session(SessionRequest::default()).await.unwrap();
    assert!(session.changes(&engine).await.unwrap().is_none(), "nothing was changed yet");
    let shell = |line: &str| Request::new(Work::Shell(line.to_owned()));
    session.start(&engine, shell("echo one > first; rm old")).unwrap().outcome().await.unwrap();
    let places = |set: &ringfence::workspace::ChangeSet| -> Vec<String> {
        set.changes.iter().map(|change| change.place.as_path().display().to_string()).collect()
    };
    let set = session.changes(&engine).await.unwrap().unwrap();
    assert_eq!(places(&set), ["first", "old"]);
    let state = StateFolder::prepare(place.state()).unwrap();
    assert_eq!(kept::of(&state, session.id()).load().unwrap(), set, "it is kept under the session's id");

    let outside = place.outside().display().to_string();
    let mut argv: Vec<std::ffi::OsString> = ["sh", "-c", RESTLESS, "sh"].map(Into::into).to_vec();
    argv.push(outside.into());
    let restless = session.start(&engine, Request::new(Work::Argv(argv))).unwrap();
    let (mut listed, mut failed) = (0, 0);
    for _ in 0..60 {
        match session.changes(&engine).await {
            Ok(set) => {
                listed += 1;
                assert!(places(&set.unwrap()).contains(&"first".to_owned()));
            }
            Err(_) => failed += 1,
        }
        let objects = kept::of(&state, session.id()).folder().join("objects");
        for object in fs::read_dir(objects).unwrap() {
            let leaked = fs::read(object.unwrap().path()).is_ok_and(|content| content == b"of the host");
            assert!(!leaked, "a link was followed");
        }
    }
    eprintln!("{listed} listed, {failed} failed while a program wrote");
    assert!(listed > 0, "the twin: it can be listed");
    restless.cancel();
    restless.outcome().await.unwrap();
    let ended = session.close().await;
    assert_eq!(ended.error, None);
    let last = kept::of(&state, session.id()).load().unwrap();
    assert_eq!(Some(last.counts()), ended.changes);
    assert!(places(&last).contains(&"grows".to_owned()));
    assert!(session.changes(&engine).await.is_err(), "a session that is over has no layer");
}
