//! What a policy says of one place on the network: without a run, without a lookup, and by the proxy's own decision.
//!
//! What is advised is tried before it is told: a snippet is resolved with the layers, and the same decision has to allow it.

mod advice;
pub mod request;

use std::net::IpAddr;

use ringfence_egress::{
    Access, AddressKind, Authority, BadHost, Decision, Handling, Host, Loopback, Reason, Rules, Scheme, Target,
    UrlPath, describe, foresee, is_channel_to_strangers, kind_of, may_be_asked_about, plain_and_short,
};
use ringfence_policy::{
    Glob, HostPattern, Layer, LayerInput, NetAddition, NetMode, NetPolicy, NetRule, Origin, Place, UnknownHosts,
    resolve,
};
use serde::Serialize;

use crate::layers::{Loaded, PROJECT_FILE};

/// The version of the JSON.
const VERSION: u32 = 1;
/// The most of a question that is shown.
const LONGEST_SHOWN: usize = 256;

/// What is asked about.
#[derive(Debug, Clone)]
pub struct Question {
    text: String,
    host: Result<Host, BadHost>,
    port: u16,
    scheme: Scheme,
    method: Option<String>,
    path: Option<UrlPath>,
}

/// Something that is no question.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadQuestion {
    /// Neither of the schemes that a proxy passes on.
    #[error("`{0}` is not a scheme that is judged; write http or https, or the host alone")]
    Scheme(String),
    /// Two paths.
    #[error("the path stands in the URL and in --path; write it once")]
    TwoPaths,
    /// A path that begins with something else than `/`.
    #[error("a path begins with `/`")]
    Path,
    /// A method with other characters than letters.
    #[error("a method is a word such as GET")]
    Method,
}

impl Question {
    /// Reads `HOST`, `HOST:PORT` or a URL. A host without a canonical form is a question, too: the answer is no.
    pub fn read(text: &str, method: Option<&str>, path: Option<&str>) -> Result<Self, BadQuestion> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
                "http" | "ws" => (Some(Scheme::Http), rest),
                "https" | "wss" => (Some(Scheme::Https), rest),
                _ => return Err(BadQuestion::Scheme(plain_and_short(scheme, 20))),
            },
            None => (None, text),
        };
        let (authority, in_url) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        // Neither the query nor a fragment is ever judged.
        let in_url = in_url.split(['?', '#']).next().unwrap_or_default();
        let path = match (in_url, path) {
            ("" | "/", None) if scheme.is_none() => None,
            ("", None) => None,
            ("", Some(path)) => Some(path),
            (_, Some(_)) => return Err(BadQuestion::TwoPaths),
            (in_url, None) => Some(in_url),
        };
        if path.is_some_and(|path| !path.starts_with('/')) {
            return Err(BadQuestion::Path);
        }
        let is_word = |method: &str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !method.is_none_or(is_word) {
            return Err(BadQuestion::Method);
        }
        // A bare IPv6 address is clear enough from a person.
        let bare = authority.parse::<std::net::Ipv6Addr>().ok().map(|address| format!("[{address}]"));
        let read = Authority::parse(bare.as_deref().unwrap_or(authority));
        let port = read.as_ref().ok().and_then(|authority| authority.port);
        let scheme = scheme.unwrap_or(match port {
            Some(80) => Scheme::Http,
            Some(_) | None => Scheme::Https,
        });
        Ok(Self {
            text: plain_and_short(authority, LONGEST_SHOWN),
            host: read.map(|authority| authority.host),
            port: port.unwrap_or(scheme.port()),
            scheme,
            // As it is sent: whoever writes it in small letters means the same.
            method: method.map(str::to_ascii_uppercase),
            path: path.map(UrlPath::new),
        })
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The version of the format.
    pub v: u32,
    /// What was judged, in a few words.
    pub subject: String,
    /// The host in canonical form; nothing where it has none.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
    /// The method, where one was judged.
    pub method: Option<String>,
    /// The path, where one was judged.
    pub path: Option<String>,
    /// Whether it would be let through.
    pub allowed: bool,
    /// Why it would be denied: a stable name.
    pub reason: Option<String>,
    /// The same in a sentence.
    pub why: Option<String>,
    /// The rule that decides; for what is built in, the reason.
    pub rule: String,
    /// The layer that the rule comes from; nothing for what is built in.
    pub layer: Option<String>,
    /// Where the rule is written.
    pub place: Option<Place>,
    /// What can be seen of an HTTPS connection.
    pub https: Https,
    /// What holds whatever the rules say.
    pub built_in: Vec<String>,
    /// What is decided only when it is done.
    pub later: Vec<String>,
    /// What to write, and where; nothing when no rule would help.
    pub fix: Option<Fix>,
    /// What to do.
    pub hint: Option<String>,
}

/// What can be seen of an HTTPS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Https {
    /// It is plain HTTP, and all of it is seen.
    Plain,
    /// The name alone.
    Closed,
    /// Methods and paths.
    Opened,
    /// Not even the name inside: anything may be spoken.
    Anything,
    /// Nothing is let through, so nothing is seen.
    Denied,
}

impl Https {
    /// In a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Plain => "plain HTTP: method and path of each request are judged",
            Self::Closed => "stays closed: the name is judged; methods and paths are not seen",
            Self::Opened => "is opened: method and path of each request are judged",
            Self::Anything => "is not looked for: anything may be spoken over the connection",
            Self::Denied => "nothing is let through",
        }
    }
}

/// What would allow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fix {
    /// The file to write it into.
    pub file: String,
    /// What to write there.
    pub snippet: String,
}

/// Says what the policy of `loaded` says of `question`.
pub fn explain(loaded: &Loaded, question: &Question) -> Explanation {
    let policy = &loaded.policy.net;
    let host = match &question.host {
        Ok(host) => host,
        Err(bad) => return no_host(question, bad),
    };
    let rules = Rules::of_policy(policy);
    let judged = judge(&rules, host, question);
    let (method, path) = match judged.access {
        Access::Connection => (None, None),
        Access::Request { method, path, .. } => (Some(method.to_owned()), Some(path.raw().to_owned())),
    };
    let target = Target { host, port: question.port, access: judged.access };
    let mut explanation = Explanation {
        v: VERSION,
        subject: plain_and_short(&describe(&target), LONGEST_SHOWN),
        host: Some(host.to_string()),
        port: question.port,
        method,
        path,
        allowed: true,
        reason: None,
        why: None,
        rule: String::new(),
        layer: None,
        place: None,
        https: judged.https,
        built_in: built_in(question, host),
        later: Vec::new(),
        fix: None,
        hint: None,
    };
    match &judged.decision {
        Decision::Allowed(allowed) => {
            explanation.rule = allowed.rule.to_string();
            explanation.later = later(policy, host);
        }
        Decision::Denied(denied) => {
            explanation.allowed = false;
            explanation.rule = denied.rule.to_string();
            explanation.reason = Some(denied.reason.code().to_owned());
            explanation.why = Some(denied.why.clone());
            explanation.https = Https::Denied;
            if policy.unknown.value == UnknownHosts::Ask && may_be_asked_about(host, denied) {
                let said = "`net.unknown: ask` has a person asked about it, where there is one, and a yes allows it; only programs \
                            that use the proxy variables are asked about";
                explanation.later.push(said.to_owned());
            }
        }
    }
    if let Some(origin) = origin_of(policy, &explanation.rule) {
        explanation.layer = Some(origin.layer.to_string());
        explanation.place = origin.place.clone();
    }
    if let Decision::Denied(denied) = &judged.decision {
        let advice = advice::advise(loaded, host, question, denied);
        explanation.hint = Some(advice.0);
        explanation.fix = advice.1;
    }
    explanation
}

fn no_host(question: &Question, bad: &BadHost) -> Explanation {
    Explanation {
        v: VERSION,
        subject: format!("a connection to {}", question.text),
        host: None,
        port: question.port,
        method: None,
        path: None,
        allowed: false,
        reason: Some(Reason::BadHost.code().to_owned()),
        why: Some(plain_and_short(&bad.to_string(), LONGEST_SHOWN)),
        rule: Reason::BadHost.code().to_owned(),
        layer: None,
        place: None,
        https: Https::Denied,
        built_in: vec!["a host without one canonical form is never reached, and no rule can name it".to_owned()],
        later: Vec::new(),
        fix: None,
        hint: Some("write the host as the reason says, and ask again".to_owned()),
    }
}

struct Judged<'a> {
    decision: Decision,
    access: Access<'a>,
    https: Https,
}

/// As the proxy does it: plain HTTP is a request; HTTPS is a connection first, and a request where it is opened.
fn judge<'a>(rules: &Rules, host: &'a Host, question: &'a Question) -> Judged<'a> {
    let port = question.port;
    let request = |scheme| Access::Request {
        scheme,
        method: question.method.as_deref().unwrap_or("GET"),
        path: question.path.as_ref().unwrap_or_else(|| root()),
    };
    if question.scheme == Scheme::Http {
        let access = request(Scheme::Http);
        return Judged { decision: foresee(rules, &Target { host, port, access }), access, https: Https::Plain };
    }
    let decision = foresee(rules, &Target { host, port, access: Access::Connection });
    let https = match &decision {
        Decision::Denied(_) => Https::Denied,
        Decision::Allowed(allowed) => match allowed.handling {
            Handling::Web => Https::Closed,
            Handling::Tcp => Https::Anything,
            Handling::Inspect => Https::Opened,
        },
    };
    if https == Https::Opened && (question.method.is_some() || question.path.is_some()) {
        let access = request(Scheme::Https);
        return Judged { decision: foresee(rules, &Target { host, port, access }), access, https };
    }
    Judged { decision, access: Access::Connection, https }
}

fn root() -> &'static UrlPath {
    static ROOT: std::sync::OnceLock<UrlPath> = std::sync::OnceLock::new();
    ROOT.get_or_init(|| UrlPath::new("/"))
}

fn address_of(host: &Host) -> Option<IpAddr> {
    match host {
        Host::Address(address) | Host::ThisMachine(Loopback::Address(address)) => Some(*address),
        Host::Name(_) | Host::ThisMachine(Loopback::Name) => None,
    }
}

fn built_in(question: &Question, host: &Host) -> Vec<String> {
    let mut said = Vec::new();
    let typed = question.text.trim_start_matches('[').split([']']).next().unwrap_or_default();
    let canonical = host.to_string();
    if !typed.starts_with(&canonical) && typed != canonical {
        said.push(format!("read as `{canonical}`, its canonical form"));
    }
    if is_channel_to_strangers(host) {
        said.push("a channel to strangers: what is sent there can be read by whoever has an account; a rule needs more than its name".to_owned());
    }
    if let Some(kind) = address_of(host).map(kind_of).filter(|kind| *kind != AddressKind::Public) {
        said.push(format!("{kind}, which is refused unless a rule names it"));
    }
    if matches!(host, Host::ThisMachine(_)) {
        said.push("this machine, of which ports are listed under `net.localhost`".to_owned());
    }
    if has_foreign_letters(&canonical) {
        said.push("a name with letters beyond ASCII, which may look like another".to_owned());
    }
    said
}

/// Whether a label is written in the ASCII form of other letters.
pub(crate) fn has_foreign_letters(name: &str) -> bool {
    name.split('.').any(|label| label.starts_with("xn--"))
}

fn later(policy: &NetPolicy, host: &Host) -> Vec<String> {
    let mut said = Vec::new();
    if matches!(host, Host::Name(_)) {
        said.push("the name is looked up when it is used; an address that is not public is refused then".to_owned());
    }
    if let Some(upstream) = policy.upstream.as_ref().filter(|_| !matches!(host, Host::ThisMachine(_))) {
        said.push(format!("it goes out through {}, which looks names up itself", upstream.value));
    }
    if policy.mode.value == NetMode::Open {
        said.push(
            "no wall that isolates offers `net.mode: open`, and behind one that does not nothing is judged".to_owned(),
        );
    }
    said
}

/// The origin that a rule's name ends with.
fn origin_of<'p>(policy: &'p NetPolicy, rule: &str) -> Option<&'p Origin> {
    let listed = policy.allow.iter().chain(&policy.deny).map(|rule| (rule.value.to_string(), &rule.origin));
    let ports = policy.localhost.iter().map(|port| (port.value.to_string(), &port.origin));
    let mut listed = listed.chain(ports);
    let by_rule =
        listed.find(|(value, origin)| rule.ends_with(&format!("{value} ({origin})"))).map(|(_, origin)| origin);
    // What follows from the mode alone is the mode's.
    let by_mode = rule == Reason::NoNetwork.code() || rule.starts_with("net.mode");
    by_rule.or_else(|| by_mode.then_some(&policy.mode.origin))
}

/// The pattern that means exactly `host`; nothing for this machine, which is listed by its ports.
pub(crate) fn pattern_of(host: &Host) -> Option<HostPattern> {
    match host {
        Host::Name(name) => Some(HostPattern::Name(name.clone())),
        Host::Address(address) => Some(HostPattern::Address(*address)),
        Host::ThisMachine(_) => None,
    }
}

/// The pattern that means exactly this path.
pub(crate) fn exact_path(path: &str) -> Option<Glob> {
    let mut text = String::with_capacity(path.len());
    for letter in path.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            text.push('\\');
        }
        text.push(letter);
    }
    let glob: Glob = text.parse().ok()?;
    glob.matches(path).then_some(glob)
}

/// The network of `policy` with `addition`, as the project would write it.
pub(crate) fn with_addition(policy: &NetPolicy, addition: &NetAddition) -> NetPolicy {
    let origin = || Origin { layer: Layer::Project, place: None };
    let mut net = policy.clone();
    if let Some(mode) = addition.mode {
        net.mode = ringfence_policy::Sourced { value: mode, origin: origin() };
    }
    let sourced = |value: &NetRule| ringfence_policy::Sourced { value: value.clone(), origin: origin() };
    net.allow.extend(addition.allow.iter().map(sourced));
    net.localhost
        .extend(addition.localhost.iter().map(|value| ringfence_policy::Sourced { value: *value, origin: origin() }));
    net
}

/// What the operator's floor leaves of `addition`, and of nothing else. Nothing when it cannot be written.
pub(crate) fn under_floor(loaded: &Loaded, addition: &NetAddition) -> Option<NetPolicy> {
    let mut inputs = vec![LayerInput { layer: Layer::Project, file: addition.parsed().ok()? }];
    let operators = loaded.files.iter().filter(|file| file.layer == Layer::Operator);
    inputs.extend(
        operators.filter_map(|file| file.parsed.clone().map(|file| LayerInput { layer: Layer::Operator, file })),
    );
    resolve(&inputs, &[]).ok().map(|policy| policy.net)
}

/// The file of the project, and what has to stand at its beginning.
pub(crate) fn project_file(loaded: &Loaded) -> (String, &'static str) {
    match &loaded.project_file {
        Some(file) => (file.display().to_string(), ""),
        None => (PROJECT_FILE.to_owned(), "version: 1\n"),
    }
}

#[cfg(test)]
mod tests;
