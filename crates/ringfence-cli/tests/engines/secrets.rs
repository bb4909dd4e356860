//! S rows: secrets of the host, and nothing of the network.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use ringfence_testkit::canary::{Listener, secret};

use crate::walls::{for_each_engine, with_and_without_a_way_out};

const LOOK: &str = "env; cat /proc/self/environ /proc/1/environ /proc/*/environ /proc/*/cmdline; \
    cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.netrc \"$1\"/.ssh/id_ed25519 \"$1\"/.netrc \"$1\"/.docker/config.json; \
    cat .env .ssh/id_ed25519; ls -laR /run /var/run /home /root";

#[test]
fn s01_s02_no_secret_of_the_host_is_inside() {
    for_each_engine("", |place| {
        let secret = secret().unwrap();
        let home = place.stage.path().join("home");
        for name in [".ssh/id_ed25519", ".aws/credentials", ".netrc", ".docker/config.json"] {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), &secret).unwrap();
        }
        place.stage.write(".env", &secret);
        place.stage.write(".ssh/id_ed25519", &secret);
        let home = home.to_str().unwrap();
        let script = format!("({LOOK}) 2> /dev/null; :");
        let ended = place.run(&[], &["sh", "-c", &script, "sh", home]).env("API_TOKEN", &secret).run().expect(0, &[]);
        assert!(!ended.text().contains(&secret), "{}", ended.text());
        assert!(!ended.text().contains("docker.sock") && !ended.text().contains("podman.sock"), "{}", ended.text());
        let argv = ["run", "-q", "--backend", "none", "--", "sh", "-c", &script, "sh", home];
        let twin = place.bare().ringfence(argv).env("API_TOKEN", &secret).run();
        assert!(twin.text().contains(&secret), "the probe proves nothing");
    });
}

#[test]
fn s03_a_crash_writes_no_core() {
    for_each_engine("", |place| {
        let ended =
            place.sh("ulimit -c unlimited 2> /dev/null; grep 'core file' /proc/self/limits; kill -SEGV $$", &[]);
        let limit = ended.text();
        assert!(limit.split_whitespace().nth(5).is_none_or(|hard| ["0", "1"].contains(&hard)), "{limit}");
        let changed = place.ringfence(&["changes", "--json"]).run().text();
        assert!(!changed.contains("core"), "{changed}");
    });
}

#[test]
fn s04_secrets_in_arguments_are_not_in_the_ledger() {
    for_each_engine("", |place| {
        let token = format!("ghp_{}", "a1B2c3D4e5".repeat(4).get(..36).unwrap());
        place.run(&[], &["echo", &token]).run().expect(0, &[]);
        let ledger = fs::read_to_string(place.stage.ledger()).unwrap();
        assert!(!ledger.contains(&token) && ledger.contains("echo"), "{ledger}");
    });
}

#[test]
fn e12_e14_there_is_no_network_and_no_service_of_the_host() {
    let code = "
import socket, sys
for address in ['127.0.0.1', 'localhost', '0.0.0.0', '10.0.2.2', '172.17.0.1', '169.254.169.254', 'host.docker.internal']:
    try: socket.create_connection((address, int(sys.argv[1])), 1).close()
    except OSError: pass
print([name for _, name in socket.if_nameindex() if name != 'lo'])
";
    for_each_engine("", |place| {
        let listener = Listener::start().unwrap();
        let port = listener.port().to_string();
        let ended = place.python(code, &[&port]);
        assert_eq!(listener.hits(), 0, "{ended:?}");
        assert!(ended.text().ends_with("[]\n") || ended.code != 0, "{ended:?}");
        place.bare_python(code, &[&port]);
        assert!(listener.hits() > 0, "the probe proves nothing");
    });
}

#[test]
fn n09_an_abstract_socket_of_the_host_is_unreachable() {
    let code = "
import socket, sys
try: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])
except OSError: pass
";
    with_and_without_a_way_out(|place| {
        let name = secret().unwrap();
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        listener.set_nonblocking(true).unwrap();
        place.python(code, &[&name]);
        assert!(listener.accept().is_err(), "it was reached");
        place.bare_python(code, &[&name]);
        assert!(listener.accept().is_ok(), "the probe proves nothing");
    });
}

/// Speaks to each socket that is named, and says what came.
const SPEAK: &str = "
import socket, sys
for name in sys.argv[1:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.settimeout(5); s.connect(name); s.sendall(b'GET /_ping HTTP/1.0\\r\\n\\r\\n'); print(s.recv(9))
        except OSError: pass
";

#[test]
fn n16_a_socket_of_the_host_is_unreachable_from_a_container_wherever_it_lies() {
    for mode in ["review", "read-only"] {
        for_each_engine(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n"), |place| {
            let paths = [place.outside().join("docker.sock"), place.stage.work().join("docker.sock")];
            let listeners = [&paths[0], &paths[1]].map(|path| UnixListener::bind(path).unwrap());
            listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
            let named =
                [paths[0].to_str().unwrap(), paths[1].to_str().unwrap(), "docker.sock", "/workspace/docker.sock"];
            let ended = place.python(SPEAK, &named);
            assert!(listeners.iter().all(|listener| listener.accept().is_err()), "{mode}: {ended:?}");
            assert_eq!(ended.expect(0, &[]).text(), "");
            place.bare_python(&SPEAK.replace("s.recv(9)", "0"), &named[..2]);
            assert!(listeners.iter().all(|listener| listener.accept().is_ok()), "the probe proves nothing");
        });
    }
}

#[test]
fn e13_neither_the_engine_nor_any_other_service_of_the_host_answers() {
    for_each_engine("", |place| {
        let engine = crate::api::socket(&place.wall);
        let named = [
            engine.to_str().unwrap(),
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/podman/podman.sock",
            "/run/containerd/containerd.sock",
            "/run/dbus/system_bus_socket",
        ];
        let ended = place.python(SPEAK, &named).expect(0, &[]);
        assert_eq!(ended.text(), "", "something answered");
        let agent = place.outside().join("agent.sock");
        let listener = UnixListener::bind(&agent).unwrap();
        listener.set_nonblocking(true).unwrap();
        let script = "test -z \"$SSH_AUTH_SOCK\" && test ! -e \"$1\" && echo none";
        let ended = place.run(&[], &["sh", "-c", script, "sh", agent.to_str().unwrap()]).env("SSH_AUTH_SOCK", &agent);
        assert_eq!(ended.run().text(), "none\n");
        assert!(place.bare_python(SPEAK, &named).text().contains("HTTP/1."), "the probe proves nothing");
    });
}
