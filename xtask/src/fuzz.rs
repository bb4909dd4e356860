//! Fuzzing with nothing but stable Rust and a C++ compiler: the coverage that libFuzzer steers by is switched on with
//! compiler flags, so neither cargo-fuzz nor a nightly toolchain is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Screen, capture};
use crate::workspace::Workspace;

/// Coverage counters and traced comparisons for libFuzzer. Which debug assertions count as a find is said by `fuzz/Cargo.toml`.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// One input may not take longer or need more than this, in seconds and MiB.
const TIMEOUT: u32 = 5;
const MEMORY: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) target: Option<String>,
    pub(crate) seconds: u32,
}

pub(crate) fn exists(workspace: &Workspace) -> bool {
    workspace.root.join("fuzz/Cargo.toml").is_file()
}

/// Builds the targets and runs each for the time; the corpus grows under the target folder and is used again.
pub(crate) fn fuzz(workspace: &Workspace, choice: &Choice, screen: &mut Screen) -> Result<String, Failure> {
    if !exists(workspace) {
        return Err(Failure::new("there is no fuzz/Cargo.toml"));
    }
    let mut targets = targets(workspace)?;
    if let Some(wanted) = &choice.target {
        let known = targets.join(", ");
        targets.retain(|name| name == wanted);
        if targets.is_empty() {
            return Err(Failure::new(format!("there is no fuzz target `{wanted}`; there are {known}")));
        }
    }
    let home = workspace.target.join("fuzz");
    let host = host(workspace)?;
    capture(screen, build(workspace, &host))?.required()?;

    let programs = home.join("build").join(&host).join("release");
    let one = |name: &String| run_one(workspace, &programs, name, choice.seconds, screen);
    let runs: u64 = one_per_processor(&targets, one)?.into_iter().sum();
    Ok(format!("{}: {} s each, {runs} inputs", targets.join(", "), choice.seconds))
}

/// What builds all targets for `host`.
fn build(workspace: &Workspace, host: &str) -> Command {
    // With a target named, build scripts and macros are built without the flags: they could not link with them.
    let mut build =
        workspace.cargo(["build", "--release", "--bins", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    build.arg("--target-dir").arg(workspace.target.join("fuzz/build")).env("RUSTFLAGS", FLAGS);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS");
    build
}

/// What builds all targets for this machine.
pub(crate) fn build_ahead(workspace: &Workspace) -> Result<Command, Failure> {
    host(workspace).map(|host| build(workspace, &host))
}

/// Runs one target, and says how many inputs it saw.
fn run_one(workspace: &Workspace, programs: &Path, name: &str, seconds: u32, screen: &Screen) -> Result<u64, Failure> {
    let home = workspace.target.join("fuzz");
    let corpus = folder(home.join("corpus").join(name))?;
    let finds = folder(home.join("artifacts").join(name))?;
    let mut run = workspace.command(programs.join(name));
    run.arg(format!("-max_total_time={seconds}"));
    run.arg(format!("-timeout={TIMEOUT}")).arg(format!("-rss_limit_mb={MEMORY}")).arg("-print_final_stats=1");
    run.arg(format!("-artifact_prefix={}/", finds.display())).arg(&corpus);
    // Seeds that are committed; libFuzzer reads every folder and writes only to the first.
    let seeds = workspace.root.join("fuzz/seeds").join(name);
    if seeds.is_dir() {
        run.arg(seeds);
    }
    let text = capture(screen, run)?.required().map_err(|failure| Failure {
        what: format!("fuzz target `{name}` found something; the input lies in `{}`", finds.display()),
        output: failure.output,
    })?;
    executed(&text).filter(|runs| *runs > 0).ok_or_else(|| Failure {
        what: format!("fuzz target `{name}` ended well but says of no input that it ran"),
        output: text,
    })
}

/// Does the same with each, as many at once as there are processors. The first failure is the answer; what runs then ends first.
fn one_per_processor<T: Sync, R: Send>(
    items: &[T],
    act: impl Fn(&T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut results = Vec::new();
    for some in items.chunks(processors) {
        let ended: Vec<Result<R, Failure>> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|item| scope.spawn(|| act(item))).collect();
            let died = || Err(Failure::new("a thread of this program died"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| died())).collect()
        });
        for result in ended {
            results.push(result?);
        }
    }
    Ok(results)
}

fn targets(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let folder = workspace.root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| Failure::io(format!("list `{}`", folder.display()), &error))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    if names.is_empty() { Err(Failure::new("fuzz/fuzz_targets holds no target")) } else { Ok(names) }
}

fn host(workspace: &Workspace) -> Result<String, Failure> {
    let output =
        workspace.command("rustc").arg("-vV").output().map_err(|error| Failure::io("run `rustc -vV`", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned);
    host.ok_or_else(|| Failure::new("`rustc -vV` does not name the host"))
}

fn folder(path: PathBuf) -> Result<PathBuf, Failure> {
    fs::create_dir_all(&path).map_err(|error| Failure::io(format!("make `{}`", path.display()), &error))?;
    Ok(path)
}

fn executed(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_inputs_is_read_from_the_final_statistics() {
        assert_eq!(executed("Done\nstat::number_of_executed_units: 4711\nstat::peak_rss_mb: 30\n"), Some(4711));
        assert_eq!(executed("stat::number_of_executed_units: many\n"), None);
        assert_eq!(executed(""), None);
    }

    #[test]
    fn each_is_done_once_and_a_failure_is_not_lost_among_successes() {
        let items: Vec<u64> = (0..7).collect();
        assert_eq!(one_per_processor(&items, |item| Ok(*item)).unwrap(), items);
        let odd = |item: &u64| if *item == 5 { Err(Failure::new("five")) } else { Ok(*item) };
        assert_eq!(one_per_processor(&items, odd).unwrap_err().what, "five");
    }
}
