//! Questions about what runs in a session, asked at the terminal of the command that runs it.
//!
//! The session's keeper has no terminal; the command has. They speak about questions over a socket of their own, so that no output that
//! waits to be shown stands in the way of a question's end. What the person typed comes back as one letter with the question's
//! number: nothing that a program wrote is ever on this socket, and an answer to an earlier question is none.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};

use ringfence::{Approval, Approver, Ask, BoxFuture};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::wire::{AskedAt, HEADER, Kind, MOST_WORD, announced, message};
use crate::approver::{AtTerminal, person};

/// The longest question, with what is around it.
const MOST_QUESTION: usize = 16 * 1024;

/// A question on its way.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    number: u64,
    subject: String,
    rule: String,
    reason: String,
}

/// What was answered, as one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Reply {
    Yes = b'y',
    Always = b'a',
    No = b'n',
    /// The question could not be shown.
    Absent = b'x',
}

impl Reply {
    /// Whatever is no known letter is a no.
    fn from_byte(byte: u8) -> Self {
        match byte {
            b'y' => Self::Yes,
            b'a' => Self::Always,
            b'x' => Self::Absent,
            _ => Self::No,
        }
    }
}

/// One end of the socket, and what was read from it and is no whole message yet.
#[derive(Debug)]
struct Talk {
    stream: UnixStream,
    read: Vec<u8>,
    /// Longer messages are not read.
    most: usize,
}

impl Talk {
    fn new(stream: Socket, most: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: UnixStream::from_std(stream)?, read: Vec::new(), most })
    }

    /// Says something whole, or breaks off: half a message would make the next one unreadable.
    async fn say(&self, bytes: &[u8]) -> io::Result<()> {
        loop {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(length) if length == bytes.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Throws away what was said until now.
    fn forget(&mut self) -> io::Result<()> {
        self.read.clear();
        let mut bytes = [0; 1024];
        loop {
            match rustix::net::recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next message. Nothing is lost when this is given up.
    async fn next(&mut self) -> io::Result<(Kind, Vec<u8>)> {
        loop {
            if let Some(header) = self.read.first_chunk::<HEADER>() {
                let (kind, length) = announced(*header, self.most)?;
                if let Some(body) = self.read.get(HEADER..HEADER + length) {
                    let body = body.to_vec();
                    self.read.drain(..HEADER + length);
                    return Ok((kind, body));
                }
            }
            self.stream.readable().await?;
            let mut bytes = [0; 1024];
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.read.extend_from_slice(bytes.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Both ends of a socket for questions: the keeper's and the command's.
pub(super) fn pair() -> io::Result<(OwnedFd, Socket)> {
    let (keepers, ours) = Socket::pair()?;
    Ok((keepers.into(), ours))
}

/// The person at the terminal of a command, as the keeper asks.
#[derive(Debug)]
pub(super) struct AtCommand(Mutex<Asking>);

#[derive(Debug)]
struct Asking {
    talk: Talk,
    number: u64,
}

impl AtCommand {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self(Mutex::new(Asking { talk: Talk::new(socket.into(), MOST_WORD)?, number: 0 })))
    }
}

impl Approver for AtCommand {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            // One after the other: nobody can read two questions at once.
            let mut asking = self.0.lock().await;
            if asking.show(ask).await.is_err() {
                return Approval::Absent { reason: "nobody could be asked at the terminal of the command".to_owned() };
            }
            match asking.answer().await {
                Ok(Reply::Yes) => Approval::Granted { by: person() },
                Ok(Reply::Always) => Approval::GrantedAlways { by: person() },
                Ok(Reply::No) => Approval::Denied { reason: "the person at the terminal did not say yes".to_owned() },
                Ok(Reply::Absent) => {
                    Approval::Absent { reason: "nobody could be asked at the terminal of the command".to_owned() }
                }
                Err(_) => Approval::Denied { reason: "whoever was asked at the terminal has gone".to_owned() },
            }
        })
    }
}

impl Asking {
    async fn show(&mut self, ask: &Ask) -> io::Result<()> {
        self.number += 1;
        // What was said before the question is no answer to it.
        self.talk.forget()?;
        let Ask { subject, rule, reason } = ask.clone();
        let body = postcard::to_stdvec(&Question { number: self.number, subject, rule, reason });
        let body = body.map_err(io::Error::other)?;
        if body.len() > MOST_QUESTION {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.talk.say(&message(Kind::Question, &body)?).await
    }

    async fn answer(&mut self) -> io::Result<Reply> {
        let Talk { stream, .. } = &self.talk;
        let _standing = Standing { socket: rustix::io::fcntl_dupfd_cloexec(stream, 0)?.into(), number: self.number };
        loop {
            let (kind, body) = self.talk.next().await?;
            match (kind, body.split_last_chunk::<1>()) {
                // An answer to a question that was withdrawn meanwhile is for nobody.
                (Kind::Reply, Some((number, [letter]))) => {
                    if number == self.number.to_le_bytes() {
                        return Ok(Reply::from_byte(*letter));
                    }
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// A question that somebody sees. Whoever does not wait for its answer any more takes it back.
struct Standing {
    socket: Socket,
    number: u64,
}

impl Drop for Standing {
    fn drop(&mut self) {
        // After an answer it means nothing to the command.
        let told = message(Kind::Withdrawn, &self.number.to_le_bytes())
            .and_then(|bytes| io::Write::write(&mut &self.socket, &bytes).map(|written| written == bytes.len()));
        if !matches!(told, Ok(true)) {
            // Then the end of the socket says it. That it has ended already is as good.
            self.socket.shutdown(std::net::Shutdown::Both).ok();
        }
    }
}

/// Those at whose terminals a session's questions can be asked now.
#[derive(Debug, Default)]
pub(super) struct People(Lock<Vec<Arc<dyn Approver>>>);

impl People {
    fn here(&self) -> MutexGuard<'_, Vec<Arc<dyn Approver>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody who can be asked until what is returned is dropped. Who can only say why not comes before all who can answer.
    pub(super) fn sit(self: &Arc<Self>, one: &Arc<dyn Approver>, asked: AskedAt) -> Option<Sitting> {
        let mut here = self.here();
        match asked {
            AskedAt::Nobody => return None,
            AskedAt::NotHeldBack => here.insert(0, Arc::clone(one)),
            AskedAt::Terminal => here.push(Arc::clone(one)),
        }
        drop(here);
        Some(Sitting { people: Arc::clone(self), one: Arc::clone(one) })
    }
}

/// The one who came last is asked about what belongs to the whole session: which run a connection comes from, nobody can tell.
impl Approver for People {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        let last = self.here().last().cloned();
        Box::pin(async move {
            match last {
                Some(one) => one.decide(ask).await,
                None => Approval::Absent { reason: "nobody is there to be asked".to_owned() },
            }
        })
    }
}

/// Somebody's stay among [`People`].
#[derive(Debug)]
pub(super) struct Sitting {
    people: Arc<People>,
    one: Arc<dyn Approver>,
}

impl Drop for Sitting {
    fn drop(&mut self) {
        let mut here = self.people.here();
        if let Some(at) = here.iter().position(|other| Arc::ptr_eq(other, &self.one)) {
            here.remove(at);
        }
    }
}

/// Asks at our terminal what the keeper asks, until it is gone.
pub(super) async fn ask_here(socket: Socket) -> io::Result<()> {
    ask_of(socket, &AtTerminal::default()).await
}

async fn ask_of(socket: Socket, somebody: &dyn Approver) -> io::Result<()> {
    let mut talk = Talk::new(socket, MOST_QUESTION)?;
    let mut came = talk.next().await?;
    loop {
        let (Kind::Question, body) = came else {
            // What is withdrawn was answered already.
            came = talk.next().await?;
            continue;
        };
        let meaningless = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let Question { number, subject, rule, reason } = postcard::from_bytes(&body).map_err(meaningless)?;
        let ask = Ask { subject, rule, reason };
        came = tokio::select! {
            approval = somebody.decide(&ask) => {
                let reply = match approval {
                    Approval::Granted { .. } => Reply::Yes,
                    Approval::GrantedAlways { .. } => Reply::Always,
                    Approval::Denied { .. } => Reply::No,
                    Approval::Absent { .. } => Reply::Absent,
                };
                let body = [&number.to_le_bytes()[..], &[reply as u8]].concat();
                talk.say(&message(Kind::Reply, &body)?).await?;
                talk.next().await?
            }
            // The question goes with whoever waits for its answer.
            came = talk.next() => came?,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// Answers as it is told to, and tells what it was asked and when it was let go.
    #[derive(Debug)]
    struct Person {
        told: mpsc::UnboundedSender<String>,
        answers: Mutex<mpsc::UnboundedReceiver<Approval>>,
    }

    struct LetGo(mpsc::UnboundedSender<String>);

    impl Drop for LetGo {
        fn drop(&mut self) {
            self.0.send("let go".to_owned()).ok();
        }
    }

    impl Approver for Person {
        fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
            Box::pin(async move {
                self.told.send(ask.subject.clone()).unwrap();
                let _let_go = LetGo(self.told.clone());
                self.answers.lock().await.recv().await.unwrap()
            })
        }
    }

    struct Room {
        keeper: Arc<AtCommand>,
        told: mpsc::UnboundedReceiver<String>,
        says: mpsc::UnboundedSender<Approval>,
        command: tokio::task::JoinHandle<io::Result<()>>,
    }

    fn room() -> Room {
        let (keepers, ours) = pair().unwrap();
        let ((told, hears), (says, answers)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let person = Person { told, answers: Mutex::new(answers) };
        let command = tokio::spawn(async move { ask_of(ours, &person).await });
        Room { keeper: Arc::new(AtCommand::new(keepers).unwrap()), told: hears, says, command }
    }

    fn about(subject: &str) -> Ask {
        Ask { subject: subject.to_owned(), rule: "r".to_owned(), reason: "because".to_owned() }
    }

    fn yes() -> Approval {
        Approval::Granted { by: "anybody".to_owned() }
    }

    fn is_no(approval: &Approval) -> bool {
        matches!(approval, Approval::Denied { .. } | Approval::Absent { .. })
    }

    #[tokio::test]
    async fn what_is_answered_there_is_the_answer_here_and_the_keeper_says_by_whom() {
        let mut room = room();
        for (said, granted) in [(yes(), true), (Approval::Denied { reason: String::new() }, false)] {
            room.says.send(said).unwrap();
            let approval = room.keeper.decide(&about("x")).await;
            assert_eq!(approval == Approval::Granted { by: person() }, granted, "{approval:?}");
            assert_eq!(room.told.recv().await.unwrap(), "x");
            assert_eq!(room.told.recv().await.unwrap(), "let go");
        }
        room.says.send(Approval::GrantedAlways { by: String::new() }).unwrap();
        assert_eq!(room.keeper.decide(&about("x")).await, Approval::GrantedAlways { by: person() });
    }

    #[tokio::test]
    async fn a_question_that_nobody_waits_for_is_taken_back_and_its_answer_is_for_no_other() {
        let mut room = room();
        let keeper = Arc::clone(&room.keeper);
        let waiting = tokio::spawn(async move { keeper.decide(&about("first")).await });
        assert_eq!(room.told.recv().await.unwrap(), "first");
        waiting.abort();
        assert_eq!(room.told.recv().await.unwrap(), "let go");
        room.says.send(Approval::Denied { reason: String::new() }).unwrap();
        assert!(is_no(&room.keeper.decide(&about("second")).await));
        assert_eq!(room.told.recv().await.unwrap(), "second");
    }

    #[tokio::test]
    async fn a_late_answer_and_a_forged_one_grant_nothing() {
        let (keepers, ours) = pair().unwrap();
        let keeper = AtCommand::new(keepers).unwrap();
        let mut ours = Talk::new(ours, MOST_QUESTION).unwrap();
        let reply =
            |number: u64, letter: u8| message(Kind::Reply, &[&number.to_le_bytes()[..], &[letter]].concat()).unwrap();
        // Said before there was any question, and after the first one was given up.
        ours.say(&reply(1, b'y')).await.unwrap();
        let first = tokio::time::timeout(Duration::from_millis(50), keeper.decide(&about("first"))).await;
        assert!(first.is_err(), "{first:?}");
        ours.say(&reply(1, b'y')).await.unwrap();
        let second = async { keeper.decide(&about("second")).await };
        let answering = async {
            loop {
                let (kind, body) = ours.next().await.unwrap();
                if kind != Kind::Question {
                    continue;
                }
                let question: Question = postcard::from_bytes(&body).unwrap();
                if question.subject == "second" {
                    ours.say(&reply(question.number - 1, b'y')).await.unwrap();
                    ours.say(&reply(question.number + 1, b'y')).await.unwrap();
                    ours.say(&reply(question.number, b'Y')).await.unwrap();
                    return question.subject;
                }
            }
        };
        let (approval, subject) = tokio::join!(second, answering);
        assert!(is_no(&approval) && subject == "second", "{approval:?} {subject}");
        for nonsense in
            [message(Kind::Stdout, b"y").unwrap(), message(Kind::Reply, b"").unwrap(), vec![b'R', 255, 255, 255, 255]]
        {
            let (keepers, ours) = pair().unwrap();
            let keeper = AtCommand::new(keepers).unwrap();
            let mut ours = Talk::new(ours, MOST_QUESTION).unwrap();
            let answering = async {
                ours.next().await.unwrap();
                ours.say(&nonsense).await.unwrap();
            };
            let (approval, ()) = tokio::join!(async { keeper.decide(&about("x")).await }, answering);
            assert!(is_no(&approval), "{nonsense:?}");
        }
    }

    #[tokio::test]
    async fn whoever_goes_away_says_no_and_whoever_is_not_there_is_asked_when_he_comes() {
        let mut room = room();
        let keeper = Arc::clone(&room.keeper);
        let waiting = tokio::spawn(async move { keeper.decide(&about("x")).await });
        assert_eq!(room.told.recv().await.unwrap(), "x");
        room.command.abort();
        assert!(matches!(waiting.await.unwrap(), Approval::Denied { .. }));
        let people = Arc::new(People::default());
        assert!(matches!(people.decide(&about("x")).await, Approval::Absent { .. }));
        let other = self::room();
        let one = Arc::clone(&other.keeper) as Arc<dyn Approver>;
        let here = people.sit(&one, AskedAt::Terminal);
        let silent = Arc::new(crate::approver::NotHeldBack) as Arc<dyn Approver>;
        let _silent = people.sit(&silent, AskedAt::NotHeldBack);
        assert!(people.sit(&silent, AskedAt::Nobody).is_none());
        other.says.send(yes()).unwrap();
        assert_eq!(people.decide(&about("x")).await, Approval::Granted { by: person() });
        drop(here);
        assert!(matches!(people.decide(&about("x")).await, Approval::Absent { .. }));
    }

    #[tokio::test]
    async fn a_question_that_is_too_long_is_not_asked() {
        let mut room = room();
        room.says.send(yes()).unwrap();
        assert!(is_no(&room.keeper.decide(&about(&"x".repeat(MOST_QUESTION))).await));
        assert!(room.told.try_recv().is_err());
        assert_eq!(
            room.keeper.decide(&about("x")).await,
            Approval::Granted { by: person() },
            "the probe proves nothing"
        );
    }
}
