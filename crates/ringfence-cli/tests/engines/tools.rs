//! S16, S17: a model that asks a server for more than the policy, and by every tool for what is denied, where the wall is a container. And
//! N12: a program that is reached by another way than its name.

use std::fs;

use ringfence_testkit::canary::secret;
use serde_json::{Value, json};

use crate::connection::{Connection, Protocol};
use crate::walls::{Walled, for_each_engine};
use crate::ways::{WAYS, lines};

/// A server led to the engine, for whose calls nothing has to wait.
fn serve(place: &Walled) -> Connection {
    let text = |part: std::ffi::OsString| part.into_string().unwrap();
    let led: Vec<_> = place.wall.environment().into_iter().map(|(name, value)| (text(name), text(value))).collect();
    let led: Vec<_> = led.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Connection::open_with(&place.stage, Protocol::Stateless, &["--warm", "0"], json!({}), &led)
}

fn status(result: &Value) -> &str {
    result["structuredContent"]["status"].as_str().unwrap_or_default()
}

#[test]
fn s16_a_call_narrows_what_a_container_may_and_never_widens_it() {
    for_each_engine("proc: { timeout: 20s, max_timeout: 30s }\n", |place| {
        let mut client = serve(place);
        for wide in [
            json!({ "backend": "none" }),
            json!({ "backend": "spawn" }),
            json!({ "net": { "mode": "open" } }),
            json!({ "net": { "allow": ["evil.example"] } }),
            json!({ "fs": { "mode": "direct" } }),
            json!({ "proc": { "memory": "64GiB" } }),
            json!({ "proc": { "timeout": "5m" } }),
        ] {
            let arguments = json!({ "command": "echo x > ran", "policyOverrides": wide });
            let result = client.call("sandboxed_code_run", arguments.clone());
            assert!(status(&result) == "refused" && result["isError"] == true, "{arguments}: {result}");
            assert_eq!(client.call("sandbox_create", json!({ "policyOverrides": wide }))["isError"], true, "{wide}");
        }
        assert_eq!(place.stage.read("ran"), None);
        let narrow = json!({ "command": "sleep 20", "policyOverrides": { "proc": { "timeout": "1s" } } });
        assert_eq!(status(&client.call("sandboxed_code_run", narrow)), "timedOut", "the twin: narrower is heeded");
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn s17_what_is_denied_comes_out_of_a_container_by_no_tool_whoever_asks_for_it() {
    for_each_engine("commands: [{ deny: [base64], matches: [\"base64 x\"] }]\n", |place| {
        let hidden = secret().unwrap();
        place.stage.write(".env", format!("line {hidden}\n"));
        place.stage.write("note", "line shown\n");
        let mut client = serve(place);
        let sandbox = client.sandbox();
        let nested =
            "import subprocess\nprint(subprocess.run(['sh', '-c', 'cat note .env'], capture_output=True).stdout)";
        let read = "for f in 'note', '.env':\n  try: print(open(f).read())\n  except OSError: pass";
        let ways = [
            ("sandboxed_code_run", json!({ "command": "cat note .env" })),
            ("sandboxed_code_run", json!({ "language": "python", "code": read })),
            ("sandboxed_code_run", json!({ "language": "python", "code": nested })),
            ("files_read", json!({ "path": "note" })),
            ("files_read", json!({ "path": ".env" })),
            ("files_search", json!({ "pattern": "^line" })),
            (
                "sandboxed_code_run",
                json!({ "command": "ln -s .env link; cp -r . /tmp/all; cat note link /tmp/all/.env" }),
            ),
        ];
        let mut shown = 0;
        for (tool, mut arguments) in ways {
            arguments["sandboxId"] = json!(sandbox);
            let result = client.call(tool, arguments.clone());
            assert!(!result.to_string().contains(&hidden), "{}: {tool} {arguments}: {result}", place.wall);
            shown += usize::from(result.to_string().contains("line shown"));
        }
        assert_eq!(
            shown, 6,
            "the twin: what is not denied comes out of each, but of who asked for the other file alone"
        );
        for (command, is_refused) in [("base64 note", true), ("sh -c 'base64 note'", true), ("cat note", false)] {
            let result = client.call("sandboxed_code_run", json!({ "command": command, "sandboxId": sandbox }));
            assert_eq!(status(&result) == "refused", is_refused, "{command}: {result}");
        }
    });
}

#[test]
fn n12_a_rule_about_a_command_is_advice_and_the_container_holds_for_who_goes_round_it() {
    for_each_engine("commands: [{ deny: [cat], matches: [\"cat x\"] }]\n", |place| {
        let hidden = secret().unwrap();
        let file = place.outside().join("secret");
        fs::write(&file, format!("{hidden}\n")).unwrap();
        for stage in [&place.stage, place.bare()] {
            stage.write("note", "shown\n");
            stage.write("ways.py", WAYS);
        }
        place.run(&[], &["cat", "note"]).run().expect(126, &["refused: `cat note`"]);
        let file = file.to_str().unwrap();
        let ended = place.run(&[], &["python3", "ways.py", "note", "../outside/secret", file]).run();
        assert_eq!(ended.text(), lines("shown"), "{}: {ended:?}", place.wall);
        let bare = place.bare_run(&[], &["/usr/bin/python3", "ways.py", "note", file]);
        assert_eq!(bare.text(), lines(&format!("shown {hidden}")), "the probe proves nothing: {bare:?}");
    });
}
