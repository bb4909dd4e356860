//! Whether anything of the host's network answers.

use super::super::attack::{Attack, Control, Found, Probe};
use super::super::host::{Service, secret};
use crate::Guarantee;
use crate::backend::door;

/// Either can connect to any kind of socket without a module.
const NEEDS: &[&str] = &["perl", "python3"];

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        id: "E14-loopback",
        guarantee: Guarantee::NetNone,
        tries: "connect to the host's loopback",
        control: Control::WithoutWall,
        needs: NEEDS,
        applies: |_| true,
        set: |_, _, _| {
            let (service, port) = Service::tcp()?;
            let script = r#"if command -v perl > /dev/null; then
                perl -e 'socket(my $s, 2, 1, 0); connect($s, pack("S n C4 x8", 2, shift, 127, 0, 0, 1))' "$1"
            else python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)' "$1"; fi"#;
            Ok(connects(script, service).with(port.to_string()))
        },
    },
    Attack {
        id: "E12-allowlist",
        guarantee: Guarantee::NetAllowlist,
        tries: "reach the host's loopback through the proxy and past it",
        control: Control::WithoutWall,
        needs: &["python3"],
        applies: |_| true,
        set: |_, _, _| {
            let (service, port) = Service::tcp()?;
            // Without the wall there is no proxy, and the second way is open.
            let script = r#"python3 - "$1" "$2" <<'END'
import socket, sys
port, door = sys.argv[1], int(sys.argv[2])
try:
    with socket.create_connection(("127.0.0.1", door), 2) as s:
        s.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        s.recv(99)
except OSError: pass
socket.create_connection(("127.0.0.1", int(port)), 2)
END"#;
            Ok(connects(script, service).with(port.to_string()).with(door::PORT.to_string()))
        },
    },
    Attack {
        id: "N09-abstract",
        guarantee: Guarantee::NetNone,
        tries: "connect to an abstract socket of the host",
        control: Control::WithoutWall,
        needs: NEEDS,
        applies: |_| true,
        set: |_, _, _| {
            let name = secret()?;
            let service = Service::abstract_socket(&name)?;
            let script = r#"if command -v perl > /dev/null; then
                perl -e 'socket(my $s, 1, 1, 0); connect($s, pack("S x a*", 1, shift))' "$1"
            else python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect("\0" + sys.argv[1])' "$1"; fi"#;
            Ok(connects(script, service).with(name))
        },
    },
    Attack {
        id: "N16-socket",
        guarantee: Guarantee::NetNone,
        tries: "connect to a host's socket in the workspace",
        control: Control::WithoutWall,
        needs: NEEDS,
        applies: |_| true,
        set: |field, _, _| {
            let service = Service::socket_file(&field.workspace(), "service")?;
            let script = r#"if command -v perl > /dev/null; then
                perl -e 'socket(my $s, 1, 1, 0); connect($s, pack("S a* x", 1, "service"))'
            else python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("service")'; fi"#;
            Ok(connects(script, service))
        },
    },
];

/// A probe that got through when `service` was connected to.
fn connects(script: &str, service: Service) -> Probe {
    Probe::new(script, move |_| Ok(Found::when(service.was_reached(), "a service of the host was reached")))
}
