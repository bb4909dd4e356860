//! Agents whose commands go through the hook: what they become is run by a shell of the host, as an agent would, and the effects on the
//! host are looked at.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::probe::{outside, walled_with};
use crate::sitting::{END, Sitting};
use crate::stage::{Ended, Stage, binary};

/// What the hook says to a call.
fn asked(stage: &Stage, agent: &str, call: &Value) -> Ended {
    let work = stage.work().canonicalize().unwrap();
    let call = call.to_string().replace("{W}", work.to_str().unwrap());
    stage.ringfence(["hook", agent]).without_env("RINGFENCE_VALIDATE").stdin(call).run()
}

fn bash(line: &str) -> Value {
    json!({ "hook_event_name": "PreToolUse", "session_id": "s1", "cwd": "{W}", "permission_mode": "default", "tool_name": "Bash", "tool_input": { "command": line } })
}

/// What a command becomes.
fn becomes(stage: &Stage, call: &Value) -> String {
    let ended = asked(stage, "claude-code", call).expect(0, &[]);
    let answer = ended.json();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "allow", "{ended:?}");
    answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned()
}

/// A command as an agent runs it: by a shell on the host, in the folder that it stands in.
fn as_agent(stage: &Stage, line: &str) -> Ended {
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", line]).env_clear().current_dir(stage.work());
    shell.env("PATH", std::env::var("PATH").unwrap()).env("HOME", stage.path().join("home")).env("LANG", "C.UTF-8");
    shell.env("AGENTS_VALUE", "hunter2");
    Ended::from(shell.output().unwrap())
}

fn hooked(stage: &Stage, line: &str) -> Ended {
    as_agent(stage, &becomes(stage, &bash(line)))
}

#[test]
fn a_hooked_command_runs_behind_the_wall_at_the_same_paths_and_its_files_are_there_at_once() {
    let Some(stage) = walled_with("validate: off\n") else { return };
    stage.write("old.txt", "old\n");
    let secret = outside(&stage).join("secret");
    fs::write(&secret, "told\n").unwrap();
    let work = stage.work().canonicalize().unwrap();
    let line = format!(
        "pwd; echo new > new.txt; rm old.txt; echo \"[$AGENTS_VALUE]\"; cat {} 2>/dev/null; echo x > {}/planted; true",
        secret.display(),
        outside(&stage).display()
    );
    let ended = hooked(&stage, &line);
    assert_eq!(ended.text(), format!("{}\n[]\n", work.display()), "{ended:?}");
    assert_eq!((stage.read("new.txt").as_deref(), stage.read("old.txt")), (Some("new\n"), None), "{ended:?}");
    assert!(!outside(&stage).join("planted").exists(), "{ended:?}");
    assert!(!ended.stderr.contains("ringfence:"), "what was applied needs no words: {ended:?}");
    // The same line without the hook gets through.
    let bare = as_agent(&stage, &line.replace("rm old.txt; ", ""));
    assert_eq!(bare.text(), format!("{}\n[hunter2]\ntold\n", work.display()));
    assert!(outside(&stage).join("planted").exists());
}

#[test]
fn a_failing_command_has_its_files_applied_as_well_and_what_is_flagged_is_held_back_and_said() {
    let Some(stage) = walled_with("validate: off\n") else { return };
    let ended = hooked(
        &stage,
        "echo fine > fine.txt; echo 'run-me' > .envrc; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; exit 7",
    );
    assert_eq!(ended.code, 7, "{ended:?}");
    assert_eq!(stage.read("fine.txt").as_deref(), Some("fine\n"), "{ended:?}");
    assert_eq!((stage.read(".envrc"), stage.read(".git/hooks/pre-commit")), (None, None), "{ended:?}");
    assert!(ended.stderr.contains("held back") && ended.stderr.contains(".envrc"), "{ended:?}");
    assert!(ended.stderr.contains("ringfence apply") && ended.stderr.contains("--include-flagged"), "{ended:?}");
    // A person can apply the rest.
    stage.ringfence(["apply", "--include-flagged", "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read(".envrc").as_deref(), Some("run-me\n"));
}

#[test]
fn scripts_here_documents_quotes_and_commands_beside_survive() {
    let Some(stage) = walled_with("") else { return };
    let script = "cat > a.txt <<'EOF'\nit's \"$HOME\" `here` \\ and $(there)\nEOF\nfor word in one 'two  three' \"four's\"; do\n  printf '<%s>' \"$word\"\ndone\n(sleep 0.2; echo late > late.txt) &\nwait\necho";
    let ended = hooked(&stage, script).expect(0, &[]);
    assert_eq!(ended.text(), "<one><two  three><four's>\n");
    assert_eq!(stage.read("a.txt").as_deref(), Some("it's \"$HOME\" `here` \\ and $(there)\n"));
    assert_eq!(stage.read("late.txt").as_deref(), Some("late\n"));
    // What is written in a run is there in the next.
    assert_eq!(hooked(&stage, "cat late.txt").text(), "late\n");
}

#[test]
fn a_time_limit_in_milliseconds_is_carried_over_and_capped_by_the_policy() {
    let Some(stage) = walled_with("proc: { timeout: 5s, max_timeout: 10s }\n") else { return };
    let with = |more: Value| {
        let mut call = bash("sleep 30");
        for (name, value) in more.as_object().unwrap() {
            call["tool_input"][name] = value.clone();
        }
        becomes(&stage, &call)
    };
    assert!(with(json!({ "timeout": 600000 })).contains(" --timeout=10000ms "));
    assert!(with(json!({ "run_in_background": true })).contains(" --timeout=10000ms "));
    assert!(!with(json!({})).contains("--timeout"));
    let ended = as_agent(&stage, &with(json!({ "timeout": 300 })));
    assert_eq!(ended.code, 124, "{ended:?}");
    assert!(ended.stderr.contains("stopped"), "the agent is told why: {ended:?}");
}

#[test]
fn a_policy_in_the_folder_that_a_model_went_to_decides_nothing() {
    let Some(stage) = walled_with("") else { return };
    stage.write("vendor/sandbox.policy.yaml", "version: 1\nbackend: none\n");
    let planted = outside(&stage).join("planted");
    let mut call = bash(&format!("echo x > {}", planted.display()));
    call["cwd"] = json!("{W}/vendor");
    let line = becomes(&stage, &call);
    let ended =
        Command::new("/bin/bash").args(["-c", &line]).current_dir(stage.work().join("vendor")).output().unwrap();
    assert!(!planted.exists(), "{ended:?}");
    // The twin: where a person stands there, that policy is theirs to choose.
    let bare = stage
        .ringfence(["run", "--shell", &format!("echo x > {}", planted.display())])
        .cwd(stage.work().join("vendor"))
        .run();
    assert!(planted.exists(), "{bare:?}");
}

#[test]
fn a_line_that_calls_us_with_another_wall_runs_inside_and_reaches_nothing() {
    let Some(stage) = walled_with("") else { return };
    let planted = outside(&stage).join("planted");
    let program = binary().into_string().unwrap();
    let line = format!("{program} run --backend none --shell 'echo x > {}'", planted.display());
    let ended = hooked(&stage, &line);
    assert!(!planted.exists(), "{ended:?}");
    as_agent(&stage, &line);
    assert!(planted.exists(), "without the hook it gets through");
}

#[test]
fn what_a_person_said_yes_to_is_run_and_nothing_else() {
    let Some(stage) = walled_with("commands: [{ ask: [touch, asked] }, { ask: [touch, other] }]\n") else { return };
    let ended = asked(&stage, "claude-code", &bash("touch asked")).expect(0, &[]);
    let answer = ended.json();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "ask", "{ended:?}");
    let line = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned();
    as_agent(&stage, &line).expect(0, &[]);
    assert_eq!(stage.read("asked").as_deref(), Some(""));
    // The yes is for that rule: without it, or for another, nobody is there to be asked.
    let words: Vec<&str> = line.split(" '--approve").collect();
    let without =
        format!("{} {}", words[0], line.rsplit_once(" '--shell=").map(|(_, line)| format!("'--shell={line}")).unwrap());
    as_agent(&stage, &without).expect(126, &["nobody is there"]);
    as_agent(&stage, &line.replace("--shell=touch asked", "--shell=touch other")).expect(126, &["nobody is there"]);
    assert_eq!(stage.read("other"), None);
}

#[test]
fn a_wrapped_command_asks_nobody_at_a_terminal_that_a_model_types_at() {
    let Some(stage) = walled_with("commands: [{ ask: [touch, asked] }]\n") else { return };
    let flags = |ask: &'static str| [ask, "--at=same", "--apply=unflagged", "--shell=touch asked"];
    let mut sitting = Sitting::start(&stage, &flags("--ask=nobody"), None);
    sitting.type_in("yes\nyes\n");
    let (shown, status) = sitting.end();
    assert!(!shown.contains(END) && shown.contains("nobody is there"), "{shown}");
    assert!(!status.success() && stage.read("asked").is_none(), "{shown}");
    // A person's own run asks as before.
    let mut sitting = Sitting::start(&stage, &flags("--ask=terminal"), None);
    sitting.wait_for(END);
    sitting.type_in("yes\n");
    let (shown, status) = sitting.end();
    assert!(status.success() && stage.read("asked").is_some(), "{shown}");
    // And this is what the hook writes.
    assert!(becomes(&stage, &bash("ls")).contains(" --ask=nobody "));
}
