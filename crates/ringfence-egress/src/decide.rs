//! The one decision. Pure: it looks at rules and at what is asked for, and at nothing else.

use std::sync::Arc;

use ringfence_policy::{Glob, NetMode};

use crate::budget::Budget;
use crate::denial::{Denied, Reason};
use crate::host::{Host, Loopback};
use crate::rules::{Protocol, Rule, Rules};
use crate::strangers;
use crate::url_path::UrlPath;

/// What a program asks for.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The host.
    pub host: &'a Host,
    /// The port; 0 is never allowed.
    pub port: u16,
    /// A connection, or one request.
    pub access: Access<'a>,
}

/// How a target is used.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// A connection, of whose contents nothing is known yet.
    Connection,
    /// One HTTP request.
    Request {
        /// Whether it travels in TLS.
        scheme: Scheme,
        /// The method, as it was sent.
        method: &'a str,
        /// The path without its query.
        path: &'a UrlPath,
    },
}

/// Whether a request travels in TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
}

/// The answer, with the rule that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may be.
    Allowed(Allowed),
    /// It may not.
    Denied(Denied),
}

/// What is allowed, and how it is to be handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The rule that decided.
    pub rule: Arc<str>,
    /// What may be spoken over a connection.
    pub handling: Handling,
    /// The credential of the rule that decided.
    pub credential: Option<Arc<str>>,
    /// What becomes of credentials that the program brings along.
    pub foreign: ForeignCredentials,
    /// How much of the host may be used: what keeps the budgets of all rules that mean this target.
    pub budget: Budget,
    /// Whether a rule looked at method or path: then the normal form of the path is what is forwarded.
    pub looked_at_request: bool,
    /// Headers that are not passed on, in small letters: those of all rules that mean this request.
    pub strip: Vec<String>,
}

/// What may be spoken over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// HTTP, judged request by request, or TLS whose name agrees.
    Web,
    /// Anything.
    Tcp,
    /// HTTP, or TLS that is opened; judged request by request.
    Inspect,
}

/// What becomes of credentials that the program brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignCredentials {
    /// They pass: the policy binds none to this host.
    Pass,
    /// They are refused: the policy binds its own to this host.
    Refused,
}

impl Scheme {
    /// As it stands in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL without one means.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Decides whether `target` may be reached.
pub fn decide(rules: &Rules, target: &Target<'_>) -> Decision {
    match judge(rules, target) {
        Ok(allowed) => Decision::Allowed(allowed),
        Err(Refused { reason, rule }) => Decision::Denied(explain(rules, target, reason, rule.as_ref())),
    }
}

struct Refused {
    reason: Reason,
    rule: Option<Arc<str>>,
}

fn refuse<T>(reason: Reason, rule: Option<&Rule>) -> Result<T, Refused> {
    Err(Refused { reason, rule: rule.map(|rule| Arc::clone(&rule.name)) })
}

fn judge(rules: &Rules, target: &Target<'_>) -> Result<Allowed, Refused> {
    if rules.mode() == NetMode::None {
        return refuse(Reason::NoNetwork, None);
    }
    if target.port == 0 {
        return refuse(Reason::Port, None);
    }
    let seen = judge_denials(rules, target)?;
    if matches!(target.host, Host::ThisMachine(_))
        && let Some(rule) = rules.localhost_rule(target.port)
    {
        return Ok(Allowed {
            rule: Arc::clone(rule),
            handling: Handling::Tcp,
            credential: None,
            foreign: ForeignCredentials::Pass,
            budget: Budget::default(),
            looked_at_request: false,
            strip: Vec::new(),
        });
    }
    match target.access {
        Access::Connection => judge_connection(rules, target, seen),
        Access::Request { scheme, method, path } => judge_request(rules, target, seen, scheme, method, path),
    }
}

/// What the deny rules have left open.
struct Seen {
    /// A deny rule that can only be held against requests, and a look at them is still to come.
    undecided: Option<Arc<str>>,
    /// A deny rule was held against this request's method or path.
    looked_at_request: bool,
}

fn judge_denials(rules: &Rules, target: &Target<'_>) -> Result<Seen, Refused> {
    let mut seen = Seen { undecided: None, looked_at_request: false };
    for rule in rules.denying(target.host).filter(|rule| rule.covers_port(target.port)) {
        if !rule.judges_requests() {
            return refuse(Reason::Denied, Some(rule));
        }
        match target.access {
            Access::Connection => seen.undecided = Some(Arc::clone(&rule.name)),
            Access::Request { method, path, .. } => {
                seen.looked_at_request = true;
                if !rule.denies_method(method) {
                    continue;
                }
                match denies_path(rule, path) {
                    Ok(false) => {}
                    Ok(true) => return refuse(Reason::Denied, Some(rule)),
                    Err(reason) => return refuse(reason, Some(rule)),
                }
            }
        }
    }
    Ok(seen)
}

fn covers_path(rule: &Rule, path: &UrlPath) -> Result<bool, Reason> {
    if rule.net.paths.is_empty() {
        return Ok(true);
    }
    let normal = path.normal().map_err(|_| Reason::AmbiguousPath)?;
    Ok(rule.net.paths.iter().any(|glob| glob.matches(normal)))
}

/// Likewise for a deny rule, and for what a rule demands: some servers ignore the case of a path, and parameters of its segments.
fn denies_path(rule: &Rule, path: &UrlPath) -> Result<bool, Reason> {
    if covers_path(rule, path)? {
        return Ok(true);
    }
    let normal = path.normal().map_err(|_| Reason::AmbiguousPath)?;
    let segments = normal.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    let bare = segments.collect::<Vec<_>>().join("/");
    let folded = bare.to_ascii_lowercase();
    let forms = [&bare, &folded, &normal.to_ascii_lowercase()];
    Ok(rule.net.paths.iter().any(|glob| {
        let folded_glob = glob.as_str().to_ascii_lowercase().parse::<Glob>().ok();
        forms.iter().any(|form| glob.matches(form) || folded_glob.as_ref().is_none_or(|glob| glob.matches(form)))
    }))
}

/// Which of two refusals says more: the one that came further.
fn further(first: &Refused, second: &Refused) -> bool {
    let rank = |reason: Reason| match reason {
        Reason::NotListed => 0,
        Reason::Port => 1,
        Reason::Stranger => 2,
        Reason::NeedsInspection | Reason::NeedsTls => 3,
        Reason::Method => 4,
        Reason::Path | Reason::AmbiguousPath => 5,
        _ => 6,
    };
    rank(first.reason) >= rank(second.reason)
}

fn keep(refused: &mut Refused, reason: Reason, rule: &Rule) {
    let other = Refused { reason, rule: Some(Arc::clone(&rule.name)) };
    if !further(refused, &other) {
        *refused = other;
    }
}

fn is_channel(host: &Host) -> bool {
    matches!(host, Host::Name(name) if strangers::is_channel(name))
}

fn open(rules: &Rules, target: &Target<'_>) -> Option<Arc<str>> {
    // An address that is not public has to be named, also where everything else is open.
    let machine = matches!(target.host, Host::ThisMachine(_));
    (rules.mode() == NetMode::Open && !machine).then(|| "net.mode open".into())
}

fn judge_connection(rules: &Rules, target: &Target<'_>, seen: Seen) -> Result<Allowed, Refused> {
    let mut refused = Refused { reason: Reason::NotListed, rule: None };
    let mut closed: Option<(&Rule, Handling)> = None;
    let mut opened: Option<&Rule> = None;
    let mut bound = ForeignCredentials::Pass;
    let mut budget = Budget::default();
    let mut must_open = false;
    let channel = is_channel(target.host);
    for rule in rules.allowing(target.host) {
        // What a rule demands holds for all that it means, also where another rule is the one that allows.
        if rule.covers_port(target.port) && (rule.opens_tls() || !rule.judges_requests()) {
            budget = budget.meet(&rule.budget);
            must_open |= rule.opens_tls();
        }
        if !rule.covers_port(target.port) {
            keep(&mut refused, Reason::Port, rule);
        } else if channel && !rule.may_talk_to_strangers() {
            keep(&mut refused, Reason::Stranger, rule);
        } else if rule.opens_tls() {
            if rule.net.credential.is_some() {
                bound = ForeignCredentials::Refused;
            }
            opened = opened.or(Some(rule));
        } else if rule.judges_requests() {
            keep(&mut refused, Reason::NeedsInspection, rule);
        } else {
            match (rule.protocol, &closed) {
                (Protocol::Tcp, Some((_, Handling::Tcp))) => {}
                (Protocol::Tcp, _) => closed = Some((rule, Handling::Tcp)),
                (Protocol::Web, None) => closed = Some((rule, Handling::Web)),
                (Protocol::Web, Some(_)) => {}
            }
        }
    }
    let allowed = |rule: Arc<str>, handling: Handling| Allowed {
        rule,
        handling,
        credential: None,
        foreign: bound,
        budget,
        looked_at_request: false,
        strip: Vec::new(),
    };
    if let Some(rule) = opened {
        return Ok(allowed(Arc::clone(&rule.name), Handling::Inspect));
    }
    let found = closed.map(|(rule, handling)| (Arc::clone(&rule.name), handling));
    let found = found.or_else(|| open(rules, target).map(|name| (name, Handling::Tcp)));
    match (found, seen.undecided) {
        (Some((rule, _)), _) if must_open => Ok(allowed(rule, Handling::Inspect)),
        (Some((rule, handling)), None) => Ok(allowed(rule, handling)),
        (Some(_), Some(rule)) => Err(Refused { reason: Reason::NeedsInspection, rule: Some(rule) }),
        (None, _) => Err(refused),
    }
}

fn judge_request(
    rules: &Rules,
    target: &Target<'_>,
    seen: Seen,
    scheme: Scheme,
    method: &str,
    path: &UrlPath,
) -> Result<Allowed, Refused> {
    let mut refused = Refused { reason: Reason::NotListed, rule: None };
    let mut chosen: Option<&Rule> = None;
    let mut foreign = ForeignCredentials::Pass;
    let mut looked_at_request = seen.looked_at_request;
    let mut budget = Budget::default();
    let mut strip = Vec::new();
    let channel = is_channel(target.host);
    for rule in rules.allowing(target.host) {
        if !rule.covers_port(target.port) {
            keep(&mut refused, Reason::Port, rule);
            continue;
        }
        // Bound to the host: also on a path where another rule lets the request through.
        if rule.net.credential.is_some() {
            foreign = ForeignCredentials::Refused;
        }
        looked_at_request |= rule.judges_requests();
        // What a rule demands is heard like a denial, so that another spelling does not escape it. Whether a path with two readings is
        // meant is not known, so that it counts.
        if rule.denies_method(method) && denies_path(rule, path).unwrap_or(true) {
            budget = budget.meet(&rule.budget);
            strip.extend_from_slice(&rule.net.strip);
        }
        if channel && !rule.may_talk_to_strangers() {
            keep(&mut refused, Reason::Stranger, rule);
        } else if rule.net.credential.is_some() && scheme == Scheme::Http {
            keep(&mut refused, Reason::NeedsTls, rule);
        } else if !rule.covers_method(method) {
            keep(&mut refused, Reason::Method, rule);
        } else {
            match covers_path(rule, path) {
                Err(reason) => keep(&mut refused, reason, rule),
                Ok(false) => keep(&mut refused, Reason::Path, rule),
                Ok(true) => {
                    let better =
                        chosen.is_none_or(|earlier| earlier.net.credential.is_none() && rule.net.credential.is_some());
                    if better {
                        chosen = Some(rule);
                    }
                }
            }
        }
    }
    let (rule, credential) = match (chosen, open(rules, target)) {
        (Some(rule), _) => (Arc::clone(&rule.name), rule.net.credential.as_deref().map(Arc::from)),
        (None, Some(open)) => (open, None),
        (None, None) => return Err(refused),
    };
    Ok(Allowed { rule, handling: Handling::Web, credential, foreign, budget, looked_at_request, strip })
}

/// A target in a few words. What a program wrote is in it as it came.
pub fn describe(target: &Target<'_>) -> String {
    let Target { host, port, access } = target;
    match access {
        Access::Connection => format!("a connection to {}:{port}", host.in_url()),
        Access::Request { scheme, method, path } => {
            let port = if *port == scheme.port() { String::new() } else { format!(":{port}") };
            format!("{method} {}://{}{port}{}", scheme.name(), host.in_url(), path.raw())
        }
    }
}

/// The text of a denial that was decided elsewhere: by addresses, names that disagree, budgets, credentials.
pub(crate) fn deny_because(rules: &Rules, target: &Target<'_>, reason: Reason, why: &str) -> Denied {
    let instead = rules.summary_of(target.host).unwrap_or_else(|| rules.summary());
    Denied::new(reason, None, &describe(target), why, &instead)
}

fn explain(rules: &Rules, target: &Target<'_>, reason: Reason, rule: Option<&Arc<str>>) -> Denied {
    let Target { host, port, access } = target;
    let why = match reason {
        Reason::NoNetwork => "the policy says `net.mode: none`".to_owned(),
        Reason::NotListed => match host {
            Host::ThisMachine(Loopback::Name | Loopback::Address(_)) => {
                format!("port {port} of this machine is not listed under `net.localhost`")
            }
            Host::Name(_) | Host::Address(_) => format!("no rule under `net.allow` names {host}"),
        },
        Reason::Denied => format!("a rule under `net.deny` names {host}"),
        Reason::Port => format!("{host} is allowed, but not on port {port}"),
        Reason::Method => format!("{host} is allowed, but not with this method"),
        Reason::Path => format!("{host} is allowed, but not with this path"),
        Reason::AmbiguousPath => match access {
            Access::Request { path, .. } => path.normal().err().map(|it| it.to_string()).unwrap_or_default(),
            Access::Connection => "the path can be read in two ways".to_owned(),
        },
        Reason::NeedsInspection => format!(
            "the rules for {host} look at methods or paths, which cannot be seen in this connection; the rule needs `inspect: true`"
        ),
        Reason::NeedsTls => format!("{host} is reached with a credential, which travels over https alone"),
        Reason::Stranger => {
            format!("{host} is a channel to strangers, so its rule needs `acknowledge: true` or a credential")
        }
        Reason::BadHost
        | Reason::Address
        | Reason::NamesDisagree
        | Reason::Protocol
        | Reason::BadRequest
        | Reason::Trace
        | Reason::Budget
        | Reason::Credential => reason.code().to_owned(),
    };
    let instead = rules.summary_of(host).unwrap_or_else(|| rules.summary());
    Denied::new(reason, rule, &describe(target), &why, &instead)
}

#[cfg(test)]
mod tests;
