//! N09, N16 and the network: nothing of the host answers.

use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use ringfence_testkit::canary::{Listener, secret, until};

use crate::probe::{Wall, outside, python, sh, text, walled, walled_with};
use crate::stage::Stage;

/// Does `act` where there is no way out, and where there is one for a listed host, which has to open nothing else.
pub(crate) fn with_and_without_a_way_out(act: impl Fn(&Stage)) {
    for policy in ["", "net: { mode: allowlist, allow: [registry.example] }\n"] {
        let Some(stage) = walled_with(policy) else { return };
        let door = "import socket; socket.create_connection(('127.0.0.1', 3128), 10)";
        let Some(ended) = python(&stage, Wall::Native, door, &[]) else { return };
        assert_eq!(ended.code, i32::from(policy.is_empty()), "whether our proxy can be reached: {ended:?}");
        act(&stage);
    }
}

/// Whether somebody spoke to `listener` meanwhile.
fn was_reached(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).unwrap();
    let mut reached = false;
    until(Duration::from_millis(200), || {
        while listener.accept().is_ok() {
            reached = true;
        }
        reached
    });
    reached
}

const CONNECT: &str = "
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.connect(name.replace('@', '\\0', 1) if name.startswith('@') else name); s.send(b'x')
        except OSError: pass
";

#[test]
fn n09_an_abstract_socket_of_the_host_is_unreachable() {
    with_and_without_a_way_out(|stage| {
        let name = secret().unwrap();
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let argument = format!("@{name}");
        python(stage, Wall::Native, CONNECT, &[&argument]);
        assert!(!was_reached(&listener));
        python(stage, Wall::Bare, CONNECT, &[&argument]);
        assert!(was_reached(&listener), "the probe proves nothing: it fails without a wall too");
    });
}

#[test]
fn n16_a_socket_of_the_host_is_unreachable_wherever_it_lies() {
    for mode in ["review", "read-only"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        let paths = [outside(&stage).join("docker.sock"), stage.work().join("docker.sock")];
        let listeners = [&paths[0], &paths[1]].map(|path| UnixListener::bind(path).unwrap());
        let arguments = [text(&paths[0]), text(&paths[1]), "docker.sock", "/workspace/docker.sock"];
        if python(&stage, Wall::Native, CONNECT, &arguments).is_none() {
            return;
        }
        for (listener, path) in listeners.iter().zip(&paths) {
            assert!(!was_reached(listener), "{mode}: {}", path.display());
        }
        python(&stage, Wall::Bare, CONNECT, &arguments);
        assert!(listeners.iter().all(was_reached), "the probe proves nothing: it fails without a wall too");
    }
}

#[test]
fn n16_a_pipe_of_the_host_in_the_workspace_is_not_the_programs() {
    for mode in ["review", "read-only"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        let pipe = stage.work().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // Both ends are open here, so that a writer never waits for a reader.
        let mut reader = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let script = "timeout 1 sh -c 'echo x > pipe'; :";
        sh(&stage, Wall::Native, script, &[]);
        assert!(reader.read(&mut [0u8; 8]).is_err(), "{mode}: the host's reader got something");
        sh(&stage, Wall::Bare, script, &[]);
        assert_eq!(reader.read(&mut [0u8; 8]).unwrap(), 2, "the probe proves nothing");
    }
}

#[test]
fn n16_no_folder_of_the_hosts_services_is_there() {
    let Some(stage) = walled() else { return };
    let script = "ls -d /run/docker* /var/run /run/dbus /run/user /run/containerd /run/systemd /var/lib /run/lock 2>/dev/null; ls -A /run 2>/dev/null; find / -xdev -type s 2>/dev/null; :";
    assert_eq!(sh(&stage, Wall::Native, script, &[]).text(), "code\n", "only where the request's code would be");
    assert!(Path::new("/run").exists() && sh(&stage, Wall::Bare, "ls -d /run", &[]).text().contains("/run"));
}

#[test]
fn there_is_no_interface_but_loopback_and_no_route() {
    let Some(stage) = walled() else { return };
    let script = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l";
    assert_eq!(sh(&stage, Wall::Native, script, &[]).text(), "lo\n0\n");
    let bare = sh(&stage, Wall::Bare, script, &[]).text();
    if bare == "lo\n0\n" {
        eprintln!("SKIPPED: the twin of the interfaces: this host has only loopback too");
    }
}

#[test]
fn a_listener_on_the_hosts_loopback_is_unreachable_and_the_programs_own_works() {
    let Some(stage) = walled() else { return };
    let listener = Listener::start().unwrap();
    let port = listener.port().to_string();
    let code = "
import socket, sys
for address in ['127.0.0.1', 'localhost', '0.0.0.0', '::ffff:127.0.0.1', '127.1.2.3', '10.0.2.2', '192.168.0.1', '169.254.169.254']:
    try: socket.create_connection((address, int(sys.argv[1])), 1).close()
    except OSError: pass
own = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(own.getsockname(), 1); server, _ = own.accept()
client.send(b'own'); print(server.recv(3).decode())
six = socket.create_server(('::1', 0), family=socket.AF_INET6); socket.create_connection(six.getsockname()[:2], 1); print('six')
";
    let Some(ended) = python(&stage, Wall::Native, code, &[&port]) else { return };
    assert_eq!(listener.hits(), 0);
    assert_eq!(ended.text(), "own\nsix\n", "{ended:?}");
    python(&stage, Wall::Bare, code, &[&port]);
    assert!(listener.hits() > 0, "the probe proves nothing: it fails without a wall too");
}

#[test]
fn a_program_that_fails_for_want_of_a_network_is_told_so_and_nobody_else_is() {
    const LINE: &str = "curl -sS https://packages.example.org/a.tar.gz";
    let Some(stage) = walled() else { return };
    let run = |flags: &[&str], line: &str| {
        stage.ringfence([&["run"], flags, &["--backend", "native", "--shell", line]].concat()).run()
    };
    let told =
        run(&[], &format!("{LINE} || exit 6")).expect(6, &["there is no network inside", "packages.example.org"]);
    assert!(told.stderr.contains("`ringfence explain packages.example.org`"), "{told:?}");
    let outcome = run(&["--json"], &format!("{LINE} || exit 6")).expect(6, &[]).json();
    assert_eq!(outcome["unreachable"], serde_json::json!(["packages.example.org"]));
    assert!(outcome["advice"].as_str().unwrap().contains("packages.example.org cannot be reached"), "{outcome}");

    // One that goes on without, one that names no host, and one that has a network.
    let lines = [(format!("{LINE} || true"), 0), ("exit 6".to_owned(), 6)];
    for (line, code) in &lines {
        assert_eq!(run(&["--json"], line).expect(*code, &[]).json()["unreachable"], serde_json::Value::Null, "{line}");
    }
    let Some(stage) = walled_with("net: { mode: allowlist, allow: [{ host: other.example }] }\n") else { return };
    let line = format!("{LINE} || exit 6");
    let outcome =
        stage.ringfence(["run", "--json", "--backend", "native", "--shell", &line]).run().expect(6, &[]).json();
    assert_eq!(outcome["unreachable"], serde_json::Value::Null);
}
