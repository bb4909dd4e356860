//! Interpreters that wait for code behind a wall: the next run gets one only if it is just what it would have had anyway.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfence::request::{InputFile, Stdin};
use ringfence::{Engine, Language, Outcome, Request, Status};
use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{Presence, REQUIRED, presence};
use ringfence_testkit::guests::{children, guests, has, lives};
use ringfence_testkit::place::Place;

const POLICY: &str =
    "version: 1\nbackend: native\nfs: { deny: ['**/.secret'] }\nproc: { memory: 96MiB, timeout: 2s }\n";
const SOON: Duration = Duration::from_secs(20);
const PYTHON: &str = "/usr/bin/python3";

/// The binary that raises walls for these tests; the variable is set where they were moved after they were built.
fn launcher() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_ringfence-testkit-launcher");
    std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher").map_or_else(|| built.into(), PathBuf::from)
}

/// An interpreter that waits, the guest that it is behind, and the one beside it that stands for whatever comes.
#[derive(Clone, PartialEq, Eq)]
struct Parked {
    guest: u32,
    python: u32,
    stands: u32,
    /// The namespace that only it and its guest are in.
    place: String,
}

/// It, when that is all that there is.
fn waiting() -> Option<Parked> {
    let waits = |process: u32| {
        // Executed, and asleep.
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let is_given = String::from_utf8_lossy(&command).contains("/run/code/");
        is_given && has(process, "State:\tS (sleeping)")
    };
    let (idle, busy): (Vec<u32>, Vec<u32>) = guests().into_iter().partition(|guest| children(*guest).is_empty());
    let ([stands], [guest]) = (&idle[..], &busy[..]) else { return None };
    let [python] = children(*guest)[..] else { return None };
    let place = fs::read_link(format!("/proc/{python}/ns/pid")).ok()?.to_string_lossy().into_owned();
    let whole = has(*stands, "Seccomp:\t2") && waits(python);
    whole.then_some(Parked { guest: *guest, python, stands: *stands, place })
}

/// The one that waits while nothing runs; it is waited for.
async fn parked() -> Parked {
    let begin = Instant::now();
    let mut before = None;
    loop {
        let now = waiting();
        if let (Some(one), true) = (&now, now == before) {
            return one.clone();
        }
        before = now;
        assert!(begin.elapsed() < SOON, "no interpreter waits: {:?}", guests());
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

impl Parked {
    /// Whether the run that came since was given to it: then the wall that stood beside is the next one's.
    async fn was_used(&self) -> bool {
        parked().await.guest == self.stands
    }
}

/// Waits until there is nothing to come any more, and says that no interpreter waits.
async fn nobody_waits() {
    let begin = Instant::now();
    let mut quiet = 0;
    while quiet < 10 {
        let stands = guests().into_iter().any(|guest| has(guest, "Seccomp:\t2") && children(guest).is_empty());
        quiet = if stands && guests().len() == 1 { quiet + 1 } else { 0 };
        assert!(begin.elapsed() < SOON, "{} guests", guests().len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An engine where there are native walls whose guests can be made before their groups.
async fn engine_with(place: &Place, policy: &str, path: &str) -> Option<Engine> {
    let engine = place.engine(policy, vec![("PATH".into(), path.into())]).unwrap();
    match presence(&engine, BackendKind::Native, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) if PathBuf::from(PYTHON).exists() => Some(engine),
        Presence::Here(_) => {
            eprintln!("SKIPPED: {PYTHON} is not there");
            None
        }
        Presence::Skip(line) => {
            eprintln!("{line}");
            None
        }
        Presence::Fail(line) => panic!("{line}"),
    }
}

/// Likewise, behind which Python has run once.
async fn engine(place: &Place) -> Option<Engine> {
    let engine = engine_with(place, POLICY, "/usr/bin:/bin").await?;
    prints(&engine, "print(1)", "1\n").await;
    Some(engine)
}

fn python(code: &str) -> Request {
    Request::code(Language::Python, code)
}

async fn outcome(engine: &Engine, request: Request) -> Outcome {
    engine.start(request).unwrap().outcome().await.unwrap()
}

async fn stdout(engine: &Engine, request: Request) -> String {
    let outcome = outcome(engine, request).await;
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{outcome:?}");
    outcome.stdout
}

async fn prints(engine: &Engine, code: &str, expected: &str) {
    assert_eq!(stdout(engine, python(code)).await, expected, "{code}");
}

const WHERE: &str = "import os; print(os.readlink('/proc/self/ns/pid'))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_code_is_given_to_the_interpreter_that_waits_and_to_no_other() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let mut seen = Vec::new();
    for _ in 0..3 {
        let waits = parked().await;
        let code = format!("{WHERE}; open('/tmp/mark', 'x'); open('mark', 'x'); print(hash('x'))");
        let said = stdout(&engine, python(&code)).await;
        let (found, seed) = said.trim().split_once('\n').unwrap();
        assert_eq!(found, waits.place, "another interpreter ran it");
        assert!(waits.was_used().await, "the twin of how that is told elsewhere");
        seen.push(seed.to_owned());
        let next = parked().await;
        assert!(next.python != waits.python && !lives(waits.guest), "it is there for one run");
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2], "they share what should be random: {seen:?}");
    // One that is not like the last is run as ever, and one that is not for it leaves it alone.
    let waits = parked().await;
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = python(WHERE);
        change(&mut request);
        request
    };
    let bytes = with(&|request| request.stdin = Stdin::Bytes(b"x".to_vec()));
    let file = with(&|request| request.files.push(InputFile { path: "a.txt".into(), content: Vec::new() }));
    for request in [bytes, file, Request::argv([PYTHON, "-c", WHERE])] {
        assert_ne!(stdout(&engine, request).await.trim(), waits.place);
        assert!(has(waits.python, "State:\tS (sleeping)"), "it waits no more");
    }
    let before = parked().await.place;
    let variable = with(&|request| request.env.push(("CI".to_owned(), "new".to_owned())));
    assert_ne!(stdout(&engine, variable).await.trim(), before, "with another environment");
    parked().await;
    assert!(!lives(waits.guest), "what is of no use any more stays");
    let before = parked().await.place;
    assert_ne!(stdout(&engine, with(&|_| ())).await.trim(), before, "with the environment of another");
    let before = parked().await.place;
    let narrower = with(&|request| request.overrides.proc.processes = Some(16));
    assert_ne!(stdout(&engine, narrower).await.trim(), before, "under another policy");
}

/// What a program can tell of itself and of how it was started.
const ABOUT: &str = r"
import os, sys, resource, signal, stat, linecache, inspect
def fd(number):
    try: found = os.fstat(number)
    except OSError: return None
    return (stat.S_IFMT(found.st_mode), os.get_inheritable(number), os.get_blocking(number))
def me(): pass
print(sys.argv, sys.orig_argv, sys.path, sys.flags, sys.executable, sys.prefix, sys.exec_prefix)
print(__name__, __file__, __spec__, __doc__, __package__, __loader__.__class__, sorted(globals()))
print(os.getcwd(), sorted(os.environ.items()), os.getuid(), os.getgid(), os.getgroups())
print(os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), os.getppid(), os.nice(0))
print([fd(number) for number in range(20)], os.fstat(0).st_rdev, sorted(os.listdir('/proc/self/fd')))
print([(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name.startswith('RLIMIT_')])
kept = ('Sig', 'Shd', 'Cap', 'NoNew', 'Seccomp', 'Umask', 'Threads', 'Cpus_allowed:', 'Groups', 'Uid')
print([line for line in open('/proc/self/status').read().splitlines() if line.startswith(kept)])
print(open('/proc/self/oom_score_adj').read(), open('/proc/self/cmdline').read(), os.listdir('/proc/self/task') != [])
print([(name, oct(os.stat('/run/code/' + name).st_mode), os.stat('/run/code/' + name).st_size) for name in os.listdir('/run/code')])
print(len(open(__file__).read()), inspect.getsource(me), linecache.getline(__file__, 3))
print(sorted(sys.modules), sys.stdin.encoding, sys.stdout.encoding, sys.stdout.line_buffering, sys.path_importer_cache.keys())
print(sorted(name for name in os.listdir('/proc') if name.isdigit() and name not in (str(os.getpid()), '1')))
print(sys.stdin.read(), file=sys.stderr)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_can_tell_no_difference() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine_with(&place, POLICY, "/usr/bin:/bin").await else { return };
    let before = outcome(&engine, python(ABOUT)).await;
    assert_eq!(before.exit_code, Some(0), "{before:?}");
    let waits = parked().await;
    let after = outcome(&engine, python(ABOUT)).await;
    assert!(waits.was_used().await);
    for (one, other) in before.stdout.lines().zip(after.stdout.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!((before.stdout, before.stderr), (after.stdout, after.stderr));
    let named = |evidence: &ringfence::Evidence| (evidence.guarantee, evidence.strength);
    let receipt = |all: &[ringfence::Evidence]| all.iter().map(named).collect::<Vec<_>>();
    assert_eq!(receipt(&before.enforced), receipt(&after.enforced));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_as_it_would_have_ended() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let run = async |code: &str| {
        let waits = parked().await;
        let outcome = outcome(&engine, python(code)).await;
        assert!(waits.was_used().await, "{code}");
        outcome
    };
    let failed = run("def deep():\n    return 1 / 0  # here\ndeep()\n").await;
    assert_eq!(failed.exit_code, Some(1));
    for part in ["File \"/run/code/main.py\", line 2, in deep", "return 1 / 0  # here", "line 3, in <module>"] {
        assert!(failed.stderr.contains(part), "{}", failed.stderr);
    }
    let wrong = run("x = (\n").await;
    assert_eq!(wrong.exit_code, Some(1));
    assert!(wrong.stderr.contains("File \"/run/code/main.py\", line 1\n    x = (\n"), "{}", wrong.stderr);
    assert_eq!(run("raise SystemExit(7)").await.exit_code, Some(7));
    let killed = run("import os; os.kill(os.getpid(), 15)").await;
    assert_eq!((killed.status, killed.exit_code), (Status::Signalled, None), "{killed:?}");
    let slow = run("while True: pass").await;
    assert_eq!(slow.status, Status::TimedOut, "{slow:?}");
    let waits = parked().await;
    // Before its limit, which begins with the run.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(parked().await.guest, waits.guest);
    prints(&engine, "import time; time.sleep(1); print(2)", "2\n").await;
    let large = run("x = []\nwhile True: x.append(bytes(1 << 20))").await;
    assert!(large.status == Status::OutOfMemory || large.stderr.contains("MemoryError"), "{large:?}");
    let kept = run("open('new.txt', 'w').write('kept')").await;
    assert!(kept.changes.is_some_and(|changes| !format!("{changes:?}").is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_killed_meanwhile_is_made_up_for() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    for round in 0..6 {
        let waits = parked().await;
        let killed = if round % 2 == 0 { waits.python } else { waits.guest };
        let number = rustix::process::Pid::from_raw(i32::try_from(killed).unwrap()).unwrap();
        rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
        // A guest that is only about to end is found out as well.
        if round < 4 || killed == waits.python {
            while lives(waits.guest) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        prints(&engine, "print(1)", "1\n").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_cannot_come_through_a_pipe_comes_as_ever() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let long = |length: usize| format!("{}\nprint(len(open(__file__).read()))", "#".repeat(length - 34));
    for (code, expected, used) in [
        (long(1000).into_bytes(), "1000\n", true),
        (long(64 * 1024).into_bytes(), "65536\n", true),
        (long(64 * 1024 + 1).into_bytes(), "65537\n", false),
        (long(1 << 20).into_bytes(), "1048576\n", false),
        (b"# -*- coding: latin-1 -*-\nprint(ascii('\xe4'))".to_vec(), "'\\xe4'\n", false),
        (b"\n#vim: set fileencoding=latin-1 :\nprint(ascii('\xe4'))".to_vec(), "'\\xe4'\n", false),
        ("\u{feff}print(ascii('ä'))".as_bytes().to_vec(), "'\\xe4'\n", true),
        ("print(ascii('ä'))".as_bytes().to_vec(), "'\\xe4'\n", true),
        (b"print(1)\r\nprint(2)".to_vec(), "1\n2\n", true),
    ] {
        let waits = parked().await;
        let text = String::from_utf8_lossy(&code[..code.len().min(60)]).into_owned();
        assert_eq!(stdout(&engine, Request::code(Language::Python, code)).await, expected, "{text}");
        assert_eq!(waits.was_used().await, used, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_host_changed_meanwhile_is_seen_and_what_is_denied_is_not() {
    let place = Place::new(launcher()).unwrap();
    let file = place.write("there.txt", "before").unwrap();
    let Some(engine) = engine(&place).await else { return };
    let waits = parked().await;
    fs::write(&file, "after").unwrap();
    place.write("folder/new.txt", "new").unwrap();
    prints(&engine, "print(open('there.txt').read(), open('folder/new.txt').read())", "after new\n").await;
    assert!(waits.was_used().await);

    let waits = parked().await;
    place.write("folder/.secret", "hidden").unwrap();
    let said = stdout(&engine, python(&format!("{WHERE}\nprint(os.listdir('folder'))"))).await;
    assert!(said.contains("['new.txt']") && !said.contains(&waits.place), "{said}");
    // And the twin: now that it is known to be there, one waits without it.
    let waits = parked().await;
    let said = stdout(&engine, python(&format!("{WHERE}\nprint(os.listdir('folder'))"))).await;
    assert!(said.contains("['new.txt']") && said.contains(&waits.place), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_run_or_the_workspace_can_change_is_started_before_it_is_wanted() {
    let check = async |policy: &str, prepare: &dyn Fn(&Place) -> String, waits: bool| {
        let place = Place::new(launcher()).unwrap();
        let path = prepare(&place);
        let Some(engine) = engine_with(&place, &format!("version: 1\nbackend: native\n{policy}"), &path).await else {
            return;
        };
        prints(&engine, "print(1)", "1\n").await;
        if waits {
            parked().await;
        } else {
            nobody_waits().await;
        }
    };
    let usual = |_: &Place| "/usr/bin:/bin".to_owned();
    check("", &usual, true).await;
    check("proc: { env: { set: { CI: '1', PYTHONUNBUFFERED: '1' } } }", &usual, true).await;
    check("proc: { env: { set: { ANYTHING: '1' } } }", &usual, false).await;
    check("proc: { env: { set: { PYTHONPATH: /workspace } } }", &usual, false).await;
    check("proc: { env: { set: { LD_LIBRARY_PATH: /workspace } } }", &usual, false).await;
    check("proc: { env: { set: { HOME: /workspace } } }", &usual, false).await;
    check("fs: { mounts: [{ tmpfs: /deps, size: 1MiB }] }", &usual, true).await;
    check("fs: { mounts: [{ tmpfs: /home/agent/.local, size: 1MiB }] }", &usual, false).await;
    // A script of a version manager looks into the workspace for what to execute.
    let script = |place: &Place| {
        let folder = place.outside().join("bin");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("python3"), format!("#!/bin/sh\nexec {PYTHON} \"$@\"\n")).unwrap();
        fs::set_permissions(folder.join("python3"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        format!("{}:/usr/bin:/bin", folder.display())
    };
    check("", &script, false).await;
    // What is not there could be made by the time that it is wanted; so could what a link leads to.
    let missing = |place: &Place| format!("{}:/usr/bin:/bin", place.outside().join("nothing").display());
    check("", &missing, true).await;
    let below = |place: &Place| format!("{}:/usr/bin:/bin", place.workspace().display());
    check("", &below, false).await;
    check("", &|_| "/workspace/bin:/usr/bin:/bin".to_owned(), false).await;
    check("", &|_| "/proc/self/cwd/bin:/usr/bin:/bin".to_owned(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_waits_any_more_when_its_engine_is_gone() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let waits = parked().await;
    drop(engine);
    let begin = Instant::now();
    while lives(waits.guest) || PathBuf::from(format!("/proc/{}/ns", waits.python)).exists() {
        assert!(begin.elapsed() < SOON, "it waits for nobody");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

const NODE: &str = r"
const fs = require('fs');
console.log(process.argv, process.execArgv, process.execPath, __filename, require.main === module, module.paths);
console.log(process.cwd(), Object.entries(process.env).sort(), process.getuid(), fs.readdirSync('/run/code'));
console.log(fs.readFileSync(__filename).length, fs.fstatSync(0).rdev, fs.readFileSync(0).length, Object.keys(require.cache));
console.log(fs.readdirSync('/proc/self/fd').length, process.stdout.constructor.name, process.stdin.constructor.name);
function deep() { throw new Error('here') }
deep()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_waits_as_python_does() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine_with(&place, "version: 1\nbackend: native\n", "/usr/bin:/bin").await else { return };
    if !PathBuf::from("/usr/bin/node").exists() {
        return eprintln!("SKIPPED: node is not there");
    }
    for code in [NODE, "import fs from 'fs'; console.log(import.meta.url)", "let x = (\n"] {
        let javascript = || Request::code(Language::Javascript, code);
        let mut request = javascript();
        request.env.push(("CI".to_owned(), "new".to_owned()));
        // One that is not like the next, for which nobody waits.
        outcome(&engine, request).await;
        parked().await;
        let before = outcome(&engine, javascript()).await;
        let waits = parked().await;
        let after = outcome(&engine, javascript()).await;
        assert!(waits.was_used().await);
        assert_eq!((before.exit_code, before.stdout, before.stderr), (after.exit_code, after.stdout, after.stderr));
    }
}
