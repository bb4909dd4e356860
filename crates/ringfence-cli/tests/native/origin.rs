//! A plain server of the host, and a program that asks for what is there: for all walls alike.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server on the host's loopback that answers every request with as much as it asks for, and remembers its first line. What it is
/// sent it counts.
pub(crate) struct Origin {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let remembered = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let remembered = Arc::clone(&remembered);
                std::thread::spawn(move || answer(&stream, &remembered));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.asked.lock().unwrap().clear();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.port)
    }

    /// A policy that lists this server and nothing else.
    pub(crate) fn listed(&self) -> String {
        format!("net: {{ mode: allowlist, localhost: [{}], allow: [a.test] }}\n", self.port)
    }
}

/// `/NUMBER` is answered with so many bytes.
fn answer(stream: &TcpStream, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).is_err() || first.is_empty() {
            return;
        }
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            let lower = line.to_ascii_lowercase();
            length = lower.strip_prefix("content-length:").map_or(length, |value| value.trim().parse().unwrap());
            line.clear();
        }
        let sent = std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).unwrap_or(0);
        asked.lock().unwrap().push(format!("{} {sent}", first.split(' ').take(2).collect::<Vec<_>>().join(" ")));
        let wanted = first.split(' ').nth(1).and_then(|path| path.trim_start_matches('/').parse::<u64>().ok());
        let mut body = std::io::repeat(b'x').take(wanted.unwrap_or(0));
        let head = match wanted {
            Some(wanted) => format!("HTTP/1.1 200 OK\r\nContent-Length: {wanted}\r\n\r\n"),
            None => "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n".to_owned(),
        };
        if { stream }.write_all(head.as_bytes()).is_err() || std::io::copy(&mut body, &mut { stream }).is_err() {
            return;
        }
    }
}

/// Asks for each URL as a program would that heeds the variables, and says what came.
pub(crate) const FETCH: &str = "
import os, sys, urllib.request, urllib.error
os.environ.update(no_proxy='', NO_PROXY='')
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer: print(answer.status, answer.read().decode().strip())
    except urllib.error.HTTPError as error: print(error.code, error.read().decode().strip())
    except OSError as error: print('none')
";
