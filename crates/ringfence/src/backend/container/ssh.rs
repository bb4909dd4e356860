//! The pipes of an `ssh` that leads to an engine far away.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::address::EngineKind;
use super::failure::clean;

/// The most that is kept of its complaints.
const MOST_COMPLAINTS: usize = 4096;

/// Where it leads. All of these are plain words: the shell over there has nothing to interpret.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<'a> {
    pub(super) kind: EngineKind,
    pub(super) user: Option<&'a str>,
    pub(super) host: &'a str,
    pub(super) port: Option<u16>,
    /// The engine's socket over there, if it is not the usual one.
    pub(super) socket: Option<&'a str>,
}

/// A running `ssh`, which ends with this value. If it never says a word, reading fails with what it complains of.
#[derive(Debug)]
pub(super) struct Ssh {
    _child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// Until its end.
    errors: Option<ChildStderr>,
    complaints: Vec<u8>,
    has_answered: bool,
}

impl Ssh {
    pub(super) fn start(to: Destination<'_>) -> io::Result<Self> {
        let mut command = Command::new("ssh");
        // No question can be answered here, and an unknown host is not for us to trust.
        command.args(["-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"]);
        if let Some(user) = to.user {
            command.args(["-l", user]);
        }
        if let Some(port) = to.port {
            command.args(["-p", &port.to_string()]);
        }
        let program = to.kind.name();
        command.args(["--", to.host, program]);
        if let Some(socket) = to.socket {
            let option = match to.kind {
                EngineKind::Podman => "--url",
                EngineKind::Docker => "--host",
            };
            command.args([option, &format!("unix://{socket}")]);
        }
        command.args(["system", "dial-stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        let errors = child.stderr.take();
        Ok(Self { _child: child, input, output, errors, complaints: Vec::new(), has_answered: false })
    }

    /// Reads what there is of its complaints, so that it never waits for us; ready once there can be no more.
    fn poll_complaints(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(errors) = &mut self.errors {
            let mut bytes = [0u8; 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(errors).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let room = MOST_COMPLAINTS.saturating_sub(self.complaints.len());
                    self.complaints.extend(buffer.filled().iter().take(room));
                }
                Poll::Ready(_) => self.errors = None,
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Ssh {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let complained = self.poll_complaints(cx);
        let before = buffer.filled().len();
        match Pin::new(&mut self.output).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                self.has_answered = true;
                Poll::Ready(Ok(()))
            }
            // The end before the first word: the reason is on the other pipe.
            Poll::Ready(Ok(())) if !self.has_answered => {
                if complained.is_pending() {
                    return Poll::Pending;
                }
                let words = clean(&String::from_utf8_lossy(&self.complaints));
                let words = if words.is_empty() { "nothing".to_owned() } else { words };
                Poll::Ready(Err(io::Error::other(format!("`ssh` ended and said: {words}"))))
            }
            polled => polled,
        }
    }
}

impl AsyncWrite for Ssh {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(cx)
    }
}
