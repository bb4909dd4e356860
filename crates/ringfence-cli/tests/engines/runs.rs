//! Ordinary runs: codes, output, limits of time, the image, and backends that are not there.

use std::time::{Duration, Instant};

use crate::stage::Stage;
use crate::walls::for_each_engine;

#[test]
fn a_program_runs_with_its_output_and_its_exit_code_or_is_skipped_loudly() {
    for_each_engine("", |place| {
        let ended = place.sh("echo out; echo err >&2; exit 7", &[]);
        assert_eq!((ended.code, &*ended.text()), (7, "out\n"), "{ended:?}");
        assert!(ended.stderr.contains("err\n"), "{ended:?}");
        let ended = place.run(&["--stdin"], &["cat"]).stdin("through\n").run().expect(0, &[]);
        assert_eq!(ended.text(), "through\n");
        place.run(&[], &["no-such-program"]).run().expect(127, &[]);
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn s06_a_signal_and_a_code_that_looks_like_one_are_told_apart() {
    for_each_engine("", |place| {
        let killed = place.outcome(&[], "kill -9 $$");
        assert_eq!((killed["signal"].as_i64(), killed["exitCode"].as_i64()), (Some(9), None), "{killed:#}");
        let exited = place.outcome(&[], "exit 137");
        assert_eq!((exited["signal"].as_i64(), exited["exitCode"].as_i64()), (None, Some(137)), "{exited:#}");
    });
}

#[test]
fn s05_no_descriptor_of_a_program_leads_to_the_guest_and_what_it_prints_decides_nothing() {
    for_each_engine("", |place| {
        let forged = "printf '{\"exitCode\":0}'; i=3; while [ $i -lt 40 ]; do \
            printf 'RFG\\001\\010\\000\\000\\000\\003\\002\\000\\000' >&$i; i=$((i+1)); done 2> /dev/null; exit 7";
        let outcome = place.run(&["--json"], &["bash", "-c", forged]).run().json();
        assert_eq!(outcome["exitCode"], 7, "{outcome:#}");
        let open = place.sh("set -- /proc/self/fd/*; echo $#", &[]).expect(0, &[]).text();
        assert_eq!(open.trim(), "4", "its own three, and the one that lists");
    });
}

#[test]
fn r09_a_time_limit_ends_what_ignores_signals_stops_itself_or_is_busy() {
    for_each_engine("", |place| {
        for script in ["trap '' TERM INT HUP; sleep 100", "kill -STOP $$", "while :; do :; done"] {
            let begin = Instant::now();
            let outcome = place.outcome(&["--timeout", "1s"], script);
            assert_eq!(outcome["timedOut"], true, "{script}: {outcome:#}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{script} took {:?}", begin.elapsed());
        }
        assert!(place.is_soon_empty(), "a container is left");
        let twin = place.limitless(&["--timeout", "10s"], &["sh", "-c", "sleep 1.5"]);
        assert_eq!(twin["exitCode"], 0, "the probe proves nothing: {twin:#}");
    });
}

#[test]
fn s08_odd_arguments_reach_a_program_in_a_container_and_leave_the_ledger_in_order() {
    let hostile = "x\n{\"v\":1,\"seq\":0,\"kind\":\"ended\",\"run\":\"\"}\n\",\"hash\":\"0";
    let long = "a".repeat(120 << 10);
    for_each_engine("", |place| {
        let ended = place.run(&[], &["printf", "%s|", hostile, "", "--privileged", "-v", "/:/host", &long]).run();
        assert_eq!(ended.text(), format!("{hostile}||--privileged|-v|/:/host|{long}|"), "{}", place.wall);
        let verified = place.ringfence(&["log", "verify"]).run().expect(0, &[]).text();
        assert!(verified.contains("are in order, 0 problems"), "{verified}");
        assert_eq!(place.runs().len(), 1, "{}: the ledger knows of another run", place.wall);
        // The twin: as a line of its own it would be one.
        let mut text = std::fs::read_to_string(place.stage.ledger()).unwrap();
        text.push_str(&format!("{hostile}\n"));
        std::fs::write(place.stage.ledger(), text).unwrap();
        assert_ne!(place.ringfence(&["log", "verify"]).run().code, 0);
    });
}

#[test]
fn s12_the_image_is_recorded_by_what_it_is_and_another_digest_is_refused() {
    for_each_engine("", |place| {
        let outcome = place.outcome(&[], "true");
        assert!(outcome["image"].to_string().contains("sha256:"), "{outcome:#}");
        let (_, image) = place.wall.engine.clone().unwrap();
        let wrong = format!("{}@sha256:{}", image.split(':').next().unwrap(), "0".repeat(64));
        let other = place.wall.policy().replace(&format!("image: {image}"), &format!("image: {wrong}"));
        place.stage.write("sandbox.policy.yaml", format!("version: 1\n{other}"));
        let ended = place.run(&["--json"], &["true"]).run();
        assert!(matches!(ended.code, 125 | 126), "{ended:?}");
    });
}

#[test]
fn s14_no_option_of_an_engine_comes_in_through_words_of_the_policy() {
    for_each_engine("", |place| {
        for image in ["--privileged", "-v/:/host", "\"x --privileged\"", "\"x\\n--privileged\"", "../x", "\"\""] {
            place
                .stage
                .write("sandbox.policy.yaml", format!("version: 1\nbackend: {}\nimage: {image}\n", place.wall.kind));
            let ended = place.run(&[], &["true"]).run();
            assert!(matches!(ended.code, 2 | 125 | 126), "{image}: {ended:?}");
        }
    });
    // The twin is every other test of this file: a plain name runs.
}

#[test]
fn s15_a_backend_that_is_missing_is_an_error_and_never_less() {
    for backend in ["docker", "podman"] {
        let stage = Stage::with_policy(&format!("version: 1\nbackend: {backend}\nimage: x:1\n"));
        let mark = stage.work().join("ran");
        for name in ["DOCKER_HOST", "CONTAINER_HOST"] {
            let invocation = stage.ringfence(["run", "-q", "--", "sh", "-c", "echo x > ran"]);
            let ended = invocation.env(name, "unix:///no/such/socket").run();
            assert_eq!(ended.code, 125, "{ended:?}");
            assert!(!mark.exists());
        }
    }
    let stage = Stage::spawn();
    stage.spawn_sh("echo x > ran").run().expect(0, &[]);
    assert!(stage.work().join("ran").exists(), "the probe proves nothing");
}

#[test]
fn doctor_knows_a_rootless_engine_and_what_it_says_of_limits_is_what_a_run_says() {
    for_each_engine("", |place| {
        let kind = place.wall.kind.to_string();
        let report = place.ringfence(&["doctor", "--json"]).run().json();
        let about = |list: &str, name: &str| {
            let mut all = report[list].as_array().unwrap().iter();
            all.find(|one| one[name] == *kind).cloned().unwrap()
        };
        let engine = about("engines", "engine");
        assert_eq!(engine["rootless"], place.wall.name.ends_with("rootless"), "{engine:#}");
        let limits_memory = about("backends", "backend")["guarantees"]["proc.memory"] == "enforced";
        assert_eq!(limits_memory, place.enforces("proc.memory"), "{report:#}");
        // What it cannot limit is said with what to do.
        let warnings = engine["warnings"].to_string();
        let is_old = engine["facts"]["cgroups"].as_str().unwrap().starts_with("v1");
        if place.wall.shows_processes() && is_old {
            assert!(limits_memory || warnings.contains("boot with cgroups of version 2"), "{engine:#}");
        }
    });
}
