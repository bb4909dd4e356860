//! An engine that is none: it answers by a table, and remembers what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A status and a document, for a method and a path.
type Answer = Arc<dyn Fn(&str, &str) -> (u16, Value) + Send + Sync>;

pub(super) struct Fake {
    folder: TempDir,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(super) fn start(answer: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("engine.sock")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, remembered): (Answer, _) = (Arc::new(answer), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answer, asked) = (stream, answer.clone(), remembered.clone()) else { return };
                std::thread::spawn(move || serve(stream, &answer, &asked));
            }
        });
        Self { folder, asked }
    }

    pub(super) fn address(&self) -> String {
        format!("unix://{}", self.folder.path().join("engine.sock").display())
    }

    /// What was asked with this method.
    pub(super) fn asked(&self, method: &str) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(method)).cloned().collect()
    }
}

fn serve(stream: UnixStream, answer: &Answer, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    if reader.read_line(&mut first).is_err() {
        return;
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    drop(reader.by_ref().take(length).read_to_end(&mut Vec::new()));
    // Without what says which version is spoken.
    let path = path.strip_prefix("/v1.41").unwrap_or(path);
    asked.lock().unwrap().push(format!("{method} {path}"));
    let (status, document) = match path {
        "/version" => (200, json!({ "ApiVersion": "1.41", "MinAPIVersion": "1.12", "Version": "20.10.0" })),
        _ => answer(method, path),
    };
    let body = document.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    drop(reader.into_inner().write_all((head + &body).as_bytes()));
}
