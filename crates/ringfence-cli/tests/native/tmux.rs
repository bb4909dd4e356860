//! The question in a terminal that people use: tmux draws the screen, and what is typed are keys that are pressed in it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ringfence_testkit::canary::until;

use crate::probe::walled_with;
use crate::stage::{SOON, Stage, binary};

/// A tmux of its own, with one window in which a line of the shell runs. Ended when dropped.
struct Window {
    socket: PathBuf,
}

impl Window {
    /// `None`, loudly, where there is no tmux.
    fn open(stage: &Stage, line: &str) -> Option<Self> {
        let window = Self { socket: stage.path().join("t") };
        let mut command = window.tmux();
        command.args(["-f", "/dev/null", "new-session", "-d", "-x", "160", "-y", "40", line]);
        let opened = command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("SHELL", "/bin/sh")
            .env("HOME", stage.path().join("home"))
            .env("TMPDIR", stage.path().join("tmp"))
            .current_dir(stage.work())
            .status();
        match opened {
            Ok(status) => {
                assert!(status.success(), "tmux ended with {status}");
                Some(window)
            }
            Err(error) => {
                eprintln!("SKIPPED: there is no tmux: {error}");
                None
            }
        }
    }

    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket);
        command
    }

    fn press(&self, keys: &[&str]) {
        assert!(self.tmux().arg("send-keys").args(keys).status().unwrap().success());
    }

    /// What stands on the screen.
    fn screen(&self) -> String {
        let shown = self.tmux().args(["capture-pane", "-p", "-J"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).into_owned()
    }

    fn wait_for(&self, text: &str) -> String {
        assert!(until(SOON, || self.screen().contains(text)), "{text:?} did not come:\n{}", self.screen());
        self.screen()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.tmux().arg("kill-server").stderr(Stdio::null()).status().ok();
    }
}

const ASKED: &str = "or always for this rule in this session; everything else is a no:";

#[test]
fn in_tmux_the_question_stands_on_the_screen_and_only_the_whole_word_answers_it() {
    let rule = "commands: [{ ask: [echo], matches: [\"echo x\"] }]\n";
    for (typed, runs) in [("yes", true), ("always", true), ("no", false), ("y", false), ("", false)] {
        let Some(stage) = walled_with(rule) else { return };
        let run = format!("'{}' run --backend native -- echo it ran; echo \"ended with $?\"; cat", binary().display());
        let Some(window) = Window::open(&stage, &run) else { return };
        let screen = window.wait_for(ASKED);
        assert!(screen.contains("======== a question of ringfence, not of the program ========"), "{screen}");
        assert!(screen.contains("ringfence asks: echo it ran?"), "{screen}");
        assert!(!screen.contains("\nit ran"), "{screen}");
        if !typed.is_empty() {
            window.press(&["-l", typed]);
            window.wait_for(&format!("{ASKED} {typed}"));
        }
        window.press(&["Enter"]);
        let screen = window.wait_for("ended with ");
        assert_eq!(screen.contains("\nit ran"), runs, "{typed:?}: {screen}");
        assert_eq!(screen.contains("ended with 0"), runs, "{typed:?}: {screen}");
    }
}

#[test]
fn always_in_tmux_stands_for_the_rule_and_the_interrupt_key_is_a_no() {
    let rules = "commands: [{ ask: [echo], matches: [\"echo x\"] }, { ask: [printf], matches: [\"printf x\"] }]\n";
    for (key, runs) in [(&["-l", "yes"][..], true), (&["C-c"][..], false)] {
        let Some(stage) = walled_with(rules) else { return };
        let line = "echo one && echo two && printf three";
        let run = format!(
            "trap : INT; '{}' run --backend native --shell '{line}'; echo \"ended with $?\"; cat",
            binary().display()
        );
        let Some(window) = Window::open(&stage, &run) else { return };
        window.wait_for("ringfence asks: echo one?");
        window.wait_for(ASKED);
        window.press(&["-l", "always"]);
        window.press(&["Enter"]);
        let screen = window.wait_for("ringfence asks: printf three?");
        assert!(!screen.contains("asks: echo two?"), "{screen}");
        assert!(until(SOON, || window.screen().matches(ASKED).count() == 2), "{}", window.screen());
        window.press(key);
        if runs {
            window.press(&["Enter"]);
        }
        let screen = window.wait_for("ended with ");
        assert_eq!(screen.contains("\none\ntwo\nthree"), runs, "{screen}");
    }
}
