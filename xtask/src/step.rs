//! One step after the other, one line each: what it is called, how it ended, how long it took.
//!
//! The output of a step is kept back and shown only when the step fails or when everything was asked for.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// More output than this of one command is counted, not kept.
const KEPT_OUTPUT: usize = 64 << 20;
/// How long output may still trickle in after the command itself has ended.
const AFTER_EXIT: Duration = Duration::from_secs(2);

/// Why a chore did not come to a good end: one sentence, and the output that explains it where there is some.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) output: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), output: String::new() }
    }

    /// `attempt` completes the sentence "could not …".
    pub(crate) fn io(attempt: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("could not {attempt}: {error}"))
    }
}

/// How a step ended that did not fail.
#[derive(Debug)]
pub(crate) enum Outcome {
    Passed(String),
    /// Done as far as this machine can. What is missing is printed loudly, and repeated in the summary.
    PassedInPart {
        done: String,
        missing: String,
    },
    /// Not done, and why that is no failure. Printed loudly, and repeated in the summary.
    Skipped(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verbosity {
    #[default]
    Summary,
    Everything,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Paint {
    Good,
    Loud,
    Bad,
}

/// Where the lines go.
#[derive(Debug)]
pub(crate) struct Screen {
    verbosity: Verbosity,
    lively: bool,
    colour: bool,
    heading: String,
    started: Instant,
}

impl Screen {
    pub(crate) fn new(verbosity: Verbosity) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            verbosity,
            lively: terminal && !set("CI") && verbosity == Verbosity::Summary,
            colour: terminal && !set("NO_COLOR"),
            heading: String::new(),
            started: Instant::now(),
        }
    }

    pub(crate) fn begin(&mut self, heading: String) {
        self.heading = heading;
        self.started = Instant::now();
        print!("{}", self.heading);
        if self.verbosity == Verbosity::Everything {
            println!();
        }
        self.flush();
    }

    /// Shows that a long command is still at work.
    fn tick(&self, last_line: &str) {
        if self.lively && !self.heading.is_empty() {
            let seconds = self.started.elapsed().as_secs();
            let shown: String = last_line.trim().chars().filter(|c| !c.is_control()).take(46).collect();
            print!("\r{} … {seconds} s  {shown}\x1b[K", self.heading);
            self.flush();
        }
    }

    fn echo(&self, bytes: &[u8]) {
        if self.verbosity == Verbosity::Everything {
            print!("{}", String::from_utf8_lossy(bytes));
            self.flush();
        }
    }

    /// Completes the line that `begin` opened.
    pub(crate) fn end(&mut self, paint: Paint, word: &str, note: &str) {
        if self.lively {
            print!("\r\x1b[K{}", self.heading);
        } else if self.verbosity == Verbosity::Everything {
            print!("{}", self.heading);
        }
        let seconds = self.started.elapsed().as_secs_f64();
        println!(" {} {seconds:>7.1} s  {note}", self.painted(paint, &format!("{word:<7}")));
        self.flush();
        self.heading.clear();
    }

    /// The output of a failed step; with everything shown already, not once more.
    pub(crate) fn explain(&self, output: &str) {
        if self.verbosity == Verbosity::Summary && !output.trim().is_empty() {
            println!("{}\n", output.trim_end());
        }
    }

    pub(crate) fn painted(&self, paint: Paint, text: &str) -> String {
        let code = match paint {
            Paint::Good => 32,
            Paint::Loud => 33,
            Paint::Bad => 31,
        };
        if self.colour { format!("\x1b[1;{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn flush(&self) {
        // A reader that went away must not stop the clean-up that follows.
        drop(io::stdout().flush());
    }
}

/// What a command wrote, stdout and stderr in the order they came, and how it ended.
#[derive(Debug)]
pub(crate) struct Captured {
    shown: String,
    ended: Result<(), String>,
    pub(crate) text: String,
}

impl Captured {
    pub(crate) fn succeeded(&self) -> bool {
        self.ended.is_ok()
    }

    /// The output of a command that had to succeed.
    pub(crate) fn required(self) -> Result<String, Failure> {
        match self.ended {
            Ok(()) => Ok(self.text),
            Err(how) => Err(Failure { what: format!("`{}` ended with {how}", self.shown), output: self.text }),
        }
    }
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Runs a command without stdin and keeps what it says.
pub(crate) fn capture(screen: &Screen, mut command: Command) -> Result<Captured, Failure> {
    let shown = shown(&command);
    let attempt = format!("run `{shown}`");
    let cannot = |error: io::Error| Failure::io(&attempt, &error);
    let (mut reader, writer) = io::pipe().map_err(cannot)?;
    let also = writer.try_clone().map_err(cannot)?;
    let mut child = command.stdin(Stdio::null()).stdout(writer).stderr(also).spawn().map_err(cannot)?;
    // The command holds our ends of the pipe; as long as it lives, so does the pipe.
    drop(command);

    let (sender, chunks) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer.get(..count).unwrap_or_default().to_vec()).is_err() {
                break;
            }
        }
    });

    let mut kept: Vec<u8> = Vec::new();
    let mut dropped = 0;
    let mut last_line = String::new();
    let mut exited: Option<Instant> = None;
    loop {
        match chunks.recv_timeout(Duration::from_millis(200)) {
            Ok(chunk) => {
                screen.echo(&chunk);
                if let Some(line) = String::from_utf8_lossy(&chunk).lines().rfind(|line| !line.trim().is_empty()) {
                    line.clone_into(&mut last_line);
                }
                if kept.len() < KEPT_OUTPUT { kept.extend(chunk) } else { dropped += chunk.len() }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        screen.tick(&last_line);
        if exited.is_none() && child.try_wait().map_err(cannot)?.is_some() {
            exited = Some(Instant::now());
        }
        // A background process may hold the pipe for ever; the step that looks for leftovers will name it.
        if exited.is_some_and(|at| at.elapsed() > AFTER_EXIT) {
            break;
        }
    }
    let status = child.wait().map_err(cannot)?;
    let mut text = String::from_utf8_lossy(&kept).into_owned();
    if dropped > 0 {
        text.push_str(&format!("\n[{dropped} more bytes of output were not kept]\n"));
    }
    let ended = if status.success() { Ok(()) } else { Err(status.to_string()) };
    Ok(Captured { shown, ended, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn output_of_both_streams_is_kept_in_order_and_success_is_told_apart() {
        let screen = Screen::new(Verbosity::Summary);
        let captured = capture(&screen, sh("echo one; echo two >&2; echo three")).unwrap();
        assert!(captured.succeeded());
        assert_eq!(captured.required().unwrap(), "one\ntwo\nthree\n");

        let failure = capture(&screen, sh("echo why; exit 3")).unwrap().required().unwrap_err();
        assert!(failure.what.contains("exit status: 3"), "{}", failure.what);
        assert_eq!(failure.output, "why\n");
    }

    #[test]
    fn a_background_process_that_holds_the_pipe_does_not_hold_us() {
        let before = Instant::now();
        let captured = capture(&Screen::new(Verbosity::Summary), sh("sleep 20 & echo $!")).unwrap();
        assert!(before.elapsed() < Duration::from_secs(15));
        let pid = captured.required().unwrap();
        Command::new("kill").arg(pid.trim()).status().unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = capture(&Screen::new(Verbosity::Summary), Command::new("ringfence-no-such-program")).unwrap_err();
        assert!(failure.what.contains("ringfence-no-such-program"), "{}", failure.what);
    }
}
