//! A host that forbids user namespaces: made by a user namespace of our own, in which no further one may be made.

use std::process::Command;

use crate::probe::{fenced, is_root};
use crate::stage::{Ended, Stage, binary};

/// `ringfence ARGS…` where no user namespace can be made. Nothing, loudly, where that cannot be set up.
fn without_namespaces(stage: &Stage, arguments: &[&str]) -> Option<Ended> {
    if is_root() {
        eprintln!("SKIPPED: root is not who is forbidden to make namespaces");
        return None;
    }
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
        exec setpriv --ambient-caps=-all --inh-caps=-all --bounding-set=-all -- \"$@\"";
    let mut command = Command::new("unshare");
    command.args([&format!("--map-user={user}"), &format!("--map-group={group}"), "--keep-caps", "--"]);
    command.args(["sh", "-c", script, "sh"]).arg(binary()).args(arguments);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", stage.path().join("home"));
    command.env("LANG", "C.UTF-8").env("RINGFENCE_VALIDATE", "off").current_dir(stage.work());
    let ended = match command.output() {
        Ok(output) => Ended::from(output),
        Err(error) => {
            eprintln!("SKIPPED: no `unshare` here: {error}");
            return None;
        }
    };
    if ended.stderr.contains("unshare:") || ended.stderr.contains("setpriv:") || ended.stderr.contains("cannot create")
    {
        eprintln!("SKIPPED: namespaces cannot be forbidden here: {}", ended.stderr);
        return None;
    }
    Some(ended)
}

#[test]
fn n13_without_user_namespaces_auto_refuses_and_says_what_the_tier_would_lack() {
    let Some(stage) = fenced() else { return };
    let Some(ended) = without_namespaces(&stage, &["run", "--", "touch", "ran"]) else { return };
    let said = [
        "user.max_user_namespaces = 0",
        "`--backend landlock` would run it with less",
        "fs.size, proc.cpus, priv.none, proc.hidden",
    ];
    ended.expect(125, &said);
    assert_eq!(stage.read("ran"), None);
}

#[test]
fn n13_without_user_namespaces_native_names_the_reason_and_the_fix() {
    let Some(stage) = fenced() else { return };
    let Some(ended) = without_namespaces(&stage, &["doctor", "--json"]) else { return };
    let backends = ended.json()["backends"].clone();
    let find = |name: &str| backends.as_array().unwrap().iter().find(|one| one["backend"] == name).unwrap().clone();
    assert_eq!(find("native")["usable"], false);
    assert!(find("native").to_string().contains("max_user_namespaces"), "{}", find("native"));
    assert_eq!(find("landlock")["usable"], true, "{}", find("landlock"));
}

#[test]
fn n13_without_user_namespaces_the_tier_holds_by_name() {
    let Some(stage) = fenced() else { return };
    std::fs::write(stage.path().join("secret"), "outside the workspace").unwrap();
    stage.write("note", "in the workspace\n");
    let script = "cat note; cat ../secret; echo x > ../made; echo x > made";
    let arguments = ["run", "--backend", "landlock", "--", "sh", "-c", script];
    let Some(ended) = without_namespaces(&stage, &arguments) else { return };
    assert_eq!(ended.text(), "in the workspace\n", "{ended:?}");
    assert!(ended.stderr.contains("`landlock` is a wall with gaps"), "{ended:?}");
    assert!(!stage.path().join("made").exists() && stage.read("made").is_none());
    let Some(bare) = without_namespaces(&stage, &["run", "-q", "--backend", "spawn", "--", "sh", "-c", script]) else {
        return;
    };
    assert!(bare.text().contains("outside the workspace") && stage.path().join("made").exists(), "the twin: {bare:?}");
}
