//! What a whole sandboxed command costs beside its neighbours, in turns in the same run: bare, bubblewrap, crun (as root),
//! our command, and our library; and code in Python through the library, with a pause between runs. As root and, when root runs this, once more as an ordinary user.
//! Words after `--` choose figures: `true`, `python`, `snippet`, `at_once`, `workspace`, `idle`.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringfence::engine::Setup;
use ringfence::launcher::{self, Launcher};
use ringfence::layers::{self, Sources};
use ringfence::{Engine, Language, Request, StateFolder, Status};
use serde_json::json;

const ROUNDS: usize = 60;
const AT_ONCE: usize = 16;
const EACH: usize = 6;
const PAUSE: Duration = Duration::from_millis(20);
const ORDINARY: u32 = 1000;
const BINARY: &str = env!("CARGO_BIN_EXE_ringfence");
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
const PROGRAMS: [(&str, &[&str]); 2] =
    [("true", &["/usr/bin/true"]), ("python", &["/usr/bin/python3", "-c", "print(1)"])];
/// Where the kernel offers both versions of control groups, crun refuses the one that is not in use.
const AS_ROOT: &str = "umount /sys/fs/cgroup/unified 2>/dev/null; exec \"$0\" measure root \"$@\"";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("launcher") => launcher::serve().unwrap(),
        Some("measure") => measure(&words[2], Path::new(&words[3]), &words[4..]),
        _ => for_each_user(words.get(1..).unwrap_or_default()),
    }
}

/// Everything that is started lies where an ordinary user can reach it.
fn for_each_user(words: &[String]) {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bench = place.path().join("bench");
    fs::copy(std::env::current_exe().unwrap(), &bench).unwrap();
    fs::copy(BINARY, place.path().join("ringfence")).unwrap();
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH);
        command
    };
    let is_root = rustix::process::geteuid().is_root();
    let users: &[&str] = if is_root { &["root", "user"] } else { &["user"] };
    for user in users {
        let home = place.path().join(user);
        fs::create_dir(&home).unwrap();
        let mut command = if *user == "root" {
            let mut command = start(Path::new("unshare"));
            command.args(["--mount", "--propagation", "private", "sh", "-c", AS_ROOT]).arg(&bench);
            command
        } else {
            let mut command = start(&bench);
            command.args(["measure", user]);
            if is_root {
                chown(&home, Some(ORDINARY), Some(ORDINARY)).unwrap();
                command.uid(ORDINARY).gid(ORDINARY);
            }
            command
        };
        // Cargo's own word is an option.
        let chosen = words.iter().filter(|word| !word.starts_with('-'));
        assert!(command.arg(&home).args(chosen).env("HOME", &home).status().unwrap().success(), "measuring as {user}");
    }
}

type Commanded = dyn Fn(&[&str]) -> Command + Sync;
type Called = dyn Fn(&[&str]);

/// One way to run a program.
enum Way {
    Command(Box<Commanded>),
    Library(Box<Called>),
    /// Likewise, after a pause in which the next one can be prepared, as in a server that is not always busy.
    Paused(Box<Called>),
}

impl Way {
    fn time(&self, argv: &[&str]) -> Duration {
        if let Self::Paused(_) = self {
            std::thread::sleep(PAUSE);
        }
        let begin = Instant::now();
        match self {
            Self::Command(command) => assert!(quiet(command(argv)).status().unwrap().success(), "{argv:?}"),
            Self::Library(run) | Self::Paused(run) => run(argv),
        }
        begin.elapsed()
    }
}

fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn measure(user: &str, home: &Path, chosen: &[String]) {
    let wanted = |figure: &str| chosen.is_empty() || chosen.iter().any(|word| word == figure);
    let workspace = home.join("workspace");
    fs::create_dir(&workspace).unwrap();
    let mut ways = vec![("bare", Way::Command(Box::new(|argv| after(&[], argv))))];
    if let Some(bwrap) = works("bwrap", Way::Command(Box::new(|argv| after(&BWRAP, argv)))) {
        ways.push(("bwrap", bwrap));
    }
    if user == "root"
        && let Some(crun) = works("crun", crun(&home.join("bundle")))
    {
        ways.push(("crun", crun));
    }
    ways.push(("ringfence", ours(home, &workspace)));
    ways.push(("library", library(home, &workspace)));
    for (name, argv) in PROGRAMS.iter().filter(|(name, argv)| wanted(name) && Path::new(argv[0]).exists()) {
        let medians = in_turns(&ways, argv);
        for (way, time) in &medians {
            println!("{user}_{name}_{way} {} us", time.as_micros());
        }
        for (way, time) in &medians[1..] {
            println!("{user}_{name}_{way}_over_bare {:.2} ratio", over(*time, medians[0].1));
        }
        if let [_, ("bwrap", bwrap), ..] = medians[..] {
            for (way, time) in medians.iter().filter(|(way, _)| ["ringfence", "library"].contains(way)) {
                println!("{user}_{name}_{way}_over_bwrap {:.2} ratio", over(*time, bwrap));
            }
        }
    }
    if wanted("snippet") && Path::new(PROGRAMS[1].1[0]).exists() {
        let bare = Way::Command(Box::new(|argv| after(&[], argv)));
        let medians = in_turns(&[("bare", bare), ("library", snippet(home, &workspace))], PROGRAMS[1].1);
        for (way, time) in &medians {
            println!("{user}_snippet_{way} {} us", time.as_micros());
        }
        println!("{user}_snippet_over_bare {:.2} ratio", over(medians[1].1, medians[0].1));
    }
    ways.pop();
    ways.push(("library", at_once(home, &workspace)));
    if wanted("at_once") {
        for (way, rate) in rates(&ways, PROGRAMS[0].1) {
            println!("{user}_at_once_{way} {rate:.0} per_second");
        }
    }
    if wanted("workspace") {
        sizes(user, home);
    }
    if user == "root" && wanted("idle") {
        idle_memory(&ways);
    }
}

/// Whether a start takes longer above more files.
fn sizes(user: &str, home: &Path) {
    let sized: Vec<(&str, Way)> = [("empty", 0), ("10k", 10_000), ("100k", 100_000)]
        .map(|(name, files)| (name, ours(home, &filled(home, name, files))))
        .into();
    // What changed just now is not remembered from one start to the next.
    std::thread::sleep(Duration::from_secs(4));
    let medians = in_turns(&sized, PROGRAMS[0].1);
    for (size, time) in &medians {
        println!("{user}_workspace_{size} {} us", time.as_micros());
    }
}

const BWRAP: [&str; 9] = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "--proc", "/proc", "--dev", "/dev"];

fn after(words: &[&str], argv: &[&str]) -> Command {
    let mut all = words.iter().chain(argv);
    let mut command = Command::new(all.next().unwrap());
    command.args(all);
    command
}

/// A neighbour that is here and runs; otherwise it is said, loudly, that it is left out.
fn works(name: &str, way: Way) -> Option<Way> {
    let Way::Command(command) = &way else { return Some(way) };
    let ran = command(PROGRAMS[0].1).stdin(Stdio::null()).output();
    match ran {
        Ok(output) if output.status.success() => return Some(way),
        Ok(output) => eprintln!("SKIPPED {name}: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => eprintln!("SKIPPED {name}: {error}"),
    }
    None
}

/// A bundle that shows the host's system read-only, as the others do.
fn crun(bundle: &Path) -> Way {
    let root = bundle.join("rootfs");
    for folder in ["usr", "proc", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for link in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    for (name, argv) in PROGRAMS {
        let mount = |at: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": at, "type": kind, "source": source, "options": options });
        let spaces = ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
        let config = json!({
            "ociVersion": "1.0.0",
            "root": { "path": "rootfs", "readonly": true },
            "process": { "terminal": false, "cwd": "/", "args": argv, "user": { "uid": 0, "gid": 0 },
                "env": [format!("PATH={PATH}")], "noNewPrivileges": true },
            "mounts": [
                mount("/usr", "bind", "/usr", &["rbind", "ro"]),
                mount("/proc", "proc", "proc", &[]),
                mount("/dev", "tmpfs", "tmpfs", &["nosuid", "mode=755"]),
            ],
            "linux": { "namespaces": spaces },
        });
        fs::write(bundle.join(name), config.to_string()).unwrap();
    }
    let bundle = bundle.to_owned();
    Way::Command(Box::new(move |argv| {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let config = PROGRAMS.iter().find(|(_, known)| *known == argv).unwrap().0;
        let mut command = Command::new("crun");
        command.arg("run").arg("--bundle").arg(&bundle).arg("--config").arg(bundle.join(config));
        command.arg(format!("ringfence-bench-{}-{number}", std::process::id()));
        command
    }))
}

fn engine(home: &Path, workspace: &Path) -> Engine {
    Engine::new(Setup {
        policy: layers::load(&Sources { chosen_backend: Some("native".to_owned()), ..Sources::default() })
            .unwrap()
            .policy,
        workspace: workspace.to_owned(),
        environment: vec![("PATH".into(), PATH.into())],
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher: Launcher::process(&std::env::current_exe().unwrap(), &["launcher"]).unwrap(),
        warm: 0,
    })
    .unwrap()
}

async fn run(engine: &Engine, request: Request) {
    let outcome = engine.start(request).unwrap().outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{:?}", outcome.error);
}

fn library(home: &Path, workspace: &Path) -> Way {
    let engine = engine(home, workspace);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    Way::Library(Box::new(move |argv| runtime.block_on(run(&engine, Request::argv(argv)))))
}

/// The code of `python3 -c CODE`, as code.
fn snippet(home: &Path, workspace: &Path) -> Way {
    let engine = engine(home, workspace);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    Way::Paused(Box::new(move |argv| {
        let code = *argv.last().unwrap();
        runtime.block_on(run(&engine, Request::code(Language::Python, code)));
    }))
}

/// A whole spell of so many at once, each some times.
fn at_once(home: &Path, workspace: &Path) -> Way {
    let engine = Arc::new(engine(home, workspace));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    Way::Library(Box::new(move |argv| {
        let spawn = |_| {
            let (engine, argv) = (Arc::clone(&engine), argv.iter().map(OsString::from).collect::<Vec<_>>());
            runtime.spawn(async move {
                for _ in 0..EACH {
                    run(&engine, Request::argv(argv.clone())).await;
                }
            })
        };
        let tasks: Vec<_> = (0..AT_ONCE).map(spawn).collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
    }))
}

/// Our command. Its folder is named by a flag: with another working directory the standard library would start it by a
/// fork, and the others not.
fn ours(home: &Path, workspace: &Path) -> Way {
    let (binary, workspace) = (home.parent().unwrap().join("ringfence"), workspace.to_owned());
    Way::Command(Box::new(move |argv| {
        let mut command = Command::new(&binary);
        command.arg("run").arg("--workspace").arg(&workspace).arg("--").args(argv);
        command
    }))
}

/// A workspace with so many files, a hundred to a folder.
fn filled(home: &Path, name: &str, files: usize) -> PathBuf {
    let folder = home.join(name);
    fs::create_dir(&folder).unwrap();
    for number in 0..files {
        let inner = folder.join(format!("{}", number / 100));
        if number % 100 == 0 {
            fs::create_dir(&inner).unwrap();
        }
        fs::write(inner.join(format!("file-{number}.rs")), "").unwrap();
    }
    folder
}

fn in_turns<'a>(ways: &[(&'a str, Way)], argv: &[&str]) -> Vec<(&'a str, Duration)> {
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            times.push(way.time(argv));
        }
    }
    ways.iter().zip(times).map(|((name, _), times)| (*name, median(times))).collect()
}

/// How many a second, with so many at once; the median of several short spells in turns.
fn rates<'a>(ways: &[(&'a str, Way)], argv: &[&str]) -> Vec<(&'a str, f64)> {
    let mut spells = vec![Vec::new(); ways.len()];
    for _ in 0..5 {
        for ((_, way), spells) in ways.iter().zip(&mut spells) {
            let Way::Command(command) = way else {
                // It knows itself how many there are.
                spells.push(way.time(argv));
                continue;
            };
            let begin = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..AT_ONCE {
                    scope.spawn(|| {
                        for _ in 0..EACH {
                            assert!(quiet(command(argv)).status().unwrap().success());
                        }
                    });
                }
            });
            spells.push(begin.elapsed());
        }
    }
    let rate = |spells| (AT_ONCE * EACH) as f64 / median(spells).as_secs_f64();
    ways.iter().zip(spells).map(|((name, _), spells)| (*name, rate(spells))).collect()
}

/// What a sandbox holds while its program sleeps: the proportional share of each process beside the program.
fn idle_memory(ways: &[(&str, Way)]) {
    for (name, way) in ways.iter().filter(|(name, _)| ["bwrap", "ringfence"].contains(name)) {
        let Way::Command(command) = way else { continue };
        let mut child = quiet(command(&["/usr/bin/sleep", "60"])).spawn().unwrap();
        let chain = loop {
            let chain = chain_below(child.id());
            let program = chain.last().copied().unwrap_or_default();
            if fs::read_to_string(format!("/proc/{program}/comm")).is_ok_and(|comm| comm == "sleep\n") {
                break chain;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let shares: Vec<u64> = chain.iter().map(|pid| proportional_kb(*pid)).collect();
        println!("idle_{name}_supervisor {:.2} MB", shares[0] as f64 / 1e3);
        println!("idle_{name}_guest {:.2} MB", shares[1..shares.len() - 1].iter().sum::<u64>() as f64 / 1e3);
        end(&mut child);
    }
}

fn end(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child.wait().unwrap();
}

/// A process and the only child of each.
fn chain_below(pid: u32) -> Vec<u32> {
    let mut chain = vec![pid];
    while let Some(last) = chain.last()
        && let Ok(children) = fs::read_to_string(format!("/proc/{last}/task/{last}/children"))
        && let Some(child) = children.split_whitespace().next().and_then(|pid| pid.parse().ok())
    {
        chain.push(child);
    }
    chain
}

fn proportional_kb(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn over(time: Duration, other: Duration) -> f64 {
    time.as_secs_f64() / other.as_secs_f64()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
