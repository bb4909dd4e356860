//! S rows: secrets of the host, results that cannot be forged, files of ours that cannot be reached.

use std::fs;

use ringfence_testkit::canary::{FileCanary, secret};

use crate::probe::{Wall, field, python, run, sh, text, walled, walled_with};
use crate::stage::Stage;

#[test]
fn s01_variables_of_the_host_are_absent_wherever_one_looks() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let script = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ps auxeww; strings /proc/1/mem; set";
    let look = |wall| run(&stage, wall, &[], &["sh", "-c", script]).env("AWS_SECRET_ACCESS_KEY", &secret).run().text();
    let inside = look(Wall::Native);
    assert!(!inside.contains(&secret), "{inside}");
    // `spawn` passes no variable on either, but shows the supervisor's.
    assert!(look(Wall::Bare).contains(&secret), "the probe proves nothing");
}

#[test]
fn s01_the_environment_is_made_up_and_holds_nothing_else() {
    let Some(stage) = walled() else { return };
    let ended = run(&stage, Wall::Native, &["--env", "MINE=1"], &["env"]).env("OTHER", "x").run().expect(0, &[]);
    let mut names: Vec<String> =
        ended.text().lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name.to_owned()).collect();
    names.sort();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "MINE", "PATH", "USER"]);
    assert!(ended.text().contains("HOME=/home/agent\n") && ended.text().contains("USER=agent\n"), "{ended:?}");
}

#[test]
fn s02_keys_and_tokens_in_a_home_are_absent() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let home = stage.path().join("home");
    let names = [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".netrc",
        ".git-credentials",
        ".docker/config.json",
        ".kube/config",
        ".config/gcloud/credentials.db",
        ".npmrc",
        ".bash_history",
    ];
    for name in names {
        fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
        fs::write(home.join(name), &secret).unwrap();
        stage.write(name, &secret);
    }
    let list = names.join(" ");
    let script = format!(
        r#"for name in {list}; do cat "$1/$name" ~/$name /workspace/../$1/$name; done
        cat /var/run/secrets/kubernetes.io/serviceaccount/token; find / -xdev -name id_ed25519 -exec cat {{}} +"#
    );
    let ended = sh(&stage, Wall::Native, &script, &[text(&home)]);
    assert!(!ended.text().contains(&secret), "{ended:?}");
    let twin = sh(&stage, Wall::Bare, &script, &[text(&home)]);
    assert!(twin.text().matches(&secret).count() >= names.len(), "the probe proves nothing: {twin:?}");
    let kept = [".bash_history"];
    let project = format!("cd /workspace; for name in {list}; do [ -e $name ] && echo $name; done; :");
    assert_eq!(
        sh(&stage, Wall::Native, &project, &[]).text().lines().collect::<Vec<_>>(),
        kept,
        "denied in a project too"
    );
}

#[test]
fn s03_a_crash_leaves_no_core_file() {
    let Some(stage) = walled() else { return };
    let script = "ulimit -c unlimited; sh -c 'kill -SEGV $$'; echo $?; ls -A | grep core; :";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!(ended.text(), "139\n", "{ended:?}");
    assert_eq!(fs::read_dir(stage.work()).unwrap().count(), 1, "something was left");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/', '@']) {
        eprintln!("SKIPPED: the twin, because cores of this host go to {pattern}");
        return;
    }
    // Without us: `spawn` leaves no core either.
    let twin = std::process::Command::new("sh").args(["-c", script]).current_dir(stage.work()).output().unwrap();
    assert!(String::from_utf8_lossy(&twin.stdout).contains("core"), "the probe proves nothing: {twin:?}");
}

/// With a limit of 0 the kernel still starts a host's core handler; with exactly 1 it does not.
#[test]
fn s03_no_program_gets_a_core_limit_that_would_start_the_hosts_core_handler() {
    let Some(stage) = walled() else { return };
    let limit = |wall, script: &str| {
        let ended = sh(&stage, wall, &format!("{script}; grep 'Max core' /proc/self/limits"), &[]);
        assert_eq!(ended.stderr, "", "a script that means well is told of no error");
        field(&ended.text(), "Max core file size").unwrap().split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    for script in ["true", "ulimit -c 0", "ulimit -Sc 0", "ulimit -c unlimited"] {
        assert_eq!(limit(Wall::Native, script), "1 1", "after {script}");
    }
    let code = "
import resource
for act in (lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))):
    try: act()
    except PermissionError: pass
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(resource.getrlimit(resource.RLIMIT_NOFILE))
";
    if let Some(ended) = python(&stage, Wall::Native, code, &[]) {
        assert_eq!(ended.text(), "(1, 1)\n(64, 64)\n", "{ended:?}");
    }
    assert_eq!(limit(Wall::Bare, "ulimit -c 0"), "0 0", "the probe proves nothing");
}

#[test]
fn s06_a_kill_and_an_exit_code_that_looks_like_one_are_told_apart() {
    let Some(stage) = walled() else { return };
    let outcome = |script| run(&stage, Wall::Native, &["--json"], &["sh", "-c", script]).run().json();
    let killed = outcome("kill -9 $$");
    assert_eq!((killed["status"].as_str(), killed["signal"].as_i64()), (Some("signalled"), Some(9)));
    assert!(killed["exitCode"].is_null());
    let exited = outcome("exit 137");
    assert_eq!((exited["status"].as_str(), exited["exitCode"].as_i64()), (Some("exited"), Some(137)));
    assert!(exited["signal"].is_null() && exited["oomKilled"] == false);
    // To a shell the two look the same.
    let codes = sh(&stage, Wall::Bare, "sh -c 'kill -9 $$'; echo $?; sh -c 'exit 137'; echo $?", &[]).text();
    assert_eq!(codes.matches("137\n").count(), 2, "the probe proves nothing: {codes}");
}

/// The ledger grows by what we write ourselves; what was there before stays.
fn starts_with(stage: &Stage, before: &[u8]) -> bool {
    fs::read(stage.ledger()).is_ok_and(|now| now.starts_with(before))
}

#[test]
fn s07_the_policy_the_ledger_the_state_and_the_binary_cannot_be_written() {
    let Some(stage) = walled() else { return };
    sh(&stage, Wall::Native, "true", &[]);
    let before = fs::read(stage.ledger()).unwrap();
    let binary = outside_copy(&stage);
    let [policy, binary_canary] =
        [stage.work().join("sandbox.policy.yaml"), binary.clone()].map(|path| FileCanary::set(path).unwrap());
    let script = r#"for file in sandbox.policy.yaml /workspace/sandbox.policy.yaml "$1/ledger.jsonl" "$2"; do
            echo 'backend: none' > $file; rm -f $file; mv sandbox.policy.yaml old
        done; rm -rf "$1"; mkdir -p "$1"; echo x > "$1/ledger.jsonl""#;
    let state = stage.state();
    let arguments = [text(&state), text(&binary)];
    sh(&stage, Wall::Native, script, &arguments);
    assert_eq!((policy.change().unwrap(), binary_canary.change().unwrap()), (None, None));
    assert!(starts_with(&stage, &before), "the ledger was changed");
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
    sh(&stage, Wall::Bare, script, &arguments);
    assert!(
        policy.change().unwrap().is_some() && binary_canary.change().unwrap().is_some(),
        "the probe proves nothing"
    );
    assert!(!starts_with(&stage, &before), "the probe proves nothing");
}

fn outside_copy(stage: &Stage) -> std::path::PathBuf {
    let path = crate::probe::outside(stage).join("ringfence");
    fs::copy(crate::stage::binary(), &path).unwrap();
    path
}

#[test]
fn s07_a_state_folder_inside_the_workspace_is_still_the_hosts_own() {
    let Some(stage) = walled() else { return };
    let home = stage.work().join("home");
    fs::create_dir(&home).unwrap();
    let ledger = home.join(".local/state/ringfence/ledger.jsonl");
    let inside = |script: &str| run(&stage, Wall::Native, &[], &["sh", "-c", script]).env("HOME", &home).run();
    inside("true").expect(0, &[]);
    let before = fs::read(&ledger).unwrap();
    inside("rm -rf home; mkdir -p home/.local/state/ringfence; echo x > home/.local/state/ringfence/ledger.jsonl")
        .expect(0, &[]);
    assert!(fs::read(&ledger).unwrap().starts_with(&before), "the ledger was changed");
    stage.ringfence(["log", "verify"]).env("HOME", &home).run().expect(0, &[]);
}

#[test]
fn the_receipt_says_what_was_seen_inside() {
    let Some(stage) = walled() else { return };
    stage.write(".env", "TOKEN=1");
    let outcome = run(&stage, Wall::Native, &["--json"], &["true"]).run().json();
    let evidence = |name: &str| {
        let enforced = outcome["enforced"].as_array().unwrap();
        let found = enforced.iter().find(|one| one["guarantee"] == name).unwrap_or_else(|| panic!("no {name}"));
        (found["strength"].as_str().unwrap().to_owned(), found["evidence"].as_str().unwrap().to_owned())
    };
    for name in [
        "fs.confined",
        "fs.deny",
        "fs.size",
        "fs.workspace",
        "net.none",
        "priv.none",
        "priv.no-new",
        "kernel.filter",
        "proc.hidden",
        "proc.no-core",
        "proc.file-size",
        "proc.open-files",
        "fd.clean",
        "env.clean",
    ] {
        let (strength, text) = evidence(name);
        assert_eq!(strength, "enforced", "{name}");
        assert!(text.contains("seen inside: "), "{name}: {text}");
    }
    for name in ["proc.memory", "proc.processes", "proc.cpus"] {
        let (strength, text) = evidence(name);
        assert_eq!(strength == "enforced", text.contains("cgroup"), "{name} is {strength} by {text}");
        assert_eq!(strength == "enforced", text.contains("seen inside: in its cgroup"), "{name}: {text}");
    }
    // What only shows itself later is kept from outside.
    for name in ["time.limit", "output.limit", "time.prompt-return", "proc.no-survivors", "fs.protect"] {
        assert!(!evidence(name).1.contains("seen inside"), "{name}");
    }
    // The limits are the default policy's, and the variables are those that the program has.
    assert!(
        evidence("proc.open-files").1.ends_with("seen inside: 1024, soft and hard, also after an attempt to raise it")
    );
    let variables = run(&stage, Wall::Native, &[], &["env"]).run().text().lines().count();
    let counted = format!("seen inside: execve gets the {variables} listed strings alone");
    assert!(evidence("env.clean").1.ends_with(&counted), "{}", evidence("env.clean").1);
    assert_eq!(outcome["notEnforced"].as_array().unwrap().len(), 0);
    assert_eq!(outcome["backend"], "native");
    let bare = run(&stage, Wall::Bare, &["--json"], &["true"]).run().json();
    assert!(
        !bare["enforced"].to_string().contains("seen inside")
            && bare["notEnforced"].to_string().contains("fs.confined")
    );
}

#[test]
fn s01_keys_of_the_hosts_user_are_not_listed() {
    let Some(stage) = walled() else { return };
    let code = "
import ctypes, sys
if sys.argv[1:]:
    # A key of the user, which every process of the user may see.
    ctypes.CDLL(None).syscall(248, b'user', sys.argv[1].encode(), b'x', 1, -4)
try: print(open('/proc/keys').read())
except OSError: pass
";
    if !cfg!(target_arch = "x86_64") {
        eprintln!("SKIPPED: the number of add_key is that of x86_64");
        return;
    }
    let name = secret().unwrap();
    let Some(twin) = python(&stage, Wall::Bare, code, &[&name]) else { return };
    if !twin.text().contains(&name) {
        eprintln!("SKIPPED: this kernel lists no keys");
        return;
    }
    let ended = python(&stage, Wall::Native, code, &[]).unwrap();
    let remove = "
import ctypes, sys
libc = ctypes.CDLL(None)
key = libc.syscall(250, 10, -4, b'user', sys.argv[1].encode(), 0)
libc.syscall(250, 9, key, -4)
";
    python(&stage, Wall::Bare, remove, &[&name]);
    assert!(!ended.text().contains(&name), "{ended:?}");
}

#[test]
fn f11_another_name_of_a_denied_file_is_denied_as_the_file_is() {
    let Some(stage) = walled_with("fs: { deny: [\"keys/**\"] }\n") else { return };
    let words = [secret().unwrap(), secret().unwrap()];
    let env = stage.write(".env", &words[0]);
    let key = stage.write("keys/one", &words[1]);
    stage.write("deep/seen", "seen\n");
    fs::hard_link(env, stage.work().join("notes.txt")).unwrap();
    fs::hard_link(key, stage.work().join("deep/key")).unwrap();
    fs::hard_link(stage.work().join("deep/seen"), stage.work().join("deep/again")).unwrap();
    let script = "cat .env notes.txt keys/one deep/key; cat deep/seen deep/again; ls . deep";
    let bare = sh(&stage, Wall::Bare, script, &[]);
    assert!(words.iter().all(|word| bare.text().contains(word)), "the twin: {bare:?}");
    for mode in ["review", "read-only"] {
        let ended = run(&stage, Wall::Native, &["--mode", mode], &["sh", "-c", script]).run();
        assert!(!words.iter().any(|word| ended.text().contains(word)), "{mode}: {ended:?}");
        assert!(ended.text().starts_with("seen\nseen\n") && !ended.text().contains("notes.txt"), "{mode}: {ended:?}");
    }
}
