//! `cargo xtask test`: all that must pass, in one order, on a machine that has Rust and nothing else.

use std::process::{Command, ExitCode};

use crate::ahead::Ahead;
use crate::footprint::{Footprint, Scratch};
use crate::step::{Captured, Failure, Outcome, Paint, Screen, Verbosity, capture};
use crate::tools::{self, DENY, NEXTEST};
use crate::workspace::{BUILD_EVERYTHING, Workspace};
use crate::{clients, docs, engines, fuzz, ordinary_user, readme, static_binary, tidy};

/// Tells the tests what may not be skipped, as a list with commas. A missing backend that it names is a failure.
pub(crate) const BACKENDS_REQUIRED: &str = "RINGFENCE_TEST_REQUIRE";
/// What every Linux machine can offer.
const BACKENDS_ALWAYS: &str = "native,none,spawn";
/// Long enough to see that a fuzz target runs and finds nothing near the surface.
const FUZZ_SECONDS: u32 = 5;
/// How many tests run at once on each processor. Most of them wait for a program, a time limit or the disk.
const TESTS_PER_PROCESSOR: usize = 2;

/// What the developer asked for.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) list: bool,
    pub(crate) verbosity: Verbosity,
}

/// What a step works with.
struct Bench<'a> {
    workspace: &'a Workspace,
    scratch: &'a Scratch,
    before: &'a Footprint,
    screen: &'a mut Screen,
}

struct Step {
    name: &'static str,
    about: &'static str,
    /// Steps without whose success this one would only repeat their failure.
    needs: &'static [&'static str],
    run: fn(&mut Bench<'_>) -> Result<Outcome, Failure>,
}

const STEPS: &[Step] = &[
    Step { name: "tools", about: "what the other steps need: found or fetched", needs: &[], run: prepare_tools },
    Step { name: "fmt", about: "cargo fmt", needs: &[], run: fmt },
    Step { name: "clippy", about: "cargo clippy, warnings are errors", needs: &[], run: clippy },
    Step { name: "deny", about: "licences, bans and sources of all dependencies", needs: &["tools"], run: deny },
    Step { name: "advisories", about: "known vulnerabilities of dependencies", needs: &["tools"], run: advisories },
    Step { name: "tidy", about: "the house rules", needs: &[], run: tidy_up },
    Step { name: "build", about: "everything that the next steps start", needs: &[], run: build },
    Step { name: "static", about: "the binary needs no loader", needs: &["build"], run: is_static },
    Step { name: "generated", about: "committed generated files are current", needs: &["build"], run: generated },
    Step { name: "tests", about: "unit and integration tests", needs: &["tools", "build"], run: tests },
    Step { name: "ordinary-user", about: "the same as an ordinary user", needs: &["tools", "build"], run: ordinary },
    Step {
        name: "engines",
        about: "the same on container engines of our own",
        needs: &["tools", "build"],
        run: on_engines,
    },
    Step {
        name: "clients",
        about: "the SDKs and real agents with our binary",
        needs: &["tools", "build"],
        run: with_clients,
    },
    Step { name: "doctests", about: "examples in the documentation", needs: &["build"], run: doctests },
    Step { name: "docs", about: "cargo doc, warnings are errors", needs: &["build"], run: document },
    Step { name: "fuzz", about: "each fuzz target for a few seconds", needs: &["build"], run: fuzz_briefly },
    Step { name: "readme", about: "the README's commands do what it says", needs: &["build"], run: read_readme },
    Step { name: "leftovers", about: "nothing of all this is left behind", needs: &[], run: leftovers },
];

/// Reads `a,b` and refuses what is no step.
pub(crate) fn step_names(words: Option<&str>) -> Result<Vec<String>, Failure> {
    let names: Vec<&str> =
        words.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let known = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return Err(Failure::new(format!("name at least one step, separated by commas: {}", known())));
    }
    match names.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        Some(name) => Err(Failure::new(format!("there is no step `{name}`; there are {}", known()))),
        None => Ok(names.into_iter().map(str::to_owned).collect()),
    }
}

impl Choice {
    fn wants(&self, step: &Step) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == step.name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

pub(crate) fn test(workspace: &Workspace, choice: &Choice) -> Result<ExitCode, Failure> {
    if choice.list {
        for step in STEPS {
            println!("{:<14} {}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen: Vec<&Step> = STEPS.iter().filter(|step| choice.wants(step)).collect();
    if chosen.is_empty() {
        return Err(Failure::new("no step is left to run"));
    }
    let scratch = Scratch::new()?;
    let before = Footprint::take(workspace, &scratch);
    let mut screen = Screen::new(choice.verbosity);
    let mut failed: Vec<&str> = Vec::new();
    let mut skipped: Vec<String> = Vec::new();
    let mut passed = 0;
    let mut ahead: Option<Ahead> = None;
    let started = std::time::Instant::now();
    for (index, step) in chosen.iter().enumerate() {
        screen.begin(format!("{:>2}/{} {:<14}", index + 1, chosen.len(), step.name));
        if let Some(blocker) = step.needs.iter().find(|name| failed.contains(name)) {
            screen.end(Paint::Bad, "NOT RUN", &format!("`{blocker}` failed"));
            failed.push(step.name);
            continue;
        }
        let mut bench = Bench { workspace, scratch: &scratch, before: &before, screen: &mut screen };
        let required = std::env::var(BACKENDS_REQUIRED).is_ok_and(|list| list.split(',').any(|name| name == step.name));
        match (step.run)(&mut bench) {
            Ok(Outcome::Passed(note)) => {
                passed += 1;
                screen.end(Paint::Good, "ok", &note);
                if step.name == "build" {
                    let later = &chosen[index + 1..];
                    ahead = Some(Ahead::begin(builds_of(workspace, later)));
                }
            }
            Ok(Outcome::PassedInPart { done, missing }) if !required => {
                passed += 1;
                screen.end(Paint::Loud, "IN PART", &format!("{done}; NOT {missing}"));
                skipped.push(format!("{}: {missing}", step.name));
            }
            Ok(Outcome::Skipped(why)) if !required => {
                screen.end(Paint::Loud, "SKIPPED", &why);
                skipped.push(format!("{}: {why}", step.name));
            }
            Ok(Outcome::Skipped(why) | Outcome::PassedInPart { missing: why, .. }) => {
                screen.end(Paint::Bad, "FAILED", &format!("{why}, and {BACKENDS_REQUIRED} names it"));
                failed.push(step.name);
            }
            Err(failure) => {
                screen.end(Paint::Bad, "FAILED", &failure.what);
                screen.explain(&failure.output);
                failed.push(step.name);
            }
        }
    }
    drop(ahead);
    let seconds = started.elapsed().as_secs();
    println!("\n{passed} passed, {} failed, {} skipped in {seconds} s", failed.len(), skipped.len());
    for line in &skipped {
        println!("{}", screen.painted(Paint::Loud, &format!("skipped {line}")));
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", screen.painted(Paint::Bad, &format!("failed {}", failed.join(", "))));
    Ok(ExitCode::FAILURE)
}

/// What `steps` will build beside what all of them need. A step that cannot even say so will fail by itself.
fn builds_of(workspace: &Workspace, steps: &[&Step]) -> Vec<Command> {
    let is_there = |name: &str| steps.iter().any(|step| step.name == name);
    let mut builds = Vec::new();
    if is_there("clients") {
        builds.push(clients::fetch(workspace));
    }
    if is_there("fuzz") && fuzz::exists(workspace) {
        builds.extend(fuzz::build_ahead(workspace));
    }
    if is_there("readme") {
        builds.push(readme::build(workspace));
    }
    builds
}

/// Which backends the tests may not do without: what the caller said, else what is always there.
pub(crate) fn required_backends() -> String {
    std::env::var(BACKENDS_REQUIRED).unwrap_or_else(|_| BACKENDS_ALWAYS.to_owned())
}

fn prepare_tools(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    tools::prepare(bench.workspace, bench.screen)
}

fn fmt(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    capture(bench.screen, bench.workspace.cargo(["fmt", "--all", "--check", "--", "--color", "never"]))?.required()?;
    if fuzz::exists(bench.workspace) {
        let words = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check", "--", "--color", "never"];
        capture(bench.screen, bench.workspace.cargo(words))?.required()?;
    }
    let files = bench.workspace.files()?;
    Ok(Outcome::Passed(format!("{} Rust files", files.iter().filter(|name| name.ends_with(".rs")).count())))
}

fn clippy(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let words = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    capture(bench.screen, bench.workspace.cargo(words))?.required()?;
    Ok(Outcome::Passed("no warning".to_owned()))
}

fn deny(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let mut command = bench.workspace.command(DENY.locate(bench.workspace)?);
    command.args(["check", "licenses", "bans", "sources"]);
    let text = capture(bench.screen, command)?.required()?;
    Ok(Outcome::Passed(last_line(&text)))
}

fn advisories(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let deny = DENY.locate(bench.workspace)?;
    let mut fetch = bench.workspace.command(&deny);
    fetch.args(["fetch", "db"]);
    // Fetching by itself first: whatever the check says after that is about our dependencies, not about the network.
    if !capture(bench.screen, fetch)?.succeeded() {
        return Ok(Outcome::Skipped("advisory database not reachable".to_owned()));
    }
    let mut check = bench.workspace.command(&deny);
    check.args(["check", "--disable-fetch", "advisories"]);
    let text = capture(bench.screen, check)?.required()?;
    Ok(Outcome::Passed(last_line(&text)))
}

fn tidy_up(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    tidy::check(bench.workspace).map(Outcome::Passed)
}

fn build(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let text = capture(bench.screen, bench.workspace.cargo(BUILD_EVERYTHING))?.required()?;
    Ok(Outcome::Passed(format!(
        "{} crates compiled",
        text.lines().filter(|l| l.trim().starts_with("Compiling")).count()
    )))
}

fn is_static(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let binary = bench.workspace.binary()?;
    static_binary::require_static(&binary)?;
    Ok(Outcome::Passed(format!(
        "{} has no interpreter",
        binary.strip_prefix(&bench.workspace.root).unwrap_or(&binary).display()
    )))
}

fn generated(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    docs::check(bench.workspace, bench.screen).map(Outcome::Passed)
}

fn tests(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let mut command = bench.workspace.command(NEXTEST.locate(bench.workspace)?);
    command.args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"]);
    for_tests(&mut command, bench.scratch);
    nextest_ended(capture(bench.screen, command)?).map(Outcome::Passed)
}

fn ordinary(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    ordinary_user::test(bench.workspace, bench.scratch, bench.screen)
}

fn on_engines(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    engines::test(bench.workspace, bench.scratch, bench.screen)
}

fn with_clients(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    clients::test(bench.workspace, bench.scratch, bench.screen)
}

fn doctests(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let mut command = bench.workspace.cargo(["test", "--doc", "--workspace", "--all-features"]);
    for_tests(&mut command, bench.scratch);
    let text = capture(bench.screen, command)?.required()?;
    Ok(Outcome::Passed(format!("{} examples passed", doctests_passed(&text))))
}

fn document(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    let mut command = bench.workspace.cargo(["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    capture(bench.screen, command)?.required()?;
    Ok(Outcome::Passed("no warning".to_owned()))
}

fn fuzz_briefly(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    if !fuzz::exists(bench.workspace) {
        return Ok(Outcome::Skipped("there is no fuzz/ folder".to_owned()));
    }
    let choice = fuzz::Choice { target: None, seconds: FUZZ_SECONDS };
    fuzz::fuzz(bench.workspace, &choice, bench.screen).map(Outcome::Passed)
}

fn read_readme(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    readme::check(bench.workspace, bench.scratch, bench.screen)
}

fn leftovers(bench: &mut Bench<'_>) -> Result<Outcome, Failure> {
    bench.before.compare(bench.workspace, bench.scratch)
}

pub(crate) fn for_tests(command: &mut Command, scratch: &Scratch) {
    scratch.apply(command);
    // A snapshot that differs is a failure here, never a new file in the tree.
    command.env(BACKENDS_REQUIRED, required_backends()).env("INSTA_UPDATE", "no");
    let (name, value) = at_once();
    command.env(name, value);
}

/// What tells nextest how many tests to run at once.
pub(crate) fn at_once() -> (&'static str, String) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ("NEXTEST_TEST_THREADS", (processors * TESTS_PER_PROCESSOR).to_string())
}

fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// What nextest counted, whether it ended well or not. Success without a count is not believed.
pub(crate) fn nextest_ended(captured: Captured) -> Result<String, Failure> {
    let summary = nextest_summary(&captured.text).map(str::to_owned);
    match (captured.required(), summary) {
        (Ok(_), Some(summary)) => Ok(summary),
        (Ok(text), None) => Err(Failure { what: "nextest ended well but printed no summary".to_owned(), output: text }),
        (Err(failure), Some(summary)) => Err(Failure { what: summary, output: failure.output }),
        (Err(failure), None) => Err(failure),
    }
}

fn nextest_summary(text: &str) -> Option<&str> {
    let line = text.lines().rfind(|line| line.trim_start().starts_with("Summary"))?;
    Some(line.rsplit_once(']').map_or(line, |(_, counts)| counts).trim())
}

fn doctests_passed(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.trim().strip_prefix("test result: ok. "));
    counts.filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_name_that_does_not_exist_is_refused_and_an_empty_list_too() {
        assert_eq!(step_names(Some("fmt, tidy")).unwrap(), ["fmt", "tidy"]);
        assert!(step_names(Some("fmt,fnt")).unwrap_err().what.contains("`fnt`"));
        assert!(step_names(Some("")).is_err());
        assert!(step_names(None).is_err());
    }

    #[test]
    fn a_step_needs_only_steps_that_come_before_it() {
        for (index, step) in STEPS.iter().enumerate() {
            for need in step.needs {
                assert!(STEPS[..index].iter().any(|earlier| earlier.name == *need), "{} needs {need}", step.name);
            }
        }
    }

    #[test]
    fn only_and_skip_choose_together() {
        let choice = Choice { only: vec!["fmt".into(), "tidy".into()], skip: vec!["tidy".into()], ..Choice::default() };
        let chosen: Vec<_> = STEPS.iter().filter(|step| choice.wants(step)).map(|step| step.name).collect();
        assert_eq!(chosen, ["fmt"]);
    }

    #[test]
    fn the_summary_of_nextest_is_required_and_shortened() {
        let text = "  PASS x\n------\n     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped\n";
        assert_eq!(nextest_summary(text), Some("3 tests run: 3 passed, 0 skipped"));
        assert_eq!(nextest_summary("all is well"), None);
    }

    #[test]
    fn doctests_of_all_crates_are_counted_together() {
        let text = "test result: ok. 3 passed; 0 failed;\nnoise\ntest result: ok. 4 passed; 0 failed;\n";
        assert_eq!(doctests_passed(text), 7);
    }
}
