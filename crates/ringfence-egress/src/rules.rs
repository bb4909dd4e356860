//! The network rules of one policy, indexed by host, so that a decision costs the same with ten rules and ten thousand.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ringfence_policy::{HostPattern, NetMode, NetPolicy, NetProtocol, NetRule};

use crate::budget::{Budget, RuleBudgets};
use crate::host::Host;
use crate::strangers::{labels, parents};

/// What may be spoken over a connection that is not looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP, or TLS that says which name it wants.
    Web,
    /// Anything. The name that was asked for is all that is known of it.
    Tcp,
}

/// Whether TLS is opened and looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inspection {
    /// It stays closed, so that only names can be judged.
    Closed,
    /// It is opened with a certificate of the sandbox's own authority, so that methods and paths are judged.
    Inspected,
}

/// Whether somebody has said that a channel to strangers is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strangers {
    /// Nobody has.
    NotAcknowledged,
    /// It was said in so many words.
    Acknowledged,
}

/// One rule of the policy, and how its hosts are handled.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Hosts, ports, methods, paths and the credential.
    pub net: NetRule,
    /// What may be spoken.
    pub protocol: Protocol,
    /// Whether TLS is opened. A rule with a credential always opens it.
    pub inspection: Inspection,
    /// Whether a channel to strangers is meant.
    pub strangers: Strangers,
    /// How much of each of its hosts may be used.
    pub budget: Budget,
    /// How records name the rule.
    pub name: Arc<str>,
}

impl Rule {
    /// A rule as the policy states it, under the name that records show.
    pub fn new(net: NetRule, name: impl Into<Arc<str>>) -> Self {
        Self {
            protocol: match net.protocol {
                NetProtocol::Web => Protocol::Web,
                NetProtocol::Tcp => Protocol::Tcp,
            },
            inspection: if net.inspects() { Inspection::Inspected } else { Inspection::Closed },
            strangers: if net.acknowledge { Strangers::Acknowledged } else { Strangers::NotAcknowledged },
            budget: Budget::from(&net.budget),
            net,
            name: name.into(),
        }
    }

    pub(crate) fn covers_port(&self, port: u16) -> bool {
        self.net.ports.is_empty() || self.net.ports.contains(&port)
    }

    pub(crate) fn covers_method(&self, method: &str) -> bool {
        self.net.methods.is_empty() || self.net.methods.iter().any(|known| known == method)
    }

    /// Likewise for a deny rule, and for what a rule demands: some servers take `Post` for `POST`.
    pub(crate) fn denies_method(&self, method: &str) -> bool {
        self.net.methods.is_empty() || self.net.methods.iter().any(|known| known.eq_ignore_ascii_case(method))
    }

    /// Whether the rule can only be held against a request, not against a connection.
    pub(crate) fn judges_requests(&self) -> bool {
        !self.net.methods.is_empty() || !self.net.paths.is_empty()
    }

    pub(crate) fn opens_tls(&self) -> bool {
        self.inspection == Inspection::Inspected || self.net.inspects()
    }

    pub(crate) fn may_talk_to_strangers(&self) -> bool {
        self.strangers == Strangers::Acknowledged || self.net.credential.is_some()
    }
}

/// The rules of one sandbox. [`crate::decide`] reads them; nothing changes them.
#[derive(Debug, Clone)]
pub struct Rules {
    mode: NetMode,
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    names: HashMap<Box<str>, Slot>,
    addresses: HashMap<IpAddr, Slot>,
    /// The most labels of a name that a wildcard stands below: longer names above a host need no look.
    deepest: usize,
    localhost: Vec<(u16, Arc<str>)>,
}

/// Positions of the rules for one name or address.
#[derive(Debug, Clone, Default)]
struct Slot {
    allow: Vec<usize>,
    deny: Vec<usize>,
    allow_below: Vec<usize>,
    deny_below: Vec<usize>,
}

/// Which list of rules is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Allow,
    Deny,
}

impl Rules {
    /// Nothing is reachable; what is added by [`Rules::allow`] and its kin is.
    pub fn none() -> Self {
        Self {
            mode: NetMode::Allowlist,
            allow: Vec::new(),
            deny: Vec::new(),
            names: HashMap::new(),
            addresses: HashMap::new(),
            deepest: 0,
            localhost: Vec::new(),
        }
    }

    /// What the resolved policy says. Sockets of `net.unix` are not reached through a proxy, and are not here.
    pub fn of_policy(policy: &NetPolicy) -> Self {
        let mut rules = Self::none();
        rules.mode = policy.mode.value;
        for rule in &policy.allow {
            let name = format!("net.allow {} ({})", rule.value, rule.origin);
            rules = rules.allow(Rule::new(rule.value.clone(), name));
        }
        for rule in &policy.deny {
            let name = format!("net.deny {} ({})", rule.value, rule.origin);
            rules = rules.deny(Rule::new(rule.value.clone(), name));
        }
        for port in &policy.localhost {
            rules.localhost.push((port.value, format!("net.localhost {} ({})", port.value, port.origin).into()));
        }
        rules
    }

    /// The same with one more allow rule.
    #[must_use]
    pub fn allow(mut self, rule: Rule) -> Self {
        self.index(&rule.net.host, self.allow.len(), List::Allow);
        self.allow.push(rule);
        self
    }

    /// The same with one more deny rule, which beats every allow rule.
    #[must_use]
    pub fn deny(mut self, rule: Rule) -> Self {
        self.index(&rule.net.host, self.deny.len(), List::Deny);
        self.deny.push(rule);
        self
    }

    /// The same with one more port of this machine.
    #[must_use]
    pub fn localhost(mut self, port: u16) -> Self {
        self.localhost.push((port, format!("net.localhost {port}").into()));
        self
    }

    /// Whether a rule wants TLS opened, so that the proxy needs an [`crate::Inspector`] and the sandbox its certificate.
    pub fn need_inspection(&self) -> bool {
        self.allow.iter().any(Rule::opens_tls)
    }

    pub(crate) fn budgets(&self) -> RuleBudgets {
        if self.allow.iter().any(|rule| rule.budget.limits()) { RuleBudgets::Some } else { RuleBudgets::None }
    }

    fn index(&mut self, host: &HostPattern, position: usize, list: List) {
        let (slot, below) = match host {
            HostPattern::Name(name) => (self.names.entry(name.as_str().into()).or_default(), false),
            HostPattern::Subdomains(name) => {
                self.deepest = self.deepest.max(labels(name));
                (self.names.entry(name.as_str().into()).or_default(), true)
            }
            HostPattern::Address(address) => (self.addresses.entry(address.to_canonical()).or_default(), false),
        };
        let positions = match (list, below) {
            (List::Allow, false) => &mut slot.allow,
            (List::Allow, true) => &mut slot.allow_below,
            (List::Deny, false) => &mut slot.deny,
            (List::Deny, true) => &mut slot.deny_below,
        };
        positions.push(position);
    }

    pub(crate) fn mode(&self) -> NetMode {
        self.mode
    }

    pub(crate) fn localhost_rule(&self, port: u16) -> Option<&Arc<str>> {
        self.localhost.iter().find(|(known, _)| *known == port).map(|(_, name)| name)
    }

    /// The allow rules for this host, whatever their ports, the nearest names first.
    pub(crate) fn allowing<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Rule> {
        self.positions(host, List::Allow).filter_map(|position| self.allow.get(position))
    }

    /// The deny rules for this host, whatever their ports.
    pub(crate) fn denying<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Rule> {
        self.positions(host, List::Deny).filter_map(|position| self.deny.get(position))
    }

    fn positions<'a>(&'a self, host: &'a Host, list: List) -> impl Iterator<Item = usize> + 'a {
        let (name, address) = match host {
            Host::Name(name) => (Some(name.as_str()), None),
            Host::Address(address) | Host::ThisMachine(crate::host::Loopback::Address(address)) => {
                (None, Some(*address))
            }
            Host::ThisMachine(crate::host::Loopback::Name) => (None, None),
        };
        let exact = name
            .and_then(|name| self.names.get(name))
            .or_else(|| address.and_then(|address| self.addresses.get(&address)))
            .map(|slot| match list {
                List::Allow => slot.allow.as_slice(),
                List::Deny => slot.deny.as_slice(),
            });
        let below = name.into_iter().flat_map(|name| parents(name, self.deepest)).filter_map(move |parent| {
            self.names.get(parent).map(|slot| match list {
                List::Allow => slot.allow_below.as_slice(),
                List::Deny => slot.deny_below.as_slice(),
            })
        });
        exact.into_iter().chain(below).flatten().copied()
    }

    /// Some of what is allowed, for whoever was denied something else.
    pub(crate) fn summary(&self) -> String {
        const SHOWN: usize = 8;
        if self.mode == NetMode::None {
            return "nothing: this sandbox has no network".to_owned();
        }
        let mut items: Vec<String> = self.allow.iter().take(SHOWN).map(|rule| rule.net.to_string()).collect();
        items.extend(self.localhost.iter().take(SHOWN).map(|(port, _)| format!("localhost:{port}")));
        let hidden = (self.allow.len() + self.localhost.len()).saturating_sub(items.len());
        match (self.mode, items.is_empty(), hidden) {
            (NetMode::Open, ..) => "every host that no rule denies".to_owned(),
            (_, true, _) => "nothing: the list of allowed hosts is empty".to_owned(),
            (_, false, 0) => items.join("; "),
            (_, false, hidden) => format!("{}; and {hidden} more", items.join("; ")),
        }
    }

    /// Some of what is allowed on this host.
    pub(crate) fn summary_of(&self, host: &Host) -> Option<String> {
        const SHOWN: usize = 6;
        let items: Vec<String> = self.allowing(host).take(SHOWN).map(|rule| rule.net.to_string()).collect();
        (!items.is_empty()).then(|| items.join("; "))
    }
}
