//! Connections that programs of a far guest made to its door: each becomes a stream here, which our proxy serves like any other.
//!
//! What the guest says of them is as hostile as all else. There are only so many, and of each direction of each one only a window is held.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddrV4;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ringfence_egress::{RelayedQuestion, Stream};
use ringfence_guest::far::{FarOrder, PIECE};
use ringfence_guest::relay::{
    CONNECTION_WINDOW, ConnectionNumber, FarDoor, LONGEST_QUESTION, MOST_QUESTIONS, OfConnection, QuestionNumber,
    TOLD_FROM, To, ToConnection,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc, oneshot};

use super::OutOfTurn;
use super::wire::Voice;
use crate::backend::door::Arriving;

/// The door of a guest, as its host sees it.
#[derive(Debug)]
pub(super) struct Relay {
    /// The guest said that it listens.
    pub(super) is_open: bool,
    /// What it was told to open.
    door: FarDoor,
    most: usize,
    /// The number of the last one.
    last: ConnectionNumber,
    /// Those that the guest has not closed.
    connections: BTreeMap<ConnectionNumber, Arc<Connection>>,
    /// The number of the last question.
    last_question: QuestionNumber,
    /// Those whose answers the guest waits for, in their turn.
    asked: mpsc::Sender<(QuestionNumber, oneshot::Receiver<Vec<u8>>)>,
    serving: Serving,
}

/// Who serves what comes.
#[derive(Debug)]
struct Serving {
    proxy: mpsc::Sender<Stream>,
    questions: mpsc::Sender<RelayedQuestion>,
    long_questions: mpsc::Sender<Stream>,
    connections: mpsc::Sender<(Stream, SocketAddrV4)>,
}

impl Serving {
    /// Hands a connection over. Where nobody serves, or more wait than may be there at once, it is dropped, and so closed inside.
    fn hand_over(&self, stream: Stream, to: To) {
        match to {
            To::Proxy => self.proxy.try_send(stream).ok(),
            To::Names => self.long_questions.try_send(stream).ok(),
            To::Place(at) => self.connections.try_send((stream, at)).ok(),
        };
    }
}

impl Relay {
    /// What comes through `door`, and where it arrives. To be called in a runtime; answers go out by `voice`.
    pub(super) fn new(door: FarDoor, voice: Voice) -> (Self, Arriving) {
        let most = usize::try_from(door.connections).unwrap_or(1).max(1);
        let (proxy, to_proxy) = mpsc::channel(most);
        let (long_questions, to_long_questions) = mpsc::channel(most);
        let (connections, to_connections) = mpsc::channel(most);
        let (questions, to_questions) = mpsc::channel(MOST_QUESTIONS);
        let (asked, waiting) = mpsc::channel(MOST_QUESTIONS);
        tokio::spawn(answer(waiting, voice));
        let relay = Self {
            is_open: false,
            door,
            most,
            last: 0,
            connections: BTreeMap::new(),
            last_question: 0,
            asked,
            serving: Serving { proxy, questions, long_questions, connections },
        };
        let arriving = Arriving {
            proxy: to_proxy,
            questions: to_questions,
            long_questions: to_long_questions,
            connections: to_connections,
        };
        (relay, arriving)
    }

    /// Judges a question that a guest passed on, and passes it on to who answers.
    pub(super) fn ask(&mut self, number: QuestionNumber, message: Vec<u8>) -> Result<(), OutOfTurn> {
        // Nothing at all is no message, and would be a frame that costs its sender nothing.
        if number != self.last_question.saturating_add(1) || message.is_empty() || message.len() > LONGEST_QUESTION {
            return Err(OutOfTurn);
        }
        self.last_question = number;
        let (answer, answered) = oneshot::channel();
        // As many as may wait are in it, and more than that is more than may be asked at once.
        self.asked.try_send((number, answered)).map_err(|_| OutOfTurn)?;
        // Where nobody serves it is dropped, and so gets no answer.
        self.serving.questions.try_send(RelayedQuestion { message, answer }).ok();
        Ok(())
    }

    /// Judges what a guest said of a connection.
    pub(super) fn take(
        &mut self,
        number: ConnectionNumber,
        what: OfConnection,
        voice: &Voice,
    ) -> Result<(), OutOfTurn> {
        if let OfConnection::Opened(to) = what {
            return self.opened(number, to, voice);
        }
        let connection = self.connections.get(&number).ok_or(OutOfTurn)?;
        match what {
            OfConnection::Opened(_) => return Err(OutOfTurn),
            OfConnection::Bytes(bytes) => connection.push(&bytes)?,
            OfConnection::End => connection.end()?,
            OfConnection::Taken(bytes) => connection.taken(bytes)?,
            OfConnection::Closed => {
                connection.cut();
                self.connections.remove(&number);
            }
        }
        Ok(())
    }

    fn opened(&mut self, number: ConnectionNumber, to: To, voice: &Voice) -> Result<(), OutOfTurn> {
        let is_next = number == self.last.saturating_add(1) && self.connections.len() < self.most;
        // Where nobody was told to listen, nobody can have connected to.
        if !is_next || !self.door.leads(to) {
            return Err(OutOfTurn);
        }
        self.last = number;
        let connection = Arc::new(Connection::default());
        self.connections.insert(number, Arc::clone(&connection));
        tokio::spawn(Arc::clone(&connection).speak(number, voice.clone()));
        self.serving.hand_over(Stream::Relayed(Box::new(End(connection))), to);
        Ok(())
    }

    /// Nothing more can be heard of any.
    pub(super) fn cut(&mut self) {
        self.connections.values().for_each(|connection| connection.cut());
        self.connections.clear();
    }
}

/// Says to the guest what its questions come to, in their turn, until nothing more is to be heard of it.
async fn answer(mut waiting: mpsc::Receiver<(QuestionNumber, oneshot::Receiver<Vec<u8>>)>, voice: Voice) {
    // Taken from those that wait before the guest can know of it: however it hurries, there are never too many.
    while let Some((question, answered)) = waiting.recv().await {
        let message = answered.await.unwrap_or_default();
        voice.say(&FarOrder::Answer { question, message }).await;
    }
}

/// A connection, shared by who hears the guest, who speaks to it, and the stream.
#[derive(Debug, Default)]
struct Connection {
    state: Mutex<State>,
    /// There is something to be said to the guest.
    due: Notify,
    /// Nothing can be said to it any more.
    over: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What the program wrote and nobody has read.
    up: Vec<u8>,
    /// How much of the first of it was read.
    read: usize,
    /// What came and was not told to be taken.
    untaken: usize,
    /// Of that, what was read.
    untold: usize,
    up_ended: bool,
    reader: Option<Waker>,
    /// For the program, to be sent.
    down: Vec<u8>,
    /// Sent, and not taken by the program.
    on_its_way: usize,
    down_ended: bool,
    end_is_told: bool,
    writer: Option<Waker>,
    /// Nobody holds the stream any more.
    dropped: bool,
    /// The guest has closed it, or is gone.
    closed: bool,
}

impl State {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    fn room(&self) -> usize {
        CONNECTION_WINDOW.saturating_sub(self.on_its_way).saturating_sub(self.down.len())
    }
}

/// What is said to the guest next.
enum Due {
    Say(ToConnection),
    /// What is said last.
    Close,
    Wait,
    Nothing,
}

impl Connection {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what came, when so much may.
    fn push(&self, bytes: &[u8]) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        let untaken = state.untaken + bytes.len();
        // Nothing at all would be a frame that costs its sender nothing.
        if state.up_ended || bytes.is_empty() || bytes.len() > PIECE || untaken > CONNECTION_WINDOW {
            return Err(OutOfTurn);
        }
        state.untaken = untaken;
        if !state.dropped {
            state.up.extend_from_slice(bytes);
        }
        state.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The program writes no more.
    fn end(&self) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        if std::mem::replace(&mut state.up_ended, true) {
            return Err(OutOfTurn);
        }
        state.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The program took so much: never more than was sent.
    fn taken(&self, bytes: u32) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        let bytes = usize::try_from(bytes).map_err(|_| OutOfTurn)?;
        state.on_its_way = state.on_its_way.checked_sub(bytes).filter(|_| bytes > 0).ok_or(OutOfTurn)?;
        state.writer.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Nothing more comes, and nothing can be sent.
    fn cut(&self) {
        let mut state = self.state();
        state.closed = true;
        state.down = Vec::new();
        state.wake();
        drop(state);
        self.due.notify_one();
        self.over.notify_one();
    }

    fn due(&self) -> Due {
        let mut state = self.state();
        if state.closed {
            return Due::Nothing;
        }
        if state.untold >= TOLD_FROM
            && let Ok(bytes) = u32::try_from(state.untold)
        {
            state.untaken = state.untaken.saturating_sub(state.untold);
            state.untold = 0;
            return Due::Say(ToConnection::Taken(bytes));
        }
        if !state.down.is_empty() {
            let bytes = if state.down.len() <= PIECE {
                std::mem::take(&mut state.down)
            } else {
                state.down.drain(..PIECE).collect()
            };
            state.on_its_way += bytes.len();
            return Due::Say(ToConnection::Bytes(bytes));
        }
        if state.dropped {
            return Due::Close;
        }
        if state.down_ended && !state.end_is_told {
            state.end_is_told = true;
            return Due::Say(ToConnection::End);
        }
        Due::Wait
    }

    /// Says to the guest what there is to say, until the connection is over at one of its ends.
    async fn speak(self: Arc<Self>, connection: ConnectionNumber, voice: Voice) {
        let speaking = async {
            loop {
                match self.due() {
                    Due::Say(what) => voice.say(&FarOrder::Connection { connection, what }).await,
                    Due::Close => {
                        return voice.say(&FarOrder::Connection { connection, what: ToConnection::Close }).await;
                    }
                    Due::Wait => self.due.notified().await,
                    Due::Nothing => return,
                }
            }
        };
        // A guest that has closed it and does not listen would otherwise leave one that waits for each connection that ever was.
        tokio::select! {
            () = speaking => {}
            () = self.over.notified() => {}
        }
    }
}

/// The stream of a connection. Dropping it closes the connection inside.
#[derive(Debug)]
struct End(Arc<Connection>);

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.dropped = true;
        state.up = Vec::new();
        drop(state);
        self.0.due.notify_one();
    }
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.state();
        let state = &mut *state;
        let unread = state.up.get(state.read..).unwrap_or_default();
        if unread.is_empty() {
            if state.up_ended {
                return Poll::Ready(Ok(()));
            }
            if state.closed {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let length = unread.len().min(into.remaining());
        into.put_slice(unread.get(..length).unwrap_or_default());
        state.read += length;
        state.untold += length;
        if state.read == state.up.len() {
            // An idle connection holds no buffer.
            (state.up, state.read) = (Vec::new(), 0);
        } else if state.read >= CONNECTION_WINDOW {
            // A reader that never catches up would otherwise have all held that it ever read.
            drop(state.up.drain(..state.read));
            state.read = 0;
        }
        if state.untold >= TOLD_FROM {
            self.0.due.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.state();
        if state.closed || state.down_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let length = state.room().min(bytes.len());
        if length == 0 && !bytes.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.down.extend_from_slice(bytes.get(..length).unwrap_or_default());
        self.0.due.notify_one();
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.state().down_ended = true;
        self.0.due.notify_one();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_was_read_is_not_held_though_the_reader_never_catches_up() {
        let connection = Arc::new(Connection::default());
        let mut end = End(Arc::clone(&connection));
        connection.push(&[7; PIECE]).unwrap();
        for _ in 0..1000 {
            connection.push(&[7; PIECE]).unwrap();
            let mut read = [0; PIECE];
            end.read_exact(&mut read).await.unwrap();
            assert_eq!(read, [7; PIECE]);
            while matches!(connection.due(), Due::Say(ToConnection::Taken(_))) {}
        }
        assert!(connection.state().up.capacity() <= 4 * CONNECTION_WINDOW, "{}", connection.state().up.capacity());
        drop(end);
        assert_eq!(connection.state().up.capacity(), 0, "the twin: nobody reads any more");
    }
}
