//! Hosts that forbid the wall although no setting says so: a filter of system calls as container engines put one around what they
//! start, and a root that may not do all. Each test's twin is the same host without that.

use std::ffi::OsStr;
use std::path::Path;

use crate::probe::{interpreter, is_root, walled_with};
use crate::stage::{Ended, Invocation, Stage};

/// Refuses what an engine's filter refuses to whoever has no CAP_SYS_ADMIN, and executes its arguments.
const FILTER: &str = "
import ctypes, os, platform, struct, sys
machine = {'x86_64': (56, 272, 165), 'aarch64': (220, 97, 40)}[platform.machine()]
clone, unshare, mount = machine
clone3, mounts = 435, [mount, 428, 429, 430, 431, 432, 442]
code = lambda *line: struct.pack('HBBI', *line)
fail = lambda errno: code(0x06, 0, 0, 0x00050000 | errno)
lines = [code(0x20, 0, 0, 0)]
for number, errno in [(clone3, 38), (unshare, 1)] + [(number, 1) for number in mounts]:
    lines += [code(0x15, 0, 1, number), fail(errno)]
lines += [code(0x15, 0, 3, clone), code(0x20, 0, 0, 16), code(0x45, 0, 1, 0x7e020000), fail(1), code(0x06, 0, 0, 0x7fff0000)]
text = b''.join(lines)
kept = ctypes.create_string_buffer(text)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(lines), ctypes.addressof(kept)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";
/// No engine of this host is one of a test's.
const NOWHERE: &str = "unix:///nowhere/engine.sock";

/// A stage on a host with the wall, and the Python that forbids it.
fn staged(policy: &str) -> Option<(Stage, std::path::PathBuf)> {
    Some((walled_with(policy)?, interpreter()?))
}

fn without_engines<'a>(stage: &'a Stage, arguments: &[&str]) -> Invocation<'a> {
    stage.ringfence(arguments).env("DOCKER_HOST", NOWHERE).env("CONTAINER_HOST", NOWHERE)
}

/// `ringfence ARGUMENTS…` behind the filter.
fn filtered(stage: &Stage, python: &Path, arguments: &[&str]) -> Ended {
    let python = python.to_str().unwrap();
    without_engines(stage, arguments).by_way_of(python, &["-c", FILTER].map(OsStr::new)).run()
}

fn native(doctor: &Ended) -> serde_json::Value {
    let json = doctor.json();
    json["backends"].as_array().unwrap().iter().find(|one| one["backend"] == "native").unwrap().clone()
}

#[test]
fn n13_behind_a_filter_as_engines_have_it_doctor_says_what_fails_why_and_what_to_do() {
    let Some((stage, python)) = staged("") else { return };
    let doctor = filtered(&stage, &python, &["doctor", "--json"]);
    let found = native(&doctor);
    assert_eq!(found["usable"], false, "{found}");
    let (reason, fix) = (found["reason"].as_str().unwrap(), found["fix"].as_str().unwrap());
    assert!(reason.starts_with("it may not make a user namespace here (Operation not permitted"), "{reason}");
    assert!(reason.contains("seccomp filter") && fix.contains("seccomp") | fix.contains("filter"), "{reason} {fix}");
    assert_eq!(doctor.json()["wouldUse"], serde_json::Value::Null);
    let page = filtered(&stage, &python, &["doctor"]).expect(1, &[]);
    assert!(page.text().contains("native      no   it may not make a user namespace here"), "{page:?}");
    assert_eq!(native(&without_engines(&stage, &["doctor", "--json"]).run())["usable"], true, "the twin");
}

#[test]
fn s15_a_wall_that_the_host_forbids_is_an_error_where_the_policy_lists_nothing_else() {
    let Some((stage, python)) = staged("") else { return };
    for arguments in [&["--backend", "native"][..], &["--backend", "auto"], &[]] {
        let arguments = [&["run"], arguments, &["--", "touch", "ran"]].concat();
        let said = ["error: ", "it may not make a user namespace here", "hint: "];
        filtered(&stage, &python, &arguments).expect(125, &said);
        assert_eq!(stage.read("ran"), None, "{arguments:?}");
    }
    let named = filtered(&stage, &python, &["run", "--backend", "native", "--", "touch", "ran"]);
    assert!(
        named.stderr.contains("hint: permit clone") || named.stderr.contains("hint: start the container"),
        "{named:?}"
    );
    without_engines(&stage, &["run", "--apply", "--", "touch", "ran"]).run().expect(0, &[]);
    assert!(stage.read("ran").is_some(), "the twin runs");
}

#[test]
fn s15_a_wall_that_the_host_forbids_leads_to_what_the_policy_lists_loudly_and_in_the_ledger() {
    for wanted in ["auto", "native"] {
        let policy = format!("backend: {{ use: {wanted}, fallback: [microvm, spawn] }}\n");
        let Some((stage, python)) = staged(&policy) else { return };
        let arguments = ["run", "--json", "--quiet", "--stdin", "--", "sh", "-c", "cat > ran; echo done"];
        let python_path = python.to_str().unwrap();
        let ended = without_engines(&stage, &arguments)
            .by_way_of(python_path, &["-c", FILTER].map(OsStr::new))
            .stdin("whole")
            .run()
            .expect(0, &["falls back to `spawn`", "it may not make a user namespace here"]);
        let outcome = ended.json();
        assert_eq!(
            (&outcome["backend"], &outcome["fellBack"]["wanted"]),
            (&"spawn".into(), &wanted.into()),
            "{outcome}"
        );
        assert!(outcome["fellBack"]["reason"].as_str().unwrap().contains("it may not make a user namespace here"));
        assert_eq!((outcome["stdout"].as_str(), stage.read("ran").as_deref()), (Some("done\n"), Some("whole")));
        // Each wall that was tried was planned first, and the request was judged once.
        let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
        let lines: Vec<serde_json::Value> = ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
        assert_eq!(kinds, ["requested", "judged", "planned", "planned", "started", "ended"], "{ledger}");
        let planned: Vec<_> = lines.iter().filter(|line| line["kind"] == "planned").map(|line| &line["body"]).collect();
        assert_eq!((&planned[0]["backend"], &planned[0]["fellBack"]), (&"native".into(), &serde_json::Value::Null));
        assert_eq!((&planned[1]["backend"], &planned[1]["fellBack"]["wanted"]), (&"spawn".into(), &wanted.into()));
        stage.ringfence(["log", "verify"]).run().expect(0, &[]);
        let bare = without_engines(&stage, &["run", "--json", "--quiet", "--", "true"]).run().expect(0, &[]).json();
        assert_eq!((&bare["backend"], &bare["fellBack"]), (&"native".into(), &serde_json::Value::Null), "the twin");
    }
}

#[test]
fn s15_a_session_that_the_host_forbids_is_an_error_with_the_reason() {
    let Some((stage, python)) = staged("") else { return };
    let said = ["it may not make a user namespace here", "hint: "];
    filtered(&stage, &python, &["session", "start", "forbidden"]).expect(125, &said);
    without_engines(&stage, &["session", "start", "allowed"]).run().expect(0, &[]);
    without_engines(&stage, &["session", "stop", "allowed"]).run().expect(0, &[]);
}

#[test]
fn n13_a_root_without_the_capability_for_mounts_is_told_so_and_falls_back_only_by_the_policy() {
    if !is_root() {
        eprintln!("SKIPPED: only root has a capability to lack");
        return;
    }
    let Some((stage, _)) = staged("") else { return };
    let lacking = |arguments: &[&str]| {
        let words = ["--bounding-set=-sys_admin", "--inh-caps=-all", "--"].map(OsStr::new);
        without_engines(&stage, arguments).by_way_of("setpriv", &words).run()
    };
    let found = native(&lacking(&["doctor", "--json"]));
    assert_eq!(found["usable"], false, "{found}");
    assert!(found["reason"].as_str().unwrap().contains("this root has no CAP_SYS_ADMIN"), "{found}");
    lacking(&["run", "--", "touch", "ran"]).expect(125, &["this root has no CAP_SYS_ADMIN"]);
    assert_eq!(stage.read("ran"), None);
    stage.write("sandbox.policy.yaml", "version: 1\nbackend: { use: auto, fallback: [spawn] }\n");
    let outcome = lacking(&["run", "--json", "--", "touch", "ran"]).expect(0, &["falls back to `spawn`"]).json();
    assert!(outcome["fellBack"]["reason"].as_str().unwrap().contains("CAP_SYS_ADMIN"), "{outcome}");
    let whole = without_engines(&stage, &["run", "--json", "--", "true"]).run().expect(0, &[]).json();
    assert_eq!(whole["backend"], "native", "the twin");
}
