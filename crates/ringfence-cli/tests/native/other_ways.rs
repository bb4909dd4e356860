//! N12 and N14: a program that is reached by another way than its name, and memory that changes while the kernel looks at it.

use ringfence_testkit::canary::secret;

use crate::probe::{Wall, interpreter, outside, python, run, text, walled, walled_with};
use crate::ways::{WAYS, lines};

#[test]
fn n12_a_rule_about_a_command_is_advice_and_the_wall_holds_for_who_goes_round_it() {
    let rule = "commands: [{ deny: [cat], matches: [\"cat x\"] }]\n";
    let (Some(stage), Some(python)) = (walled_with(rule), interpreter()) else { return };
    let hidden = secret().unwrap();
    let file = outside(&stage).join("secret");
    std::fs::write(&file, format!("{hidden}\n")).unwrap();
    stage.write("note", "shown\n");
    run(&stage, Wall::Native, &[], &["cat", "note"]).run().expect(126, &["refused: `cat note`"]);
    // From a file, as whoever goes round a rule would: code on the command line is read, and what is not known of it is asked about.
    stage.write("ways.py", WAYS);
    let argv = [text(&python), "ways.py", "note", "../outside/secret", text(&file)];
    let ended = run(&stage, Wall::Native, &[], &argv).run();
    assert_eq!(ended.text(), lines("shown"), "{ended:?}");
    let bare = run(&stage, Wall::Bare, &[], &argv).run();
    assert_eq!(bare.text(), lines(&format!("shown {hidden} {hidden}")), "the probe proves nothing: {bare:?}");
    // Whoever relies on such a rule was told.
    let said = include_str!("../../../../SECURITY.md");
    assert!(said.contains("**Command rules are advice.** They compare the words of a command"));
}

/// Opens a name that another process changes between two others all the time, and tells what was read: after many tries, or, with a third
/// word, when both were.
const RACE: &str = "
import ctypes, mmap, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, 4096)
name = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
names, both = sys.argv[1:3], len(sys.argv) > 3
width = max(map(len, names))
shown, hidden = (b'.' + b'/' * (width - len(it) + 1) + it.encode() for it in names)
racer = os.fork()
if racer == 0:
    while True:
        memory[:len(shown)] = shown
        memory[:len(hidden)] = hidden
# On a busy machine it may take a while until the other one has a turn.
while memory[:len(hidden)] != hidden: pass
read, tries, until = set(), 0, time.monotonic() + (60 if both else 10)
while len(read) < 2 and (both or tries < 20000 or not read) and time.monotonic() < until:
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
    let bare = python(&stage, Wall::Bare, RACE, &["note", ".env", "both"]).unwrap().text();
    assert!(bare.contains(&hidden), "the probe proves nothing: {bare}");
}
