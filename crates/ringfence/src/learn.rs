//! The least policy that would have let through what a run was denied, for a person to look at and take over.
//!
//! Nothing is opened by learning: it reads what was denied. What a program asked for is hostile, so only hosts in canonical form are
//! proposed, and what may be a trap (a channel to strangers, an address inside, a name that looks like another) is set apart.

mod look_alike;
mod paths;
mod shared;

use std::collections::{BTreeMap, BTreeSet};

use ringfence_egress::{
    Access, AddressKind, Decision, Host, Rules, Scheme, Target, UrlPath, decide, is_channel_to_strangers, kind_of,
    plain_and_short,
};
use ringfence_policy::{HostPattern, NetAddition, NetMode, NetPolicy, NetRule, NotWritable};
use serde::Serialize;

use crate::egress::Contact;
use crate::explain::{has_foreign_letters, pattern_of, project_file, under_floor, with_addition};
use crate::layers::Loaded;
use crate::ledger::Record;

/// The version of the JSON.
const VERSION: u32 = 1;
const LONGEST_SHOWN: usize = 256;
/// The port of a host that was only looked up.
const GUESSED_PORT: u16 = 443;

/// What somebody wants besides the least.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Hosts that were looked at, and are meant although they would be set apart.
    pub include: Vec<String>,
    /// Whether several names below one become a pattern.
    pub wildcards: Wildcards,
}

/// Whether several names below one become a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wildcards {
    /// Each name for itself.
    #[default]
    Never,
    /// `*.example.org` for two names or more.
    Asked,
}

/// What a run was denied, as a person can judge it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lesson {
    /// The version of the format.
    pub v: u32,
    /// The run.
    pub run: String,
    /// How many different contacts were denied.
    pub denied: usize,
    /// How many of them the proposal would let through.
    pub covered: usize,
    /// How many the run did not write down one by one.
    pub omitted: u64,
    /// The rules that are proposed, in words.
    pub rules: Vec<String>,
    /// Hosts that were only looked up: their port is a guess.
    pub guessed: Vec<String>,
    /// Where the proposal is wider than what was seen, in words.
    pub wider: Vec<String>,
    /// The file to write it into.
    pub file: String,
    /// What to write there; nothing when nothing is proposed.
    pub snippet: Option<String>,
    /// What is not proposed, and why.
    pub apart: Vec<Apart>,
}

/// A contact that is not proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Apart {
    /// The host, or what was asked for instead of one, as plain ASCII.
    pub host: String,
    /// The port; 0 where there was none.
    pub port: u16,
    /// Why it was denied.
    pub reason: String,
    /// Why it is not proposed.
    pub why: String,
    /// Whether naming the host proposes it all the same.
    pub can_be_included: bool,
    /// How often it was wanted.
    pub count: u64,
}

/// What the ledger says that a run wanted, and how many more there were.
pub fn contacts_of(records: &[Record]) -> (Vec<Contact>, u64) {
    let mut contacts = Vec::new();
    let mut omitted = 0;
    for network in records.iter().filter_map(|record| record.body.get("network")) {
        let list = network.get("contacts").and_then(serde_json::Value::as_array);
        // A line of another version that cannot be read is counted, not guessed at.
        for value in list.into_iter().flatten() {
            match serde_json::from_value::<Contact>(value.clone()) {
                Ok(contact) => contacts.push(contact),
                Err(_) => omitted += 1,
            }
        }
        omitted += network.get("omitted").and_then(serde_json::Value::as_u64).unwrap_or_default();
    }
    (contacts, omitted)
}

/// A denied contact that a rule could let through.
struct Wanted<'c> {
    contact: &'c Contact,
    host: Host,
    port: u16,
    path: Option<UrlPath>,
}

impl Wanted<'_> {
    fn target(&self) -> Target<'_> {
        let access = match (&self.contact.method, &self.path) {
            (Some(method), Some(path)) => {
                let scheme = if self.contact.via == "tls" { Scheme::Https } else { Scheme::Http };
                Access::Request { scheme, method, path }
            }
            _ => Access::Connection,
        };
        Target { host: &self.host, port: self.port, access }
    }

    fn is_allowed_by(&self, rules: &Rules) -> bool {
        matches!(decide(rules, &self.target()), Decision::Allowed(_))
    }
}

/// Proposes the least that would have let through what was denied of `contacts`.
pub fn learn(
    loaded: &Loaded,
    run: &str,
    contacts: &[Contact],
    omitted: u64,
    wishes: &Wishes,
) -> Result<Lesson, NotWritable> {
    let policy = &loaded.policy.net;
    let mut denied: Vec<&Contact> = contacts.iter().filter(|contact| !contact.allowed).collect();
    // A lookup besides a connection to the same host says nothing that the connection does not.
    let connected: BTreeSet<&str> =
        denied.iter().filter(|one| !is_lookup(one)).map(|contact| contact.host.as_str()).collect();
    denied.retain(|contact| !is_lookup(contact) || !connected.contains(contact.host.as_str()));
    let mut apart = Vec::new();
    let mut wanted = Vec::new();
    for contact in &denied {
        match judge(policy, contact, wishes) {
            Ok(found) => wanted.push(found),
            Err((why, can_be_included)) => apart.push(set_apart(contact, why, can_be_included)),
        }
    }
    // First one by one: what a rule of its own would not let through is in no rule.
    wanted.retain(|one| match refused(loaded, &propose(policy, std::slice::from_ref(one)), one) {
        None => true,
        Some(why) => {
            apart.push(set_apart(one.contact, why, false));
            false
        }
    });
    let mut addition = propose(policy, &wanted);
    if wishes.wildcards == Wildcards::Asked {
        addition.allow = with_wildcards(addition.allow);
    }
    wanted.retain(|one| match refused(loaded, &addition, one) {
        None => true,
        Some(why) => {
            apart.push(set_apart(one.contact, why, false));
            false
        }
    });
    let (file, begin) = project_file(loaded);
    let is_empty = addition.allow.is_empty() && addition.localhost.is_empty();
    let snippet = if is_empty { None } else { Some(format!("{begin}{}", addition.write()?)) };
    Ok(Lesson {
        v: VERSION,
        run: run.to_owned(),
        denied: denied.len(),
        covered: wanted.len(),
        omitted,
        rules: addition.allow.iter().map(ToString::to_string).collect(),
        guessed: wanted.iter().filter(|one| is_lookup(one.contact)).map(|one| one.host.to_string()).collect(),
        wider: addition.allow.iter().flat_map(wider).collect(),
        file,
        snippet,
        apart,
    })
}

/// Whether a program only asked for the addresses of a name, so that nobody knows the port.
fn is_lookup(contact: &Contact) -> bool {
    contact.via == "lookup" && contact.port == 0
}

/// Where many paths became few patterns.
fn wider(rule: &NetRule) -> Vec<String> {
    if rule.methods.is_empty() {
        return Vec::new();
    }
    if rule.paths.is_empty() {
        return vec![format!("every path of {}, for {}", rule.host, rule.methods.join(", "))];
    }
    let below = rule.paths.iter().filter_map(|path| path.as_str().strip_suffix("/**"));
    below.map(|folder| format!("all below {folder} of {}, for {}", rule.host, rule.methods.join(", "))).collect()
}

fn set_apart(contact: &Contact, why: String, can_be_included: bool) -> Apart {
    Apart {
        host: plain_and_short(&contact.host, LONGEST_SHOWN),
        port: contact.port,
        reason: plain_and_short(contact.reason.as_deref().unwrap_or_default(), LONGEST_SHOWN),
        why,
        can_be_included,
        count: contact.count,
    }
}

/// Whether a contact may be proposed; otherwise why not, and whether naming its host changes that.
fn judge<'c>(policy: &NetPolicy, contact: &'c Contact, wishes: &Wishes) -> Result<Wanted<'c>, (String, bool)> {
    let never = |why: &str| Err((why.to_owned(), false));
    match contact.reason.as_deref() {
        Some("net.not-listed" | "net.port" | "net.method" | "net.path" | "net.stranger" | "net.none") => {}
        Some("net.denied") => return never("a deny rule names it, which beats every allow rule"),
        Some("net.address") => {
            return never(
                "the name leads to an address that is not public; whoever means that names the address itself",
            );
        }
        Some("net.needs-inspection") => {
            return never(
                "its rule looks at methods or paths, which were not seen in this connection; add `inspect: true` to it",
            );
        }
        _ => return never("no allow rule would have let it through"),
    }
    let host = match Host::parse(&contact.host) {
        // What is not its own canonical form was not written down by the proxy as a host.
        Ok(host) if host.to_string() == contact.host && (contact.port != 0 || is_lookup(contact)) => host,
        Ok(_) | Err(_) => return never("this is no host in canonical form"),
    };
    let is_method = |method: &str| method.len() <= 20 && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if contact.method.as_deref().is_some_and(|method| !is_method(method)) {
        return never("no rule can name this method");
    }
    if let Some(why) = trap(policy, &host)
        && !wishes.include.contains(&contact.host)
    {
        return Err((why, true));
    }
    let path = contact.path.as_deref().map(UrlPath::new);
    let port = if is_lookup(contact) { GUESSED_PORT } else { contact.port };
    Ok(Wanted { contact, host, port, path })
}

/// Why a host is not proposed unless somebody names it.
pub(crate) fn trap(policy: &NetPolicy, host: &Host) -> Option<String> {
    match host {
        Host::ThisMachine(_) => {
            Some("a service of this machine, which is reached with this machine's trust".to_owned())
        }
        Host::Address(address) => Some(match kind_of(*address) {
            AddressKind::Public => "an address without a name: nobody can tell whose it is tomorrow".to_owned(),
            kind => format!("{kind}: it is not reached from outside, and may trust whoever is inside"),
        }),
        Host::Name(name) if is_channel_to_strangers(host) => {
            Some(format!("a channel to strangers: what is sent to {name} can be read by whoever has an account there"))
        }
        Host::Name(name) if has_foreign_letters(name) => {
            Some("a name with letters beyond ASCII, which may look like another".to_owned())
        }
        Host::Name(name) => {
            let listed = policy.allow.iter().map(|rule| &rule.value.host);
            let listed: Vec<&str> = listed
                .filter_map(|host| match host {
                    HostPattern::Name(name) | HostPattern::Subdomains(name) => Some(name.as_str()),
                    HostPattern::Address(_) => None,
                })
                .collect();
            look_alike::of(name, &listed).map(|known| format!("it looks like {known}, and is another host"))
        }
    }
}

/// Why `addition` would not let `one` through.
fn refused(loaded: &Loaded, addition: &NetAddition, one: &Wanted<'_>) -> Option<String> {
    let with = Rules::of_policy(&with_addition(&loaded.policy.net, addition));
    if let Decision::Denied(denied) = decide(&with, &one.target()) {
        return Some(format!("a rule alone does not let it through: {}", denied.why));
    }
    let mut alone = addition.clone();
    alone.mode = Some(NetMode::Allowlist);
    match under_floor(loaded, &alone) {
        Some(net) if one.is_allowed_by(&Rules::of_policy(&net)) => None,
        _ => Some("the operator's floor does not permit it".to_owned()),
    }
}

/// What a rule says besides its host and ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    methods: Vec<String>,
    paths: Vec<String>,
    inspect: bool,
}

/// The rules for all that is wanted.
fn propose(policy: &NetPolicy, wanted: &[Wanted<'_>]) -> NetAddition {
    let mut addition = NetAddition {
        mode: (policy.mode.value == NetMode::None).then_some(NetMode::Allowlist),
        ..NetAddition::default()
    };
    let mut places: BTreeMap<(HostPattern, u16), Vec<&Wanted<'_>>> = BTreeMap::new();
    let mut localhost = BTreeSet::new();
    for one in wanted {
        match pattern_of(&one.host) {
            Some(pattern) => places.entry((pattern, one.port)).or_default().push(one),
            None => {
                localhost.insert(one.port);
            }
        }
    }
    addition.localhost.extend(localhost);
    // Ports for which the same is wanted share a rule.
    let mut rules: BTreeMap<(HostPattern, Shape), BTreeSet<u16>> = BTreeMap::new();
    for ((host, port), wanted) in places {
        for shape in shapes(&wanted) {
            rules.entry((host.clone(), shape)).or_default().insert(port);
        }
    }
    for ((host, shape), ports) in rules {
        let paths = shape.paths.iter().filter_map(|path| path.parse().ok()).collect();
        let acknowledge = Host::parse(&host.to_string()).is_ok_and(|host| is_channel_to_strangers(&host));
        addition.allow.push(NetRule {
            ports: ports.into_iter().collect(),
            methods: shape.methods,
            paths,
            inspect: shape.inspect,
            acknowledge,
            ..NetRule::new(host)
        });
    }
    addition
}

/// What was wanted of one host and port: methods with the paths that they were used with, where both were seen.
fn shapes(wanted: &[&Wanted<'_>]) -> Vec<Shape> {
    let mut methods: BTreeMap<&str, Vec<&UrlPath>> = BTreeMap::new();
    // What was seen in TLS that was opened is seen only there.
    let inspect = wanted.iter().any(|one| one.contact.via == "tls");
    for one in wanted {
        match (&one.contact.method, &one.path) {
            (Some(method), Some(path)) => methods.entry(method).or_default().push(path),
            // Nothing of what went over it was seen, so nothing of it can be told apart.
            _ => return vec![Shape { methods: Vec::new(), paths: Vec::new(), inspect: false }],
        }
    }
    let mut shapes: Vec<Shape> = Vec::new();
    for (method, paths) in methods {
        let paths = paths::collapse(&paths);
        match shapes.iter_mut().find(|shape| shape.paths == paths) {
            Some(shape) => shape.methods.push(method.to_owned()),
            None => shapes.push(Shape { methods: vec![method.to_owned()], paths, inspect }),
        }
    }
    shapes
}

/// Two names or more below one become a pattern, where nothing else tells them apart.
fn with_wildcards(rules: Vec<NetRule>) -> Vec<NetRule> {
    let mut kept: Vec<NetRule> = Vec::new();
    let mut below: BTreeMap<(String, Vec<u16>), Vec<NetRule>> = BTreeMap::new();
    for rule in rules {
        let parent = match &rule.host {
            HostPattern::Name(name) if rule.methods.is_empty() && rule.paths.is_empty() => {
                name.split_once('.').map(|(_, parent)| parent).filter(|parent| is_of_one_owner(parent))
            }
            HostPattern::Name(_) | HostPattern::Subdomains(_) | HostPattern::Address(_) => None,
        };
        match parent {
            Some(parent) => below.entry((parent.to_owned(), rule.ports.clone())).or_default().push(rule),
            None => kept.push(rule),
        }
    }
    for ((parent, ports), rules) in below {
        if rules.len() < 2 {
            kept.extend(rules);
        } else {
            kept.push(NetRule { ports, ..NetRule::new(HostPattern::Subdomains(parent)) });
        }
    }
    kept
}

/// Whether the names below probably belong to one: `co.uk` and `com.au` are sold name by name, `github.io` is given out so.
fn is_of_one_owner(parent: &str) -> bool {
    if shared::is_shared(parent) {
        return false;
    }
    let mut labels = parent.rsplit('.');
    match (labels.next(), labels.next(), labels.next()) {
        (Some(last), Some(second), None) => last.len() > 2 || second.len() > 3,
        (Some(_), Some(_), Some(_)) => true,
        (_, None, _) | (None, ..) => false,
    }
}

#[cfg(test)]
mod tests;
