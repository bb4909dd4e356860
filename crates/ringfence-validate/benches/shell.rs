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
    for (name, text) in shapes() {
        let time = read(&text);
        if time > Duration::from_millis(100) {
            println!("  {:6.1} ms  {name}", time.as_secs_f64() * 1e3);
        }
        worst = worst.max(time);
    }
    println!("shell_worst_hostile_ms {:.1} ms", worst.as_secs_f64() * 1e3);
}

/// As much as is read at all, of lines that are well formed and that one walk has to remember something of.
fn shapes() -> Vec<(&'static str, String)> {
    let size = 250 * 1024;
    let same = |line: &str| line.repeat(size / line.len());
    let counted = |line: &dyn Fn(usize) -> String| (0..size / line(9999).len()).map(line).collect::<String>();
    let words = |word: &str, before: &str, behind: &str| {
        format!("{before}{}{behind}", word.repeat((size - before.len() - behind.len()) / word.len()))
    };
    let long = format!("x={}\n", "a".repeat(3000));
    vec![
        ("variables", counted(&|index| format!("v{index}=x{index}\n"))),
        ("a variable that grows", same("x=$x$x\n")),
        ("functions", counted(&|index| format!("f{index}() {{ ls; }}\n"))),
        (
            "functions that call others",
            counted(&|index| format!("f{index}() {{ f{}; f{}; }}\n", index + 1, index + 1)) + "f0\n",
        ),
        ("here-documents", counted(&|index| format!("cat <<E{index}\nbody $x\nE{index}\n"))),
        ("arguments", words("a ", "set -- ", "\n") + &"echo \"$@\"\n".repeat(20)),
        ("words", words("a ", "echo ", "")),
        ("words to remove", words("~/a ", "rm ", "")),
        ("elements", words("x ", "a=(", ")\necho \"${a[@]}\"")),
        ("elements that are added", same("a+=(x)\n")),
        ("braces", words("{a,b} ", "echo ", "")),
        ("arms", words("a) y=1;;\n", "case $x in\n", "esac\n")),
        (
            "values of branches",
            counted(&|index| {
                format!("if a; then x{}=$x{}a; else x{}=b; fi\n", index % 30, (index + 1) % 30, index % 30)
            }) + "echo $x0$x1$x2$x3$x4\n",
        ),
        ("chains", same("a && b || c; ")),
        ("folders", same("cd a\n")),
        ("folders that may be", same("cd a || cd b\n")),
        ("loops", same("while a; do b; c=1; done\n")),
        ("loops over words", same("for x in a b c; do ls $x; done\n")),
        ("pipelines", same("a | b | c\n")),
        ("substitutions", same("echo $(a)\n")),
        ("substitutions in one line", words("$(a) ", "echo ", "")),
        ("files", counted(&|index| format!("echo x >f{index}\n"))),
        ("a file that grows", same("echo x >>f\n")),
        ("groups with a file", same("{ a; } >f\n")),
        ("scripts", "echo ls > f\n".to_owned() + &same("sh f\n")),
        ("coprocesses", same("coproc a\n")),
        ("a coprocess that is sent much", "coproc sh\n".to_owned() + &same("echo ls >&${COPROC[1]}\n")),
        ("evaluated", same("eval 'a'\n")),
        ("evaluated at once", words("a;b\n", "eval '", "'")),
        ("aliases", counted(&|index| format!("alias a{index}='a{} x'\n", index + 1)) + "a0\n"),
        ("traps", same("trap 'a' EXIT\n")),
        ("endings cut off", long.clone() + &same("echo ${x%%*a*a*a*b}\n")),
        ("parts replaced", long + &same("echo ${x//a*a*b/c}\n")),
        ("sums", same("((x++))\n")),
        ("copies", counted(&|index| format!("cp f{index} f{}\n./f{}\n", index + 1, index + 1))),
        ("names of names", same("declare -n r=a\n")),
        ("output of all", "exec >f\n".to_owned() + &same("echo x\n")),
        ("made-up names", same("t=$(mktemp)\n")),
        ("programs in a language", same("python3 -c 'x=1'\n")),
        ("xargs", words("a ", "echo ", "| xargs -n1 rm")),
    ]
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
