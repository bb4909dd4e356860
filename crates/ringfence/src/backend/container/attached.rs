//! The streams of a container's first process, as an engine attaches them: what is written goes to its standard input, what
//! is read is its standard output. An engine sends standard output and standard error in frames over one connection:
//! which of the two, three empty bytes, the length, and the bytes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf, ReadHalf, WriteHalf};

use super::failure::clean;

/// The most that is kept of standard error.
const MOST_COMPLAINT: usize = 4 * 1024;
const HEADER: usize = 8;
const OUTPUT: u8 = 1;
const ERROR: u8 = 2;

/// Both directions. Dropping both ends the process, which lives by them.
#[derive(Debug)]
pub(crate) struct Attached {
    /// What it says.
    pub(crate) output: Output,
    /// What is said to it.
    pub(crate) input: Input,
}

/// To the standard input. Shutting it down closes that.
pub(crate) type Input = WriteHalf<TokioIo<Upgraded>>;
/// From the standard output.
pub(crate) type Output = Demultiplexed<ReadHalf<TokioIo<Upgraded>>>;

impl Attached {
    pub(super) fn new(upgraded: Upgraded) -> Self {
        let (output, input) = tokio::io::split(TokioIo::new(upgraded));
        Self { output: Demultiplexed::new(output), input }
    }
}

/// The beginning of what a process wrote to its standard error: ours says nothing there unless something is very wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct Complaint(Arc<Mutex<Vec<u8>>>);

impl Complaint {
    /// What it said so far, harmless, in one line.
    pub(crate) fn text(&self) -> String {
        clean(&String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST_COMPLAINT.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(&bytes[..room]);
    }
}

/// Standard output, taken out of the frames.
#[derive(Debug)]
pub(crate) struct Demultiplexed<R> {
    inner: R,
    header: [u8; HEADER],
    /// How much of the header was read; all of it, while a frame's bytes are read.
    have: usize,
    left: u32,
    complaint: Complaint,
}

impl<R> Demultiplexed<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, header: [0; HEADER], have: 0, left: 0, complaint: Complaint::default() }
    }

    /// What comes on standard error.
    pub(crate) fn complaint(&self) -> Complaint {
        self.complaint.clone()
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Demultiplexed<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if this.have < HEADER {
                let mut header = ReadBuf::new(&mut this.header[this.have..]);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut header))?;
                let read = header.filled().len();
                if read == 0 {
                    // Between frames it is the end; within a header something was cut off.
                    return Poll::Ready(if this.have == 0 { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
                }
                this.have += read;
                if this.have < HEADER {
                    continue;
                }
                let [stream, zeros @ .., a, b, c, d] = this.header;
                if !matches!(stream, OUTPUT | ERROR) || zeros != [0; 3] {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the engine sent no frame")));
                }
                this.left = u32::from_be_bytes([a, b, c, d]);
            }
            if this.left == 0 {
                this.have = 0;
                continue;
            }
            let most = usize::try_from(this.left).unwrap_or(usize::MAX);
            let read = if this.header[0] == OUTPUT {
                let room = most.min(buffer.remaining());
                let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                buffer.advance(read);
                read
            } else {
                let mut scratch = [0; 1024];
                let room = most.min(scratch.len());
                let mut part = ReadBuf::new(&mut scratch[..room]);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
                this.complaint.push(part.filled());
                part.filled().len()
            };
            if read == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            this.left = this.left.saturating_sub(u32::try_from(read).unwrap_or(u32::MAX));
            if this.left == 0 {
                this.have = 0;
            }
            if this.header[0] == OUTPUT {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn frame(stream: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0], &length[..], bytes].concat()
    }

    /// What comes out when the bytes arrive in pieces of `piece`.
    async fn read(bytes: &[u8], piece: usize) -> (io::Result<Vec<u8>>, String) {
        let (mut far, near) = tokio::io::duplex(piece);
        let bytes = bytes.to_vec();
        let writer = tokio::spawn(async move {
            // A reader that gave up is part of the test.
            tokio::io::AsyncWriteExt::write_all(&mut far, &bytes).await.ok();
        });
        let mut output = Demultiplexed::new(near);
        let complaint = output.complaint();
        let mut all = Vec::new();
        let result = output.read_to_end(&mut all).await.map(|_| all);
        drop(output);
        writer.await.unwrap();
        (result, complaint.text())
    }

    #[tokio::test]
    async fn frames_are_taken_apart_however_they_arrive() {
        let bytes =
            [frame(1, b"hello "), frame(2, b"oh"), frame(1, b""), frame(1, b"world"), frame(2, b" no")].concat();
        for piece in [1, 3, 8, 9, 64, 4096] {
            let (output, complaint) = read(&bytes, piece).await;
            assert_eq!(output.unwrap(), b"hello world", "{piece}");
            assert_eq!(complaint, "oh no", "{piece}");
        }
    }

    #[tokio::test]
    async fn what_is_no_frame_or_is_cut_off_is_an_error_and_not_an_end() {
        for (bytes, kind) in [
            (b"HTTP/1.1 500 no\r\n".to_vec(), io::ErrorKind::InvalidData),
            (frame(0, b"x"), io::ErrorKind::InvalidData),
            (frame(3, b"x"), io::ErrorKind::InvalidData),
            (vec![1, 0, 1, 0, 0, 0, 0, 0], io::ErrorKind::InvalidData),
            (frame(1, b"hello")[..10].to_vec(), io::ErrorKind::UnexpectedEof),
            (vec![1, 0, 0], io::ErrorKind::UnexpectedEof),
            (vec![1, 0, 0, 0, 255, 255, 255, 255, b'x'], io::ErrorKind::UnexpectedEof),
        ] {
            let (output, _) = read(&bytes, 4096).await;
            assert_eq!(output.unwrap_err().kind(), kind, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn standard_error_without_an_end_is_kept_to_a_few_bytes() {
        let bytes = [frame(2, &vec![b'x'; 3_000_000]), frame(1, b"still here")].concat();
        let (mut far, near) = tokio::io::duplex(65536);
        let writer = tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut far, &bytes).await });
        let mut output = Demultiplexed::new(near);
        let mut all = Vec::new();
        output.read_to_end(&mut all).await.unwrap();
        writer.await.unwrap().unwrap();
        assert_eq!(all, b"still here");
        assert_eq!(output.complaint.0.lock().unwrap().len(), MOST_COMPLAINT);
    }
}
