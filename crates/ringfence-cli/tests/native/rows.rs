//! What a program can say to the proxy that nobody honest says, row by row of the catalogue: for all walls alike.

use ringfence_testkit::canary::Listener;

use crate::origin::Origin;
use crate::stage::Ended;

/// Says to the proxy what it can be said, and tells the row and how it was answered. The first argument is a port of which some paths
/// may be asked for, the second one of which nothing may be.
pub(crate) const ROWS: &str = r#"
import re, socket, sys
port, other = sys.argv[1], sys.argv[2]
def say(text, last):
    # Everything that comes until as many answers are there as are due, or nobody speaks any more.
    with socket.create_connection(('127.0.0.1', 3128), 20) as s:
        s.settimeout(20)
        s.sendall(text.encode('latin-1'))
        got = b''
        try:
            while len(codes(got)) < last:
                piece = s.recv(65536)
                if not piece: break
                got += piece
        except OSError: pass
        return codes(got) or ['silence']
def codes(got): return [code.decode() for code in re.findall(rb'HTTP/1\.1 (\d+) ', got)]
def get(url, host=None, method='GET', more=''):
    return say(f'{method} {url} HTTP/1.1\r\nHost: {host or url.split("/")[2]}\r\n{more}\r\n', 1)
def connect(target, host=None): return say(f'CONNECT {target} HTTP/1.1\r\nHost: {host or target}\r\n\r\n', 1)
def socks(name, port):
    with socket.create_connection(('127.0.0.1', 3128), 20) as s:
        s.settimeout(20)
        s.sendall(b'\x05\x01\x00'); s.recv(2)
        s.sendall(b'\x05\x01\x00\x03' + bytes([len(name)]) + name + int(port).to_bytes(2, 'big'))
        return ['open' if s.recv(64)[1:2] == b'\x00' else 'shut']
listed, unlisted = f'http://127.0.0.1:{port}', f'http://127.0.0.1:{other}'
def two(first, second): return say(''.join(f'GET {url} HTTP/1.1\r\nHost: {url.split("/")[2]}\r\n\r\n' for url in (first, second)), 2)
rows = {
    'E02': [socks(b'evil.test\0.127.0.0.1', port), socks(b'127.0.0.1\0.evil.test', port)],
    'E03': [socks(b'::ffff:127.0.0.1%x', port), connect(f'[::ffff:127.0.0.1%25x]:{port}'), connect(f'[fe80::1%25lo]:{port}')],
    'E04': [connect(f'{host}:{other}') for host in ('2130706433', '0177.0.0.1', '0x7f000001', '127.1', '[::ffff:127.0.0.1]')],
    'E05': [connect(f'{host}:443') for host in ('evilexample.test', 'example.test', 'example.test.evil.test')],
    'E06': [connect(f'{host}:443') for host in ('ex%61mple.test', 'a..example.test', 'a' * 254 + '.example.test', 'b\xfccher.test')],
    'E07': [get(listed + '/ok/a', host=f'127.0.0.1:{other}'), get(listed + '/ok/a', host='evil.test'), connect(f'127.0.0.1:{port}', host='evil.test')],
    'E08': [connect(f'127.0.0.1:{number}') for number in (22, 25, 0)],
    'E15': [get(listed + '/ok/a', more=more) for more in (
        'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n', 'Content-Length: 4\r\nContent-Length: 5\r\n', 'X: a\r\n b\r\n', 'X: a\nY: b\r\n')],
    'E16': [two(listed + '/ok/first', unlisted + '/')],
    'E18': [get(listed + '/ok/a', method='TRACE'), get(listed + '/ok/a', more='Connection: Host\r\n')],
    'E20': [get(unlisted + '/', more='Proxy-Authorization: Basic YTpi\r\n')],
    'E21': [get(listed + path) for path in ('/ok/%2e%2e/secret', '/ok/../secret', '/ok/..%2fsecret')],
    'E24': [get(listed + '/secret'), get(listed + '/ok/a', method='DELETE'), connect(f'127.0.0.1:{other}'), socks(b'127.0.0.1', other)],
    'twin': [get(listed + '/ok/twin'), two(listed + '/ok/one', listed + '/ok/two')],
}
for row, answers in rows.items(): print(row, ' '.join('+'.join(answer) for answer in answers))
"#;

/// What is answered: a refusal each time, but for what is listed.
const ANSWERS: &str = "\
E02 shut shut
E03 shut 403 403
E04 403 403 403 403 403
E05 403 403 403
E06 403 403 403 400
E07 403 403 403
E08 403 403 403
E15 400 400 400 400
E16 200+403
E18 403 400
E20 403
E21 403 403 403
E24 403 403 403 shut
twin 200 200+200
";

/// A policy under which some paths of `origin` may be asked for.
pub(crate) fn policy(origin: &Origin) -> String {
    let rule = format!("{{ host: 127.0.0.1, ports: [{}], methods: [GET], paths: [\"/ok/**\"] }}", origin.port);
    format!("net: {{ mode: allowlist, allow: [{rule}, \"*.example.test\"] }}\n")
}

/// What was answered, and what of it has reached anybody.
pub(crate) fn check(ended: &Ended, origin: &Origin, other: &Listener) {
    assert_eq!(ended.text(), ANSWERS, "{ended:?}");
    assert_eq!(origin.asked(), ["/ok/first", "/ok/twin", "/ok/one", "/ok/two"].map(|path| format!("GET {path} 0")));
    assert_eq!(other.hits(), 0);
}
