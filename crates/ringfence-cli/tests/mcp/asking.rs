//! Questions for the person behind a client: by elicitation, by a result that needs input, or not at all.

use serde_json::{Value, json};

use crate::connection::{Connection, Protocol, text};
use crate::probe::walled_with;
use crate::stage::Stage;

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
