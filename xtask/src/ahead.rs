//! Builds that later steps need, made while tests wait for programs, time limits and engines.
//!
//! They only take what nobody else wants of the processors. A step builds by the same words again: it finds everything done, waits
//! until it is, or, where this came to nothing, does it itself and says what is wrong.

use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a build is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// Gives way to everybody: also to programs in sessions of their own, which the kernel may weigh as groups. Ends with its whole group,
/// cargo and the compilers that it started, when its input ends: however whoever holds the other end went away.
const GIVING_WAY: &str = "{ echo 19 > /proc/self/autogroup; } 2>/dev/null; exec 3<&0 </dev/null; \
    { read -r word <&3; kill -s TERM 0; } & nice -n 19 \"$@\" 3<&-";

/// Builds that go on beside the steps. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Ahead {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Begins with `builds`, one after the other.
    pub(crate) fn begin(builds: Vec<Command>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            for build in builds {
                let Ok(mut child) = giving_way(&build).spawn() else { return };
                while let Ok(None) = child.try_wait() {
                    if let Err(mpsc::RecvTimeoutError::Disconnected) = stopped.recv_timeout(PAUSE) {
                        // It waits after it has closed the input.
                        child.wait().ok();
                        return;
                    }
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The same command in a group of its own that gives way, without output.
fn giving_way(build: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", GIVING_WAY, "sh"]).arg(build.get_program()).args(build.get_args());
    if let Some(folder) = build.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // It leads no group yet, so that `setsid` goes on in the same process: ours to wait for, and the leader of a group then.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("WORD", "here");
        command
    }

    #[test]
    fn builds_are_done_one_after_the_other_with_their_environment_and_give_way() {
        let folder = std::env::temp_dir().join(format!("xtask-ahead-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut builds = vec![shell("echo $WORD $(nice) > one"), shell("cat one > two; mv two three")];
        builds.iter_mut().for_each(|build| {
            build.current_dir(&folder);
        });
        let ahead = Ahead::begin(builds);
        let begun = Instant::now();
        while !folder.join("three").exists() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(ahead);
        let text = std::fs::read_to_string(folder.join("three")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(text, "here 19\n");
    }

    #[test]
    fn what_goes_on_ends_with_whoever_began_it_and_all_that_it_began() {
        let file = std::env::temp_dir().join(format!("xtask-ahead-{}-pid", std::process::id()));
        let begun = Instant::now();
        let line = format!("sleep 100 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let ahead = Ahead::begin(vec![shell(&line), shell("sleep 100")]);
        while !file.exists() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        // One that waits to be reaped is gone, too.
        let goes_on = || std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty());
        assert!(goes_on(), "the probe proves nothing");
        drop(ahead);
        while goes_on() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn one_that_is_stopped_at_once_is_not_waited_for() {
        let begun = Instant::now();
        drop(Ahead::begin(vec![shell("sleep 100")]));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
