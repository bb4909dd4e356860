//! What a rule demands of its hosts: that TLS is opened, that one credential and no other is used, that a budget is kept, that headers
//! are left out.
//!
//! Every rule that means a target is heard (the proxy opens TLS if one of them says so, and keeps the budgets of all). So a
//! list of rules gets wider when a rule with a demand is left out, although each rule that is left is one of the old ones.
//! Whoever makes a list narrower holds the demands of the old list here.

use crate::host::{HostPattern, NetRule, covers_all, meet_lists, unite};
use crate::policy::{NetProtocol, Origin, Sourced};

/// Makes `kept` hold what `rules` demand. Nothing is permitted that `kept` did not permit before.
pub(crate) fn hold_demands(kept: &mut Vec<Sourced<NetRule>>, rules: &[Sourced<NetRule>]) {
    let count = kept.len();
    for known in rules.iter().filter(|known| demands(&known.value)) {
        for position in 0..count {
            let Some(stricter) = kept.get(position).and_then(|rule| hold(&rule.value, &known.value)) else { continue };
            if kept.iter().any(|other| holds(&other.value, &known.value, &stricter)) {
                continue;
            }
            let stricter = Sourced { value: stricter, origin: known.origin.clone() };
            match kept.get_mut(position) {
                Some(rule) if same_reach(&rule.value, &stricter.value) => *rule = stricter,
                _ => kept.push(stricter),
            }
        }
    }
}

fn demands(rule: &NetRule) -> bool {
    rule.inspects() || !rule.budget.is_unlimited()
}

/// `rule`, where `known` means the same hosts and ports, with what `known` demands.
fn hold(rule: &NetRule, known: &NetRule) -> Option<NetRule> {
    let (host, ports) = overlap(rule, known)?;
    let methods = meet_lists(&rule.methods, &known.methods);
    if methods.is_none() && !known.inspects() {
        return None;
    }
    // Whether two globs have a path in common is not known here. So the demand holds for all paths of the rule, unless every glob that it
    // is for is one of the rule's: some that are equal say nothing about the others.
    let (methods, paths) = match methods {
        Some(methods) if covers_all(&rule.paths, &known.paths) => (methods, known.paths.clone()),
        Some(methods) => (methods, rule.paths.clone()),
        None => (rule.methods.clone(), rule.paths.clone()),
    };
    Some(NetRule {
        host,
        ports,
        methods,
        paths,
        credential: rule.credential.clone(),
        inspect: rule.inspect || known.inspects() && rule.credential.is_none(),
        // What is looked into is HTTP.
        protocol: if known.inspects() { NetProtocol::Web } else { rule.protocol },
        acknowledge: rule.acknowledge,
        budget: rule.budget.meet(&known.budget),
        strip: unite(&rule.strip, &known.strip),
    })
}

/// Whether `other` already has wherever `stricter` reaches what `known` demands.
fn holds(other: &NetRule, known: &NetRule, stricter: &NetRule) -> bool {
    let requests =
        |wanted: &NetRule| covers_all(&other.methods, &wanted.methods) && covers_all(&other.paths, &wanted.paths);
    other.host.covers(&stricter.host)
        && covers_all(&other.ports, &stricter.ports)
        // TLS is opened before a request is seen.
        && (other.inspects() || !known.inspects())
        && known.strip.iter().all(|header| other.strip.contains(header))
        && (known.budget.is_unlimited() || known.budget.covers(&other.budget))
        && (known.budget.is_unlimited() && known.strip.is_empty() || requests(stricter) || requests(known))
}

fn same_reach(a: &NetRule, b: &NetRule) -> bool {
    a.host == b.host && a.ports == b.ports && a.methods == b.methods && a.paths == b.paths
}

fn overlap(a: &NetRule, b: &NetRule) -> Option<(HostPattern, Vec<u16>)> {
    let host = if a.host.covers(&b.host) {
        &b.host
    } else if b.host.covers(&a.host) {
        &a.host
    } else {
        return None;
    };
    Some((host.clone(), meet_lists(&a.ports, &b.ports)?))
}

/// Hosts that `kept` reaches with anybody's key, while `known` binds them to a credential.
#[derive(Debug)]
pub(crate) struct Unbound<'r> {
    /// The rule that reaches them.
    pub(crate) rule: &'r Sourced<NetRule>,
    /// The rule with the credential.
    pub(crate) known: &'r Sourced<NetRule>,
    host: HostPattern,
    ports: Vec<u16>,
}

impl Unbound<'_> {
    /// The rule with the credential, as far as the other one reaches.
    pub(crate) fn bind(&self) -> Option<NetRule> {
        let known = &self.known.value;
        let free = NetRule { credential: known.credential.clone(), ..self.rule.value.clone() };
        free.meet(known).map(|both| NetRule { inspect: known.inspect, ..both })
    }

    /// A rule for these hosts, whatever is asked of them.
    pub(crate) fn all(&self) -> NetRule {
        NetRule { ports: self.ports.clone(), ..NetRule::new(self.host.clone()) }
    }
}

/// Every pair of a rule of `kept` and one of `rules` whose credential would be left out.
pub(crate) fn unbound<'r>(kept: &'r [Sourced<NetRule>], rules: &'r [Sourced<NetRule>]) -> Vec<Unbound<'r>> {
    let mut found = Vec::new();
    for known in rules.iter().filter(|known| known.value.credential.is_some()) {
        for rule in kept.iter().filter(|rule| rule.value.credential.is_none()) {
            let Some((host, ports)) = overlap(&rule.value, &known.value) else { continue };
            let binds = |other: &NetRule| {
                other.credential.is_some() && other.host.covers(&host) && covers_all(&other.ports, &ports)
            };
            if !kept.iter().any(|other| binds(&other.value)) {
                found.push(Unbound { rule, known, host, ports });
            }
        }
    }
    found
}

/// Who is to be named for what an operator's list has shut.
pub(crate) fn shut_by(unbound: &Unbound<'_>, operator: &Origin) -> Origin {
    let origin = &unbound.known.origin;
    if origin.layer == operator.layer { origin.clone() } else { operator.clone() }
}
