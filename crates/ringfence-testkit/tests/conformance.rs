//! The suite, on every backend that this machine has; and the twins by themselves.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on says so by a panic"
)]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence::Guarantee;
use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{Presence, REQUIRED, Wall, presence};
use ringfence_testkit::conformance::{Case, Setting, Verdict, attack, cases, twin};
use ringfence_testkit::place::Place;

/// The binary that raises walls for these tests; the variable is set where they were moved after they were built.
fn launcher() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_ringfence-testkit-launcher");
    std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher").map_or_else(|| built.into(), PathBuf::from)
}

/// How many cases run at once: each waits more than it works.
const AT_ONCE: usize = 6;

/// Likewise where each is a container.
const ENGINE_AT_ONCE: usize = 3;

/// How often a probe that showed nothing is tried again, alone. Some have to get most of a processor to show something.
const MORE_TRIES: usize = 5;

/// Cases that are judged by a look at the program's process from the host.
const SEEN_FROM_OUTSIDE: [&str; 7] = [
    "N01-no-new-privs",
    "N01-capabilities",
    "N01-seccomp",
    "R05-busy-loop",
    "R07-daemon-that-forks-twice",
    "R07-daemon-that-ignores-signals",
    "S03-crash",
];

/// Does `act` for every case, several at once; the results in the order of the cases.
fn for_each<T: Send>(at_once: usize, cases: &[Case], act: impl Fn(&Case) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((index, case)) = cases.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((index, act(case)));
        }
        done
    };
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn is_here(wall: &Wall) -> bool {
    let place = Place::new(launcher()).unwrap();
    let tier = wall.kind == BackendKind::Landlock;
    let setting = if tier { Setting { mode: "read-only", ..Setting::DIRECT } } else { Setting::DIRECT };
    // Whether there is such a backend at all is asked first: one that is missing does not know the policy's words for it.
    let plain = wall.with_its_own_runtime();
    let engine = place.engine(&setting.policy(&plain), wall.environment()).unwrap();
    // The tier is not for root, so nothing can require it of root.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let required = std::env::var(REQUIRED).ok().filter(|_| !(tier && is_root)).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match runtime.block_on(presence(&engine, wall.kind, &required)) {
        Presence::Here(_) => true,
        Presence::Skip(line) => {
            eprintln!("{line}");
            false
        }
        Presence::Fail(line) => panic!("{line}"),
    }
}

/// Runs every case against `wall`. All that it claims must hold, and it must claim exactly `claimed`, if that is given.
fn check(wall: &Wall, claimed: Option<&[Guarantee]>) {
    if !is_here(wall) {
        return;
    }
    let (cases, unseen): (Vec<_>, Vec<_>) =
        cases().into_iter().partition(|case| wall.shows_processes() || !SEEN_FROM_OUTSIDE.contains(&case.id));
    for case in unseen {
        eprintln!("SKIPPED: {wall}: {}: the host does not see the processes of this runtime", case.id);
    }
    let at_once = if wall.engine.is_some() { ENGINE_AT_ONCE } else { AT_ONCE };
    let verdicts = for_each(at_once, &cases, |case| attack(wall, case, &launcher()));
    let mut wrong = Vec::new();
    let mut held = Vec::new();
    for (case, mut verdict) in cases.iter().zip(verdicts) {
        // A probe that did not reach its goal without a wall proves nothing, and a busy machine may be why: it is tried again
        // and alone. What is broken stays so.
        for _ in 0..MORE_TRIES {
            if !matches!(verdict, Ok(Verdict::Inconclusive(_))) {
                break;
            }
            println!("{:<14} {:<20} {:<40} {verdict:?}, once more", wall.to_string(), case.guarantee.name(), case.id);
            verdict = attack(wall, case, &launcher());
        }
        println!("{:<14} {:<20} {:<40} {verdict:?}", wall.to_string(), case.guarantee.name(), case.id);
        match verdict.unwrap() {
            Verdict::Held => held.push(case.guarantee),
            Verdict::NotClaimed => {}
            Verdict::Broken(why) => wrong.push(format!("{wall}: {} ({}) is broken: {why}", case.guarantee, case.id)),
            Verdict::Inconclusive(why) => {
                wrong.push(format!("{wall}: {} ({}) is inconclusive: {why}", case.guarantee, case.id))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    held.sort_unstable();
    held.dedup();
    if let Some(claimed) = claimed {
        let mut claimed = claimed.to_vec();
        claimed.sort_unstable();
        assert_eq!(held, claimed);
    }
}

#[test]
fn spawn_keeps_all_that_it_claims() {
    check(
        &Wall::of(BackendKind::Spawn),
        Some(&[
            Guarantee::TimeLimit,
            Guarantee::OutputLimit,
            Guarantee::PromptReturn,
            Guarantee::NoSurvivors,
            Guarantee::CleanEnvironment,
            Guarantee::CleanDescriptors,
            Guarantee::Memory,
            Guarantee::Processes,
            Guarantee::FileSize,
            Guarantee::OpenFiles,
            Guarantee::NoCoreFile,
            Guarantee::NoNewPrivileges,
        ]),
    );
}

#[test]
fn none_keeps_all_that_it_claims() {
    check(
        &Wall::of(BackendKind::None),
        Some(&[
            Guarantee::TimeLimit,
            Guarantee::OutputLimit,
            Guarantee::PromptReturn,
            Guarantee::NoSurvivors,
            Guarantee::CleanDescriptors,
        ]),
    );
}

#[test]
fn every_other_backend_keeps_all_that_it_claims_or_is_skipped_loudly() {
    let of_an_engine = |kind: &BackendKind| matches!(kind, BackendKind::Docker | BackendKind::Podman);
    for kind in BackendKind::ALL.into_iter().filter(|kind| kind.isolates() && !of_an_engine(kind)) {
        check(&Wall::of(kind), None);
    }
}

/// The walls of the engine with this name; of one that is not there, a loud line.
fn check_engine(name: &str) {
    let (walls, missing) = Wall::engines();
    for wall in walls.iter().filter(|wall| wall.name == name) {
        check(wall, None);
    }
    let begin = format!("SKIPPED: {name}: ");
    for line in missing.iter().filter(|line| line.starts_with(&begin)) {
        eprintln!("{line}");
    }
}

#[test]
fn the_engine_docker_keeps_all_that_it_claims_or_is_skipped_loudly() {
    check_engine("docker");
}

#[test]
fn the_engine_docker_with_gvisor_keeps_all_that_it_claims_or_is_skipped_loudly() {
    check_engine("docker with runsc");
}

#[test]
fn the_engine_docker_without_root_keeps_all_that_it_claims_or_is_skipped_loudly() {
    check_engine("docker rootless");
}

#[test]
fn the_engine_podman_keeps_all_that_it_claims_or_is_skipped_loudly() {
    check_engine("podman");
}

#[test]
fn the_engine_podman_without_root_keeps_all_that_it_claims_or_is_skipped_loudly() {
    check_engine("podman rootless");
}

#[test]
fn every_case_that_is_judged_from_outside_exists() {
    let cases = cases();
    for id in SEEN_FROM_OUTSIDE {
        assert!(cases.iter().any(|case| case.id == id), "{id}");
    }
}

#[test]
fn the_tier_keeps_the_modes_that_it_claims_or_is_skipped_loudly() {
    // The other cases write the workspace, which it never lets happen; `tests/tier` of the command line attacks the rest.
    check(&Wall::of(BackendKind::Landlock), Some(&[Guarantee::FsWorkspaceMode]));
}

#[test]
fn every_guarantee_has_a_case_and_every_case_an_id_of_its_own() {
    let cases = cases();
    for guarantee in Guarantee::ALL {
        assert!(cases.iter().any(|case| case.guarantee == guarantee), "{guarantee} has no case");
    }
    let mut ids: Vec<&str> = cases.iter().map(|case| case.id).collect();
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), all);
}

#[test]
fn every_probe_reaches_its_canary_without_a_backend() {
    let cases = cases();
    let reached = for_each(AT_ONCE, &cases, |case| twin(case, &launcher()).unwrap().is_some());
    let alone = |case: &Case| (0..MORE_TRIES).any(|_| twin(case, &launcher()).unwrap().is_some());
    let missed: Vec<&str> =
        cases.iter().zip(reached).filter(|(case, reached)| !reached && !alone(case)).map(|(case, _)| case.id).collect();
    assert!(missed.is_empty(), "these prove nothing: {}", missed.join(", "));
}

#[test]
fn a_required_backend_that_is_missing_fails_and_another_is_skipped() {
    let place = Place::new(launcher()).unwrap();
    let engine = place.engine(&Setting::DIRECT.policy(&Wall::of(BackendKind::Spawn)), Vec::new()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let missing = BackendKind::Kubernetes;
    let looked = |required| runtime.block_on(presence(&engine, missing, required));
    assert!(matches!(looked("none, kubernetes"), Presence::Fail(line) if line.contains(REQUIRED)));
    assert!(matches!(looked("none,spawn"), Presence::Skip(line) if line.starts_with("SKIPPED: ")));
}
