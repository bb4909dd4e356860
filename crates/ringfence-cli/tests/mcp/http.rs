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
        self.send("POST", headers, body)
    }

    /// What is asked of a session of 2025-11-25 by whoever has `token`.
    fn in_session(&self, token: &str, method: &str, session: &str, body: &Value) -> (u16, String) {
        let (host, authorization) = (self.address.to_string(), format!("Bearer {token}"));
        let headers = [("host", host.as_str()), ("authorization", &authorization), ("mcp-session-id", session)];
        self.send(method, &headers, body)
    }

    /// Opens a session of 2025-11-25: the status, and its id.
    fn initialize(&self, token: &str) -> (u16, String) {
        let (host, authorization) = (self.address.to_string(), format!("Bearer {token}"));
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "test", "version": "1" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let (status, answer) = self.post(&[("host", &host), ("authorization", &authorization)], &body);
        let id = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap_or_default().to_owned();
        if status == 200 {
            let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            assert_eq!(self.in_session(token, "POST", &id, &initialized).0, 202, "{answer}");
        }
        (status, id)
    }

    /// A connection that a request with `token` was answered on, and that stays open; the status besides.
    fn connect(&self, token: &str) -> (TcpStream, u16) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = self.address;
        write!(
            stream,
            "POST /other HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        let mut head = String::new();
        BufReader::new(&stream).read_line(&mut head).unwrap();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        (stream, status)
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nconnection: close\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n",
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
    let (start, last) = token.split_at(token.len() - 1);
    let other = if last == "0" { "1" } else { "0" };
    check(&[("host", &host), ("authorization", &format!("Bearer {start}{other}"))], 401);
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
fn a_file_of_tokens_that_programs_could_read_is_refused() {
    let stage = Stage::new();
    let (outside, shown) = (stage.path().join("tokens"), stage.path().join("shown"));
    std::fs::create_dir_all(shown.join("deep")).unwrap();
    let policy =
        format!("version: 1\nbackend: spawn\nfs: {{ mounts: [{{ host: {}, at: /shown }}] }}\n", shown.display());
    stage.write("sandbox.policy.yaml", policy);
    let inside = [stage.work().join("tokens"), shown.join("deep/tokens"), stage.work().join("link")];
    std::fs::write(&outside, ONE).unwrap();
    std::fs::write(&inside[0], ONE).unwrap();
    std::fs::write(&inside[1], ONE).unwrap();
    for file in [&outside, &inside[0], &inside[1]] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let link = stage.path().join("to-the-workspace");
    std::os::unix::fs::symlink(&inside[0], &link).unwrap();
    for file in [&inside[0], &inside[1], &link] {
        let flags = ["mcp", "--http", "127.0.0.1:0", "--token-file", file.to_str().unwrap()];
        stage.ringfence(flags).run().expect(2, &["which programs inside can read"]);
    }
    // A link in the workspace to what lies outside shows nothing of it.
    std::os::unix::fs::symlink(&outside, &inside[2]).unwrap();
    for file in [&outside, &inside[2]] {
        let server = Server::start(&stage, &["--token-file", file.to_str().unwrap()]);
        assert_eq!(server.connect(ONE).1, 404);
        assert_eq!(server.connect(TWO).1, 401);
    }
}

/// A server for the clients of two tokens.
fn for_two(stage: &Stage) -> Server {
    let file = stage.path().join("tokens");
    std::fs::write(&file, format!("{ONE}\n{TWO}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    Server::start(stage, &["--token-file", file.to_str().unwrap()])
}

#[test]
fn the_session_of_another_client_is_as_unknown_as_none() {
    let stage = Stage::spawn();
    let server = for_two(&stage);
    let (status, session) = server.initialize(ONE);
    assert!(status == 200 && !session.is_empty(), "{status}");
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} });
    let yes = json!({ "jsonrpc": "2.0", "id": 0, "result": { "action": "accept", "content": { "approve": true } } });
    for body in [&list, &yes] {
        assert_eq!(server.in_session(TWO, "POST", &session, body).0, 404);
        assert_eq!(server.in_session(TWO, "POST", "00000000-0000-0000-0000-000000000000", body).0, 404);
    }
    assert_eq!(server.in_session(TWO, "GET", &session, &Value::Null).0, 404);
    server.in_session(TWO, "DELETE", &session, &Value::Null);
    let (status, answer) = server.in_session(ONE, "POST", &session, &list);
    assert!(status == 200 && answer.contains("sandboxed_code_run"), "{answer}");
    server.in_session(ONE, "DELETE", &session, &Value::Null);
    assert_eq!(server.in_session(ONE, "POST", &session, &list).0, 404);
}

#[test]
fn one_client_cannot_take_the_connections_and_sessions_of_another() {
    let stage = Stage::spawn();
    let server = for_two(&stage);
    let held: Vec<(TcpStream, u16)> = (0..32).map(|_| server.connect(ONE)).collect();
    assert!(held.iter().all(|(_, status)| *status == 404), "{held:?}");
    assert_eq!(server.connect(ONE).1, 429);
    assert_eq!(server.connect(TWO).1, 404);
    // Whoever has no token keeps no connection, however many there are.
    let strangers: Vec<(TcpStream, u16)> = (0..80).map(|_| server.connect("nobody")).collect();
    assert!(strangers.iter().all(|(_, status)| *status == 401));
    drop(held);
    std::thread::sleep(Duration::from_millis(300));
    let sessions: Vec<(u16, String)> = (0..64).map(|_| server.initialize(ONE)).collect();
    assert!(sessions.iter().all(|(status, _)| *status == 200), "{sessions:?}");
    assert_eq!(server.initialize(ONE).0, 429);
    assert_eq!(server.initialize(TWO).0, 200);
    server.in_session(ONE, "DELETE", &sessions[0].1, &Value::Null);
    assert_eq!(server.initialize(ONE).0, 200);
}

#[test]
fn a_message_that_never_ends_is_given_up_and_one_that_is_too_long_is_refused() {
    let stage = Stage::spawn();
    let server = for_two(&stage);
    let begin = |length: usize| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = server.address;
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {ONE}\r\ncontent-length: {length}\r\n\r\n{{"
        )
        .unwrap();
        stream
    };
    let answer = |stream: TcpStream| {
        let mut head = String::new();
        BufReader::new(stream).read_line(&mut head).unwrap();
        head
    };
    assert!(answer(begin(100)).contains(" 408 "));
    assert!(answer(begin(9 * 1024 * 1024)).contains(" 413 "));
    assert_eq!(server.call(ONE, "sandbox_list", &json!({}))["isError"], false);
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
