//! Programs that know nothing of proxies and ask for names, and a host that knows some: for all walls alike.

use std::ffi::OsStr;
use std::net::UdpSocket;
use std::path::PathBuf;

use crate::stage::{Invocation, Stage};

/// Shows other files than the host's at `/etc/hosts` and `/etc/resolv.conf`, and goes on. In mounts of its own.
pub(crate) const SHOW: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for name in ('hosts', 'resolv.conf'):
    if libc.mount(f'{sys.argv[1]}/{name}'.encode(), f'/etc/{name}'.encode(), None, 4096, None) != 0:
        sys.exit(f'could not show {name}: {os.strerror(ctypes.get_errno())}')
os.execv(sys.argv[2], sys.argv[2:])
";

/// What a host that knows `origin.test` and all of its names below `pool.test` as itself has in `/etc`; for others it asks the server at
/// 127.77.0.53.
pub(crate) fn host_files(stage: &Stage) -> PathBuf {
    let folder = stage.path().join("etc");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts"), "127.0.0.1 localhost origin.test a.pool.test b.pool.test\n").unwrap();
    std::fs::write(folder.join("resolv.conf"), "nameserver 127.77.0.53\noptions timeout:1 attempts:1\n").unwrap();
    folder
}

/// The same start on such a host.
pub(crate) fn on_such_a_host<'a>(stage: &Stage, invocation: Invocation<'a>) -> Invocation<'a> {
    let folder = host_files(stage);
    let is_root = rustix::process::geteuid().is_root();
    let own: &[&str] = if is_root { &[] } else { &["--user", "--map-current-user", "--keep-caps"] };
    let words = [own, &["--mount", "/usr/bin/python3", "-c", SHOW]].concat();
    let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).chain([folder.as_os_str()]).collect();
    invocation.by_way_of("unshare", &words)
}

/// Asks over a plain connection to a name and a port, one pair after the other.
pub(crate) const GET: &str = "
import http.client, socket, sys
for name, port in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        address = socket.getaddrinfo(name, int(port), socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
        connection = http.client.HTTPConnection(name, int(port), timeout=10)
        connection.request('GET', '/' + name)
        print(name, address.rsplit('.', 2)[0], connection.getresponse().read().decode().strip())
    except OSError as error: print(name, type(error).__name__)
";

/// A server of names on the host that answers nothing and counts.
pub(crate) fn spy() -> Option<UdpSocket> {
    let socket = UdpSocket::bind("127.77.0.53:53").ok();
    if socket.is_none() {
        eprintln!("SKIPPED: the spy among the servers of names: only root may listen there");
    }
    let socket = socket?;
    socket.set_nonblocking(true).unwrap();
    Some(socket)
}

pub(crate) fn questions(spy: &UdpSocket) -> usize {
    let mut bytes = [0; 1024];
    std::iter::from_fn(|| spy.recv(&mut bytes).ok()).count()
}

/// Asks in every way, also in ways that are none. Says at the end what is told of an allowed name, over both kinds of sockets.
pub(crate) const HOSTILE: &str = r"
import os, random, socket, struct
def head(flags=0x0100, counts=(1, 0, 0, 0)): return struct.pack('>HH4H', 0x1234, flags, *counts)
def name(text): return b''.join(bytes([len(label)]) + label.encode() for label in text.split('.') if label) + b'\0'
def question(text, kind=1, group=1): return head() + name(text) + struct.pack('>HH', kind, group)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.settimeout(5); udp.connect(('127.0.0.1', 53))
bad = [b'', b'\0' * 11, head(), head(0x8180) + name('origin.test') + b'\0\1\0\1', head() + b'\xc0\x0c\0\1\0\1', head() + b'\xc0\x0e\xc0\x0c\0\1\0\1',
    head() + b'\x3f' + b'a' * 20, head() + b'\x01a' * 2000, head() + b'\xff' * 60000, head(counts=(65535,) * 4) + name('x.test'), head(0x2900) + name('origin.test'),
    question('origin.test', 255, 255), question('origin.test', 252), question('a' * 63 + '.evil.test', 16), question('origin.test', group=3)]
bad += [question(''.join(random.choice('abcdef') for _ in range(30)) + '.evil.test', random.choice([1, 2, 5, 16, 28, 255])) for _ in range(200)]
bad += [os.urandom(random.randrange(600)) for _ in range(300)]
for message in bad:
    try: udp.send(message)
    except OSError: pass
held = []
for message in (b'', b'\0', b'\xff\xff', b'\0\x05abc'):
    for _ in range(5):
        s = socket.create_connection(('127.0.0.1', 53), 5); s.send(message); held.append(s)
for s in held: s.close()
udp.close()
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.settimeout(5); udp.connect(('127.0.0.1', 53))
for _ in range(9):
    # What came too fast was lost, and so may be this one; everybody asks again.
    udp.settimeout(2); udp.send(question('origin.test'))
    try: told = udp.recv(600); break
    except TimeoutError: pass
print(told[3] & 15, told[-4:-2].hex())
with socket.create_connection(('127.0.0.1', 53), 5) as s:
    message = question('origin.test'); s.sendall(struct.pack('>H', len(message)) + message)
    told = s.recv(600); print(told[5] & 15, told[-4:-2].hex())
";
