//! N12 and N14: a program that is reached by another way than its name, and memory that changes while the kernel looks at it.

use ringfence_testkit::canary::secret;

use crate::probe::{Wall, interpreter, outside, python, run, text, walled, walled_with};

/// Runs `cat` on its arguments by ways that do not show its name, and tells what came of each.
const WAYS: &str = "
import glob, os, shutil, subprocess, sys
program, files = os.path.realpath(shutil.which('cat')), sys.argv[1:]
def tell(name, said): print(name, *said.split())
def start(name, argv): tell(name, subprocess.run(argv + files, capture_output=True, text=True).stdout)
shutil.copy(program, 'renamed')
start('renamed', ['./renamed'])
start('root', ['/proc/self/root' + program])
loaders = glob.glob('/lib64/ld-linux-*.so.*') + glob.glob('/lib/ld-linux-*.so.*')
start('loader', [loaders[0], program])
memory = os.memfd_create('memory')
with open(program, 'rb') as file: os.write(memory, file.read())
ours, theirs = os.pipe()
if os.fork() == 0:
    os.dup2(theirs, 1)
    os.execve(memory, ['memory'] + files, dict(os.environ))
os.close(theirs)
tell('memory', os.fdopen(ours).read())
";

#[test]
fn n12_a_rule_about_a_command_is_advice_and_the_wall_holds_for_who_goes_round_it() {
    let rule = "commands: [{ deny: [cat], matches: [\"cat x\"] }]\n";
    let (Some(stage), Some(python)) = (walled_with(rule), interpreter()) else { return };
    let hidden = secret().unwrap();
    let file = outside(&stage).join("secret");
    std::fs::write(&file, format!("{hidden}\n")).unwrap();
    stage.write("note", "shown\n");
    run(&stage, Wall::Native, &[], &["cat", "note"]).run().expect(126, &["refused: `cat note`"]);
    let ways = ["renamed", "root", "loader", "memory"];
    let lines = |said: &str| ways.map(|way| format!("{way} {said}\n")).concat();
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
