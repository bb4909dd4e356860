//! What a program under a keeper costs over a bare start of it, in turns.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfence_linux::{Launch, Privileges, Report, Rlimit, RlimitKind, keeper};
use rustix::event::{PollFd, PollFlags, poll};

const ROUNDS: usize = 500;

fn main() {
    let mut bare = Vec::new();
    let mut ours = Vec::new();
    let mut parts: [Vec<Duration>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        assert!(Command::new("/bin/true").output().unwrap().status.success());
        bare.push(begin.elapsed());
        let begin = Instant::now();
        for (times, at) in parts.iter_mut().zip(under_a_keeper()) {
            times.push(at - begin);
        }
        ours.push(begin.elapsed());
    }
    let (bare, ours) = (median(bare), median(ours));
    println!("keeper_bare_true {} us", bare.as_micros());
    println!("keeper_true {} us", ours.as_micros());
    for (name, times) in ["forked", "started", "ended", "gone"].into_iter().zip(parts) {
        println!("keeper_{name}_after {} us", median(times).as_micros());
    }
    println!("spawn_over_bare {:.2} ratio", ours.as_secs_f64() / bare.as_secs_f64());
}

/// When it was forked, started, ended and gone.
fn under_a_keeper() -> [Instant; 4] {
    let null = File::open("/dev/null").unwrap();
    let cwd = File::open("/").unwrap();
    let (stdout_read, stdout_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let (stderr_read, stderr_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let mut keeper = keeper::launch(&Launch {
        program: OsStr::new("/bin/true"),
        argv: &[OsStr::new("true")],
        env: &[],
        cwd: cwd.as_fd(),
        stdin: null.as_fd(),
        stdout: stdout_write.as_fd(),
        stderr: stderr_write.as_fd(),
        privileges: Privileges::NoNew,
        rlimits: &[Rlimit { kind: RlimitKind::Core, most: 0 }, Rlimit { kind: RlimitKind::Data, most: 1 << 30 }],
        fence: None,
    })
    .unwrap();
    let mut times = [Instant::now(); 4];
    keeper.release().unwrap();
    drop((stdout_write, stderr_write));
    let control = keeper.control().unwrap();
    loop {
        poll(&mut [PollFd::new(&control, PollFlags::IN)], None).unwrap();
        match keeper.receive().unwrap() {
            Some(Report::Started { .. }) => times[1] = Instant::now(),
            Some(Report::Ended { wait_status, .. }) => {
                assert_eq!(wait_status, 0);
                times[2] = Instant::now();
            }
            Some(Report::Gone { .. }) => break,
            other => panic!("{other:?}"),
        }
    }
    times[3] = Instant::now();
    assert!(keeper.reap(Duration::from_secs(1)));
    drop((stdout_read, stderr_read));
    times
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
