//! Questions for names, which programs send to a socket on the container's own loopback, and the answers of the host to them. Nothing is read
//! or decided here: a message is bytes.
//!
//! Only so many are on their way at once; further ones wait in the kernel's queue, and are lost when that is full, as on any network.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_linux::wall::{self, Failed, open_door};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::door::listening;
use crate::far::FarReport;
use crate::relay::{LONGEST_QUESTION, MOST_QUESTIONS, QuestionNumber};
use crate::streams::{OutOfTurn, TellFar};

/// Taken before others get their turn.
const TAKEN_AT_ONCE: usize = 16;

/// The socket, and who waits for an answer.
#[derive(Debug)]
pub(crate) struct Questions {
    socket: OwnedFd,
    /// The number of the last one.
    last: QuestionNumber,
    asking: BTreeMap<QuestionNumber, SocketAddrV4>,
}

impl Questions {
    pub(crate) fn open(at: SocketAddrV4) -> Result<Self, Failed> {
        let socket = open_door(&wall::Door::Datagram(at)).map_err(listening(at))?;
        Ok(Self { socket, last: 0, asking: BTreeMap::new() })
    }

    /// What to wait for; nothing while too many wait for answers.
    pub(crate) fn waits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        (self.asking.len() < MOST_QUESTIONS).then(|| (self.socket.as_fd(), PollFlags::IN))
    }

    /// Passes on what came.
    pub(crate) fn pass_on(&mut self, tell: TellFar<'_>) {
        // One that is longer is cut, and none.
        let mut bytes = [0; LONGEST_QUESTION + 1];
        for _ in 0..TAKEN_AT_ONCE {
            if self.asking.len() >= MOST_QUESTIONS {
                return;
            }
            let (length, from) = match rustix::net::recvfrom(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((length, _, from)) => (length, from),
                Err(Errno::INTR) => continue,
                // There is none, or what went wrong was one of them: the next wait tells.
                Err(_) => return,
            };
            let from = from.and_then(|from| SocketAddrV4::try_from(from).ok());
            if let (Some(message @ [_, ..]), Some(from)) =
                (bytes.get(..length).filter(|message| message.len() <= LONGEST_QUESTION), from)
            {
                self.last += 1;
                self.asking.insert(self.last, from);
                tell(FarReport::Question { question: self.last, message: message.to_vec() });
            }
        }
    }

    /// Sends the host's answer to who asked; where there is none, nothing.
    pub(crate) fn answer(&mut self, question: QuestionNumber, message: &[u8]) -> Result<(), OutOfTurn> {
        let to = self.asking.remove(&question).ok_or(OutOfTurn)?;
        if !message.is_empty() {
            // Whoever does not take answers asks again.
            rustix::net::sendto(&self.socket, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to).ok();
        }
        Ok(())
    }
}
