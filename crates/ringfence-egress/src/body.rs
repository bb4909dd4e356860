//! Bodies as they pass through: counted, bounded in time, and looked through where a credential is about.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::budget::Direction;
use crate::credential;
use crate::headers;
use crate::record::{Ending, Ticket};
use crate::scan::Scanner;

/// Why a body was cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the other side stopped")]
    Broken(#[from] hyper::Error),
    #[error("nothing came for too long")]
    Idle,
    #[error("the budget is used up")]
    Budget,
    #[error("a placeholder was in the body")]
    Placeholder,
}

/// What is looked for in a body.
#[derive(Debug)]
pub(crate) enum Filter {
    Nothing,
    /// The body is cut before the word.
    Refuse(Scanner),
    /// The word is overwritten.
    Mask(Scanner, Arc<[Vec<u8>]>),
}

/// The longest body that is held to be signed as a whole.
pub(crate) const MOST_HELD: u64 = 16 * 1024;

/// Where a body comes from.
#[derive(Debug)]
pub(crate) enum Source {
    /// From the other side, as it comes.
    Coming(Incoming),
    /// It is here already.
    Held(Full<Bytes>),
}

impl Source {
    /// Holds a body whose length is known and small, and returns what it is.
    pub(crate) async fn hold(body: Incoming) -> Result<(Self, Option<Bytes>), hyper::Error> {
        if body.size_hint().exact().is_none_or(|length| length > MOST_HELD) {
            return Ok((Self::Coming(body), None));
        }
        let bytes = body.collect().await?.to_bytes();
        Ok((Self::Held(Full::new(bytes.clone())), Some(bytes)))
    }
}

impl Body for Source {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Coming(body) => Pin::new(body).poll_frame(cx),
            Self::Held(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Coming(body) => body.is_end_stream(),
            Self::Held(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Coming(body) => body.size_hint(),
            Self::Held(body) => body.size_hint(),
        }
    }
}

/// A body on its way.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: Source,
    ticket: Arc<Ticket>,
    direction: Direction,
    idle: Duration,
    sleep: Pin<Box<Sleep>>,
    filter: Filter,
    /// Headers that are left out, which are no trailers either.
    strip: Vec<String>,
    /// Trailers that came while bytes were held back.
    later: Option<Frame<Bytes>>,
}

impl Watched {
    pub(crate) fn new(
        inner: Source,
        ticket: Arc<Ticket>,
        direction: Direction,
        idle: Duration,
        filter: Filter,
        strip: Vec<String>,
    ) -> Self {
        Self { inner, ticket, direction, idle, sleep: Box::pin(tokio::time::sleep(idle)), filter, strip, later: None }
    }

    fn cut(&self, cut: Cut) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.ticket.end(match cut {
            Cut::Broken(_) => Ending::Broken,
            Cut::Idle => Ending::Idle,
            Cut::Budget => Ending::OverBudget,
            Cut::Placeholder => Ending::Cut,
        });
        Poll::Ready(Some(Err(cut)))
    }

    fn filtered(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Cut> {
        let mut frame = match frame.into_data() {
            Ok(data) => {
                self.ticket.meter.count(self.direction, data.len()).map_err(|_| Cut::Budget)?;
                let data = match &mut self.filter {
                    Filter::Nothing => data,
                    Filter::Refuse(scanner) => scanner.refuse(&data).map_err(|_| Cut::Placeholder)?.into(),
                    Filter::Mask(scanner, _) => scanner.mask(&data).into(),
                };
                return Ok(Frame::data(data));
            }
            Err(frame) => frame,
        };
        if let Some(trailers) = frame.trailers_mut() {
            headers::leave_out(trailers, &self.strip);
            match &self.filter {
                Filter::Nothing => {}
                Filter::Refuse(_) => *trailers = HeaderMap::new(),
                Filter::Mask(_, words) => credential::mask_headers(trailers, words),
            }
        }
        Ok(frame)
    }

    /// What the scanner still holds, at the end of the body or before its trailers.
    fn held(&mut self) -> Option<Bytes> {
        match &mut self.filter {
            Filter::Refuse(scanner) | Filter::Mask(scanner, _) if !scanner.holds_nothing() => {
                Some(scanner.rest().into())
            }
            Filter::Nothing | Filter::Refuse(_) | Filter::Mask(..) => None,
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        if let Some(trailers) = this.later.take() {
            return Poll::Ready(Some(Ok(trailers)));
        }
        loop {
            return match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    this.sleep.as_mut().reset(Instant::now() + this.idle);
                    match this.filtered(frame) {
                        // All of it is held back; an empty frame would end a chunked body.
                        Ok(frame) if frame.data_ref().is_some_and(Bytes::is_empty) => {
                            match this.inner.is_end_stream() {
                                true => Poll::Ready(this.held().map(|held| Ok(Frame::data(held)))),
                                false => continue,
                            }
                        }
                        Ok(frame) if frame.is_trailers() => match this.held() {
                            Some(held) => {
                                this.later = Some(frame);
                                Poll::Ready(Some(Ok(Frame::data(held))))
                            }
                            None => Poll::Ready(Some(Ok(frame))),
                        },
                        Ok(frame) => Poll::Ready(Some(Ok(frame))),
                        Err(cut) => this.cut(cut),
                    }
                }
                Poll::Ready(Some(Err(error))) => this.cut(Cut::Broken(error)),
                Poll::Ready(None) => match this.held() {
                    Some(held) => Poll::Ready(Some(Ok(Frame::data(held)))),
                    None => Poll::Ready(None),
                },
                Poll::Pending => match this.sleep.as_mut().poll(cx) {
                    Poll::Ready(()) => this.cut(Cut::Idle),
                    Poll::Pending => Poll::Pending,
                },
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        let holds_nothing = match &self.filter {
            Filter::Nothing => true,
            Filter::Refuse(scanner) | Filter::Mask(scanner, _) => scanner.holds_nothing(),
        };
        holds_nothing && self.later.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.filter {
            Filter::Nothing => self.inner.size_hint(),
            // Bytes that are held back are not counted by the body behind.
            Filter::Refuse(_) | Filter::Mask(..) if self.is_end_stream() => SizeHint::with_exact(0),
            Filter::Refuse(_) | Filter::Mask(..) => self.inner.size_hint(),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A body of known length is dropped when its last byte is passed on, without asking whether there is more.
        if self.direction == Direction::Down && self.is_end_stream() {
            self.ticket.end(Ending::Complete);
        }
    }
}
