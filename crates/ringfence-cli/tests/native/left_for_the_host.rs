//! What a program leaves in its workspace for the host to obey, and what of it comes there: for all walls alike.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use ringfence_testkit::canary::FileCanary;

use crate::stage::{Ended, Stage};

/// Runs a script for the shell with arguments behind the wall, in the workspace of a stage, and tells all that is told.
pub(crate) type Sh<'a> = &'a dyn Fn(&str, &[&str]) -> Ended;

pub(crate) const DIRECT: &str =
    "fs: { workspace: { mode: direct }, deny: [\"**/.env\"], protect: [\"**/kept.txt\"] }\n";
/// What was written is the host's when the program has ended, and nothing is protected but what always is.
pub(crate) const DIRECT_ALONE: &str = "fs: { workspace: { mode: direct } }\n";
/// Every way to make the host execute something later, and two harmless changes.
pub(crate) const PLANTS: &str = "mkdir -p .git/hooks sub/.vscode .claude; \
    echo x > .git/hooks/pre-commit; echo x > sub/.vscode/tasks.json; echo {} > .claude/settings.json; \
    echo x > .mcp.json; echo x > .envrc; echo x > kept.txt; echo x > .env; \
    echo new > new.txt; echo changed > old.txt; rm gone.txt; chmod 700 tool.sh";

pub(crate) fn filled(stage: &Stage) {
    stage.write("old.txt", "old\n");
    stage.write("gone.txt", "gone\n");
    stage.write("kept.txt", "kept\n");
    stage.write("tool.sh", "#!/bin/sh\n");
}

/// The twin: the same in the workspace of `stage`, without a wall.
fn bare(stage: &Stage, script: &str, arguments: &[&str]) {
    let status = Command::new("sh").args(["-c", script, "sh"]).args(arguments).current_dir(stage.work()).status();
    assert!(status.unwrap().success());
}

fn mode(stage: &Stage, name: &str) -> u32 {
    fs::metadata(stage.work().join(name)).unwrap().permissions().mode() & 0o777
}

/// F06, under [`DIRECT`].
pub(crate) fn direct_takes_changes_to_the_host(stage: &Stage, sh: Sh<'_>) {
    filled(stage);
    stage.write(".env", "SECRET=1\n");
    let ended = sh(PLANTS, &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(stage.read("new.txt").as_deref(), Some("new\n"), "{ended:?}");
    assert_eq!(stage.read("old.txt").as_deref(), Some("changed\n"));
    assert_eq!(stage.read("gone.txt"), None);
    assert_eq!(mode(stage, "tool.sh"), 0o700);
    assert_eq!(stage.read("kept.txt").as_deref(), Some("kept\n"), "a protected file was changed");
    assert_eq!(stage.read(".env").as_deref(), Some("SECRET=1\n"), "a denied file was changed");
    for planted in [".git/hooks/pre-commit", "sub/.vscode/tasks.json", ".claude/settings.json", ".mcp.json", ".envrc"] {
        assert_eq!(stage.read(planted), None, "{planted} reached the host: {ended:?}");
    }
    assert!(ended.stderr.contains("held back"), "{ended:?}");
}

/// F04, under [`DIRECT_ALONE`].
pub(crate) fn direct_does_not_let_a_folder_be_moved_away(stage: &Stage, sh: Sh<'_>) {
    stage.write(".git/hooks/pre-commit", "mine\n");
    stage.write(".git/config", "[core]\n");
    let script = "mv .git .g2; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo fine > fine.txt";
    let ended = sh(script, &[]);
    assert_eq!(stage.read(".git/hooks/pre-commit").as_deref(), Some("mine\n"), "{ended:?}");
    assert_eq!(stage.read(".git/config").as_deref(), Some("[core]\n"), "{ended:?}");
    assert_eq!(stage.read("fine.txt").as_deref(), Some("fine\n"), "{ended:?}");
    bare(stage, script, &[]);
    assert_eq!(stage.read(".git/hooks/pre-commit").as_deref(), Some("evil\n"), "the probe proves nothing");
}

/// F05, under a policy that is `direct` and denies `**/.env`.
pub(crate) fn moving_a_folder_above_frees_nothing(stage: &Stage, sh: Sh<'_>) {
    stage.write("a/b/.env", "SECRET=1\n");
    stage.write("sub/repo/.git/hooks/pre-commit", "mine\n");
    stage.write("sub/repo/.git/modules/x/hooks/pre-commit", "mine\n");
    let script = "mv a moved; mkdir -p a/b; echo evil > a/b/.env; \
                  mv sub gone; mkdir -p sub/repo/.git/hooks sub/repo/.git/modules/x/hooks; \
                  echo evil > sub/repo/.git/hooks/pre-commit; echo evil > sub/repo/.git/modules/x/hooks/pre-commit; echo fine > fine";
    let ended = sh(script, &[]);
    let unchanged = || {
        [
            ("a/b/.env", "SECRET=1\n"),
            ("sub/repo/.git/hooks/pre-commit", "mine\n"),
            ("sub/repo/.git/modules/x/hooks/pre-commit", "mine\n"),
        ]
        .iter()
        .all(|(path, text)| stage.read(path).as_deref() == Some(*text))
    };
    assert!(unchanged(), "{ended:?}");
    assert_eq!(stage.read("fine").as_deref(), Some("fine\n"), "{ended:?}");
    assert_eq!(stage.read("moved/b/.env"), None, "a denied file was seen");
    bare(stage, script, &[]);
    assert!(!unchanged(), "the probe proves nothing");
}

/// F01, under [`DIRECT_ALONE`], with a folder of the host that is not the workspace.
pub(crate) fn direct_never_writes_through_a_link(stage: &Stage, outside: &Path, sh: Sh<'_>) {
    let canary = FileCanary::set(outside).unwrap();
    symlink(outside, stage.work().join("out")).unwrap();
    let target = outside.display().to_string();
    let script = "rm out; mkdir out; echo x > out/canary; ln -s \"$1\" in; echo y > in/canary; echo z > fine";
    let ended = sh(script, &[&target]);
    assert_eq!(canary.change().unwrap(), None, "{ended:?}");
    assert_eq!(stage.read("fine").as_deref(), Some("z\n"), "{ended:?}");
    bare(stage, "ln -sfn \"$1\" twin; echo y > twin/canary", &[&target]);
    assert!(canary.change().unwrap().is_some(), "the probe proves nothing");
}

/// F01, under [`DIRECT_ALONE`].
pub(crate) fn direct_holds_back_links_that_lead_out(stage: &Stage, sh: Sh<'_>) {
    stage.write("logs", "x");
    let script = "ln -s .git/hooks/pre-commit todo.txt; ln -s ../../../etc/cron.d/x notes.md; ln -sf /home logs; ln -s fine good; echo fine > fine";
    let ended = sh(script, &[]);
    for held in ["todo.txt", "notes.md"] {
        assert!(fs::symlink_metadata(stage.work().join(held)).is_err(), "{held}: {ended:?}");
    }
    assert_eq!(stage.read("logs").as_deref(), Some("x"), "{ended:?}");
    assert_eq!(stage.read("good").as_deref(), Some("fine\n"), "a link inside is fine: {ended:?}");
}

/// F06 and F07, under review. Whatever is made inside, the host's workspace is as it was.
pub(crate) fn names_that_the_host_obeys_stay_inside(stage: &Stage, sh: Sh<'_>) {
    stage.write(".git/config", "[core]\n");
    let names = [
        ".claude/settings.json",
        ".mcp.json",
        ".vscode/tasks.json",
        ".git/hooks/pre-commit",
        ".envrc",
        ".git/commondir",
        ".git/config.worktree",
        ".git/modules/x/hooks/post-checkout",
        "deep/er/.git/hooks/post-checkout",
        "sandbox.policy.yaml",
    ];
    let mut script =
        names.map(|name| format!("mkdir -p $(dirname {name}); echo x > {name} && echo made {name}\n")).concat();
    script.push_str("mv .git .g2; echo 'gitdir: /tmp/e' > .git && echo made .git");
    let canary = FileCanary::set(stage.work()).unwrap();
    let ended = sh(&script, &[]);
    assert_eq!(ended.text().lines().count(), names.len() + 1, "a private layer takes them all: {ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    stage.ringfence(["apply", "--yes"]).run();
    for name in names.iter().filter(|name| **name != "sandbox.policy.yaml") {
        assert_eq!(stage.read(name), None, "{name} came to the host by an apply that looks at nothing");
    }
    assert_eq!(stage.read(".git/config").as_deref(), Some("[core]\n"));
    bare(stage, &script, &[]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing: it fails without a wall too");
}

/// Git on the host, in a workspace that a program had.
fn git(stage: &Stage, folder: &str, words: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(words).current_dir(stage.work().join(folder));
    command.env("HOME", stage.path()).env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap().status.success()
}

/// F08, under review.
pub(crate) fn git_on_the_host_executes_nothing(stage: &Stage, sh: Sh<'_>) {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("SKIPPED: git is missing");
        return;
    }
    let mark = stage.path().join("executed");
    assert!(git(stage, ".", &["init", "-q"]), "git works here");
    // Written by hand, so that no git is needed behind the wall.
    let script = "printf '[core]\\n\\tfsmonitor = \"touch %s; false\"\\n' \"$1\" >> .git/config; \
                  mkdir -p sub/objects sub/refs; echo 'ref: refs/heads/main' > sub/HEAD; \
                  printf '[core]\\n\\trepositoryformatversion = 0\\n\\tworktree = .\\n\\tfsmonitor = \"touch %s; false\"\\n' \"$1\" > sub/config";
    let ended = sh(script, &[mark.to_str().unwrap()]);
    assert_eq!(ended.code, 0, "{ended:?}");
    stage.ringfence(["apply"]).run();
    git(stage, ".", &["status"]);
    fs::create_dir_all(stage.work().join("sub")).unwrap();
    git(stage, "sub", &["status"]);
    assert!(!mark.exists(), "git executed what the program wrote");
    // Whoever insists gets it.
    let insisted = stage.ringfence(["apply", "--include-flagged"]).run();
    git(stage, ".", &["status"]);
    assert!(mark.exists(), "the probe does not work: {insisted:?}");
    fs::remove_file(&mark).unwrap();
    git(stage, "sub", &["status"]);
    assert!(mark.exists(), "the probe of a bare repository does not work");
}

/// F21, under review.
pub(crate) fn what_runs_on_the_host_is_flagged(stage: &Stage, sh: Sh<'_>) {
    let names = [".venv/bin/python", "node_modules/.bin/eslint", "Makefile", "package.json", ".idea/workspace.xml"];
    let contents = "all:\\n\\techo x\\n";
    let script =
        names.map(|name| format!("mkdir -p \"$(dirname {name})\"; printf '{contents}' > {name}; chmod 755 {name}; "));
    let package = "printf '{\"scripts\":{\"test\":\"touch /tmp/p\"}}' > package.json; echo plain > plain.txt";
    let ended = sh(&format!("{}{package}", script.concat()), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let told = stage.ringfence(["apply", "--yes"]).run();
    assert_eq!(stage.read("plain.txt").as_deref(), Some("plain\n"), "the probe proves nothing: {told:?}");
    for name in names {
        assert_eq!(stage.read(name), None, "{name} came to the host unseen: {told:?}");
        assert!(told.text().contains(name), "{name} is not said: {told:?}");
    }
    let insisted = stage.ringfence(["apply", "--include-flagged", "--yes"]).run();
    assert!(names.iter().all(|name| stage.read(name).is_some()), "a person who looked gets it: {insisted:?}");
}
