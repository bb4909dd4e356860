//! The way out of a sandbox: a proxy that decides host by host, before it resolves, and writes down what it decided.
//!
//! [`decide`] is the one pure function that every path goes through: plain HTTP, `CONNECT`, SOCKS5 and connections whose
//! target is known already. Names are resolved here alone, once and after the decision; every address is judged, and the
//! checked address is the one that is dialled.
//!
//! [`Proxy`] serves listeners and streams that it is given. It makes no namespace, knows no backend and reads no policy
//! file. Which sandbox is asking is known from the listener that a connection came from, never from what it says.

mod decide;
mod denial;
mod host;
mod rules;
mod strangers;
mod url_path;

pub use decide::{Access, Allowed, Decision, ForeignCredentials, Handling, Scheme, Target, decide};
pub use denial::{Denied, Reason};
pub use host::{BadHost, Host};
pub use rules::{Inspection, Protocol, Rule, Rules, Strangers};
pub use url_path::{Ambiguous, UrlPath, normalise};
