//! E13: sockets of the host. One that the policy names answers, and no other does.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ringfence_testkit::canary::until;

use crate::probe::{Wall, outside, run, sh, text, walled_with};
use crate::stage::{SOON, Stage};

/// A service of the host at `path` that answers HTTP.
fn serve(path: &Path, mode: u32) {
    let listener = UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 1024];
            let Ok(1..) = stream.read(&mut bytes) else { continue };
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nlistening").ok();
        }
    });
    assert!(until(SOON, || path.exists()));
}

/// Says for each path what came from there.
const ASK: &str = "
import socket, sys
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(5); s.connect(path); s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); print(s.recv(999)[-9:].decode())
    except OSError as error: print(type(error).__name__)
";

fn ask(stage: &Stage, wall: Wall, paths: &[&str]) -> String {
    run(stage, wall, &[], &[&["python3", "-c", ASK], paths].concat()).run().text()
}

/// A stage whose policy has `net`, in which `SOCKET` stands for a socket beside the workspace.
fn stage(net: &str, mode: u32) -> Option<(Stage, PathBuf)> {
    let stage = walled_with("")?;
    let path = outside(&stage).canonicalize().unwrap().join("named.sock");
    serve(&path, mode);
    stage.write("sandbox.policy.yaml", format!("version: 1\nnet: {}\n", net.replace("SOCKET", text(&path))));
    Some((stage, path))
}

#[test]
fn e13_a_socket_that_is_named_answers_and_its_neighbour_does_not() {
    for (net, mode) in [
        ("{ unix: [SOCKET] }", 0o600),
        ("{ unix: [SOCKET] }", 0o666),
        ("{ mode: allowlist, allow: [a.test], unix: [SOCKET] }", 0o600),
    ] {
        let Some((stage, path)) = stage(net, mode) else { return };
        let neighbour = path.with_file_name("neighbour.sock");
        serve(&neighbour, 0o666);
        let paths = [text(&path), text(&neighbour)];
        assert_eq!(ask(&stage, Wall::Native, &paths), "listening\nFileNotFoundError\n", "{net} {mode:o}");
        assert_eq!(ask(&stage, Wall::Bare, &paths), "listening\nlistening\n", "the probe proves nothing");
        let outcome = run(&stage, Wall::Native, &["--json"], &["true"]).run().json();
        assert!(
            outcome["enforced"].to_string().contains(&format!("of the host's sockets {}", paths[0])),
            "{outcome:#}"
        );
        let script = "ls \"$(dirname \"$1\")\"; rm -f \"$1\" 2> /dev/null; test -S \"$1\" && echo still";
        assert_eq!(
            sh(&stage, Wall::Native, script, &[paths[0]]).text(),
            "named.sock\nstill\n",
            "nothing else is there"
        );
        assert!(path.exists(), "it cannot be removed from inside");
    }
}

#[test]
fn e13_no_engine_agent_or_bus_of_the_host_answers() {
    let Some((stage, path)) = stage("{ unix: [SOCKET] }", 0o600) else { return };
    let listed = "find /run /var/run/ /tmp -maxdepth 4 -type s 2> /dev/null | grep -c -E 'docker|containerd|podman|dbus|bus$|agent|systemd'; \
        for it in /run/docker.sock /var/run/docker.sock /run/containerd/containerd.sock /run/dbus/system_bus_socket \"$SSH_AUTH_SOCK\"; do \
        test -e \"$it\" && echo \"$it\"; done; \
        if command -v curl > /dev/null; then curl -s --unix-socket /run/docker.sock http://x/info || curl -s --unix-socket \"$1\" http://x/; else echo listening; fi";
    assert_eq!(sh(&stage, Wall::Native, listed, &[text(&path)]).text().trim(), "0\nlistening");
}

#[test]
fn e13_what_may_not_be_named_or_is_no_socket_starts_nothing() {
    let Some((stage, path)) = stage("{ unix: [SOCKET] }", 0o600) else { return };
    let folder = path.parent().unwrap();
    let (link, file) = (folder.join("link.sock"), folder.join("file"));
    symlink(&path, &link).unwrap();
    std::fs::write(&file, "x").unwrap();
    let agent = folder.join("keys.sock");
    serve(&agent, 0o600);
    let check = |named: &Path, expected: &str| {
        stage.write("sandbox.policy.yaml", format!("version: 1\nnet: {{ unix: [{}] }}\n", text(named)));
        let ended = run(&stage, Wall::Native, &[], &["true"]).env("SSH_AUTH_SOCK", &agent).run();
        assert!(ended.code != 0 && ended.stderr.contains(expected), "{}: {ended:?}", named.display());
    };
    check(&link, "write that path");
    check(&file, "it is no socket");
    check(&folder.join("missing.sock"), "start its service first");
    check(&agent, "`SSH_AUTH_SOCK` names it");
    check(Path::new("/run/docker.sock"), "controls the container engine");
    check(Path::new("/run/dbus/system_bus_socket"), "speaks for the machine");
    stage.write("sandbox.policy.yaml", format!("version: 1\nnet: {{ unix: [{}] }}\n", text(&path)));
    run(&stage, Wall::Native, &[], &["true"]).run().expect(0, &[]);
}

#[test]
fn a_session_keeps_the_sockets_that_it_was_opened_with() {
    let Some((stage, path)) = stage("{ unix: [SOCKET] }", 0o600) else { return };
    stage.ringfence(["session", "start", "sockets"]).run().expect(0, &[]);
    let exec = ["session", "exec", "sockets", "--", "python3", "-c", ASK, text(&path)];
    let ended = stage.ringfence(exec).run();
    stage.ringfence(["session", "stop", "sockets"]).run();
    assert_eq!(ended.text(), "listening\n", "{ended:?}");
}
