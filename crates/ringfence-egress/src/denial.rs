//! What a denial says. The text is for a model: what was denied, why, what is allowed instead, and not to try another way.

use std::sync::Arc;

/// Why something was denied. [`Reason::code`] is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// `net.mode` is `none`.
    NoNetwork,
    /// No rule names the host.
    NotListed,
    /// A deny rule names it.
    Denied,
    /// The host has no canonical form.
    BadHost,
    /// The host is listed, the port is not.
    Port,
    /// The host is listed, the method is not.
    Method,
    /// The host is listed, the path is not.
    Path,
    /// The path can be read in two ways, and a rule looks at paths.
    AmbiguousPath,
    /// A rule looks at methods or paths, and nobody may look into the connection.
    NeedsInspection,
    /// A rule has a credential, and the connection is not TLS.
    NeedsTls,
    /// The host is a channel to strangers, and nobody has said that this is meant.
    Stranger,
    /// The name leads to an address that is not public.
    Address,
    /// SNI, `Host`, authority and target do not agree.
    NamesDisagree,
    /// Neither HTTP nor TLS that says its name.
    Protocol,
    /// The request can be read in two ways, or is over a limit.
    BadRequest,
    /// A method that would tell what the proxy added.
    Trace,
    /// A count or an amount is used up.
    Budget,
    /// A credential that is not the sandbox's own, or a placeholder where it is not meant.
    Credential,
}

impl Reason {
    /// A stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoNetwork => "net.none",
            Self::NotListed => "net.not-listed",
            Self::Denied => "net.denied",
            Self::BadHost => "net.bad-host",
            Self::Port => "net.port",
            Self::Method => "net.method",
            Self::Path => "net.path",
            Self::AmbiguousPath => "net.ambiguous-path",
            Self::NeedsInspection => "net.needs-inspection",
            Self::NeedsTls => "net.needs-tls",
            Self::Stranger => "net.stranger",
            Self::Address => "net.address",
            Self::NamesDisagree => "net.names-disagree",
            Self::Protocol => "net.protocol",
            Self::BadRequest => "net.bad-request",
            Self::Trace => "net.trace",
            Self::Budget => "net.budget",
            Self::Credential => "net.credential",
        }
    }
}

/// A denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// Why.
    pub reason: Reason,
    /// The rule that decided; for what is built in, the reason's code.
    pub rule: Arc<str>,
    /// Why, in one line of plain ASCII.
    pub why: String,
    /// For a model: short, plain ASCII, several lines.
    pub text: String,
}

const DO_NOT_RETRY: &str = "Do not retry in another way: other tools, ports, addresses and protocols are judged by the same rules. \
    If the task needs this, say so to the person you work for.";

impl Denied {
    /// `what` was denied because of `why`; `instead` is allowed.
    pub(crate) fn new(reason: Reason, rule: Option<&Arc<str>>, what: &str, why: &str, instead: &str) -> Self {
        let why = plain(why);
        let text = format!(
            "Ringfence denied {}.\nReason: {why} ({}).\nAllowed instead: {}.\n{DO_NOT_RETRY}\n",
            plain(what),
            reason.code(),
            plain(instead),
        );
        Self { reason, rule: rule.map_or_else(|| reason.code().into(), Arc::clone), why, text }
    }
}

/// Text that came from inside as it may be shown: nothing but printable ASCII, and not much of it.
pub(crate) fn plain(text: &str) -> String {
    plain_and_short(text, 400)
}

/// Plain ASCII of what a program or an origin said, with so many characters at most.
pub fn plain_and_short(text: &str, longest: usize) -> String {
    let mut shown: String =
        text.chars().take(longest).map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    if text.chars().nth(longest).is_some() {
        shown.push_str("...");
    }
    shown
}
