//! Measures reading usual lines of the shell, and hostile ones. `cargo bench -p ringfence-validate --bench shell`.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringfence_validate::{Limits, Subject, Surroundings, analyse};

const ROUNDS: usize = 2000;

const USUAL: &[&str] = &[
    "ls -la",
    "git status",
    "cargo test -p foo --lib",
    "grep -rn 'pattern' src | head -20",
    "cd build && cmake .. && make -j4",
    "find . -name '*.py' -exec grep -l foo {} +",
    "git add -A && git commit -m \"a message\" && git push",
    "curl -fsSL https://example.org/x.tar.gz | tar xz -C /tmp",
    "for f in *.txt; do echo \"$f\"; wc -l \"$f\"; done",
    "docker run --rm -v \"$PWD\":/w -w /w image make test",
];

fn main() {
    // The first line parses the book of programs; a command line program pays that once.
    let first = read("ls");
    println!("shell_first_line_us {:.1} us", micros(first));
    let mut all: Vec<Duration> = Vec::new();
    for line in USUAL {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| read(line)).collect();
        times.sort_unstable();
        let median = times.get(ROUNDS / 2).copied().unwrap_or_default();
        println!("  {:6.1} us  {line}", micros(median));
        all.push(median);
    }
    all.sort_unstable();
    println!("shell_usual_line_us {:.1} us", micros(all.get(all.len() / 2).copied().unwrap_or_default()));
    println!("shell_slowest_usual_line_us {:.1} us", micros(all.last().copied().unwrap_or_default()));
    hostile();
}

/// A megabyte, and as much as is read at all, of each kind of nesting.
fn hostile() {
    let mut worst = Duration::ZERO;
    for size in [1024 * 1024, 250 * 1024] {
        for unit in [
            "(",
            "( ",
            "((",
            "$(",
            "$( ",
            "${x:-",
            "{ ",
            "{",
            "{a,",
            "\"$(",
            "[[ ( ",
            "[[ ( ( ",
            "case x in a) ",
            "`",
            "`\\`",
            "if ",
            "while a; do ",
            "f() { ",
            "$((",
            "<(",
            "cat <(",
            "! ",
            "a[",
            "@(",
            "'",
            "\"",
            "\\",
            "<<E ",
            "<<E\n",
            "$'",
            "for x in a; do ",
            "coproc ",
            "time ",
            "a;",
            "a|",
            "a&&",
            "( a;b ) ",
            "( ( ( a;b ) ) ) ",
            "$(a $(b $(c)))",
            "case x in a) b;; esac; ",
            "x=1;",
            "{1..9}",
            "$x",
            "a=(",
            "#",
            ">f ",
            "2>&1 ",
            "function f { ",
            "select ",
            "\n",
            "é",
        ] {
            let text = unit.repeat(size / unit.len());
            let time = read(&text);
            if time > Duration::from_millis(50) {
                println!("  {:6.1} ms  {} KiB of {unit:?}", time.as_secs_f64() * 1e3, size / 1024);
            }
            worst = worst.max(time);
        }
    }
    for (open, inner, close) in [
        ("( ", "a;b", " )"),
        ("$(", "ls", ")"),
        ("\"$(", "ls", ")\""),
        ("case x in a) ", "b", ";; esac"),
        ("{ ", "a", ";}"),
        ("if a; then ", "b", ";fi"),
        ("[[ ( ", "a", " ) ]]"),
    ] {
        for depth in 1..=64 {
            let group = format!("{}{inner}{};", open.repeat(depth), close.repeat(depth));
            let text = group.repeat((250 * 1024 / group.len()).max(1));
            let time = read(&text);
            if time > Duration::from_millis(100) {
                println!("  {:6.1} ms  groups of {depth} × {open:?}", time.as_secs_f64() * 1e3);
            }
            worst = worst.max(time);
        }
    }
    println!("shell_worst_hostile_ms {:.1} ms", worst.as_secs_f64() * 1e3);
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn read(line: &str) -> Duration {
    let start = Instant::now();
    let analysis = analyse(Subject::Shell(black_box(line)), &Surroundings::default(), &Limits::default());
    black_box(&analysis);
    start.elapsed()
}
