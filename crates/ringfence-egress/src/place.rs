//! What requests of one connection may be about.

use std::sync::Arc;

use rustls::ClientConfig;

use crate::host::Host;
use crate::inspect::Version;
use crate::resolve::Checked;

/// What requests may be about.
#[derive(Debug)]
pub(crate) enum Place {
    /// Any host: each request names its own.
    Anywhere,
    /// One host: the tunnel was made for it, and every request has to agree.
    One(OnePlace),
}

/// The target of a tunnel, judged and looked up.
#[derive(Debug)]
pub(crate) struct OnePlace {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) checked: Checked,
    /// How we are a client to it, and what was spoken at first; `None` is plain HTTP.
    pub(crate) tls: Option<(Arc<ClientConfig>, Version)>,
    /// Why nothing can be sent: its certificate, for instance.
    pub(crate) failed: Option<String>,
}
