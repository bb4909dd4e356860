//! Sandboxes that are kept, the files in them, and what becomes of what was changed.

use serde_json::json;

use crate::connection::{BOTH, Connection, Protocol, text};
use crate::probe::{interpreter, walled};

#[test]
fn what_is_done_in_a_sandbox_stays_there_until_it_is_closed() {
    let Some(stage) = walled() else { return };
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let sandbox = client.sandbox();
        let run = |client: &mut Connection, command: &str| {
            client.call("sandboxed_code_run", json!({ "command": command, "sandboxId": sandbox }))
        };
        assert_eq!(run(&mut client, "echo 1 > kept")["isError"], false);
        assert_eq!(run(&mut client, "cat kept")["structuredContent"]["stdout"], "1\n");
        let fresh = client.call("sandboxed_code_run", json!({ "command": "cat kept" }));
        assert_eq!(fresh["isError"], true, "another sandbox saw it: {fresh}");
        let listed = client.call("sandbox_list", json!({}));
        assert_eq!(listed["structuredContent"]["sandboxes"][0]["sandboxId"], sandbox.as_str());
        let closed = client.call("sandbox_close", json!({ "sandboxId": sandbox }));
        assert_eq!(closed["structuredContent"]["changes"]["added"], 1, "{closed}");
        let gone = run(&mut client, "cat kept");
        let unknown = client.call("sandboxed_code_run", json!({ "command": "cat kept", "sandboxId": "sbx_0" }));
        assert_eq!(text(&gone), text(&unknown));
        assert!(text(&gone).contains("there is no sandbox with this id"), "{gone}");
        assert_eq!(client.call("sandbox_list", json!({}))["structuredContent"]["sandboxes"], json!([]));
    }
}

#[test]
fn no_more_sandboxes_than_a_client_may_have() {
    let Some(stage) = walled() else { return };
    let mut client = Connection::open_with(&stage, Protocol::Stateless, &["--sandboxes", "1"], json!({}), &[]);
    let sandbox = client.sandbox();
    let second = client.call("sandbox_create", json!({}));
    assert!(text(&second).contains("1 sandboxes are open already"), "{second}");
    client.call("sandbox_close", json!({ "sandboxId": sandbox }));
    client.sandbox();
}

#[test]
fn file_tools_work_inside_the_sandbox_and_leave_the_host_alone() {
    let Some(stage) = walled() else { return };
    stage.write("src/a.txt", "one\ntwo\nthree\n");
    // Also where requests are read as closely as they usually are.
    let env = [("RINGFENCE_VALIDATE", "standard")];
    let mut client = Connection::open_with(&stage, Protocol::Stateless, &[], json!({}), &env);
    let sandbox = client.sandbox();
    let mut tool = |name: &str, mut arguments: serde_json::Value| {
        arguments["sandboxId"] = json!(sandbox);
        client.call(name, arguments)
    };
    let content =
        |result: &serde_json::Value| result["structuredContent"]["content"].as_str().unwrap_or_default().to_owned();
    assert_eq!(content(&tool("files_read", json!({ "path": "src/a.txt" }))), "one\ntwo\nthree\n");
    assert_eq!(
        content(&tool("files_read", json!({ "path": "/workspace/src/a.txt", "offset": 2, "limit": 1 }))),
        "two\n"
    );
    let edited = tool("files_edit", json!({ "path": "src/a.txt", "old": "two", "new": "2" }));
    assert_eq!(edited["structuredContent"]["replaced"], 1, "{edited}");
    assert_eq!(content(&tool("files_read", json!({ "path": "src/a.txt" }))), "one\n2\nthree\n");
    assert_eq!(
        tool("files_edit", json!({ "path": "src/a.txt", "old": "e", "new": "E" }))["isError"],
        true,
        "three of them"
    );
    assert_eq!(tool("files_edit", json!({ "path": "src/a.txt", "old": "x", "new": "E" }))["isError"], true);
    let written = tool("files_write", json!({ "path": "deep/er/-b", "content": "AAEC/w==", "encoding": "base64" }));
    assert_eq!(written["structuredContent"]["bytes"], 4, "{written}");
    let read = tool("files_read", json!({ "path": "deep/er/-b" }));
    assert_eq!((content(&read).as_str(), &read["structuredContent"]["encoding"]), ("AAEC/w==", &json!("base64")));
    tool("files_write", json!({ "path": "src/a.txt", "content": "four\n", "append": true }));
    let found = tool("files_search", json!({ "pattern": "^(four|one)$", "path": "src" }));
    assert_eq!(found["structuredContent"]["matches"], json!(["src/a.txt:1:one", "src/a.txt:4:four"]), "{found}");
    let none = tool("files_search", json!({ "pattern": "five" }));
    assert_eq!((&none["isError"], text(&none).as_str()), (&json!(false), "Nothing was found."));
    let listed = tool("files_list", json!({}));
    let entries = listed["structuredContent"]["entries"].as_array().unwrap();
    assert!(entries.contains(&json!("src/")) && entries.contains(&json!("deep/")), "{listed}");
    for path in ["/etc/passwd", "../x", "src/../../x", "", "/workspace/../etc/passwd"] {
        let result = tool("files_read", json!({ "path": path }));
        assert_eq!(result["isError"], true, "{path}: {result}");
    }
    assert_eq!(tool("files_read", json!({ "path": "missing" }))["isError"], true);
    assert_eq!(stage.read("src/a.txt").as_deref(), Some("one\ntwo\nthree\n"));
    assert_eq!(stage.read("deep/er/-b"), None);
    let diff = tool("changes_diff", json!({ "paths": ["src/a.txt"] }));
    let shown = diff["structuredContent"]["diff"].as_str().unwrap();
    assert!(shown.contains("-two") && shown.contains("+2") && !shown.contains("-b"), "{diff}");
}

#[test]
fn odd_names_unreadable_files_and_bytes_are_no_obstacle() {
    let Some(stage) = walled() else { return };
    stage.write("-", "dash\nmore\n");
    stage.write("bytes", b"one\n\xff\xfe\nthree\n");
    stage.write("secret", "dash\n");
    let mut client = Connection::open(&stage, Protocol::Stateless);
    let sandbox = client.sandbox();
    let mut tool = |name: &str, mut arguments: serde_json::Value| {
        arguments["sandboxId"] = json!(sandbox);
        client.call(name, arguments)
    };
    assert_eq!(tool("files_read", json!({ "path": "-" }))["structuredContent"]["content"], "dash\nmore\n");
    let second = tool("files_read", json!({ "path": "-", "offset": 2 }));
    assert_eq!(second["structuredContent"]["content"], "more\n", "{second}");
    let found = tool("files_search", json!({ "pattern": "dash", "path": "-" }));
    assert_eq!(found["structuredContent"]["matches"], json!(["-:1:dash"]), "{found}");
    let bytes = tool("files_read", json!({ "path": "bytes", "offset": 2, "limit": 1 }));
    assert_eq!(bytes["structuredContent"]["encoding"], "base64", "{bytes}");
    assert_eq!(bytes["structuredContent"]["content"], "//4K", "{bytes}");
    let all = tool("files_search", json!({ "pattern": "^dash" }));
    assert_eq!((&all["isError"], &all["structuredContent"]["partial"]), (&json!(false), &json!(false)), "{all}");
    assert!(text(&all).contains("secret:1:dash"), "{all}");
    tool("sandboxed_code_run", json!({ "command": "chmod 000 secret" }));
    let rest = tool("files_search", json!({ "pattern": "^dash" }));
    assert_eq!((&rest["isError"], &rest["structuredContent"]["partial"]), (&json!(false), &json!(true)), "{rest}");
    assert!(text(&rest).contains("-:1:dash") && text(&rest).contains("could not be read"), "{rest}");
    assert!(!text(&rest).contains("secret:1"), "{rest}");
    let bad = tool("files_search", json!({ "pattern": "(" }));
    assert_eq!(bad["isError"], true, "{bad}");
}

#[test]
fn changes_reach_the_host_only_when_a_person_agrees() {
    let Some(stage) = walled() else { return };
    for (protocol, elicits, answer, applied) in [
        (
            Protocol::Initialize,
            json!({ "elicitation": {} }),
            json!({ "action": "accept", "content": { "approve": true } }),
            true,
        ),
        (
            Protocol::Initialize,
            json!({ "elicitation": {} }),
            json!({ "action": "accept", "content": { "approve": false } }),
            false,
        ),
        (Protocol::Initialize, json!({ "elicitation": {} }), json!({ "action": "decline" }), false),
        (Protocol::Initialize, json!({}), json!({ "action": "accept", "content": { "approve": true } }), false),
        (Protocol::Stateless, json!({}), json!({ "action": "accept", "content": { "approve": true } }), false),
    ] {
        std::fs::remove_file(stage.work().join("made")).ok();
        let mut client = Connection::open_with(&stage, protocol, &[], elicits, &[]);
        client.answer = answer;
        let ran = client.call(
            "sandboxed_code_run",
            json!({ "command": "echo new > made; mkdir -p .git/hooks; echo x > .git/hooks/post-commit" }),
        );
        let run = ran["structuredContent"]["runId"].as_str().unwrap().to_owned();
        let result = client.call("changes_apply", json!({ "runId": run }));
        assert_eq!(stage.read("made").is_some(), applied, "{result}");
        assert_eq!(stage.read(".git/hooks/post-commit"), None, "what is flagged is never applied");
        if applied {
            assert!(text(&result).contains("left: .git/hooks/post-commit"), "{result}");
            let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
            assert!(ledger.contains("\"approvedBy\":\"the person behind test 1\""), "{ledger}");
            assert!(client.asked[0]["params"]["message"].as_str().unwrap().contains("made"), "{:?}", client.asked);
        } else {
            assert_eq!(result["isError"], true, "{result}");
        }
        let foreign = client.call("changes_apply", json!({ "runId": "01k00000000000000000000000" }));
        assert!(text(&foreign).contains("no changes of a run with this id"), "{foreign}");
    }
}

#[test]
fn a_yes_never_reaches_further_than_the_names_that_were_shown() {
    let Some(stage) = walled() else { return };
    let mut client = Connection::open_with(&stage, Protocol::Initialize, &[], json!({ "elicitation": {} }), &[]);
    client.answer = json!({ "action": "accept", "content": { "approve": true } });
    stage.write("old", "1");
    let make = "for i in $(seq 40); do echo $i > new$i; done; rm old; printf x > \"$(printf 'a\\nb')\"";
    let ran = client.call("sandboxed_code_run", json!({ "command": make }));
    let run = ran["structuredContent"]["runId"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned();
    let all = client.call("changes_apply", json!({ "runId": run }));
    assert!(text(&all).contains("ringfence apply") && text(&all).contains("paths"), "{all}");
    assert!(client.asked.is_empty(), "{:?}", client.asked);
    assert_eq!((stage.read("new1"), stage.read("old").as_deref()), (None, Some("1")));
    let some = client.call("changes_apply", json!({ "runId": run, "paths": ["new1", "old", "a\nb"] }));
    assert_eq!(some["isError"], false, "{some}");
    let message = client.asked[0]["params"]["message"].as_str().unwrap();
    let lines = [
        "rule: changes.apply",
        "  add \"new1\" (+1 -0 lines)",
        "  remove \"old\" (+0 -1 lines)",
        "  add \"a\\nb\" (+1 -0 lines)",
    ];
    for line in lines {
        assert!(message.lines().any(|shown| shown == line), "{line}: {message}");
    }
    assert_eq!((stage.read("new1").as_deref(), stage.read("old"), stage.read("new2")), (Some("1\n"), None, None));
}

#[test]
fn changes_that_went_on_since_they_were_shown_are_looked_at_again_before_anybody_is_asked() {
    let Some(stage) = walled() else { return };
    let mut client = Connection::open_with(&stage, Protocol::Initialize, &[], json!({ "elicitation": {} }), &[]);
    client.answer = json!({ "action": "accept", "content": { "approve": true } });
    let sandbox = client.sandbox();
    let which = json!({ "sandboxId": sandbox });
    let run = |client: &mut Connection, command: &str| {
        let ran = client.call("sandboxed_code_run", json!({ "command": command, "sandboxId": sandbox }));
        assert_eq!(ran["isError"], false, "{ran}");
    };
    run(&mut client, "echo 1 > made");
    assert_eq!(client.call("changes_diff", which.clone())["isError"], false);
    run(&mut client, "echo 2 > made");
    let refused = client.call("changes_apply", which.clone());
    assert!(text(&refused).contains("others than those that changes_diff showed"), "{refused}");
    assert!(client.asked.is_empty(), "{:?}", client.asked);
    assert_eq!(stage.read("made"), None);
    // The twin: shown again, they are asked about.
    assert_eq!(client.call("changes_diff", which.clone())["isError"], false);
    let applied = client.call("changes_apply", which);
    assert_eq!((&applied["isError"], stage.read("made").as_deref()), (&json!(false), Some("2\n")), "{applied}");
}

#[test]
fn an_edit_that_would_make_a_file_very_long_is_refused_before_it_is_made() {
    let Some(stage) = walled() else { return };
    stage.write("a", "x".repeat(100_000));
    let mut client = Connection::open(&stage, Protocol::Stateless);
    let sandbox = client.sandbox();
    let mut edit = |new: usize| {
        let new = "y".repeat(new);
        client.call("files_edit", json!({ "sandboxId": sandbox, "path": "a", "old": "x", "new": new, "all": true }))
    };
    let long = edit(50_000);
    assert!(long["isError"] == true && text(&long).contains("longer than"), "{long}");
    let short = edit(2);
    assert_eq!(short["structuredContent"]["replaced"], 100_000, "{short}");
}

#[test]
fn a_picture_that_a_program_wrote_comes_back_and_another_file_as_a_link() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let draw = "open('plot.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 20)\nopen('no.png', 'w').write('<script>')\nopen('a.csv', 'w').write('1,2')";
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let result = client.python(draw);
        let blocks = result["content"].as_array().unwrap();
        let of = |kind: &str| blocks.iter().filter(|block| block["type"] == kind).count();
        assert_eq!((of("image"), of("resource_link")), (1, 2), "{result}");
        let listed = client.request("resources/list", json!({}));
        let resources = listed["result"]["resources"].as_array().unwrap();
        assert_eq!(resources.len(), 3, "{listed}");
        let csv = resources.iter().find(|resource| resource["name"] == "a.csv").unwrap();
        let read = client.request("resources/read", json!({ "uri": csv["uri"] }));
        assert_eq!(read["result"]["contents"][0]["text"], "1,2", "{read}");
        let png = resources.iter().find(|resource| resource["name"] == "plot.png").unwrap();
        let read = client.request("resources/read", json!({ "uri": png["uri"] }));
        assert!(read["result"]["contents"][0]["blob"].is_string(), "{read}");
        for uri in ["ringfence://artifacts/0", "file:///etc/passwd"] {
            assert!(client.request("resources/read", json!({ "uri": uri })).get("error").is_some());
        }
        let sandbox = client.sandbox();
        let kept = json!({ "language": "python", "code": draw, "sandboxId": sandbox, "artifacts": ["plot.png", "no.png", "../x.png"] });
        let kept = client.call("sandboxed_code_run", kept);
        let images = kept["content"].as_array().unwrap().iter().filter(|block| block["type"] == "image").count();
        assert_eq!(images, 1, "{kept}");
        // Another client sees nothing of it.
        let mut other = Connection::open(&stage, protocol);
        assert!(other.request("resources/read", json!({ "uri": csv["uri"] })).get("error").is_some());
    }
}
