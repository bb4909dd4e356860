//! Over HTTP: who is let in, and whose sandbox is whose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};

use crate::connection::meta;
use crate::probe::walled;
use crate::stage::Stage;

const ONE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const TWO: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A server, ended when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    token: Option<String>,
}

impl Server {
    fn start(stage: &Stage, flags: &[&str]) -> Self {
        let start = stage.ringfence([&["mcp", "--http", "127.0.0.1:0"], flags].concat());
        let mut child = start.start();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("listening at")).unwrap();
        let address = said.split("http://").nth(1).unwrap().trim_end_matches("/mcp").parse().unwrap();
        let token =
            (!flags.contains(&"--token-file")).then(|| lines.next().unwrap().rsplit(' ').next().unwrap().to_owned());
        std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Self { child, address, token }
    }

    /// The status and the body of an answer to `body`.
    fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let mut head = String::from(
            "POST /mcp HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n",
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok();
        (answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0), answer)
    }

    /// The result of a tool for whoever has `token`, by the stateless protocol.
    fn call(&self, token: &str, tool: &str, arguments: &Value) -> Value {
        let host = self.address.to_string();
        let authorization = format!("Bearer {token}");
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments, "_meta": meta(&json!({})) },
        });
        let headers = [
            ("host", host.as_str()),
            ("authorization", &authorization),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        let (status, answer) = self.post(&headers, &body);
        assert_eq!(status, 200, "{answer}");
        // As JSON or as an event.
        let json =
            answer.lines().map(|line| line.trim_start_matches("data:").trim()).find(|line| line.starts_with('{'));
        let message: Value = serde_json::from_str(json.unwrap_or_else(|| panic!("{answer}"))).unwrap();
        message["result"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)
            .ok();
        self.child.wait().ok();
    }
}

fn discover() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta(&json!({})) } })
}

#[test]
fn nobody_is_let_in_without_the_token_or_by_another_name_or_from_a_web_page() {
    let stage = Stage::spawn();
    let server = Server::start(&stage, &[]);
    let (host, token) = (server.address.to_string(), server.token.clone().unwrap());
    assert!(token.len() >= 64);
    let right = format!("Bearer {token}");
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "server/discover");
    let check = |headers: &[(&str, &str)], status: u16| {
        let headers = [headers, &[version, method]].concat();
        let (found, answer) = server.post(&headers, &discover());
        assert_eq!(found, status, "{headers:?}: {answer}");
    };
    check(&[("host", &host), ("authorization", &right)], 200);
    check(&[("host", &host)], 401);
    check(&[("host", &host), ("authorization", &format!("Bearer {}0", &token[..token.len() - 1]))], 401);
    check(&[("host", &host), ("authorization", &format!("Bearer {token}0"))], 401);
    check(&[("host", &host), ("authorization", &format!("Basic {token}"))], 401);
    check(&[("host", "evil.example"), ("authorization", &right)], 403);
    check(&[("host", &host), ("authorization", &right), ("origin", "http://evil.example")], 403);
    check(&[("host", &host), ("authorization", &right), ("origin", "null")], 403);
    check(&[("host", &host), ("authorization", &right), ("origin", "http://localhost:6274")], 200);
    check(&[("host", &host), ("origin", "http://localhost:6274")], 401);
}

#[test]
fn only_this_machine_and_only_a_file_of_ones_own() {
    let stage = Stage::spawn();
    stage.ringfence(["mcp", "--http", "0.0.0.0:0"]).run().expect(2, &["not an address of this machine alone"]);
    let file = stage.path().join("tokens");
    let flags = ["mcp", "--http", "127.0.0.1:0", "--token-file", file.to_str().unwrap()];
    std::fs::write(&file, ONE).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    stage.ringfence(flags).run().expect(2, &["others than you can read"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&file, "short\n").unwrap();
    stage.ringfence(flags).run().expect(2, &["is no token"]);
}

#[test]
fn the_sandbox_of_another_client_is_as_unknown_as_none() {
    let Some(stage) = walled() else { return };
    let file = stage.path().join("tokens");
    std::fs::write(&file, format!("{ONE}\n{TWO}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&stage, &["--token-file", file.to_str().unwrap()]);
    let created = server.call(ONE, "sandbox_create", &json!({}));
    let sandbox = created["structuredContent"]["sandboxId"].as_str().unwrap().to_owned();
    let run = |token: &str, sandbox: &str| {
        server.call(token, "sandboxed_code_run", &json!({ "command": "echo in; echo 1 > made", "sandboxId": sandbox }))
    };
    assert_eq!(run(ONE, &sandbox)["structuredContent"]["stdout"], "in\n");
    let (foreign, unknown) = (run(TWO, &sandbox), run(TWO, "sbx_00000000000000000000000000000000"));
    assert_eq!(foreign, unknown);
    assert_eq!(foreign["isError"], true, "{foreign}");
    assert_eq!(server.call(TWO, "sandbox_list", &json!({}))["structuredContent"]["sandboxes"], json!([]));
    for (tool, arguments) in [
        ("sandbox_close", json!({ "sandboxId": sandbox })),
        ("files_read", json!({ "path": "made", "sandboxId": sandbox })),
        ("changes_diff", json!({ "sandboxId": sandbox })),
        ("changes_apply", json!({ "sandboxId": sandbox })),
    ] {
        assert_eq!(server.call(TWO, tool, &arguments)["isError"], true, "{tool}");
    }
    let own = server.call(ONE, "changes_diff", &json!({ "sandboxId": sandbox }));
    let id = own["structuredContent"]["runId"].clone();
    assert_eq!(own["isError"], false, "{own}");
    assert_eq!(server.call(TWO, "changes_diff", &json!({ "runId": id }))["isError"], true);
    assert_eq!(server.call(ONE, "changes_diff", &json!({ "runId": id }))["isError"], false);
}
