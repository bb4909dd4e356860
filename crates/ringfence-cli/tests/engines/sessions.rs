//! Sessions in containers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::canary::{FileCanary, is_alive, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::left_for_the_host::{DIRECT, PLANTS, filled};
use crate::stage::{Ended, SOON};
use crate::talked_to;
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
fn a_run_in_a_session_has_its_input_its_code_and_an_outcome_as_any_other() {
    for_each_engine("", |place| {
        let _session = Session::start(place);
        talked_to::a_run_has_input_and_a_code(&|args| place.ringfence(args));
    });
}

#[test]
fn runs_of_a_session_in_the_background_are_waited_for_and_signalled_by_their_id() {
    for_each_engine("", |place| {
        let _session = Session::start(place);
        talked_to::runs_in_the_background_are_waited_for_and_signalled(&|args| place.ringfence(args));
    });
}

#[test]
fn a_program_in_a_session_with_a_terminal_can_be_talked_to() {
    for_each_engine("", |place| {
        let _session = Session::start(place);
        talked_to::a_terminal_is_the_programs_own(&|args| place.ringfence(args));
    });
}

#[test]
fn a_session_ends_with_its_container_when_it_is_idle_or_old_and_not_before() {
    for_each_engine("", |place| {
        talked_to::sessions_end_when_they_are_idle_or_old(&|args| place.ringfence(args), &place.stage.ledger());
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn a_session_that_is_direct_takes_its_changes_to_the_host_when_it_stops() {
    for_each_engine(DIRECT, |place| {
        filled(&place.stage);
        let session = Session::start(place);
        session.sh(PLANTS).expect(0, &[]);
        assert_eq!(place.stage.read("new.txt"), None, "not before it stops");
        place.ringfence(&["session", "stop", "work"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("new.txt").as_deref(), Some("new\n"));
        assert_eq!(place.stage.read("kept.txt").as_deref(), Some("kept\n"));
        assert_eq!(place.stage.read(".mcp.json"), None);
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn s02_a_session_with_a_copy_goes_on_beside_a_denied_file_that_came_and_keeps_what_was_changed() {
    for_each_engine("fs: { workspace: { source: copy } }\n", |place| {
        place.stage.write("sub/.env", "hidden-text");
        place.stage.write("there.txt", "as it was\n");
        let session = Session::start(place);
        place.stage.write(".env", "hidden-text");
        place.stage.write("notes", "a note\n");
        let ended = session.sh("cat .env sub/.env notes; cat there.txt; echo more >> there.txt").expect(0, &[]);
        assert_eq!(ended.text(), "as it was\n", "{ended:?}");
        let ended = place.ringfence(&["session", "stop", "work"]).run().expect(0, &["1 change (1 changed)"]);
        assert!(!ended.stderr.contains("came-later"), "{ended:?}");
        place.ringfence(&["apply", "--yes"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("there.txt").as_deref(), Some("as it was\nmore\n"));
        assert_eq!(place.stage.read(".env").as_deref(), Some("hidden-text"), "what was not shown is not touched");
        assert!(place.is_soon_empty(), "a container is left");
        let copies = std::fs::read_dir(place.stage.state().join("scratch")).map_or(0, |entries| entries.count());
        assert_eq!(copies, 0, "a copy is left");
    });
}

#[test]
fn s02_a_denied_file_that_comes_later_stops_a_session_that_would_show_it_and_no_other() {
    for_each_engine("", |place| {
        let session = Session::start(place);
        place.stage.write("notes", "a note\n");
        // Where the workspace lies below a layer it is seen, and in a copy it is not.
        let is_live = session.sh("cat notes; true").expect(0, &[]).text() == "a note\n";
        place.stage.write(".env", "hidden-text");
        let ended = session.sh("cat .env; echo ran");
        assert!(!ended.text().contains("hidden-text"), "{ended:?}");
        match is_live {
            true => drop(ended.expect(126, &["fs.deny.came-later", "`.env`"])),
            false => assert_eq!(ended.text(), "ran\n", "{ended:?}"),
        }
        std::fs::remove_file(place.stage.work().join(".env")).unwrap();
        session.sh("true").expect(0, &[]);
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

/// `ringfence checkpoint VERB work ARGS…`
fn checkpoint(place: &Walled, verb: &str, args: &[&str]) -> Ended {
    place.ringfence(&[&["checkpoint", verb, "work"], args].concat()).run()
}

/// Everything that a program sees in the workspace: types, permissions, targets and contents.
fn seen(session: &Session<'_>) -> String {
    let script = "cd /workspace; find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; \
                  find . -type f -exec sha256sum {} + | sort";
    session.sh(script).expect(0, &[]).text()
}

#[test]
fn checkpoints_of_a_container_bring_its_workspace_back_whatever_programs_did_to_it() {
    for_each_engine("", |place| {
        for name in ["changed", "removed", "kind", "tree/deep/leaf", "tree/other", "untouched"] {
            place.stage.write(name, format!("{name} of the host\n"));
        }
        std::thread::sleep(std::time::Duration::from_millis(30));
        let session = Session::start(place);
        let at_first = seen(&session);
        session
            .sh("umask 022; echo one >> changed; rm removed; rm -r tree; echo new > new; ln -s new link; rm kind; mkdir kind; \
                 echo inner > kind/inner; mkfifo -m 600 pipe; mkdir -p shut/in; echo x > shut/in/x; chmod 500 shut")
            .expect(0, &[]);
        let at_one = seen(&session);
        assert_eq!(checkpoint(place, "create", &["--name", "first"]).expect(0, &[]).text(), "1\n");
        session
            .sh("chmod 700 shut; rm -r shut kind pipe new; echo two > changed; ln -s /tmp tree; echo newer > newer; \
                 ln -sfn elsewhere link; mkdir -p a/b/c; echo c > a/b/c/c; rm untouched; mkdir untouched new; echo in > new/in")
            .expect(0, &[]);
        let at_two = seen(&session);
        let page = checkpoint(place, "diff", &["first", "--name-only"]).expect(0, &[]).text();
        assert!(page.contains("a/b/c/c\n") && page.contains("changed\n") && !page.contains("removed"), "{page}");
        checkpoint(place, "restore", &["first"]).expect(0, &["as in checkpoint 1", "is checkpoint 2"]);
        assert_eq!(seen(&session), at_one);
        checkpoint(place, "restore", &["1"]).expect(0, &["already"]);
        checkpoint(place, "restore", &["2"]).expect(0, &["is checkpoint 3"]);
        assert_eq!(seen(&session), at_two);
        checkpoint(place, "restore", &["0"]).expect(0, &["as the host has it"]);
        assert_eq!(seen(&session), at_first);
        checkpoint(place, "restore", &["7"]).expect(2, &["no checkpoint `7`"]);
        // Nothing was changed since the last look, and what was changed before it is kept all the same.
        session.sh("rm tree/deep/leaf; echo more >> changed; cat tree/other").expect(0, &[]);
        checkpoint(place, "create", &[]).expect(0, &[]);
        assert_eq!(place.stage.read("changed").as_deref(), Some("changed of the host\n"));
        place.ringfence(&["session", "stop", "work"]).run().expect(0, &["2 changes (1 changed, 1 removed)"]);
        place.ringfence(&["apply", "--yes"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("changed").as_deref(), Some("changed of the host\nmore\n"));
        place.ringfence(&["log", "verify"]).run().expect(0, &[]);
    });
}

#[test]
fn f02_a_restore_in_a_container_writes_and_removes_nothing_through_links_of_a_program() {
    for_each_engine("", |place| {
        let outside = place.outside();
        fs::set_permissions(&outside, PermissionsExt::from_mode(0o777)).unwrap();
        fs::write(outside.join("kept"), "kept\n").unwrap();
        place.stage.write("folder/kept", "of the workspace\n");
        let session = Session::start(place);
        session.sh("mkdir made; echo mine > made/new; echo mine > folder/new").expect(0, &[]);
        let at_one = seen(&session);
        checkpoint(place, "create", &[]).expect(0, &[]);
        let (canary, host) = (FileCanary::set(&outside).unwrap(), FileCanary::set(place.stage.work()).unwrap());
        // Also to a folder that is there inside and is the program's own to change.
        let to = outside.display();
        let script = format!(
            "mkdir /tmp/own; echo kept > /tmp/own/new; rm -r made folder; ln -s /tmp/own made; ln -s '{to}' folder; ln -s '{to}/made' added"
        );
        session.sh(&script).expect(0, &[]);
        checkpoint(place, "create", &[]).expect(0, &[]);
        checkpoint(place, "restore", &["1"]).expect(0, &[]);
        assert_eq!(seen(&session), at_one);
        assert_eq!(session.sh("cat /tmp/own/new").text(), "kept\n", "{}: it went through a link", place.wall);
        checkpoint(place, "restore", &["2"]).expect(0, &[]);
        checkpoint(place, "restore", &["0"]).expect(0, &[]);
        assert_eq!((canary.change().unwrap(), host.change().unwrap()), (None, None), "{}", place.wall);
        // The twin: whoever follows such a link reaches the folder.
        std::os::unix::fs::symlink(&outside, place.stage.path().join("made")).unwrap();
        fs::write(place.stage.path().join("made/new"), "x").unwrap();
        assert!(canary.change().unwrap().is_some());
    });
}

#[test]
fn f15_f18_a_working_directory_in_a_container_is_a_folder_of_the_workspace_or_none() {
    for_each_engine("", |place| {
        let (outside, home) = (place.outside(), place.stage.path().join("home"));
        fs::write(outside.join("file"), "outside").unwrap();
        place.stage.write("sub/file", "in the workspace");
        for (target, name) in [(outside.to_str().unwrap(), "link"), ("/proc/self/fd/8", "descriptor"), ("/tmp", "tmp")]
        {
            std::os::unix::fs::symlink(target, place.stage.work().join(name)).unwrap();
        }
        let canaries = [place.stage.work(), outside.clone()].map(|folder| FileCanary::set(folder).unwrap());
        let _session = Session::start(place);
        let at = |cwd: &str| {
            let script = "cat file; echo x > new; pwd";
            place.ringfence(&["session", "exec", "--cwd", cwd, "work", "--", "sh", "-c", script]).run()
        };
        let odd = ["/", "/tmp", "..", "../..", "../outside", "~", "/proc/self/fd/8", "/proc/self/cwd"];
        let links = ["link", "link/.", "descriptor", "sub/../link", "sub/../../outside"];
        let hosts = [outside.to_str().unwrap(), home.to_str().unwrap()];
        for cwd in odd.into_iter().chain(links).chain(hosts) {
            let ended = at(cwd);
            assert!(matches!(ended.code, 2 | 125), "{}: {cwd}: {ended:?}", place.wall);
            assert!(ended.text().is_empty(), "{}: {cwd}: {ended:?}", place.wall);
        }
        let ended = at("sub").expect(0, &[]);
        assert_eq!(ended.text(), "in the workspace/workspace/sub\n", "the twin: a folder of the workspace is one");
        assert_eq!(canaries.map(|canary| canary.change().unwrap()), [None, None]);
    });
}

#[test]
fn s11_a_policy_that_changes_or_becomes_a_link_during_a_run_changes_nothing() {
    for_each_engine("proc: { timeout: 1s, max_timeout: 1s }\n", |place| {
        let child = place.run(&[], &["sleep", "30"]).start();
        assert!(until(SOON, || place.has_started()), "it did not start");
        let begin = std::time::Instant::now();
        let wider = "version: 1\nbackend: none\nproc: { timeout: 60s, max_timeout: 60s }\n";
        fs::write(place.outside().join("wider.yaml"), wider).unwrap();
        let policy = place.stage.work().join("sandbox.policy.yaml");
        fs::remove_file(&policy).unwrap();
        std::os::unix::fs::symlink(place.outside().join("wider.yaml"), &policy).unwrap();
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert_eq!(ended.code, 124, "{}: {ended:?}", place.wall);
        assert!(begin.elapsed() < SOON, "it took {:?}", begin.elapsed());
        place.stage.write("wider.yaml", wider);
        let shown = place.ringfence(&["policy", "show", "--json", "--policy", "wider.yaml"]).run().json();
        assert!(shown.to_string().contains("60s"), "the twin: it is wider: {shown}");
    });
}

#[test]
fn checkpoints_of_a_container_come_back_only_while_nothing_runs_in_it() {
    for_each_engine("", |place| {
        place.stage.write("file", "as it was\n");
        let session = Session::start(place);
        checkpoint(place, "create", &[]).expect(0, &[]);
        session.sh("echo changed > file; setsid sleep 600 > /dev/null 2>&1 < /dev/null &").expect(0, &[]);
        checkpoint(place, "restore", &["1"]).expect(2, &["nothing was restored", "--kill"]);
        assert_eq!(session.sh("cat file").text(), "changed\n");
        checkpoint(place, "restore", &["1", "--kill"]).expect(0, &["as in checkpoint 1"]);
        assert_eq!(session.sh("cat file").text(), "as it was\n", "the twin");
    });
}

#[test]
fn checkpoints_of_a_container_are_none_where_nothing_of_its_workspace_is_kept() {
    for_each_engine("fs: { workspace: { mode: ephemeral } }\n", |place| {
        let session = Session::start(place);
        session.sh("echo x > file").expect(0, &[]);
        let ended = checkpoint(place, "create", &[]);
        assert_ne!(ended.code, 0, "{ended:?}");
        assert_eq!(session.sh("cat file").text(), "x\n", "the twin: it goes on");
    });
}
