//! N14: memory that changes while the kernel looks at it.

use ringfence_testkit::canary::secret;

use crate::probe::{Wall, python, walled};

/// Opens a name that another process changes between two others all the time, and tells what was read.
const RACE: &str = "
import ctypes, mmap, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, 4096)
name = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
width = max(map(len, sys.argv[1:]))
shown, hidden = (b'.' + b'/' * (width - len(it) + 1) + it.encode() for it in sys.argv[1:])
racer = os.fork()
if racer == 0:
    while True:
        memory[:len(shown)] = shown
        memory[:len(hidden)] = hidden
read, tries, until = set(), 0, time.monotonic() + 10
while len(read) < 2 and (tries < 20000 or not read) and time.monotonic() < until:
    tries += 1
    file = libc.open(name, os.O_RDONLY)
    if file >= 0:
        read.add(os.read(file, 100).decode())
        os.close(file)
os.kill(racer, signal.SIGKILL)
print(*sorted(read), sep='')
";

#[test]
fn n14_a_name_that_changes_while_the_kernel_looks_at_it_leads_to_nothing_that_is_denied() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    stage.write(".env", format!("{hidden}\n"));
    stage.write("note", "shown\n");
    let Some(ended) = python(&stage, Wall::Native, RACE, &["note", ".env"]) else { return };
    assert_eq!(ended.text().trim(), "shown", "{ended:?}");
    let bare = python(&stage, Wall::Bare, RACE, &["note", ".env"]).unwrap().text();
    assert!(bare.contains(&hidden), "the probe proves nothing: {bare}");
}
