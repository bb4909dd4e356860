//! How things end: a call that is cancelled, a client that goes away, a server that is killed. Nothing is left.

use std::fs;

use ringfence_testkit::canary::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::connection::{BOTH, Connection, Protocol, text};
use crate::probe::walled;
use crate::stage::SOON;

/// Programs of the host that sleep for `seconds`, which nobody else does.
fn sleepers(seconds: &str) -> usize {
    let line = format!("sleep\0{seconds}\0");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())).count()
}

fn pid_of(client: &Connection) -> Pid {
    Pid::from_child(&client.child)
}

#[test]
fn a_call_that_is_cancelled_is_killed_and_the_connection_goes_on() {
    let Some(stage) = walled() else { return };
    for (protocol, seconds) in BOTH.into_iter().zip(["87601.5", "87602.5"]) {
        let mut client = Connection::open(&stage, protocol);
        let arguments = json!({ "command": format!("sleep {seconds}"), "timeout": 60 });
        let id = client.send("tools/call", json!({ "name": "sandboxed_code_run", "arguments": arguments }));
        assert!(until(SOON, || sleepers(seconds) == 1), "it did not start");
        client.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
        assert!(until(SOON, || sleepers(seconds) == 0), "it goes on");
        assert_eq!(
            client.call("sandboxed_code_run", json!({ "command": "echo on" }))["structuredContent"]["stdout"],
            "on\n"
        );
    }
}

#[test]
fn a_client_that_goes_away_leaves_nothing() {
    let Some(stage) = walled() else { return };
    for (protocol, seconds) in BOTH.into_iter().zip(["87603.5", "87604.5"]) {
        let mut client = Connection::open(&stage, protocol);
        let sandbox = client.sandbox();
        let background = format!("sleep {seconds} >/dev/null 2>&1 & echo left");
        let left = client.call("sandboxed_code_run", json!({ "command": background, "sandboxId": sandbox }));
        assert_eq!(left["structuredContent"]["stdout"], "left\n", "{left}");
        let arguments = json!({ "command": format!("sleep {seconds}") });
        client.send("tools/call", json!({ "name": "sandboxed_code_run", "arguments": arguments }));
        assert!(until(SOON, || sleepers(seconds) == 2), "they did not start: {}", sleepers(seconds));
        assert!(client.close().success());
        assert!(until(SOON, || sleepers(seconds) == 0), "{} are left", sleepers(seconds));
    }
}

#[test]
fn a_server_that_is_killed_or_told_to_end_leaves_nothing() {
    let Some(stage) = walled() else { return };
    for (signal, seconds) in [(Signal::KILL, "87605.5"), (Signal::TERM, "87606.5")] {
        let mut client = Connection::open(&stage, Protocol::Stateless);
        let sandbox = client.sandbox();
        for place in [json!({}), json!({ "sandboxId": sandbox })] {
            let mut arguments = place;
            arguments["command"] = json!(format!("sleep {seconds}"));
            client.send("tools/call", json!({ "name": "sandboxed_code_run", "arguments": arguments }));
        }
        assert!(until(SOON, || sleepers(seconds) == 2), "they did not start");
        kill_process(pid_of(&client), signal).unwrap();
        assert!(until(SOON, || sleepers(seconds) == 0), "{signal:?}: {} are left", sleepers(seconds));
        client.child.wait().unwrap();
    }
}

#[test]
fn progress_is_told_to_whoever_gave_a_token_and_to_nobody_else() {
    let Some(stage) = walled() else { return };
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let arguments = json!({ "command": "sleep 2.7; echo done" });
        client.call("sandboxed_code_run", arguments.clone());
        assert!(client.told.is_empty(), "{:?}", client.told);
        let params =
            json!({ "name": "sandboxed_code_run", "arguments": arguments, "_meta": { "progressToken": "mine" } });
        client.request("tools/call", params);
        assert!(!client.told.is_empty());
        for told in &client.told {
            assert_eq!(
                (&told["method"], &told["params"]["progressToken"]),
                (&json!("notifications/progress"), &json!("mine"))
            );
        }
    }
}

#[test]
fn a_long_run_becomes_a_task_for_clients_that_know_tasks() {
    let Some(stage) = walled() else { return };
    let knows = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let mut client = Connection::open_with(&stage, Protocol::Stateless, &[], knows, &[]);
    let arguments = json!({ "command": "sleep 17; echo done", "timeout": 60 });
    let begun =
        client.request("tools/call", json!({ "name": "sandboxed_code_run", "arguments": arguments }))["result"].clone();
    assert_eq!(begun["resultType"], "task", "{begun}");
    let task = begun["taskId"].clone();
    let mut last = json!(null);
    let done = until(SOON, || {
        last = client.request("tasks/get", json!({ "taskId": task }))["result"].clone();
        last["status"] == "completed"
    });
    assert!(done, "{last}");
    assert_eq!(last["result"]["structuredContent"]["stdout"], "done\n", "{last}");
    // Whoever does not know tasks waits.
    let mut other = Connection::open(&stage, Protocol::Stateless);
    assert!(other.request("tasks/get", json!({ "taskId": task })).get("error").is_some());
}

#[test]
fn a_task_that_is_cancelled_is_killed_and_by_nobody_but_its_own_client() {
    let Some(stage) = walled() else { return };
    let knows = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let open = || Connection::open_with(&stage, Protocol::Stateless, &[], knows.clone(), &[]);
    let (mut client, mut stranger) = (open(), open());
    let arguments = json!({ "command": "sleep 87607.5", "timeout": 110 });
    let begun =
        client.request("tools/call", json!({ "name": "sandboxed_code_run", "arguments": arguments }))["result"].clone();
    assert_eq!(begun["resultType"], "task", "{begun}");
    let task = json!({ "taskId": begun["taskId"] });
    assert_eq!(sleepers("87607.5"), 1, "it is not running");
    let refused = stranger.request("tasks/cancel", task.clone());
    assert!(refused.get("error").is_some() && sleepers("87607.5") == 1, "{refused}");
    let cancelled = client.request("tasks/cancel", task.clone());
    assert!(cancelled.get("error").is_none(), "{cancelled}");
    assert!(until(SOON, || sleepers("87607.5") == 0), "it goes on");
    // Its outcome is put together after its end.
    let mut status = || client.request("tasks/get", task.clone())["result"]["status"].clone();
    assert!(until(SOON, || status() == "cancelled"), "{}", status());
    assert_eq!(
        client.call("sandboxed_code_run", json!({ "command": "echo on" }))["structuredContent"]["stdout"],
        "on\n"
    );
}

/// Descriptors, threads and memory in KiB of a process.
fn in_use(pid: Pid) -> (usize, usize, usize) {
    let pid = pid.as_raw_nonzero();
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    (descriptors, field("Threads:"), field("VmRSS:"))
}

#[test]
fn sixty_calls_need_no_more_descriptors_and_memory_than_twenty() {
    let Some(stage) = walled() else { return };
    let mut client = Connection::open(&stage, Protocol::Stateless);
    let calls = |client: &mut Connection, count: usize| {
        for number in 0..count {
            let result = client.call("sandboxed_code_run", json!({ "command": format!("echo {number}") }));
            assert_eq!(result["isError"], false, "{}", text(&result));
        }
    };
    calls(&mut client, 20);
    let before = in_use(pid_of(&client));
    calls(&mut client, 40);
    let settled = until(SOON, || in_use(pid_of(&client)).0 <= before.0 + 2);
    let after = in_use(pid_of(&client));
    assert!(settled && after.1 <= before.1 + 4 && after.2 <= before.2 + 4096, "{before:?} became {after:?}");
}
