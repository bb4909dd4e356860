//! Sessions in containers.

use ringfence_testkit::canary::{is_alive, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{Ended, SOON};
use crate::walls::{Walled, for_each_engine};

struct Session<'a> {
    place: &'a Walled,
    keeper: u32,
}

impl<'a> Session<'a> {
    fn start(place: &'a Walled) -> Self {
        let info = place.ringfence(&["session", "start", "--json", "work"]).run().expect(0, &[]).json();
        Self { place, keeper: u32::try_from(info["pid"].as_u64().unwrap()).unwrap() }
    }

    fn sh(&self, script: &str) -> Ended {
        self.place.ringfence(&["session", "exec", "work", "--", "sh", "-c", script]).run()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.place.ringfence(&["session", "stop", "work"]).run();
        until(SOON, || !is_alive(self.keeper));
    }
}

#[test]
fn a_session_keeps_files_from_run_to_run_and_its_changes_are_listed_at_the_end() {
    for_each_engine("", |place| {
        place.stage.write("there.txt", "as it was\n");
        let session = Session::start(place);
        session.sh("echo one > /tmp/kept; echo changed > there.txt; echo new > new.txt").expect(0, &[]);
        let ended = session.sh("cat /tmp/kept there.txt new.txt; pwd; exit 3");
        assert_eq!((ended.code, &*ended.text()), (3, "one\nchanged\nnew\n/workspace\n"), "{ended:?}");
        assert_eq!(place.stage.read("there.txt").as_deref(), Some("as it was\n"));
        place.ringfence(&["session", "stop", "work"]).run().expect(0, &["2 changes (1 added, 1 changed)"]);
        assert!(until(SOON, || place.is_soon_empty()), "a container is left");
    });
}

#[test]
fn r11_a_session_whose_keeper_is_killed_leaves_no_container() {
    for_each_engine("", |place| {
        let session = Session::start(place);
        session.sh("true").expect(0, &[]);
        kill_process(Pid::from_raw(session.keeper.cast_signed()).unwrap(), Signal::KILL).unwrap();
        assert!(until(SOON, || !is_alive(session.keeper)));
        assert!(until(SOON, || place.is_soon_empty()), "the container outlived its keeper");
    });
}
