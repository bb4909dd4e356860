//! What a program may try with keys, its own and the host's, row by row of the catalogue: for all walls alike. What counts is what
//! origins were sent.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_testkit::canary::Listener;

use crate::tls_origin::{Answer, Asked, Authority, TlsOrigin};
use crate::world::{PLACEHOLDER, Run, SECRET, Side, Told, Try};

/// Speaks HTTP/1.1 and HTTP/2 by hand, and over TLS through the proxy: also what no library would say.
const BY_HAND: &str = r"
import base64, os, socket, ssl, sys, time
def proxy():
    s = socket.create_connection(('127.0.0.1', 3128), 10); s.settimeout(10); return s
def until_end(s):
    got = b''
    try:
        while piece := s.recv(65536): got += piece
    except OSError: pass
    return got
def tunnel(host, port, more='', target=None):
    s = proxy()
    s.sendall(f'CONNECT {target or host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n'.encode())
    head = b''
    while not head.endswith(b'\r\n\r\n'):
        piece = s.recv(1)
        if not piece: break
        head += piece
    if b' 200 ' not in head: raise OSError(head)
    return s
def tls(host, port, protocol, name=None):
    context = ssl.create_default_context(); context.set_alpn_protocols([protocol])
    if name: context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(tunnel(host, port), server_hostname=name or host)
# One request; what comes back, as it came. Headers come as they are to be sent, more than once if need be.
def http1(host, port, method, path, headers=(), pieces=(), trailers=(), plain=False):
    lines = [f'{method} {path} HTTP/1.1', f'Host: {host}:{port}', 'Connection: close'] + [f'{name}: {value}' for name, value in headers]
    if trailers: lines += ['Transfer-Encoding: chunked', 'Trailer: ' + trailers[0][0]]
    elif pieces: lines += [f'Content-Length: {sum(map(len, pieces))}']
    with proxy() if plain else tls(host, port, 'http/1.1') as s:
        s.sendall(('\r\n'.join(lines) + '\r\n\r\n').encode())
        for piece in pieces:
            time.sleep(0.02); s.sendall(b'%x\r\n%s\r\n' % (len(piece), piece) if trailers else piece)
        if trailers: s.sendall(('0\r\n' + ''.join(f'{name}: {value}\r\n' for name, value in trailers) + '\r\n').encode())
        return until_end(s)
def frame(kind, flags, stream, data): return len(data).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + data
def text(value):
    value, rest = value.encode(), len(value) - 127
    if rest < 0: return bytes([len(value)]) + value
    length = b'\x7f'
    while rest > 127: length += bytes([rest % 128 + 128]); rest //= 128
    return length + bytes([rest]) + value
def block(headers): return b''.join(b'\x10' + text(name.lower()) + text(value) for name, value in headers)
def http2(host, port, method, path, headers=(), pieces=(), trailers=()):
    first = [(':method', method), (':scheme', 'https'), (':authority', f'{host}:{port}'), (':path', path)]
    with tls(host, port, 'h2') as s:
        assert s.selected_alpn_protocol() == 'h2'
        whole = block(first + list(headers))
        half = len(whole) // 2
        # The headers come in two pieces.
        s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b'') + frame(1, 0 if pieces or trailers else 1, 1, whole[:half]) + frame(9, 4, 1, whole[half:]))
        for number, piece in enumerate(pieces):
            time.sleep(0.02); s.sendall(frame(0, 0 if trailers or number + 1 < len(pieces) else 1, 1, piece))
        if trailers: s.sendall(frame(1, 5, 1, block(trailers)))
        got, told = b'', b''
        while True:
            while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], 'big'):
                kind, flags, stream = got[3], got[4], int.from_bytes(got[5:9], 'big')
                data, got = got[9:9 + int.from_bytes(got[:3], 'big')], got[9 + int.from_bytes(got[:3], 'big'):]
                if kind == 0: told += data
                if kind == 4 and not flags & 1: s.sendall(frame(4, 1, 0, b''))
                # The end of the answer, or of all hope.
                if stream == 1 and (kind == 3 or (kind in (0, 1) and flags & 1)) or kind == 7: return told
            piece = s.recv(65536)
            if not piece: return told
            got += piece
def tried(act, *arguments, **named):
    try: return act(*arguments, **named) or b''
    except (OSError, AssertionError): return b''
here, here2, there, there2, beyond, taken = map(int, sys.argv[1:7])
mine = [('Authorization', 'Bearer ringfence.key.placeholder')]
";

const DONE: &str = "print('done')\n";

/// A host that has a secret for 127.0.0.1, over both versions of HTTP; another without one; one that is spoken to without a look; and
/// one that nobody may reach.
struct Scene {
    authority: Authority,
    bound: [TlsOrigin; 2],
    other: [TlsOrigin; 2],
    beyond: u16,
    heard: Arc<Mutex<Vec<u8>>>,
    taken: Listener,
}

/// Leads elsewhere, and tells whom it was sent with what.
fn away(to: String) -> impl Fn(&Asked) -> Answer + Send + Sync + 'static {
    move |asked| {
        let sent = asked.header("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let leads = |to: String| Answer { status: 302, headers: vec![("Location", to)], body: Vec::new() };
        match asked.path.as_str() {
            "/away" => leads(to.clone()),
            "/away-with-it" => leads(format!("{to}?sent={sent}&hidden={}", STANDARD.encode(&sent))),
            "/told" => Answer::ok(format!("you sent {sent}\n")),
            _ => Answer::ok("hello\n"),
        }
    }
}

/// A server that takes everything in, and says nothing.
fn everything() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.3:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let told = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let told = Arc::clone(&told);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    told.lock().unwrap().extend(&bytes[..read]);
                    stream.write_all(b"heard").ok();
                }
            });
        }
    });
    (port, heard)
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new();
        let hello = |_: &Asked| Answer::ok("hello\n");
        let other = [authority.origin("127.0.0.2", hello), authority.http2("127.0.0.2", hello)];
        let to = other[0].url("/landed");
        let bound = [authority.origin("127.0.0.1", away(to.clone())), authority.http2("127.0.0.1", away(to))];
        let (beyond, heard) = everything();
        Self { authority, bound, other, beyond, heard, taken: Listener::start().unwrap() }
    }

    fn policy(&self) -> String {
        let [[one, two], [three, four]] = [&self.bound, &self.other].map(|pair| pair.each_ref().map(|it| it.port));
        format!(
            "net: {{ mode: allowlist, allow: [{{ host: 127.0.0.1, ports: [{one}, {two}], credential: key }}, \
             {{ host: 127.0.0.2, ports: [{three}, {four}], inspect: true }}, \
             {{ host: 127.0.0.3, ports: [{}], protocol: tcp }}] }}\n",
            self.beyond
        )
    }

    /// Runs `code`, which speaks by hand, with more arguments.
    fn told(&self, run: Run<'_>, side: Side, code: &str, more: &[&str]) -> Option<Told> {
        let code = format!("{BY_HAND}{code}{DONE}");
        let ports = self.bound.iter().chain(&self.other).map(|it| it.port).chain([self.beyond, self.taken.port()]);
        let arguments = ports.map(|port| port.to_string()).chain(more.iter().map(|it| (*it).to_owned())).collect();
        let authority = Some(&self.authority);
        let told = run(&Try { policy: &self.policy(), code: &code, arguments, authority, world: None }, side)?;
        assert_eq!(told.ended.text(), "done\n", "it did not come to its end: {told:?}");
        Some(told)
    }

    /// No origin but those it is for was sent the secret, and they were sent it `times` in all.
    fn check_secret(&self, times: usize) {
        let sent = |asked: &Asked| asked.header("authorization") == Some(&format!("Bearer {SECRET}"));
        let bound: Vec<Asked> = self.bound.iter().flat_map(TlsOrigin::asked).collect();
        assert_eq!(bound.iter().filter(|asked| sent(asked)).count(), times, "{bound:#?}");
        for asked in self.other.iter().flat_map(TlsOrigin::asked) {
            assert!(!has(&asked, SECRET), "{asked:?}");
        }
        assert!(!contains(&self.heard.lock().unwrap(), SECRET.as_bytes()));
    }

    fn all(&self) -> Vec<Asked> {
        self.bound.iter().chain(&self.other).flat_map(TlsOrigin::asked).collect()
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|part| part == word)
}

/// Whether `word` is anywhere in it: plain, escaped, or in base64 as the programs here write it.
fn has(asked: &Asked, word: &str) -> bool {
    let escaped = word.replace('e', "%65");
    let hidden = [STANDARD.encode(word), STANDARD.encode(format!("user:{word}"))];
    let words = [word.to_owned(), escaped].into_iter().chain(hidden);
    let text = format!("{} {:?}", asked.path, asked.headers);
    words.into_iter().any(|word| text.contains(&word) || contains(&asked.body, word.as_bytes()))
}

/// Follows, as a client would that keeps its headers, and as one that does not; and takes what it was told along.
const FOLLOW: &str = r"
def location(answer):
    found = [line[10:] for line in answer.decode('latin-1').split('\r\n') if line.lower().startswith('location: ')]
    return '/' + found[0].split('/', 3)[3] if found else ''
for path in ('/away', '/away-with-it'):
    to = location(tried(http1, '127.0.0.1', here, 'GET', path, mine))
    if not to: continue
    tried(http1, '127.0.0.2', there, 'GET', to, mine)
    tried(http2, '127.0.0.2', there2, 'GET', to, mine)
    tried(http1, '127.0.0.2', there, 'GET', to, [('X-From', path)])
    # Where nobody may go: over TLS, plain, and down from TLS on the host itself.
    tried(http1, '127.0.0.1', taken, 'GET', to, mine); tried(http1, '127.0.0.1', taken, 'GET', f'http://127.0.0.1:{taken}{to}', mine, plain=True)
    tried(http1, '127.0.0.1', here, 'GET', f'http://127.0.0.1:{here}/down', mine, plain=True)
    for host in ('localhost', '127.0.0.2'): tried(http1, host, taken, 'GET', f'http://{host}:{taken}{to}', mine, plain=True)
    try: socket.create_connection(('127.0.0.1', taken), 2).close()
    except OSError: pass
tried(http2, '127.0.0.1', here2, 'GET', '/away')
# What the first host said, taken to the second.
for speak, port in ((http1, here), (http2, here2)): tried(http1, '127.0.0.2', there, 'POST', '/told', [('X-From', '/told')], [tried(speak, '127.0.0.1', port, 'GET', '/told', mine)])
";

/// E17: the second hop of a redirect is judged, and the secret that was put in for the first one does not come along.
pub(crate) fn check_e17(run: Run<'_>) {
    let scene = Scene::new();
    if scene.told(run, Side::Walled, FOLLOW, &[]).is_none() {
        return;
    }
    // Those that went the first hop were sent the secret. Nobody went down to plain HTTP.
    scene.check_secret(5);
    let paths = scene.bound.each_ref().map(|it| it.asked().into_iter().map(|asked| asked.path).collect::<Vec<_>>());
    assert_eq!(paths, [vec!["/away", "/away-with-it", "/told"], vec!["/away", "/told"]]);
    let landed = scene.other.iter().flat_map(TlsOrigin::asked).collect::<Vec<_>>();
    let from: Vec<&str> = landed.iter().filter_map(|asked| asked.header("x-from")).collect();
    assert_eq!(from, ["/away", "/away-with-it", "/told", "/told"], "without a key each arrives: {landed:#?}");
    assert_eq!(landed.len(), from.len(), "with one none does: {landed:#?}");
    assert!(landed.iter().all(|asked| !has(asked, PLACEHOLDER) && asked.header("authorization").is_none()));
    assert!(landed[1].path.starts_with("/landed?sent=*"), "the echo is masked: {}", landed[1].path);
    assert!(landed[2..].iter().all(|asked| contains(&asked.body, b"you sent *")), "the echo is masked: {landed:#?}");
    assert_eq!(scene.taken.hits(), 0);
    // The twin: without a wall it is reached, and what an origin echoes is what it was sent.
    let bare = "try: socket.create_connection(('127.0.0.1', taken), 2).close()\nexcept OSError: pass\n";
    if scene.told(run, Side::Bare, bare, &[]).is_some() {
        assert!(scene.taken.hits() > 0, "the probe proves nothing");
    }
    let answer = away("/landed".to_owned())(&Asked {
        method: "GET".to_owned(),
        path: "/away-with-it".to_owned(),
        headers: vec![("authorization".to_owned(), format!("Bearer {SECRET}"))],
        body: Vec::new(),
    });
    assert!(answer.headers[0].1.contains(SECRET), "the probe proves nothing");
}

/// Another key, wherever a host may look for one: over both versions, to the host with the secret and to another.
const FOREIGN: &str = r"
key = 'attackers-own-key'
basic = base64.b64encode(f'user:{key}'.encode()).decode()
tries = [('/bearer', [('Authorization', f'Bearer {key}')]), ('/basic', [('Authorization', f'Basic {basic}')]), ('/second', mine + [('Authorization', f'Bearer {key}')]),
    ('/first', [('Authorization', f'Bearer {key}')] + mine), ('/beside', [('Authorization', mine[0][1] + f' {key}')]), ('/front', [('Authorization', f'{key} ' + mine[0][1])]),
    ('/other', mine + [('X-Api-Key', key)]), ('/under', mine + [('X_Api_Key', key)]), ('/token', [('Private-Token', key)]), ('/cookie', mine + [('Cookie', f'session={key}')]),
    (f'/query?access_token={key}', mine), (f'/escaped?%6bey={key}', mine), (f'/upper?API_KEY={key}', [])]
for host, one, two in (('127.0.0.1', here, here2), ('127.0.0.2', there, there2)):
    for path, headers in tries:
        # To the other host the placeholder does not go; the foreign key alone does.
        if host == '127.0.0.2': headers = [header for header in headers if header not in mine]
        tried(http1, host, one, 'POST', path, headers, [b'what is taken away'])
        tried(http2, host, two, 'POST', path, headers, [b'what is taken away'])
tried(http1, '127.0.0.1', here, 'POST', '/good', mine, [b'what is sent']); tried(http2, '127.0.0.1', here2, 'POST', '/good', mine, [b'what is sent'])
";

/// E22: where a secret is bound to a host, nobody else's key gets there, and so nothing into another's account.
pub(crate) fn check_e22(run: Run<'_>) {
    let scene = Scene::new();
    if scene.told(run, Side::Walled, FOREIGN, &[]).is_none() {
        return;
    }
    for origin in &scene.bound {
        let asked = origin.asked();
        assert_eq!(asked.iter().map(|asked| asked.path.as_str()).collect::<Vec<_>>(), ["/good"], "{asked:#?}");
    }
    scene.check_secret(2);
    // The twin: the same keys reach a host that no secret is bound to; only the ones beside the placeholder are stopped.
    for origin in &scene.other {
        let arrived = origin.asked();
        let with_key = arrived.iter().filter(|asked| has(asked, "attackers-own-key")).count();
        assert!(with_key >= 11, "the probe proves nothing: {arrived:#?}");
    }
}

/// A word, wherever a program can put one: in all parts of a request, in pieces and in other writing; over both versions, to the host with
/// the secret and to another; and in what is said of a tunnel.
const ANYWHERE: &str = r#"
word = sys.argv[7]
hidden = base64.b64encode(f'user:{word}'.encode()).decode()
half = len(word) // 2
escaped = word.replace('e', '%65')
tries = [('path', '/' + word, [], [], []), ('query', '/?q=' + word, [], [], []), ('escaped', '/?q=' + escaped, [], [], []), ('folder', f'/{escaped}/x', [], [], []),
    ('header', '/', [('X-Any', word)], [], []), ('basic', '/', [('X-Any', 'Basic ' + hidden)], [], []), ('referer', '/', [('Referer', f'https://a.test/{word}')], [], []),
    ('body', '/', [], [word.encode()], []), ('inside', '/', [], [b'{"token": "' + word.encode() + b'"}'], []),
    ('pieces', '/', [], [b'x' * 1000 + word[:half].encode(), word[half:].encode() + b'x' * 1000], []), ('letters', '/', [], [bytes([byte]) for byte in word.encode()], []),
    ('encoded', '/', [], [hidden.encode()], []), ('encoded-pieces', '/', [], [hidden[:20].encode(), hidden[20:].encode()], []),
    ('trailer', '/', [], [b'x'], [('X-After', word)])]
for host, one, two in (('127.0.0.1', here, here2), ('127.0.0.2', there, there2)):
    for tag, path, headers, pieces, trailers in tries:
        for speak, port in ((http1, one), (http2, two)):
            tried(speak, host, port, 'POST' if pieces else 'GET', path, headers + [('X-Tag', tag)], pieces, trailers)
for more in ('Proxy-Authorization: Bearer ', 'Authorization: Bearer ', 'Cookie: a=', 'User-Agent: ', 'X-Any: '):
    with tunnel('127.0.0.3', beyond, f'{more}{word}\r\n') as s: s.sendall(b'[spoken]'); s.recv(5)
def said(target):
    with tunnel('127.0.0.3', beyond, target=target) as s: s.sendall(b'[unspoken]'); s.recv(5)
tried(said, f'{word}@127.0.0.3'); tried(said, f'user:{word}@127.0.0.3'); tried(said, word)
tried(tls, '127.0.0.2', there, 'http/1.1', word)
for speak, port in ((http1, here), (http2, here2)): tried(speak, '127.0.0.1', port, 'GET', '/good', mine)
"#;

/// E23: a placeholder gets to nobody as it is, whoever it is for, wherever it is put.
pub(crate) fn check_e23(run: Run<'_>) {
    let scene = Scene::new();
    if scene.told(run, Side::Walled, ANYWHERE, &[PLACEHOLDER]).is_none() {
        return;
    }
    for asked in scene.all() {
        assert!(!has(&asked, PLACEHOLDER), "{asked:?}");
    }
    scene.check_secret(2 + with_secret_and_cut(&scene));
    assert_eq!(String::from_utf8_lossy(&scene.heard.lock().unwrap()), "[spoken]".repeat(5));

    // The twin: another word at the same places arrives, but for trailers, which cannot be looked through in time.
    let (scene, word) = (Scene::new(), "another-word-of-the-test");
    if scene.told(run, Side::Walled, ANYWHERE, &[word]).is_none() {
        return;
    }
    for origin in scene.bound.iter().chain(&scene.other) {
        let asked = origin.asked();
        let tags = asked.iter().filter(|asked| has(asked, word)).filter_map(|asked| asked.header("x-tag"));
        let expected = [
            "path",
            "query",
            "escaped",
            "folder",
            "header",
            "basic",
            "referer",
            "body",
            "inside",
            "pieces",
            "letters",
            "encoded",
            "encoded-pieces",
        ];
        assert_eq!(tags.collect::<Vec<_>>(), expected, "the probe proves nothing: {asked:#?}");
    }
    assert_eq!(String::from_utf8_lossy(&scene.heard.lock().unwrap()), "[spoken]".repeat(5));
}

/// Requests whose body was cut, or whose trailers were left out: the secret went with their head, and the word with none of them.
fn with_secret_and_cut(scene: &Scene) -> usize {
    scene.bound.iter().flat_map(TlsOrigin::asked).filter(|asked| asked.header("x-tag").is_some()).count()
}
