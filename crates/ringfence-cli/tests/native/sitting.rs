//! A command at a terminal of its own, and somebody who reads and types there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ringfence_testkit::canary::until;

use crate::stage::{SOON, Stage, binary};

/// A terminal: our end, and the program's.
fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    (ours, theirs)
}

/// The end of a question.
pub(crate) const QUESTION: &str = "type yes to allow it; everything else is a no: ";
/// How a question about a command ends: its rule may stand.
pub(crate) const QUESTION_OF_A_RULE: &str =
    "type yes to allow it, or always for this rule in this session; everything else is a no: ";
/// How both end.
pub(crate) const END: &str = "everything else is a no: ";

/// A run at a terminal of its own.
pub(crate) struct Sitting {
    pub(crate) child: Child,
    typing: File,
    shown: Arc<Mutex<String>>,
    reading: JoinHandle<()>,
}

impl Sitting {
    /// Runs what `arguments` of `ringfence run` say. Its standard output is the terminal, unless it is said where it goes.
    pub(crate) fn start(stage: &Stage, arguments: &[&str], stdout: Option<Stdio>) -> Self {
        Self::command(stage, &[&["run", "--backend", "native"], arguments].concat(), stdout)
    }

    /// Likewise, of any command.
    pub(crate) fn command(stage: &Stage, arguments: &[&str], stdout: Option<Stdio>) -> Self {
        let (ours, theirs) = terminal();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(binary())
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", stage.path().join("home"))
            .env("TMPDIR", stage.path().join("tmp"))
            .current_dir(stage.work())
            .stdin(end())
            .stdout(stdout.unwrap_or_else(end))
            .stderr(end())
            .spawn()
            .unwrap();
        drop(theirs);
        let typing = File::from(ours.try_clone().unwrap());
        let shown: Arc<Mutex<String>> = Arc::default();
        let reading = {
            let shown = Arc::clone(&shown);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                let mut from = File::from(ours);
                while let Ok(length @ 1..) = from.read(&mut bytes) {
                    shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
                }
            })
        };
        Self { child, typing, shown, reading }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.typing.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn wait_for(&self, text: &str) {
        assert!(until(SOON, || self.shown.lock().unwrap().contains(text)), "{}", self.shown.lock().unwrap());
    }

    /// All that was shown, and how it ended.
    pub(crate) fn end(mut self) -> (String, ExitStatus) {
        let status = self.child.wait().unwrap();
        drop(self.typing);
        self.reading.join().unwrap();
        let shown = self.shown.lock().unwrap().clone();
        (shown, status)
    }
}
