//! A client: starts the server over pipes, sends requests, answers questions.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stage::Stage;

/// Enough for every answer, on a machine that is busy.
const SOON: Duration = Duration::from_secs(60);

/// Which way of the protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// 2025-11-25: `initialize` first.
    Initialize,
    /// 2026-07-28: each request says who asks.
    Stateless,
}

pub(crate) const BOTH: [Protocol; 2] = [Protocol::Initialize, Protocol::Stateless];

impl Protocol {
    fn version(self) -> &'static str {
        match self {
            Self::Initialize => "2025-11-25",
            Self::Stateless => "2026-07-28",
        }
    }
}

/// What every request of 2026-07-28 says.
pub(crate) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

/// A client and its server.
pub(crate) struct Connection {
    pub(crate) child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    next: u64,
    protocol: Protocol,
    capabilities: Value,
    /// How every question is answered.
    pub(crate) answer: Value,
    /// Questions that came.
    pub(crate) asked: Vec<Value>,
    /// Notifications that came.
    pub(crate) told: Vec<Value>,
}

impl Connection {
    pub(crate) fn open(stage: &Stage, protocol: Protocol) -> Self {
        Self::open_with(stage, protocol, &[], json!({}), &[])
    }

    pub(crate) fn open_with(
        stage: &Stage,
        protocol: Protocol,
        flags: &[&str],
        capabilities: Value,
        env: &[(&str, &str)],
    ) -> Self {
        let mut invocation = stage.ringfence([&["mcp"], flags].concat()).stdin_from(std::process::Stdio::piped());
        for (name, value) in env {
            invocation = invocation.env(name, value);
        }
        let mut child = invocation.stderr(std::process::Stdio::inherit()).start();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "garbage": line }));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut connection = Self {
            child,
            stdin,
            lines,
            next: 0,
            protocol,
            capabilities,
            answer: Value::Null,
            asked: Vec::new(),
            told: Vec::new(),
        };
        connection.begin();
        connection
    }

    fn begin(&mut self) {
        match self.protocol {
            Protocol::Initialize => {
                let params = json!({
                    "protocolVersion": self.protocol.version(),
                    "capabilities": self.capabilities,
                    "clientInfo": { "name": "test", "version": "1" },
                });
                let answer = self.request("initialize", params);
                assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
                assert_eq!(answer["result"]["serverInfo"]["name"], "ringfence");
                self.notify("notifications/initialized", json!({}));
            }
            Protocol::Stateless => {
                let answer = self.request("server/discover", json!({}));
                let versions = answer["result"]["supportedVersions"].as_array().unwrap_or_else(|| panic!("{answer}"));
                assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{answer}");
            }
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request, and does not wait.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.protocol == Protocol::Stateless {
            let mut meta = meta(&self.capabilities);
            if let (Some(meta), Some(more)) = (meta.as_object_mut(), params["_meta"].as_object()) {
                meta.extend(more.clone());
            }
            params["_meta"] = meta;
        }
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }).to_string());
        self.next
    }

    /// The next message of any kind.
    pub(crate) fn next(&mut self, within: Duration) -> Option<Value> {
        self.lines.recv_timeout(within).ok()
    }

    /// The answer to a request. Questions are answered meanwhile.
    pub(crate) fn wait(&mut self, id: u64) -> Value {
        let until = Instant::now() + SOON;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self.next(left).unwrap_or_else(|| panic!("no answer to {id}; {:?}", self.child.try_wait()));
            if message.get("method").is_some() && message.get("id").is_some() {
                self.asked.push(message.clone());
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": self.answer });
                self.write(&answer.to_string());
            } else if message.get("method").is_some() {
                self.told.push(message);
            } else if message["id"] == id {
                return message;
            }
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.wait(id)
    }

    /// The result of a tool.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// Likewise, of a program in Python.
    #[track_caller]
    pub(crate) fn python(&mut self, code: &str) -> Value {
        self.call("sandboxed_code_run", json!({ "language": "python", "code": code }))
    }

    pub(crate) fn sandbox(&mut self) -> String {
        let created = self.call("sandbox_create", json!({}));
        created["structuredContent"]["sandboxId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned()
    }

    /// Ends the input, and waits for the end of the server.
    pub(crate) fn close(&mut self) -> std::process::ExitStatus {
        drop(self.stdin.take());
        let until = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if !std::thread::panicking() {
            self.close();
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}
