//! Containers that wait for the calls of `ringfence mcp`: used once, looked at, and gone with the server however it ends.

use std::collections::BTreeSet;
use std::time::Duration;

use ringfence_testkit::canary::{is_marked_alive, secret, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::api::{containers_with, kill};
use crate::connection::{Connection, Protocol};
use crate::stage::SOON;
use crate::walls::{Walled, for_each_engine};

/// A server, and what it has of its engine.
struct Served<'a> {
    place: &'a Walled,
    client: Connection,
}

impl<'a> Served<'a> {
    fn start(place: &'a Walled, flags: &[&str]) -> Self {
        let led: Vec<_> = place.wall.environment().into_iter().map(|pair| pair_of_text(pair).unwrap()).collect();
        let led: Vec<_> = led.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Self { place, client: Connection::open_with(&place.stage, Protocol::Stateless, flags, json!({}), &led) }
    }

    /// The containers that this very process made, running or not.
    fn containers(&self) -> BTreeSet<String> {
        containers_with(&self.place.wall, &format!("-{}-", self.client.child.id())).into_iter().collect()
    }

    /// Waits until so many of them are there, none of which is one of these.
    fn other_than(&self, before: &BTreeSet<String>, count: usize) -> BTreeSet<String> {
        let are_there = || {
            let now = self.containers();
            now.len() == count && now.is_disjoint(before)
        };
        assert!(until(SOON, are_there), "{}: {before:?} became {:?}", self.place.wall, self.containers());
        self.containers()
    }

    /// The one that waits, when nothing comes or goes any more.
    fn settled(&self) -> BTreeSet<String> {
        let is_one = || {
            let now = self.containers();
            std::thread::sleep(IS_READY);
            now.len() == 1 && now == self.containers()
        };
        assert!(until(SOON, is_one), "{}: {:?}", self.place.wall, self.containers());
        self.containers()
    }

    /// Runs a script, and says where its container came from.
    fn sh(&mut self, script: &str, overrides: &Value) -> Value {
        let arguments = json!({ "argv": ["sh", "-c", script], "policyOverrides": overrides });
        let result = self.client.call("sandboxed_code_run", arguments);
        assert_eq!(result["structuredContent"]["exitCode"], 0, "{}: {result}", self.place.wall);
        result["structuredContent"]["container"].clone()
    }

    /// Likewise, in one that waited. One that the engine names may not be ready yet: then another is made, and it goes on waiting.
    fn waited(&mut self, script: &str, overrides: &Value) {
        assert!(until(SOON, || self.sh(script, overrides) == "waited"), "{}: none of them waited", self.place.wall);
    }

    fn signal(mut self, signal: Signal) -> BTreeSet<String> {
        kill_process(Pid::from_child(&self.client.child), signal).unwrap();
        self.client.child.wait().unwrap();
        self.containers()
    }
}

fn pair_of_text((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// So long after its engine names it, a container is mostly ready to be taken.
const IS_READY: Duration = Duration::from_millis(500);

/// Writes where it can, after making sure that nobody did before.
const MARKS: &str = "for file in /tmp/mark ~/mark mark; do test ! -e $file || exit 9; echo x > $file || exit 8; done";

#[test]
fn calls_are_served_by_containers_that_waited_each_used_once_and_none_is_left_when_the_input_ends() {
    for_each_engine("", |place| {
        let mut server = Served::start(place, &[]);
        let first = server.other_than(&BTreeSet::new(), 1);
        let mark = secret().unwrap();
        let leaves = format!("{MARKS}; (setsid sh -c 'trap \"\" TERM; sleep 60' {mark} > /dev/null 2>&1 &)");
        server.waited(&leaves, &json!({}));
        assert!(until(SOON, || !is_marked_alive(&mark)), "what it left goes on");
        let second = server.other_than(&first, 1);
        server.waited(MARKS, &json!({}));
        server.other_than(&second, 1);
        // One that ended while it waited is not used, and that is told.
        let is_told = || {
            std::thread::sleep(IS_READY);
            server.containers().iter().for_each(|id| kill(&place.wall, id));
            server.sh(MARKS, &json!({})) == "made-instead"
        };
        assert!(until(SOON, is_told), "{}", place.wall);
        let third = server.settled();
        // What asks for another kind starts as ever; when it does so again, that kind waits.
        let narrower = json!({ "fs": { "size": "64MiB" } });
        assert_eq!(server.sh(MARKS, &narrower), "made", "{}", place.wall);
        assert!(until(SOON, || server.containers() == third), "{}: {:?}", place.wall, server.containers());
        assert_eq!(server.sh(MARKS, &narrower), "made", "{}", place.wall);
        let fourth = server.other_than(&third, 1);
        server.waited(MARKS, &narrower);
        server.other_than(&fourth, 1);
        assert!(server.client.close().success());
        assert_eq!(server.containers(), BTreeSet::new(), "{}: containers outlived their server", place.wall);
    });
}

#[test]
fn a_server_that_is_told_to_end_leaves_no_container_that_waits_and_one_that_is_killed_none_for_the_next_start() {
    for_each_engine("", |place| {
        let server = Served::start(place, &["--warm", "2"]);
        server.other_than(&BTreeSet::new(), 2);
        assert_eq!(server.signal(Signal::TERM), BTreeSet::new(), "{}: it was told to end", place.wall);
        // While they are made.
        let server = Served::start(place, &["--warm", "2"]);
        assert_eq!(server.signal(Signal::TERM), BTreeSet::new(), "{}: it was told to end at once", place.wall);

        let server = Served::start(place, &[]);
        server.other_than(&BTreeSet::new(), 1);
        let (wall, mine) = (&place.wall, format!("-{}-", server.client.child.id()));
        server.signal(Signal::KILL);
        place.sh("true", &[]).expect(0, &[]);
        assert!(until(SOON, || containers_with(wall, &mine).is_empty()), "{wall}: a killed server left containers");

        // The twin: nobody has to have any.
        let mut none = Served::start(place, &["--warm", "0"]);
        assert_eq!(none.sh(MARKS, &json!({})), Value::Null, "{wall}");
        assert!(until(SOON, || none.containers().is_empty()), "{wall}");
    });
}

#[test]
fn a_server_whose_engine_does_not_answer_serves_all_the_same() {
    for kind in ["docker", "podman"] {
        let stage = crate::stage::Stage::with_policy(&format!("version: 1\nbackend: {kind}\nimage: x:1\n"));
        let nowhere = [("DOCKER_HOST", "unix:///no/such/socket"), ("CONTAINER_HOST", "unix:///no/such/socket")];
        let mut client = Connection::open_with(&stage, Protocol::Initialize, &[], json!({}), &nowhere);
        let result = client.call("sandboxed_code_run", json!({ "command": "echo x > ran" }));
        assert_eq!(result["structuredContent"]["status"], "couldNotRun", "{result}");
        assert!(client.close().success() && stage.read("ran").is_none());
    }
}
