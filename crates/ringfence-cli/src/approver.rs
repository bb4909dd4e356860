//! A person at the terminal that a run was started from.
//!
//! The question goes to the terminal itself and the answer comes from there, so that neither is mixed with what a program writes. While
//! it is open the program's output is held back: it could otherwise write a question of its own below ours.

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
use crate::terminal::plain_line;

/// A longer answer is none.
const MOST_ANSWER: usize = 256;
/// A person does not notice it.
const BETWEEN_LOOKS: Duration = Duration::from_millis(30);

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
                Ok(true) => {
                    let by = format!("uid {} at the terminal", rustix::process::getuid().as_raw());
                    Approval::Granted { by }
                }
                Ok(false) => Approval::Denied { reason: "the person at the terminal did not say yes".to_owned() },
                Err(error) => Approval::Denied { reason: format!("nobody could be asked at the terminal: {error}") },
            }
        })
    }
}

/// Whether the answer is yes. Everything else is a no.
async fn answer_to(ask: &Ask) -> io::Result<bool> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let terminal = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty")?;
    if tcgetpgrp(&terminal)? != rustix::process::getpgrp() {
        return Err(io::Error::other("this process is not in its foreground"));
    }
    // What was typed before the question is no answer to it.
    tcflush(&terminal, QueueSelector::IFlush)?;
    let question = format!(
        "\nringfence asks: {}?\n  {} ({})\n  allow it? [yes/no] ",
        line(&ask.subject),
        line(&ask.reason),
        line(&ask.rule)
    );
    { &terminal }.write_all(question.as_bytes())?;
    let mut end = NewLine(Some(terminal.try_clone()?));
    let mut interrupt = signal(SignalKind::interrupt())?;
    let typed = tokio::select! {
        typed = read_line(terminal) => typed?,
        _ = interrupt.recv() => return Ok(false),
    };
    // Whoever typed the line has ended it.
    end.0 = None;
    let word = typed.trim().to_ascii_lowercase();
    Ok(word == "y" || word == "yes")
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
