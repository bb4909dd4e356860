//! N13: a layer of the wall that this machine does not have. Taken away by a filter, or a cover, around all of us.

use std::ffi::OsStr;

use crate::probe::{interpreter, is_root, text, walled, walled_with};
use crate::stage::{Ended, Stage};

/// Executes its other arguments where the call of the first one's number is unknown.
const WITHOUT_CALL: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
load, equals, answer = 0x20, 0x15, 0x06
unknown, allowed = 0x00050000 | 38, 0x7fff0000
steps = [(load, 0, 0, 0), (equals, 0, 1, int(sys.argv[1])), (answer, 0, 0, unknown), (answer, 0, 0, allowed)]
steps = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *step) for step in steps), 8 * len(steps))
program = ctypes.create_string_buffer(struct.pack('@HP', 4, ctypes.addressof(steps)), 16)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0): sys.exit('no filter here')
os.execv(sys.argv[2], sys.argv[2:])
";

const LANDLOCK_CREATE_RULESET: &str = "444";
const SECCOMP: &str = if cfg!(target_arch = "x86_64") { "317" } else { "277" };

/// `ringfence ARGS…` on a kernel that does not know this call.
fn without_call(stage: &Stage, call: &str, arguments: &[&str]) -> Ended {
    let python = interpreter().unwrap();
    let code = ["-c", WITHOUT_CALL, call].map(OsStr::new);
    stage.ringfence(arguments).by_way_of(text(&python), &code).run()
}

/// Of what `doctor` says about the native wall.
fn doctor(ended: &Ended) -> serde_json::Value {
    let all = ended.json()["backends"].as_array().unwrap().clone();
    all.into_iter().find(|one| one["backend"] == "native").unwrap()
}

#[test]
fn n13_without_landlock_or_a_filter_nothing_runs_and_doctor_says_what_is_missing() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    for (call, missing) in [(LANDLOCK_CREATE_RULESET, "no Landlock"), (SECCOMP, "no filters of system calls")] {
        for backend in ["native", "auto"] {
            let arguments = ["run", "--json", "--backend", backend, "--", "touch", "/workspace/ran", "ran"];
            let outcome = without_call(&stage, call, &arguments).expect(125, &[]).json();
            assert_eq!(outcome["status"], "couldNotRun", "{outcome:#}");
            assert!(outcome["error"].to_string().contains(missing), "{outcome:#}");
            assert_eq!(stage.read("ran"), None);
        }
        let found = doctor(&without_call(&stage, call, &["doctor", "--json"]));
        assert_eq!(found["usable"], false, "{found:#}");
        assert!(found.to_string().contains(missing), "{found:#}");
    }
    // The twin: with a call less that nobody needs, everything is as ever.
    let there = without_call(&stage, "470", &["run", "--json", "--backend", "native", "--", "true"]).expect(0, &[]);
    assert_eq!(there.json()["backend"], "native");
}

#[test]
fn n13_without_cgroups_limits_are_watched_and_a_policy_that_wants_them_enforced_is_refused() {
    let Some(stage) = walled() else { return };
    let covered = |stage: &Stage, arguments: &[&str]| {
        // An ordinary user has none here, or is left out below.
        if !is_root() {
            return stage.ringfence(arguments).run();
        }
        let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
        let cover = ["--mount", "--", "sh", "-c", script, "sh"].map(OsStr::new);
        stage.ringfence(arguments).by_way_of("unshare", &cover).run()
    };
    let strengths = |outcome: &serde_json::Value| {
        let all = outcome["enforced"].as_array().unwrap();
        ["proc.memory", "proc.cpus", "proc.processes"].map(|name| {
            let one = all.iter().find(|one| one["guarantee"] == name).unwrap_or_else(|| panic!("{outcome:#}"));
            one["strength"].as_str().unwrap().to_owned()
        })
    };
    let arguments = ["run", "--json", "--backend", "native", "--", "true"];
    let ended = covered(&stage, &arguments);
    if ended.stderr.contains("unshare:") || ended.stderr.contains("mount:") {
        eprintln!("SKIPPED: what shows cgroups cannot be covered here: {ended:?}");
        return;
    }
    let outcome = ended.expect(0, &[]).json();
    if !is_root() && strengths(&outcome).contains(&"enforced".to_owned()) {
        eprintln!("SKIPPED: this user has a cgroup, and cannot take it away");
        return;
    }
    assert_eq!(strengths(&outcome), ["watched"; 3]);
    assert!(covered(&stage, &["doctor", "--json"]).text().contains("cgroup"));
    let Some(strict) = walled_with("proc: { limits: enforced }\n") else { return };
    let refused = covered(&strict, &["run", "--backend", "native", "--", "touch", "ran"]);
    assert!(refused.code == 125 || refused.code == 126, "{refused:?}");
    assert!(refused.stderr.contains("proc.memory") && refused.stderr.contains("cgroup"), "{refused:?}");
    assert_eq!(strict.read("ran"), None);
    // The twin: with its cgroups it runs, where this machine has them.
    if is_root() && strengths(&stage.ringfence(arguments).run().json()) == ["enforced"; 3] {
        strict.ringfence(arguments).run().expect(0, &[]);
    }
}
