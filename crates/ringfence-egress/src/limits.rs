//! What one sandbox may take of the proxy. Everything that is held for it is counted here.

use std::time::Duration;

use crate::request_head::HeadLimits;

/// The bounds of one proxy.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections from inside at the same time. Further ones wait in the listener's queue.
    pub connections: usize,
    /// The head of a request.
    pub head: HeadLimits,
    /// Requests at the same time over one HTTP/2 connection.
    pub streams: u32,
    /// From the first byte to the end of a handshake or a request's head, and between two requests.
    pub handshake: Duration,
    /// For looking a name up.
    pub resolve: Duration,
    /// For one address to answer.
    pub connect: Duration,
    /// From a request to the head of its response.
    pub response: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// From a question about an unknown host to its answer.
    pub answer: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            head: HeadLimits { bytes: 64 * 1024, headers: 100 },
            streams: 64,
            handshake: Duration::from_secs(20),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            response: Duration::from_secs(300),
            idle: Duration::from_secs(600),
            answer: Duration::from_secs(120),
        }
    }
}
