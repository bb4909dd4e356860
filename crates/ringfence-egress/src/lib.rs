//! The way out of a sandbox: a proxy that decides host by host, before it resolves, and writes down what it decided.
//!
//! [`decide`] is the one pure function that every path goes through: plain HTTP, `CONNECT`, SOCKS5 and connections whose
//! target is known already. Names are resolved here alone, once and after the decision; every address is judged, and the
//! checked address is the one that is dialled.
//!
//! [`Proxy`] serves listeners and streams that it is given. It makes no namespace, knows no backend and reads no policy
//! file. Which sandbox is asking is known from the listener that a connection came from, never from what it says.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ringfence_egress::{Identity, Inspector, Proxy, Rules};
//!
//! # async fn example(policy: ringfence_policy::NetPolicy, listener: std::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
//! let rules = Rules::of_policy(&policy);
//! let inspects = rules.need_inspection();
//! let mut builder = Proxy::builder(Identity::new("sandbox", "run"), rules);
//! if inspects {
//!     builder = builder.inspector(Arc::new(Inspector::new()?));
//! }
//! let proxy = builder.build();
//! // Made in the sandbox's own network namespace, and handed out: a socket stays where it was made.
//! listener.set_nonblocking(true)?;
//! let listener = tokio::net::TcpListener::from_std(listener)?;
//! let serving = tokio::spawn(async move { proxy.serve(listener).await });
//! // When the sandbox ends, so does all that it had open.
//! serving.abort();
//! # Ok(())
//! # }
//! ```

mod address;
mod answer;
mod ask;
mod authority;
mod body;
mod budget;
mod client_hello;
mod copy;
mod credential;
mod decide;
mod denial;
mod direct;
mod dns;
mod foresee;
mod headers;
mod host;
mod inspect;
mod limits;
mod listener;
mod names;
mod origin;
mod place;
mod proxy;
mod record;
mod request_head;
mod resolve;
mod roots;
mod rules;
mod scan;
mod sign;
mod site;
mod socks;
mod strangers;
mod stream;
mod tasks;
mod trust;
mod tunnel;
mod upstream;
mod url_path;

pub use address::{AddressKind, kind_of};
pub use ask::{Answer, Ask, may_be_asked_about};
pub use authority::Authority;
pub use budget::{Budget, Budgets};
pub use credential::{BadCredential, Credential};
pub use decide::{Access, Allowed, Decision, ForeignCredentials, Handling, Scheme, Target, decide, describe};
pub use denial::{Denied, Reason, plain_and_short};
pub use direct::{Arrivals, Direct, Questions, RelayedQuestion};
pub use foresee::{foresee, is_channel_to_strangers};
pub use host::{BadHost, Host, Loopback};
pub use inspect::{InspectError, Inspector, proxy_environment};
pub use limits::Limits;
pub use listener::Listener;
pub use names::{NAME_SERVER, NamedAddresses, Names, Places};
pub use proxy::{Proxy, ProxyBuilder};
pub use record::{Ending, Identity, NoSink, Record, Sink, Usage, Via};
pub use request_head::HeadLimits;
pub use resolve::{Resolve, SystemResolver};
pub use rules::{Inspection, Protocol, Rule, Rules, Strangers};
pub use stream::{Relayed, Stream};
pub use trust::{TrustFiles, java_environment, trust_environment};
pub use upstream::{BadAuthorization, Upstream};
pub use url_path::{Ambiguous, UrlPath, normalise};

/// Readers of what comes from inside: pure functions over bytes, for those who attack them.
pub mod wire {
    pub use crate::client_hello::{BadHello, ClientHello, read_hello};
    pub use crate::dns::{BadQuestion, Code, LONGEST_MESSAGE, Question, answer, read_question, refuse};
    pub use crate::request_head::{BadHead, HeadLimits, RequestHead, read_head};
    pub use crate::socks::{BadHandshake, ConnectRequest, Read, read_greeting, read_request};
}
