//! Questions for the person behind a client: by elicitation, by a result that needs input, or not at all.

use ringfence_testkit::canary::until;
use serde_json::{Value, json};

use crate::connection::{Connection, Protocol, text};
use crate::origin::{FETCH, Origin};
use crate::probe::{asking_about_hosts, interpreter, walled_with};
use crate::stage::{SOON, Stage};

const ASKS: &str = "commands:\n  - ask: [touch]\n    why: \"new files are asked about\"\n";

fn elicits() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "approve": true } })
}

/// Says in its output that it ran.
fn touch() -> Value {
    json!({ "name": "sandboxed_code_run", "arguments": { "command": "touch made && echo ran" } })
}

fn ran(result: &Value) -> bool {
    result["structuredContent"]["stdout"] == "ran\n"
}

#[test]
fn a_client_that_cannot_ask_gets_a_refusal() {
    let Some(stage) = walled_with(ASKS) else { return };
    for protocol in [Protocol::Initialize, Protocol::Stateless] {
        let mut client = Connection::open(&stage, protocol);
        let result = client.request("tools/call", touch())["result"].clone();
        assert_eq!(result["structuredContent"]["status"], "refused", "{result}");
        assert!(text(&result).contains("cannot ask anybody") && text(&result).contains("new files"), "{result}");
        assert!(client.asked.is_empty());
    }
}

#[test]
fn elicitation_brings_the_question_and_only_a_plain_yes_runs_it() {
    let Some(stage) = walled_with(ASKS) else { return };
    for (answer, runs) in [
        (yes(), true),
        (json!({ "action": "accept", "content": {} }), false),
        (json!({ "action": "decline" }), false),
        (json!({ "action": "cancel" }), false),
        (json!({ "nonsense": 1 }), false),
    ] {
        let mut client = Connection::open_with(&stage, Protocol::Initialize, &[], elicits(), &[]);
        client.answer = answer.clone();
        let result = client.request("tools/call", touch())["result"].clone();
        assert_eq!(ran(&result), runs, "{answer}: {result}");
        assert_eq!(client.asked.len(), 1);
        assert_eq!(client.asked[0]["method"], "elicitation/create");
        assert!(client.asked[0]["params"]["message"].as_str().unwrap().contains("touch made"), "{:?}", client.asked);
    }
}

/// Calls, and brings `answer` back with the ticket.
fn in_two_rounds(client: &mut Connection, answer: &Value, second: &Value) -> (Value, Value) {
    let first = client.request("tools/call", touch())["result"].clone();
    assert_eq!(first["resultType"], "input_required", "{first}");
    assert_eq!(first["inputRequests"]["approval"]["method"], "elicitation/create", "{first}");
    let mut again = second.clone();
    again["requestState"] = first["requestState"].clone();
    again["inputResponses"] = json!({ "approval": answer });
    (client.request("tools/call", again.clone())["result"].clone(), again)
}

#[test]
fn a_result_that_needs_input_is_answered_once_for_the_same_call_alone() {
    let Some(stage) = walled_with(ASKS) else { return };
    let open = |stage: &Stage| Connection::open_with(stage, Protocol::Stateless, &[], elicits(), &[]);
    let mut client = open(&stage);
    let (result, again) = in_two_rounds(&mut client, &yes(), &touch());
    assert!(ran(&result), "{result}");
    let replayed = client.request("tools/call", again.clone())["result"].clone();
    assert!(!ran(&replayed) && text(&replayed).contains("request state"), "{replayed}");
    let elsewhere = open(&stage).request("tools/call", again)["result"].clone();
    assert!(!ran(&elsewhere), "{elsewhere}");
    let mut other = touch();
    other["arguments"]["command"] = json!("touch other && echo ran");
    let (swapped, _) = in_two_rounds(&mut client, &yes(), &other);
    assert!(!ran(&swapped), "{swapped}");
    let (declined, _) = in_two_rounds(&mut client, &json!({ "action": "decline" }), &touch());
    assert_eq!(declined["structuredContent"]["status"], "refused", "{declined}");
    let (silent, _) = in_two_rounds(&mut client, &Value::Null, &touch());
    assert!(!ran(&silent), "{silent}");
    let mut forged = touch();
    forged["requestState"] = json!("AAAA");
    forged["inputResponses"] = json!({ "approval": yes() });
    assert!(!ran(&client.request("tools/call", forged)["result"]));
}

#[test]
fn what_is_approved_is_written_down_with_who_did() {
    let Some(stage) = walled_with(ASKS) else { return };
    let mut client = Connection::open_with(&stage, Protocol::Stateless, &[], elicits(), &[]);
    in_two_rounds(&mut client, &yes(), &touch());
    drop(client);
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.contains("the person behind test 1") && ledger.contains("\"door\":\"mcp\""), "{ledger}");
}

#[test]
fn a_call_that_is_cancelled_while_somebody_is_asked_never_starts_whatever_is_answered_later() {
    let Some(stage) = walled_with(ASKS) else { return };
    let mut client = Connection::open_with(&stage, Protocol::Initialize, &[], elicits(), &[]);
    let id = client.send("tools/call", touch());
    let question = client.next(SOON).unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    client.write(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": yes() }).to_string());
    let ledger = || std::fs::read_to_string(stage.ledger()).unwrap_or_default();
    assert!(until(SOON, || ledger().contains("\"kind\":\"ended\"")), "{}", ledger());
    assert!(!ledger().contains("\"kind\":\"started\""), "{}", ledger());
    // The twin: the connection goes on, and the same call with a yes runs.
    client.answer = yes();
    assert!(ran(&client.request("tools/call", touch())["result"]));
    assert!(ledger().contains("\"kind\":\"started\""), "{}", ledger());
}

/// Follows a task until it has this status.
fn until_task(client: &mut Connection, task: &Value, status: &str) -> Value {
    let mut last = Value::Null;
    let reached = until(SOON, || {
        last = client.request("tasks/get", json!({ "taskId": task }))["result"].clone();
        last["status"] == status
    });
    assert!(reached, "{last}");
    last
}

#[test]
fn a_task_asks_whoever_can_be_asked_and_is_told_no_where_nobody_can() {
    let above = Origin::start();
    let Some(stage) = asking_about_hosts("allow: []", above.port) else { return };
    let Some(python) = interpreter() else { return };
    // Longer than a call stays one.
    let code = format!("import time; time.sleep(16)\n{FETCH}");
    let argv = json!([python.to_str().unwrap(), "-c", code, "http://93.184.216.34/x"]);
    let call = json!({ "name": "sandboxed_code_run", "arguments": { "argv": argv } });
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    let open = |capabilities| Connection::open_with(&stage, Protocol::Stateless, &[], capabilities, &[]);
    let mut nobody = open(json!({ "extensions": tasks.clone() }));
    let mut somebody = open(json!({ "extensions": tasks, "elicitation": { "form": {} } }));
    let (first, second) = (nobody.send("tools/call", call.clone()), somebody.send("tools/call", call));
    let task = |begun: Value| {
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        begun["result"]["taskId"].clone()
    };
    let (first, second) = (task(nobody.wait(first)), task(somebody.wait(second)));
    let denied = until_task(&mut nobody, &first, "completed");
    let text = denied["result"]["structuredContent"]["stdout"].as_str().unwrap_or_default();
    assert!(text.starts_with("403 ") && text.contains("cannot ask anybody"), "{denied}");
    let asked = until_task(&mut somebody, &second, "input_required");
    let (name, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert!(question["params"]["message"].as_str().unwrap().contains("93.184.216.34"), "{asked}");
    assert_eq!(above.asked(), Vec::<String>::new());
    somebody.request("tasks/update", json!({ "taskId": second, "inputResponses": { name: yes() } }));
    let done = until_task(&mut somebody, &second, "completed");
    assert_eq!(done["result"]["structuredContent"]["stdout"], "200 hello\n", "{done}");
    assert_eq!(above.asked(), ["GET http://93.184.216.34/x 0"]);
}
