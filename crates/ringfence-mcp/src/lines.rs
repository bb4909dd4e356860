//! One message a line, over streams that somebody else opened.
//!
//! A line that is too long, too deep or no message is answered with an error and costs nothing but its own reading. When the stream
//! ends, everybody who waits for the token that it was given knows at once.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::limits::{MOST_MESSAGE, MOST_NESTING};

/// Answers to lines that are no messages, while nobody reads them.
const MOST_ANSWERS: usize = 16;

/// Messages over two streams.
pub(crate) struct Lines<R, W> {
    from: BufReader<R>,
    line: Vec<u8>,
    /// The rest of a line that was too long is being read over.
    skipping: bool,
    to: Arc<Mutex<W>>,
    /// Room for answers to lines that are no messages.
    room: Arc<Semaphore>,
    /// The next of those, which waits for room. Nothing is read meanwhile: whoever does not read answers gets no more of them.
    owed: Option<ServerJsonRpcMessage>,
    closed: CancellationToken,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(crate) fn new(from: R, to: W, closed: CancellationToken) -> Self {
        Self {
            from: BufReader::with_capacity(64 * 1024, from),
            line: Vec::new(),
            skipping: false,
            to: Arc::new(Mutex::new(to)),
            room: Arc::new(Semaphore::new(MOST_ANSWERS)),
            owed: None,
            closed,
        }
    }

    /// The next whole line; nothing at the end. What was read is kept when this is given up in between.
    async fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.from.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let is_too_long = self.line.len() + taken > MOST_MESSAGE;
            if !self.skipping && !is_too_long {
                self.line.extend_from_slice(available.get(..taken).unwrap_or_default());
            }
            self.skipping |= is_too_long;
            self.from.consume(taken);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(if std::mem::take(&mut self.skipping) { Line::TooLong } else { Line::Whole(line) }));
            }
            if self.skipping {
                self.line = Vec::new();
            }
        }
    }

    fn owe(&mut self, error: ErrorData, id: Option<RequestId>) {
        self.owed = Some(ServerJsonRpcMessage::error(error, id));
    }

    /// Writes what is owed, in a task of its own: this may be given up at any time, and half an answer would spoil every later one.
    async fn pay(&mut self) {
        if self.owed.is_none() {
            return;
        }
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return };
        let Some(message) = self.owed.take() else { return };
        let to = Arc::clone(&self.to);
        tokio::spawn(async move {
            let _room = room;
            // Whoever is gone needs no answer.
            write(&to, &message).await.ok();
        });
    }
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
}

async fn write<W: AsyncWrite + Unpin>(to: &Mutex<W>, message: &ServerJsonRpcMessage) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    let mut to = to.lock().await;
    to.write_all(&bytes).await?;
    to.flush().await
}

/// Reads one line as a message; nothing when it is empty.
fn read(line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, (ErrorData, Option<RequestId>)> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    if nesting(line) > MOST_NESTING {
        return Err((ErrorData::invalid_request("the message is nested too deeply", None), None));
    }
    match serde_json::from_slice(line) {
        Ok(message) => Ok(Some(message)),
        Err(_) => Err(match serde_json::from_slice::<Value>(line) {
            Ok(value) => {
                let id = value.get("id").cloned().and_then(|id| serde_json::from_value(id).ok());
                (ErrorData::invalid_request("this is no request of the protocol", None), id)
            }
            Err(_) => (ErrorData::new(ErrorCode::PARSE_ERROR, "this is no JSON", None), None),
        }),
    }
}

/// How many brackets are open at once, at most; those in texts do not count.
pub(crate) fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut most, mut in_text, mut escaped) = (0usize, 0usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let to = Arc::clone(&self.to);
        async move { write(&to, &message).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            self.pay().await;
            let line = match self.next_line().await {
                Ok(Some(line)) => line,
                Ok(None) | Err(_) => {
                    self.closed.cancel();
                    return None;
                }
            };
            match line {
                Line::TooLong => {
                    let most = MOST_MESSAGE / (1024 * 1024);
                    let text = format!("the message is longer than {most} MiB; pass large data in several calls");
                    self.owe(ErrorData::invalid_request(text, None), None);
                }
                Line::Whole(line) => match read(&line) {
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => {}
                    Err((error, id)) => self.owe(error, id),
                },
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.closed.cancel();
        self.to.lock().await.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_are_counted_outside_of_texts_only() {
        assert_eq!(nesting(br#"{"a":[1,{"b":2}]}"#), 3);
        assert_eq!(nesting(br#"{"a":"[[[[{{\"[["}"#), 1);
        assert_eq!(nesting(b"]]]"), 0);
    }

    #[test]
    fn what_is_no_message_is_an_error_that_names_its_request() {
        assert!(read(b"  ").unwrap().is_none());
        let (error, id) = read(b"{").unwrap_err();
        assert_eq!((error.code, id), (ErrorCode::PARSE_ERROR, None));
        let (error, id) = read(br#"{"jsonrpc":"2.0","id":7}"#).unwrap_err();
        assert_eq!((error.code, id), (ErrorCode::INVALID_REQUEST, Some(RequestId::Number(7))));
        let deep = [vec![b'['; 100], vec![b']'; 100]].concat();
        assert_eq!(read(&deep).unwrap_err().0.code, ErrorCode::INVALID_REQUEST);
        assert!(read(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).unwrap().is_some());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_and_the_next_one_is_read() {
        let mut text = vec![b'x'; MOST_MESSAGE + 5];
        text.extend_from_slice(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n");
        let (to, mut out) = tokio::io::duplex(4096);
        let closed = CancellationToken::new();
        let mut lines = Lines::new(text.as_slice(), to, closed.clone());
        assert!(lines.receive().await.is_some());
        assert!(lines.receive().await.is_none());
        assert!(closed.is_cancelled());
        let mut said = vec![0; 4096];
        let length = tokio::io::AsyncReadExt::read(&mut out, &mut said).await.unwrap();
        assert!(String::from_utf8_lossy(&said[..length]).contains("longer than 8 MiB"));
    }

    #[tokio::test]
    async fn whoever_reads_no_answers_is_not_read_further() {
        let bad = "no message\n".repeat(5000);
        let (to, mut out) = tokio::io::duplex(64);
        let (mut from, read) = tokio::io::duplex(1024);
        let mut lines = Lines::new(read, to, CancellationToken::new());
        let writing = async {
            from.write_all(bad.as_bytes()).await.unwrap();
            from.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await.unwrap();
        };
        let receiving = async {
            let soon = std::time::Duration::from_millis(300);
            assert!(tokio::time::timeout(soon, lines.receive()).await.is_err(), "all of it was read");
            assert_eq!(lines.room.available_permits(), 0);
            // As soon as somebody reads, it goes on, and nothing was lost.
            let mut answers = tokio::io::BufReader::new(&mut out).lines();
            let reading = async {
                let mut count = 0;
                while answers.next_line().await.unwrap().is_some() {
                    count += 1;
                    if count == 5000 {
                        break;
                    }
                }
            };
            let (message, ()) = tokio::join!(lines.receive(), reading);
            assert!(message.is_some());
        };
        tokio::join!(writing, receiving);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_read_without_a_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            read(&line).ok();
            nesting(&line);
        }
    }
}
