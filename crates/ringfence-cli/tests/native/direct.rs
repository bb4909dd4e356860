//! Programs behind the wall that know nothing of proxies: allowed names have an address, and connections to it reach the host through
//! the proxy; nothing else does, and no question leaves.

use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::egress::VARIABLES;
use crate::named::{GET, HOSTILE, SHOW, host_files, questions, spy};
use crate::origin::Origin;
use crate::probe::{Wall, is_root, run, sh, walled_with};
use crate::stage::{Ended, Stage, binary};

/// `ringfence ARGS…` on a host that knows `origin.test` and all of its names below `pool.test` as itself, and otherwise asks the server
/// at 127.77.0.53.
fn ringfence(stage: &Stage, args: &[&str]) -> Ended {
    let folder = host_files(stage);
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--mount", "/usr/bin/python3", "-c", SHOW]).arg(&folder).arg(binary()).args(args);
    command.env_clear().current_dir(stage.work()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command
        .env("HOME", stage.path().join("home"))
        .env("TMPDIR", stage.path().join("tmp"))
        .env("LANG", "C.UTF-8")
        .env("RINGFENCE_VALIDATE", "off");
    Ended::from(command.output().unwrap())
}

/// A run of Python that no variable tells of the proxy.
fn python(stage: &Stage, flags: &[&str], code: &str, arguments: &[&str]) -> Ended {
    let script = format!("unset {}; exec /usr/bin/python3 -c \"$@\"", VARIABLES.join(" "));
    let program = ["sh", "-c", script.as_str(), "sh", code];
    ringfence(stage, &[&["run", "-q", "--backend", "native"], flags, &["--"], &program, arguments].concat())
}

fn stage(net: &str) -> Option<Stage> {
    if !std::path::Path::new("/usr/bin/python3").is_file() {
        eprintln!("SKIPPED: there is no /usr/bin/python3");
        return None;
    }
    walled_with(&format!("net: {{ mode: allowlist, {net} }}\n"))
}

#[test]
fn a_program_that_ignores_proxies_reaches_an_allowed_name_and_no_other() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let Some(stage) = stage(&format!("localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}]")) else {
        return;
    };
    let code = format!("{GET}\nsys.exit(3)");
    let ended = python(&stage, &["--json"], &code, &["origin.test", &port, "evil.test", &port, "localhost", &port]);
    let outcome = ended.json();
    assert_eq!(
        outcome["stdout"], "origin.test 198.18 hello\nevil.test gaierror\nlocalhost 127.0 hello\n",
        "{outcome:#} {}",
        ended.stderr
    );
    assert_eq!(origin.asked(), ["GET /origin.test 0", "GET /localhost 0"]);
    let network = outcome["network"].as_array().cloned().unwrap_or_default();
    let ways: Vec<_> =
        network.iter().map(|one| (one["host"].as_str().unwrap(), one["via"].as_str().unwrap())).collect();
    assert!(ways.contains(&("origin.test", "direct")) && ways.contains(&("evil.test", "lookup")), "{ways:?}");
    let violation = outcome["violations"][0]["message"].as_str().unwrap();
    assert_eq!(violation, "denied: evil.test (net.not-listed)");
    assert!(outcome["advice"].as_str().unwrap().contains("origin.test"), "{}", outcome["advice"]);
    let enforced = outcome["enforced"].as_array().unwrap();
    let evidence = enforced.iter().find(|one| one["guarantee"] == "net.allowlist").unwrap()["evidence"].to_string();
    assert!(
        evidence.contains("only lo, no route") && evidence.contains("198.18.0.1/15 for allowed names"),
        "{evidence}"
    );
    // The probe can do it where there is no wall.
    assert!(sh(&stage, Wall::Bare, "getent hosts localhost > /dev/null && echo yes", &[]).text().contains("yes"));
}

#[test]
fn tools_that_are_told_to_use_no_proxy_find_their_hosts() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let Some(stage) = stage(&format!(
        "localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}, {{ host: \"*.pool.test\", ports: [{port}] }}]"
    )) else {
        return;
    };
    let script = "
        getent ahostsv4 origin.test | head -n 1 | cut -d. -f1,2
        for host in origin.test a.pool.test b.pool.test; do
            if command -v curl > /dev/null; then curl -s --noproxy '*' http://$host:$1/; else echo hello; fi
        done
        getent hosts pool.test c.evil.test || echo none";
    let ended = ringfence(&stage, &["run", "-q", "--backend", "native", "--", "sh", "-c", script, "sh", &port]);
    assert_eq!(ended.text(), "198.18\nhello\nhello\nhello\nnone\n", "{ended:?}");
}

/// Sends the first message of TLS for a name to a name, and says what came.
const HELLO: &str = "
import socket, ssl, sys
for name, asked in (('origin.test', 'origin.test'), ('origin.test', 'other.test'), ('origin.test', None)):
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(into, out, server_hostname=asked)
    try: tls.do_handshake()
    except ssl.SSLWantReadError: pass
    with socket.create_connection((name, int(sys.argv[1])), 10) as s:
        s.sendall(out.read()); print(asked, s.recv(99)[:9])
";

#[test]
fn e07_another_name_in_tls_than_the_one_that_was_looked_up_reaches_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let spoken: Arc<Mutex<Vec<u8>>> = Arc::default();
    let heard = Arc::clone(&spoken);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            let Ok(length @ 1..) = stream.read(&mut bytes) else { continue };
            heard.lock().unwrap().extend(&bytes[..length]);
            std::io::Write::write_all(&mut stream, b"encrypted").ok();
        }
    });
    let Some(stage) = stage(&format!("localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}]")) else {
        return;
    };
    let ended = python(&stage, &[], HELLO, &[&port]);
    let text = ended.text();
    assert!(text.starts_with("origin.test b'encrypted'\nother.test b'\\x15"), "{ended:?}");
    assert!(!text.contains("None b'encrypted"), "{text}");
    let spoken = spoken.lock().unwrap();
    let heard = |name: &[u8]| spoken.windows(name.len()).any(|part| part == name);
    assert!(heard(b"origin.test") && !heard(b"other.test"));
}

#[test]
fn e12_beside_the_made_up_addresses_there_is_no_route_and_those_nobody_was_told_lead_nowhere() {
    let Some(stage) = stage("allow: [origin.test]") else { return };
    let code = "
import errno, socket
for family, kind, address in [(socket.AF_INET, kind, (host, 443)) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        for host in ('192.0.2.1', '8.8.8.8', '198.17.255.255', '198.20.0.1', '169.254.169.254', '10.0.0.1')] + [
        (socket.AF_INET6, socket.SOCK_DGRAM, ('2001:db8::1', 443)), (socket.AF_INET6, socket.SOCK_STREAM, ('2606:4700::1', 443))]:
    with socket.socket(family, kind) as s:
        s.settimeout(2)
        try: s.connect(address); print('reached', address)
        except OSError as error: assert error.errno in (errno.ENETUNREACH, errno.EADDRNOTAVAIL), (address, error)
for host in ('198.18.77.77', '198.19.255.254', '127.0.0.1'):
    with socket.create_connection((host, 443), 5) as s:
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(host, s.recv(12))
try: socket.create_connection(('198.18.77.77', 8443), 5); print('reached')
except ConnectionRefusedError: print('refused')
";
    let ended = python(&stage, &["--json"], code, &[]);
    let outcome = ended.json();
    let denied = "b'HTTP/1.1 403'";
    let expected = format!("198.18.77.77 {denied}\n198.19.255.254 {denied}\n127.0.0.1 {denied}\nrefused\n");
    assert_eq!(outcome["stdout"], expected, "{outcome:#} {}", ended.stderr);
    let denied = outcome["network"].as_array().unwrap().iter().filter(|one| one["allowed"] == false).count();
    assert_eq!(denied, 3, "{outcome:#}");
}

#[test]
fn e11_whatever_is_asked_inside_no_question_leaves_and_the_next_one_is_answered() {
    let spy = spy();
    let Some(stage) = stage("allow: [origin.test, unknown.test]") else { return };
    let ended = python(&stage, &[], HOSTILE, &[]);
    assert_eq!(ended.text(), "0 c612\n0 c612\n", "{ended:?}");
    let Some(spy) = spy else { return };
    assert_eq!(questions(&spy), 0);
    // When an allowed name is connected to, it is looked up, and the spy would have seen the others.
    python(&stage, &[], "import socket; socket.create_connection(('unknown.test', 443), 5).recv(1)", &[]);
    assert!(questions(&spy) > 0, "the probe proves nothing");
}

#[test]
fn a_programs_own_servers_are_in_nobodys_way() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let Some(stage) =
        stage(&format!("localhost: [{port}], allow: [origin.test, {{ host: origin.test, ports: [{port}, 8080] }}]"))
    else {
        return;
    };
    let code = "
import errno, socket, sys
port = int(sys.argv[1])
for own in (('127.0.0.1', 8080), ('0.0.0.0', 8081), ('::1', 8082)):
    server = socket.create_server(own, family=socket.AF_INET6 if ':' in own[0] else socket.AF_INET)
    client = socket.create_connection(('127.0.0.1' if own[0] == '0.0.0.0' else own[0], own[1]), 5)
    there, _ = server.accept(); there.send(b'own'); print(client.recv(3).decode())
for low in (443, 80, 53, 22):
    try: socket.create_server(('127.0.0.1', low)); print('listens at', low)
    except PermissionError: pass
    except OSError as error: assert error.errno == errno.EADDRINUSE
with socket.create_connection(('origin.test', port), 5) as s:
    s.sendall(f'GET / HTTP/1.1\\r\\nHost: origin.test:{port}\\r\\nConnection: close\\r\\n\\r\\n'.encode()); print(s.recv(12).decode())
";
    let ended = python(&stage, &[], code, &[&port]);
    assert_eq!(ended.text(), "own\nown\nown\nHTTP/1.1 200\n", "{ended:?}");
}

#[test]
fn e19_many_connections_to_names_hold_up_nobody_and_end_with_the_run() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let Some(stage) = stage(&format!("localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}]")) else {
        return;
    };
    let code = format!(
        "
import socket
held = []
for _ in range(700):
    try: held.append(socket.create_connection(('origin.test', int(__import__('sys').argv[2])), 1))
    except OSError: break
print(len(held) >= 100)
for s in held: s.close()
{GET}"
    );
    let ended = python(&stage, &[], &code, &["origin.test", &port]);
    assert_eq!(ended.text(), "True\norigin.test 198.18 hello\n", "{ended:?}");
}

#[test]
fn in_a_session_a_name_keeps_its_address_and_each_run_is_told_what_it_asked_for() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let Some(stage) = stage(&format!("localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}]")) else {
        return;
    };
    let name = "direct";
    ringfence(&stage, &["session", "start", name]).expect(0, &[]);
    let exec = |code: &str, arguments: &[&str]| {
        let script = format!("unset {}; exec /usr/bin/python3 -c \"$@\"", VARIABLES.join(" "));
        let program = ["session", "exec", "--json", name, "--", "sh", "-c", &script, "sh", code];
        ringfence(&stage, &[program.as_slice(), arguments].concat()).json()
    };
    let address = "import socket; print(socket.gethostbyname('origin.test'))";
    let (one, two, three) =
        (exec(address, &[]), exec(address, &[]), exec(GET, &["origin.test", &port, "evil.test", "80"]));
    ringfence(&stage, &["session", "stop", name]);
    assert!(one["stdout"].as_str().unwrap().starts_with("198.18."), "{one:#}");
    assert_eq!(one["stdout"], two["stdout"]);
    assert_eq!(three["stdout"], "origin.test 198.18 hello\nevil.test gaierror\n", "{three:#}");
    assert!(one["network"].is_null(), "{one:#}");
    assert!(three["network"].as_array().unwrap().iter().any(|one| one["via"] == "lookup"), "{three:#}");
}

#[test]
fn without_a_network_there_is_nobody_to_ask() {
    let Some(stage) = walled_with("") else { return };
    let script = "getent hosts origin.test || echo none; grep -c 198.18 /proc/net/fib_trie";
    let ended = run(&stage, Wall::Native, &[], &["sh", "-c", script]).run();
    assert_eq!(ended.text(), "none\n0\n", "{ended:?}");
}
