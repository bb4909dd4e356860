//! F rows about names: what is denied stays away whatever it is called, and whatever leads to it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use ringfence_testkit::canary::secret;

use crate::stage::Stage;
use crate::walls::for_each_engine;

/// Names that a glob, a shell, a terminal or a decoder reads as something else.
const DENIED: [&[u8]; 15] = [
    b".env",
    b"sub/.env",
    b"a/b/.env",
    b"a/b/c/d/.env",
    b"new\nline/.env",
    b"[a-z]/.env",
    b"back\\slash/.env",
    b"\xff\xfe/.env",
    b"esc\x1b[31m/.env",
    b"* ?/.env",
    b"\xff.key",
    b"a\nb.key",
    b"[x].key",
    b" .key",
    b"exact[1].txt",
];
/// Links that make a tree refer to itself, and what is reached by them.
const LOOPS: [(&str, &str); 4] = [(".", "loop"), ("..", "a/up"), ("..", "a/b/again"), ("self", "self")];
const BY_LOOPS: [&str; 3] = ["loop/loop/a/b/.env", "a/up/a/b/.env", "a/b/again/b/again/b/.env"];

const READ_ALL: &str = "
import os, sys
def read(name):
    try: os.write(1, open(name, 'rb').read() + b'\\n')
    except OSError: pass
for folder, folders, files in os.walk(b'.'):
    for name in files: read(os.path.join(folder, name))
for name in sys.argv[1:]: read(name)
";

fn fill(stage: &Stage, secret: &str) {
    let write = |name: &[u8], text: &str| {
        let path = stage.work().join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    DENIED.iter().for_each(|name| write(name, secret));
    write(b"exact1.txt", "the twin of a bracket");
    write(b"\xff\xfe/plain", "a neighbour");
    fs::hard_link(stage.work().join("sub/.env"), stage.work().join("another-name")).unwrap();
    LOOPS.iter().for_each(|(target, name)| symlink(target, stage.work().join(name)).unwrap());
}

#[test]
fn f11_f22_f23_a_denied_file_is_absent_whatever_its_names_are_and_however_the_tree_refers_to_itself() {
    for_each_engine("fs: { deny: [\"**/*.key\", \"exact[[]1].txt\"] }\n", |place| {
        let secret = secret().unwrap();
        fill(&place.stage, &secret);
        let begin = Instant::now();
        let ended = place.python(READ_ALL, &BY_LOOPS);
        assert!(begin.elapsed() < Duration::from_secs(30), "it took {:?}", begin.elapsed());
        assert_eq!(ended.text().matches(&secret).count(), 0, "{ended:?}");
        assert!(ended.text().contains("the twin of a bracket") && ended.text().contains("a neighbour"), "{ended:?}");
        fill(place.bare(), &secret);
        let twin = place.bare_python(READ_ALL, &BY_LOOPS);
        let all = DENIED.len() + 1 + BY_LOOPS.len();
        assert_eq!(twin.text().matches(&secret).count(), all, "the probe proves nothing: {twin:?}");
    });
}
