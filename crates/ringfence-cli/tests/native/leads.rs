//! Where allowed names lead, row by row of the catalogue: for all walls alike.

use std::collections::BTreeSet;

use crate::tls_origin::Authority;
use crate::world::{PLACEHOLDER, Run, SECRET, Side, Told, Try, World};

/// Asks for names in several ways: each pair of arguments is a way and a name. Without a proxy there is one way.
const ASK: &str = r"
import os, socket, sys
def head(s):
    got = b''
    while b'\r\n\r\n' not in got:
        piece = s.recv(65536)
        if not piece: break
        got += piece
    return got
def get(s, url, name): s.sendall(f'GET {url} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n'.encode()); head(s)
def proxy(): return socket.create_connection(('127.0.0.1', 3128), 10)
def plain(name):
    with proxy() as s: get(s, f'http://{name}/plain', name)
def tunnel(name):
    with proxy() as s:
        s.sendall(f'CONNECT {name}:80 HTTP/1.1\r\nHost: {name}:80\r\n\r\n'.encode())
        if b' 200 ' in head(s): get(s, '/tunnel', name)
def socks(name):
    with proxy() as s:
        s.sendall(b'\x05\x01\x00'); s.recv(2)
        s.sendall(b'\x05\x01\x00\x03' + bytes([len(name)]) + name.encode() + b'\x00\x50')
        if s.recv(64)[1:2] == b'\x00': get(s, '/socks', name)
def direct(name):
    with socket.create_connection((name, 80), 10) as s: get(s, '/direct', name)
for way, name in zip(sys.argv[1::2], sys.argv[2::2]):
    try: (globals()[way] if 'HTTP_PROXY' in os.environ else direct)(name)
    except OSError: pass
print('done')
";

/// How a name is reached: in three ways by the proxy, and by an address that is made up for it.
const WAYS: [&str; 4] = ["plain", "tunnel", "socks", "direct"];
const BY_PROXY: &[&str] = WAYS.split_at(3).0;

/// Names of the host that lead where only a rule that names the address lets one go, and where that is.
const INSIDE: [(&str, &str); 14] = [
    ("loopback", "127.0.0.1"),
    ("another-loopback", "127.9.9.9"),
    ("loopback-6", "::1"),
    ("unspecified", "0.0.0.0"),
    ("unspecified-6", "::"),
    ("private", "10.0.0.7"),
    ("private-16", "172.16.0.7"),
    ("private-24", "192.168.0.7"),
    ("private-dressed", "::ffff:10.0.0.7"),
    ("link-local", "169.254.7.7"),
    ("metadata", "169.254.169.254"),
    ("unique-local", "fd00::7"),
    ("carrier", "100.64.0.7"),
    ("our-own", "93.184.216.1"),
];
const OUTSIDE: [(&str, &str); 2] = [("public", "93.184.216.34"), ("public-6", "2606:4700::7")];

fn in_full(name: &str) -> String {
    format!("{name}.names.test")
}

fn pairs<'a>(ways: &[&str], names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let each = ways.iter().flat_map(|way| names.clone().map(move |name| [(*way).to_owned(), in_full(name)]));
    each.flatten().collect()
}

/// Where somebody was reached.
fn reached(told: &Told) -> BTreeSet<&str> {
    assert_eq!(told.ended.text(), "done\n", "it did not come to its end: {told:?}");
    told.seen("reached").into_iter().collect()
}

/// E09: an allowed name that leads inside is looked up, and nobody is reached; one that leads outside is reached in each way.
pub(crate) fn check_e09(run: Run<'_>) {
    let mut world = World::default().name("mixed.names.test", &[&[OUTSIDE[0].1, "10.0.0.7"]]);
    for (name, address) in INSIDE.into_iter().chain(OUTSIDE) {
        world = world.name(&in_full(name), &[&[address]]);
    }
    let names = INSIDE.iter().chain(&OUTSIDE).map(|(name, _)| *name).chain(["mixed"]);
    let attempt = |policy: &str, ways: &[&str], side| {
        let arguments = pairs(ways, names.clone());
        run(&Try { policy, code: ASK, arguments, authority: None, world: Some(&world) }, side)
    };
    let rules = "net: { mode: allowlist, allow: [\"*.names.test\"] }\n";
    let Some(told) = attempt(rules, &WAYS, Side::Walled) else { return };
    let outside = OUTSIDE.map(|(_, address)| format!("there {address}"));
    assert_eq!(reached(&told), outside.iter().map(String::as_str).collect(), "{told:?}");
    let mut expected: Vec<String> =
        outside.iter().flat_map(|at| WAYS.iter().map(move |way| format!("{at} GET /{way} HTTP/1.1"))).collect();
    expected.sort_unstable();
    assert_eq!(told.seen("asked"), expected, "each way is one: {told:?}");
    let looked_up: BTreeSet<&str> = told.seen("name").into_iter().collect();
    for name in names.clone() {
        assert!(looked_up.contains(&*format!("A {}", in_full(name))), "{name} was refused before it was looked up");
    }

    // The twins: what leads inside is reached where the policy names it, and by whoever has no wall around.
    let named =
        "net: { mode: allowlist, localhost: [80], allow: [\"*.names.test\", 10.0.0.7, \"fd00::7\", 169.254.7.7] }\n";
    let Some(told) = attempt(named, BY_PROXY, Side::Walled) else { return };
    let expected = [
        "here 127.0.0.1",
        "here 127.9.9.9",
        "here 93.184.216.1",
        "here ::1",
        "there 10.0.0.7",
        "there 169.254.7.7",
        "there 2606:4700::7",
        "there 93.184.216.34",
        "there fd00::7",
    ];
    assert_eq!(reached(&told), expected.into_iter().collect(), "{told:?}");
    let Some(told) = attempt(rules, &["direct"], Side::Bare) else { return };
    let everywhere = reached(&told);
    for (name, address) in INSIDE.into_iter().chain(OUTSIDE) {
        // What has no address of its own is this machine, and one in another's dress is that one.
        let at = match address {
            "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            dressed => dressed.trim_start_matches("::ffff:"),
        };
        let found = ["here", "there"].iter().any(|place| everywhere.contains(&*format!("{place} {at}")));
        assert!(found, "the probe proves nothing about {name}: {told:?}");
    }
}

/// E10: a name whose answer is another one each time is looked up once for each connection, and that answer is dialled or refused.
pub(crate) fn check_e10(run: Run<'_>) {
    let turns: &[&[&str]] = &[&["93.184.216.34"], &["10.0.0.7"], &["127.0.0.1"]];
    let world = WAYS.iter().fold(World::default(), |world, way| world.name(&in_full(way), turns));
    let arguments: Vec<String> = WAYS.iter().flat_map(|way| pairs(&[*way; 3], [*way].into_iter())).collect();
    let attempt = |policy: &str, side| {
        let arguments = arguments.clone();
        run(&Try { policy, code: ASK, arguments, authority: None, world: Some(&world) }, side)
    };
    let rules = "net: { mode: allowlist, allow: [\"*.names.test\"] }\n";
    let Some(told) = attempt(rules, Side::Walled) else { return };
    assert_eq!(reached(&told), ["there 93.184.216.34"].into(), "{told:?}");
    let mut expected: Vec<String> = WAYS.iter().map(|way| format!("there 93.184.216.34 GET /{way} HTTP/1.1")).collect();
    expected.sort_unstable();
    assert_eq!(told.seen("asked"), expected, "the first connection of each way, and no other: {told:?}");
    for kind in ["A", "AAAA"] {
        let mut expected: Vec<String> =
            WAYS.iter().flat_map(|way| [(); 3].map(|()| format!("{kind} {}", in_full(way)))).collect();
        expected.sort_unstable();
        let questions: Vec<&str> =
            told.seen("name").into_iter().filter(|line| line.starts_with(&format!("{kind} "))).collect();
        assert_eq!(questions, expected, "once for each connection: {told:?}");
    }

    // The twins: with the addresses named each answer is dialled as it came, and whoever looks names up without a wall is led astray.
    let named = "net: { mode: allowlist, localhost: [80], allow: [\"*.names.test\", 10.0.0.7] }\n";
    for (policy, side) in [(named, Side::Walled), (rules, Side::Bare)] {
        let Some(told) = attempt(policy, side) else { return };
        assert_eq!(reached(&told), ["here 127.0.0.1", "there 10.0.0.7", "there 93.184.216.34"].into(), "{told:?}");
    }
}

/// E23: a placeholder as a part of a name, which a rule with a wildcard allows, is not looked up and reaches nobody.
pub(crate) fn check_e23_names(run: Run<'_>) {
    let world = [PLACEHOLDER, "other"]
        .iter()
        .fold(World::default(), |world, name| world.name(&in_full(name), &[&["93.184.216.34"]]));
    let authority = Authority::new();
    let arguments = pairs(&WAYS, [PLACEHOLDER, "RINGFENCE.Key.placeholder", "other"].into_iter());
    let policy = "net: { mode: allowlist, allow: [\"*.names.test\", { host: api.names.test, credential: key }] }\n";
    let attempt = |policy: &str, authority| {
        run(&Try { policy, code: ASK, arguments: arguments.clone(), authority, world: Some(&world) }, Side::Walled)
    };
    let Some(told) = attempt(policy, Some(&authority)) else { return };
    reached(&told);
    let names = told.seen("name");
    assert!(!names.iter().any(|line| line.contains(PLACEHOLDER)), "{told:?}");
    assert_eq!(told.seen("asked").len(), WAYS.len(), "{told:?}");
    assert!(!format!("{told:?}").contains(SECRET));
    // The twin: where nothing stands for a secret, it is a name like any other.
    let Some(told) = attempt("net: { mode: allowlist, allow: [\"*.names.test\"] }\n", None) else { return };
    reached(&told);
    assert_eq!(told.seen("asked").len(), 3 * WAYS.len(), "the probe proves nothing: {told:?}");
}
