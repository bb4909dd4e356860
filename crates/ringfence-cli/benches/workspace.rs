//! What a workspace costs: to start in a large one, to look at a change in it, and to work with many files inside. As root and,
//! when root runs this, once more as an ordinary user.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 50;
const ORDINARY: u32 = 1000;
const BINARY: &str = env!("CARGO_BIN_EXE_ringfence");
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";
const FILES: usize = 100_000;
const REPOSITORY: usize = 5_000;
/// Prints how long it took, in microseconds, so that a start does not count.
const MANY_FILES: &str = "import os, time
begin = time.monotonic()
os.mkdir('made')
for n in range(5000):
    with open(f'made/{n}', 'w') as file: file.write('x' * 100)
for n in range(5000):
    with open(f'made/{n}') as file: file.read()
for n in range(5000): os.remove(f'made/{n}')
os.rmdir('made')
print(round((time.monotonic() - begin) * 1e6))";
const STATUS: &str = "import subprocess, time
subprocess.run(['git', '-c', 'safe.directory=*', 'status', '--short'], stdout=subprocess.DEVNULL, check=True)
begin = time.monotonic()
subprocess.run(['git', '-c', 'safe.directory=*', 'status', '--short'], stdout=subprocess.DEVNULL, check=True)
print(round((time.monotonic() - begin) * 1e6))";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("measure") => measure(&words[2], Path::new(&words[3])),
        _ => for_each_user(),
    }
}

/// Everything that is started lies where an ordinary user can reach it.
fn for_each_user() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bench = place.path().join("bench");
    fs::copy(std::env::current_exe().unwrap(), &bench).unwrap();
    fs::copy(BINARY, place.path().join("ringfence")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let users: &[&str] = if is_root { &["root", "user"] } else { &["user"] };
    for user in users {
        let home = place.path().join(user);
        fs::create_dir(&home).unwrap();
        let mut command = Command::new(&bench);
        command.env_clear().env("PATH", PATH).env("HOME", &home).args(["measure", user]).arg(&home);
        if is_root && *user == "user" {
            chown(&home, Some(ORDINARY), Some(ORDINARY)).unwrap();
            command.uid(ORDINARY).gid(ORDINARY);
        }
        assert!(command.status().unwrap().success(), "measuring as {user}");
    }
}

struct Place {
    binary: PathBuf,
    home: PathBuf,
}

impl Place {
    fn ringfence(&self, workspace: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).current_dir(workspace).env("HOME", &self.home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn time(&self, workspace: &Path, words: &[&str]) -> Duration {
        let begin = Instant::now();
        let output = self.ringfence(workspace, words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        begin.elapsed()
    }
}

fn measure(user: &str, home: &Path) {
    let place = Place { binary: home.parent().unwrap().join("ringfence"), home: home.to_owned() };
    let empty = workspace(home, "empty", 0, "deny: []");
    let large = workspace(home, "large", FILES, "deny: []");
    let denied = workspace(home, "denied", FILES, "deny: [\"**/.env\", \"**/id_*\"]");
    // What changed just now is not remembered from one start to the next.
    std::thread::sleep(Duration::from_secs(4));
    place.time(&denied, &["run", "--", "/usr/bin/true"]);
    let starts = in_turns(&[&empty, &large, &denied].map(|folder| {
        let place = &place;
        move || place.time(folder, &["run", "--", "/usr/bin/true"])
    }));
    for (name, time) in ["empty", "100k", "100k_denied"].iter().zip(&starts) {
        println!("{user}_start_{name} {:.2} ms", milliseconds(*time));
    }
    println!("{user}_start_100k_above_empty {:.2} ms", milliseconds(starts[1]) - milliseconds(starts[0]));
    println!("{user}_start_100k_denied_above_empty {:.2} ms", milliseconds(starts[2]) - milliseconds(starts[0]));
    for folder in [&empty, &large] {
        place.time(folder, &["run", "--", "sh", "-c", "for n in 1 2 3 4 5 6 7 8 9 10; do echo x > new-$n; done"]);
    }
    let diffs = in_turns(&[&empty, &large].map(|folder| {
        let place = &place;
        move || place.time(folder, &["diff", "--stat"])
    }));
    println!("{user}_diff_of_ten_files {:.2} ms", milliseconds(diffs[0]));
    println!("{user}_diff_of_ten_in_100k_over_in_empty {:.2} ratio", milliseconds(diffs[1]) / milliseconds(diffs[0]));
    work_inside(user, &place);
}

/// Work with many files, timed by itself: bare, and behind the wall.
fn work_inside(user: &str, place: &Place) {
    let python = Path::new("/usr/bin/python3");
    if !python.exists() || !Path::new("/usr/bin/git").exists() {
        eprintln!("SKIPPED work inside: python3 or git is missing below /usr/bin");
        return;
    }
    let repository = workspace(&place.home, "repository", REPOSITORY, "deny: []");
    for words in [vec!["init", "-q"], vec!["add", "."]] {
        assert!(
            Command::new("git")
                .args(words)
                .current_dir(&repository)
                .env("HOME", &place.home)
                .status()
                .unwrap()
                .success()
        );
    }
    for (name, code) in [("files", MANY_FILES), ("git_status", STATUS)] {
        let bare = || {
            let mut command = Command::new(python);
            command.args(["-c", code]).current_dir(&repository).env("HOME", &place.home);
            told(command)
        };
        let walled = || {
            let words = ["run", "--timeout", "60s", "--", "/usr/bin/python3", "-c", code];
            told(place.ringfence(&repository, &words))
        };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS / 5 {
            times[0].push(bare());
            times[1].push(walled());
        }
        let [bare, walled] = times.map(median);
        println!("{user}_{name}_bare {:.2} ms", milliseconds(bare));
        println!("{user}_{name}_inside_over_bare {:.2} ratio", milliseconds(walled) / milliseconds(bare));
    }
}

/// What a program says that it took.
fn told(mut command: Command) -> Duration {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Duration::from_micros(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
}

/// A workspace with so many files, a hundred to a folder, and a policy of its own.
fn workspace(home: &Path, name: &str, files: usize, fs_rules: &str) -> PathBuf {
    let folder = home.join(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("sandbox.policy.yaml"), format!("version: 1\nfs: {{ {fs_rules} }}\n")).unwrap();
    for number in 0..files {
        let inner = folder.join(format!("{}", number / 100));
        if number % 100 == 0 {
            fs::create_dir(&inner).unwrap();
        }
        fs::write(inner.join(format!("file-{number}.rs")), "").unwrap();
    }
    folder
}

fn in_turns<F: Fn() -> Duration>(ways: &[F]) -> Vec<Duration> {
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, times) in ways.iter().zip(&mut times) {
            times.push(way());
        }
    }
    times.into_iter().map(median).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
