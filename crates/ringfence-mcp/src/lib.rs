//! Ringfence for agents that speak the Model Context Protocol: a front door, and nothing more.
//!
//! Every tool call becomes a request and enters by [`Engine::start`](ringfence::Engine::start) or by a session of the same engine.
//! What a client says can narrow the policy and never widen it; no argument names a path of the host or something that belongs to
//! another client. This crate is given its streams and never prints.

mod artifact;
mod ask;
mod call;
mod client;
mod http;
mod limits;
mod lines;
mod server;
mod shown;
mod tell;
mod token;
mod tools;

pub use http::{HttpError, serve_http};
pub use limits::Limits;
pub use server::{Setup, serve_streams};
pub use token::{TokenError, Tokens};
pub use tools::{Names, has_tools};
