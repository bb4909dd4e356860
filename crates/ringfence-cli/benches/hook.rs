//! What an agent waits for when it asks `ringfence hook` about a call of its own tools: from the start of the command to its answer, in an
//! empty workspace and in one of 100,000 files, beside a bare start of `true` in the same run. A search that cannot be told what to leave out has to know
//! of everything denied: the first one looks at every folder, the next ones only at those that changed.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const ROUNDS: usize = 50;
/// What was found denied is remembered of folders that nobody has changed for three seconds; a project's are.
const AT_REST: Duration = Duration::from_secs(5);
const WARM_UP: usize = 5;
const FOLDERS: usize = 1000;
const FILES: usize = 100;
const BINARY: &str = env!("CARGO_BIN_EXE_ringfence");
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

fn main() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("home")).unwrap();
    let (empty, large) = (place.path().join("empty"), place.path().join("large"));
    fs::create_dir(&empty).unwrap();
    for folder in 0..FOLDERS {
        let folder = large.join(format!("f{folder}"));
        fs::create_dir_all(&folder).unwrap();
        (0..FILES).for_each(|file| fs::write(folder.join(format!("n{file}")), "").unwrap());
    }
    // Something denied, that a search has to keep clear of.
    fs::write(large.join("f7/.env"), "A=1").unwrap();
    let bash = json!({ "command": "cargo test --workspace && git status", "description": "tests" });
    let rows: [(&str, &Path, &str, &str, Value); 5] = [
        ("shell", &empty, "claude-code", "Bash", bash.clone()),
        ("shell_100k", &large, "claude-code", "Bash", bash),
        ("read_100k", &large, "claude-code", "Read", json!({ "file_path": large.join("f3/n4") })),
        ("search_100k", &large, "claude-code", "Grep", json!({ "pattern": "x", "path": large })),
        ("gemini_search_100k", &large, "gemini", "search_file_content", json!({ "pattern": "x" })),
    ];
    std::thread::sleep(AT_REST);
    let (_, at, agent, tool, input) = &rows[4];
    let first = ask(place.path(), at, agent, tool, input);
    println!("hook_gemini_search_100k_first_ms {:.2} ms", first.as_secs_f64() * 1000.0);
    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..ROUNDS + WARM_UP {
        let mut taken = vec![bare()];
        taken.extend(rows.iter().map(|(_, at, agent, tool, input)| ask(place.path(), at, agent, tool, input)));
        if round >= WARM_UP {
            times.iter_mut().zip(taken).for_each(|(times, time)| times.push(time));
        }
    }
    let medians = times.map(median);
    println!("hook_bare_true {} us", medians[0].as_micros());
    for (row, median) in rows.iter().zip(&medians[1..]) {
        println!("hook_{}_ms {:.2} ms", row.0, median.as_secs_f64() * 1000.0);
    }
}

fn bare() -> Duration {
    let begin = Instant::now();
    assert!(Command::new("/usr/bin/true").env_clear().status().unwrap().success());
    begin.elapsed()
}

/// One question, as the agent asks it.
fn ask(place: &Path, workspace: &Path, agent: &str, tool: &str, input: &Value) -> Duration {
    let event = if agent == "gemini" { "BeforeTool" } else { "PreToolUse" };
    let question = json!({
        "session_id": "s", "transcript_path": "/t", "cwd": workspace, "hook_event_name": event,
        "tool_name": tool, "tool_input": input, "tool_use_id": "t", "timestamp": "2026-01-01T00:00:00Z",
    });
    let begin = Instant::now();
    let mut command = Command::new(BINARY);
    command.args(["hook", agent]).current_dir(workspace);
    command.env_clear().env("PATH", PATH).env("HOME", place.join("home"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(question.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let time = begin.elapsed();
    assert!(output.status.success() && serde_json::from_slice::<Value>(&output.stdout).is_ok(), "{tool}: {output:?}");
    time
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
