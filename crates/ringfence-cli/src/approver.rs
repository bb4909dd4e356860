//! A person at the terminal that a run was started from.
//!
//! The question goes to the terminal itself and the answer comes from there, so that neither is mixed with what a program writes. While
//! it is open the program's output is held back: it could otherwise write a question of its own below ours. What it wrote before, a
//! question like ours included, must neither hide ours nor catch an answer: ours begins with a reset and on lines of its own, and only
//! a whole word allows anything.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use ringfence::{Approval, Approver, Ask, BoxFuture};
use rustix::fs::OFlags;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use crate::printer;
use crate::terminal::{RESET, plain_line};

/// A longer answer is none.
const MOST_ANSWER: usize = 256;
/// A person does not notice it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(30);
/// Above each question.
const MARK: &str = "======== a question of ringfence, not of the program ========";

/// Asks at `/dev/tty`, one question after the other.
#[derive(Debug, Default)]
pub(crate) struct AtTerminal {
    turn: Mutex<()>,
}

impl Approver for AtTerminal {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            let _turn = self.turn.lock().await;
            let _held = printer::HELD_BACK.lock().await;
            match answer_to(ask).await {
                Ok(Said::Yes) => Approval::Granted { by: person() },
                Ok(Said::Always) => Approval::GrantedAlways { by: person() },
                Ok(Said::No) => Approval::Denied { reason: "the person at the terminal did not say yes".to_owned() },
                Err(error) => Approval::Denied { reason: format!("nobody could be asked at the terminal: {error}") },
            }
        })
    }
}

/// Somebody who was asked before the run, and said yes to some rules. Hosts are asked about while a program runs, so nobody can have said
/// yes to one.
#[derive(Debug)]
pub(crate) struct Beforehand {
    rules: Vec<String>,
}

impl Beforehand {
    pub(crate) fn to(rules: Vec<String>) -> Self {
        Self { rules }
    }
}

impl Approver for Beforehand {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        let is_about_a_host = ask.rule.split('.').next() == Some("net");
        let approval = match self.rules.contains(&ask.rule) && !is_about_a_host {
            true => Approval::Granted { by: format!("uid {} by --approve", rustix::process::getuid().as_raw()) },
            false => Approval::Absent { reason: "nobody is there to be asked".to_owned() },
        };
        Box::pin(std::future::ready(approval))
    }
}

/// Who answers here, for the ledger.
pub(crate) fn person() -> String {
    format!("uid {} at the terminal", rustix::process::getuid().as_raw())
}

/// What was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Yes,
    /// Yes, and the same rule need not ask again.
    Always,
    No,
}

/// The answer. Everything that is no whole word of consent is a no.
async fn answer_to(ask: &Ask) -> io::Result<Said> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty")?;
    if tcgetpgrp(&terminal)? != rustix::process::getpgrp() {
        return Err(io::Error::other("this process is not in its foreground"));
    }
    // What was typed before the question is no answer to it.
    tcflush(&terminal, QueueSelector::IFlush)?;
    write_whole(&terminal, question(ask).as_bytes()).await?;
    let mut end = NewLine(Some(terminal.try_clone()?));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let typed = tokio::select! {
        typed = read_line(terminal) => typed?,
        _ = interrupt.recv() => return Ok(Said::No),
    };
    // Whoever typed the line has ended it.
    end.0 = None;
    Ok(said(&typed, ask))
}

/// The question as it is shown: in plain colours, whatever a program left behind, and not on a line that one began.
fn question(ask: &Ask) -> String {
    format!(
        "{RESET}\r\n\n{MARK}\nringfence asks: {}?\n  {} ({})\n  type {}; everything else is a no: ",
        line(&ask.subject),
        line(&ask.reason),
        line(&ask.rule),
        if ask.may_stand() { "yes to allow it, or always for this rule in this session" } else { "yes to allow it" }
    )
}

/// The whole word: a letter may have been meant for something that the program asked.
fn said(typed: &str, ask: &Ask) -> Said {
    let typed = typed.trim();
    if typed.eq_ignore_ascii_case("yes") {
        Said::Yes
    } else if typed.eq_ignore_ascii_case("always") && ask.may_stand() {
        Said::Always
    } else {
        Said::No
    }
}

/// Denies all that would need asking, because what a program writes would not be held back while a question stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NotHeldBack;

impl Approver for NotHeldBack {
    fn decide<'a>(&'a self, _ask: &'a Ask) -> BoxFuture<'a, Approval> {
        let reason = "nobody is asked while standard output is neither a terminal nor a file: the program's output could stand \
                      below the question; write it to a file, or use --json or --events";
        Box::pin(async move { Approval::Absent { reason: reason.to_owned() } })
    }
}

/// Ends the line of a question that nobody answered.
struct NewLine(Option<File>);

impl Drop for NewLine {
    fn drop(&mut self) {
        if let Some(terminal) = &mut self.0 {
            terminal.write_all(b"\n").ok();
        }
    }
}

/// Writes all of it, however slowly the terminal takes what was written before. It does not block, as `write_all` would have it: that gives up
/// when the terminal is full.
async fn write_whole(mut terminal: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match terminal.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(BETWEEN_LOOKS).await,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is typed, up to the end of the line. Looked for now and then: no other thread may be made before the wall stands.
async fn read_line(mut terminal: File) -> io::Result<String> {
    let mut typed = Vec::new();
    while typed.len() < MOST_ANSWER && !typed.ends_with(b"\n") {
        let mut bytes = [0; MOST_ANSWER];
        match terminal.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => typed.extend_from_slice(bytes.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(BETWEEN_LOOKS).await,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&typed).into_owned())
}

fn line(text: &str) -> String {
    plain_line(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_begins_with_a_reset_on_a_line_of_its_own_and_nothing_in_it_acts() {
        let ask = Ask {
            subject: "reach \x1b[8mevil.example:443".to_owned(),
            rule: "net.unknown".to_owned(),
            reason: "a\nb".to_owned(),
        };
        let shown = question(&ask);
        assert!(shown.starts_with("\x1b[0m\r\n"), "{shown:?}");
        assert_eq!(shown.matches('\x1b').count(), 1, "{shown:?}");
        assert!(
            shown.contains("ringfence asks: reach \\x1b[8mevil.example:443?\n  a\\nb (net.unknown)\n"),
            "{shown:?}"
        );
    }

    #[test]
    fn only_the_whole_word_is_a_yes() {
        let about = |rule: &str| Ask { subject: "x".to_owned(), rule: rule.to_owned(), reason: "y".to_owned() };
        let ask = about("delete.workspace");
        for yes in ["yes\n", " YES ", "Yes"] {
            assert_eq!(said(yes, &ask), Said::Yes, "{yes:?}");
        }
        assert_eq!(said("always\n", &ask), Said::Always);
        assert_eq!(said("always\n", &about("net.unknown")), Said::No, "hosts are asked about one by one");
        assert_eq!(said("always\n", &about("execute.unknown")), Said::No, "the next one may be anything");
        for no in ["", "\n", "y\n", "ye", "yess", "y e s", "yes yes", "no", "alway", "always yes", "yes\u{0}"] {
            assert_eq!(said(no, &ask), Said::No, "{no:?}");
        }
    }
}
