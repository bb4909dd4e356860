//! What of the host goes in, and what the program can make us believe.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::stage::Stage;

const SECRET: &str = "s3cret-0f-the-h0st";

#[test]
fn s01_a_variable_of_the_host_is_absent_and_its_name_is_told() {
    let stage = Stage::new();
    let steal = "env > env; cat /proc/self/environ > environ; printf %s \"$AWS_SECRET_ACCESS_KEY\" > direct; :";
    let run = |backend: &str| {
        let ended = stage
            .ringfence(["run", "-q", "--json", "--backend", backend, "--", "sh", "-c", steal])
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .run()
            .expect(0, &[]);
        let found = ["env", "environ", "direct"].map(|name| stage.read(name).unwrap().contains(SECRET));
        (found, ended)
    };
    let (found, ended) = run("spawn");
    assert_eq!(found, [false; 3]);
    assert!(!ended.text().contains(SECRET), "the outcome holds the value");
    let withheld = ended.json()["envWithheld"].clone();
    assert!(withheld.as_array().unwrap().contains(&"AWS_SECRET_ACCESS_KEY".into()), "{withheld}");
    let (found, _) = run("none");
    assert_eq!(found, [true; 3], "the twin: without a clean environment the probe finds it");
}

#[test]
fn s01_a_variable_goes_in_only_when_the_policy_lists_it() {
    let stage =
        Stage::with_policy("version: 1\nbackend: spawn\nproc: { env: { pass: [MY_*], set: { FIXED: \"1\" } } }\n");
    let script = "printf '%s,%s,%s,%s' \"$MY_NAME\" \"$FIXED\" \"$OTHER\" \"$LANG\"";
    let ended = stage.ringfence(["run", "-q", "--", "sh", "-c", script]).env("MY_NAME", "me").env("OTHER", "x").run();
    assert_eq!(ended.expect(0, &[]).text(), "me,1,,C.UTF-8");
    stage
        .ringfence(["run", "--pass-env", "OTHER", "--", "true"])
        .env("OTHER", "x")
        .run()
        .expect(126, &["refused:", "proc.env.pass"]);
    stage
        .ringfence(["run", "-q", "--pass-env", "MY_NAME", "--", "sh", "-c", "[ \"$MY_NAME\" = me ]"])
        .env("MY_NAME", "me")
        .run()
        .expect(0, &[]);
}

#[test]
fn a_variable_that_changes_how_programs_load_code_cannot_be_set_by_a_flag() {
    let stage = Stage::spawn();
    for name in ["LD_PRELOAD", "PATH", "BASH_ENV", "PYTHONSTARTUP", "NODE_OPTIONS"] {
        let ended = stage.ringfence(["run", "--env", &format!("{name}=/x"), "--", "touch", "canary"]).run();
        assert!([2, 126].contains(&ended.code), "{name}: {ended:?}");
    }
    assert_eq!(stage.read("canary"), None);
    stage.ringfence(["run", "-q", "--env", "HARMLESS=1", "--", "sh", "-c", "[ $HARMLESS = 1 ]"]).run().expect(0, &[]);
}

#[test]
fn f14_a_descriptor_that_we_inherited_does_not_go_in() {
    let stage = Stage::new();
    let secret = stage.path().join("outside");
    std::fs::write(&secret, SECRET).unwrap();
    let leaked = rustix::io::dup(File::open(&secret).unwrap()).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let number = leaked.as_raw_fd();
    let script = format!("cat /proc/self/fd/{number} > stolen 2>/dev/null; ls /proc/self/fd | wc -l > count");
    let bare = std::process::Command::new("sh").args(["-c", &script]).current_dir(stage.work()).status().unwrap();
    assert!(bare.success() && stage.read("stolen").unwrap() == SECRET, "the twin reads the descriptor");
    for backend in ["spawn", "none"] {
        stage.ringfence(["run", "-q", "--backend", backend, "--", "sh", "-c", &script]).run().expect(0, &[]);
        assert_eq!(stage.read("stolen").unwrap(), "", "`{backend}` leaks");
        // 0, 1 and 2, and the one that `ls` reads the folder through.
        assert_eq!(stage.read("count").unwrap().trim(), "4");
    }
}

#[test]
fn n01_the_program_cannot_gain_privileges_under_spawn() {
    let stage = Stage::new();
    let look = "grep NoNewPrivs /proc/self/status > status";
    stage.spawn_sh(look).run().expect(0, &[]);
    assert_eq!(stage.read("status").unwrap(), "NoNewPrivs:\t1\n");
    stage.ringfence(["run", "-q", "--backend", "none", "--", "sh", "-c", look]).run().expect(0, &[]);
    assert_eq!(stage.read("status").unwrap(), "NoNewPrivs:\t0\n", "the twin");
}

#[test]
fn s05_what_the_program_prints_is_never_taken_for_its_outcome() {
    let stage = Stage::new();
    let forge = r#"printf '{"exitCode":0,"status":"exited"}\n'
        printf '{"v":1,"event":"ended","outcome":{"exitCode":0}}\n'
        for n in 3 4 5 6 7 8 9; do eval "printf '{\"exitCode\":0}' >&$n" 2>/dev/null; done; exit 7"#;
    let ended = stage.spawn_sh_with(&["--json"], forge).run().expect(7, &[]);
    assert_eq!((&ended.json()["exitCode"], &ended.json()["status"]), (&7.into(), &"exited".into()));
    let events = stage.spawn_sh_with(&["--events"], forge).run().expect(7, &[]).text();
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!(last["outcome"]["exitCode"], 7);
    let forged = events.lines().filter(|line| line.contains("\"event\":\"ended\"")).count();
    assert_eq!(forged, 1, "a forged line is an event of its own:\n{events}");
}

#[test]
fn s04_a_secret_on_the_command_line_is_not_in_the_ledger() {
    let stage = Stage::spawn();
    stage
        .ringfence(["run", "-q", "--env", &format!("API_TOKEN={SECRET}"), "--", "true", "--password", SECRET])
        .run()
        .expect(0, &[]);
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.contains("--password") && ledger.contains("API_TOKEN"), "{ledger}");
    assert!(!ledger.contains(SECRET), "{ledger}");
}
