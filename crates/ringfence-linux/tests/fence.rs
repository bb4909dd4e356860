//! A fence is proven before the program's first instruction; one with a hole starts nothing.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_linux::fence::{FILES_SINCE, Reach, Rules};
use ringfence_linux::wall::landlock_abi;
use ringfence_linux::{Launch, Privileges, Report, Rlimit, RlimitKind, Stage, keeper};

/// Starts `true` behind a fence that lets `allowed` be reached, and says what the keeper reports first.
fn first_report(allowed: &[(&Path, Reach)], hidden: &Path) -> Option<Report> {
    first_report_with(allowed, hidden, &[])
}

/// Likewise, with limits.
fn first_report_with(allowed: &[(&Path, Reach)], hidden: &Path, rlimits: &[Rlimit]) -> Option<Report> {
    if landlock_abi().is_none_or(|version| version < FILES_SINCE) {
        eprintln!("SKIPPED: this kernel has no Landlock, or an old one");
        return None;
    }
    let mut rules = Rules::new().unwrap();
    for (path, reach) in allowed {
        rules.allow(File::open(path).unwrap().as_fd(), *reach).unwrap();
    }
    let fence = rules.fence(hidden.as_os_str()).unwrap();
    let (null, cwd) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
    let keeper = keeper::launch(&Launch {
        program: OsStr::new("/bin/true"),
        argv: &[OsStr::new("true")],
        env: &[(OsStr::new("LANG"), OsStr::new("C"))],
        cwd: cwd.as_fd(),
        stdin: null.as_fd(),
        stdout: null.as_fd(),
        stderr: null.as_fd(),
        privileges: Privileges::NoNew,
        rlimits,
        fence: Some(&fence),
    })
    .unwrap();
    keeper.release().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if let Ok(report) = keeper.receive() {
            return report;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the keeper said nothing");
}

const CAP_SYS_RESOURCE: u32 = 24;

fn hidden() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

#[test]
fn a_program_starts_behind_a_fence_that_holds() {
    let hidden = hidden();
    let Some(report) = first_report(&[(Path::new("/usr"), Reach::Read)], hidden.path()) else { return };
    assert!(matches!(report, Report::Started { .. }), "{report:?}");
}

#[test]
fn n13_a_fence_with_a_hole_starts_nothing_and_names_the_step() {
    let hidden = hidden();
    let folder = hidden.path().parent().unwrap();
    for reach in [Reach::Read, Reach::Write] {
        let Some(report) = first_report(&[(Path::new("/usr"), Reach::Read), (folder, reach)], hidden.path()) else {
            return;
        };
        assert_eq!(report, Report::Failed { stage: Stage::ProveFiles, errno: 0 }, "{reach:?}");
    }
}

#[test]
fn a_limit_that_the_program_could_raise_starts_nothing() {
    let hidden = hidden();
    let limits = [RlimitKind::OpenFiles, RlimitKind::FileSize].map(|kind| Rlimit { kind, most: 64 });
    let Some(report) = first_report_with(&[(Path::new("/usr"), Reach::Read)], hidden.path(), &limits) else { return };
    // The fence takes no capability away: whoever has this one may raise limits, and nobody else may.
    if ringfence_linux::privileges::read_status().unwrap().cap_eff & (1 << CAP_SYS_RESOURCE) != 0 {
        assert_eq!(report, Report::Failed { stage: Stage::ProveLimits, errno: 0 });
    } else {
        assert!(matches!(report, Report::Started { .. }), "{report:?}");
    }
}

#[test]
fn a_program_that_is_not_let_in_is_not_executed() {
    let hidden = hidden();
    let Some(report) = first_report(&[], hidden.path()) else { return };
    assert_eq!(report, Report::Failed { stage: Stage::Exec, errno: libc::EACCES });
}
