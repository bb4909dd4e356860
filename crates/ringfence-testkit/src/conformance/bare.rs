//! A probe without any backend: the twin.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Ended, host_environment};
use crate::Trouble;

/// A probe that has not ended by then is killed.
const MOST_TIME: Duration = Duration::from_secs(15);
/// Of its output.
const MOST_OUTPUT: u64 = 16 * 1024 * 1024;

/// Runs `script` in `folder` until nobody holds its output any more.
pub(super) fn run(
    folder: &Path,
    script: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> Result<Ended, Trouble> {
    let started = Instant::now();
    let mut child = Command::new("sh")
        .args(["-c", script, "probe"])
        .args(arguments)
        .env_clear()
        .envs(host_environment(environment))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(Trouble::io("start a probe without a backend"))?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before a failed read is what there is.
            stdout.take(MOST_OUTPUT).read_to_end(&mut bytes).ok();
            // Nobody waits any more when the time is over.
            sender.send(bytes).ok();
        });
    }
    let stdout = receiver.recv_timeout(MOST_TIME).unwrap_or_default();
    let wall = started.elapsed();
    if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Its leader is not reaped yet, so the number is its own. An empty group is what we want.
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
    }
    child.wait().map_err(Trouble::io("wait for a probe without a backend"))?;
    Ok(Ended { wall, stdout, outcome: None })
}
