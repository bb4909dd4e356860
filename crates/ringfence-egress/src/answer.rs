//! Answers that a program gets, and those that we make ourselves.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use crate::body::Cut;

/// An answer on its way inside.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Cut>>;

/// No body.
pub(crate) fn nothing() -> UnsyncBoxBody<Bytes, Cut> {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}

/// A short text of ours.
pub(crate) fn say(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=us-ascii"));
    answer
}
