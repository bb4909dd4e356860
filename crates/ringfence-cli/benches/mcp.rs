//! What a call of `sandboxed_code_run` costs a client, over standard input and output: Python's `print(1)` beside a bare start of the same
//! Python, in turns in the same run; and whether a server grows by being called.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const ROUNDS: usize = 100;
const WARM_UP: usize = 5;
/// Calls between the two looks at what the server holds.
const MANY: usize = 1000;
const BINARY: &str = env!("CARGO_BIN_EXE_ringfence");
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
const CODE: &str = "print(1)";

fn main() {
    let place = tempfile::tempdir().unwrap();
    for folder in ["home", "workspace"] {
        fs::create_dir(place.path().join(folder)).unwrap();
    }
    let mut server = Server::start(place.path());
    let mut times: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS + WARM_UP {
        let taken = [bare(), server.print(), server.ping()];
        if round >= WARM_UP {
            times.iter_mut().zip(taken).for_each(|(times, time)| times.push(time));
        }
    }
    let [bare, call, ping] = times.map(median);
    println!("mcp_python_bare {} us", bare.as_micros());
    println!("mcp_python_call {} us", call.as_micros());
    println!("mcp_ping {} us", ping.as_micros());
    println!("mcp_python_call_over_bare {:.2} ratio", call.as_secs_f64() / bare.as_secs_f64());
    let before = server.in_use();
    for _ in 0..MANY {
        server.print();
    }
    let after = server.in_use();
    println!("mcp_{MANY}_calls_more_descriptors {} descriptors", after.0 - before.0);
    println!("mcp_{MANY}_calls_growth_mb {:.2} MB", (after.1 - before.1) / 1000.0);
}

/// As a client without a sandbox would: code by standard input, output by a pipe.
fn bare() -> Duration {
    let begin = Instant::now();
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", CODE]).env_clear().env("PATH", PATH).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"1\n");
    begin.elapsed()
}

/// A server and its one client.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(place: &std::path::Path) -> Self {
        let mut command = Command::new(BINARY);
        command.arg("mcp").current_dir(place.join("workspace"));
        command.env_clear().env("PATH", PATH).env("HOME", place.join("home"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, stdin, stdout, next: 0 };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } });
        server.request("initialize", &hello);
        server.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        server
    }

    fn write(&mut self, message: &Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the server ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.next {
                return answer["result"].clone();
            }
        }
    }

    fn print(&mut self) -> Duration {
        let begin = Instant::now();
        let call = json!({ "name": "sandboxed_code_run", "arguments": { "language": "python", "code": CODE } });
        let result = self.request("tools/call", &call);
        let time = begin.elapsed();
        assert_eq!(result["structuredContent"]["stdout"], "1\n", "{result}");
        assert_eq!(result["structuredContent"]["backend"], "native", "{result}");
        time
    }

    /// Open descriptors, and kilobytes of memory, once what follows an answer is done.
    fn in_use(&self) -> (i64, f64) {
        std::thread::sleep(Duration::from_secs(1));
        let folder = format!("/proc/{}", self.child.id());
        let descriptors = fs::read_dir(format!("{folder}/fd")).unwrap().count();
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        (descriptors.try_into().unwrap(), memory.trim().trim_end_matches(" kB").parse().unwrap())
    }

    /// What of it is the way there and back.
    fn ping(&mut self) -> Duration {
        let begin = Instant::now();
        self.request("ping", &json!({}));
        begin.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
