//! Addresses for names, made up for one sandbox. A program that knows nothing of proxies looks a name up, is told one of them,
//! and connects to it: so the name is known from the address. Nothing is looked up outside when a name is asked for inside.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, PoisonError};

use ringfence_policy::{HostPattern, NetPolicy};

use crate::decide::{Access, Decision, Target, decide};
use crate::denial::{Denied, Reason};
use crate::host::Host;
use crate::rules::{Rule, Rules};

/// Addresses that are made up for names: the first of them, and how many bits all have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedAddresses {
    /// The first.
    pub first: Ipv4Addr,
    /// How many of its bits the others have, too.
    pub bits: u8,
}

impl NamedAddresses {
    /// For measuring networks: no host has one of them. Somebody with power over the sandbox's network has to give them to it.
    pub const OF_NO_HOST: Self = Self { first: Ipv4Addr::new(198, 18, 0, 1), bits: 15 };
    /// Of every loopback, without anybody's help.
    pub const OF_A_LOOPBACK: Self = Self { first: Ipv4Addr::new(127, 198, 0, 1), bits: 15 };

    fn contain(self, address: Ipv4Addr) -> bool {
        (address.to_bits() ^ self.first.to_bits()) >> (32 - u32::from(self.bits)) == 0
    }
}

impl fmt::Display for NamedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

/// Where names are asked for inside.
pub const NAME_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53);

/// Programs without privileges cannot listen at a lower port, so at those we may listen for every address at once.
const FIRST_FREE_PORT: u16 = 1024;
/// What a rule without ports means for a program that just connects.
const WEB: [u16; 2] = [443, 80];
/// The most sockets of one sandbox: they are handed out in one message, and each costs a start a little.
const MOST_SOCKETS: usize = 24;
/// Addresses with sockets of their own that names below a wildcard can get.
const SHARED: usize = 8;
/// The most names that are not in the policy itself. A wildcard allows more names than there are.
const MOST_FOUND: usize = 4096;

/// Where connections to names arrive: the sockets that have to be there before the first program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    addresses: NamedAddresses,
    sockets: Vec<SocketAddrV4>,
    /// Names with sockets of their own.
    own: Vec<(Box<str>, Ipv4Addr)>,
    /// Addresses with sockets, for names that are not known yet.
    shared: Vec<Ipv4Addr>,
    omitted: usize,
}

impl Places {
    /// Nowhere: what is told of names leads to no socket yet.
    pub fn none(addresses: NamedAddresses) -> Self {
        Self { addresses, sockets: Vec::new(), own: Vec::new(), shared: Vec::new(), omitted: 0 }
    }

    /// Places for what `policy` allows, at `addresses`; at the ports of this sandbox's loopback in `taken` somebody else listens.
    ///
    /// For a low port one socket serves every address. Higher ones belong to programs, who may listen there themselves: for those each
    /// name has sockets at its own address. What has no place can be reached through the proxy alone.
    pub fn of_policy(policy: &NetPolicy, addresses: NamedAddresses, taken: &[u16]) -> Self {
        let names = || policy.allow.iter().filter(|rule| !matches!(rule.value.host, HostPattern::Address(_)));
        let ports = |ports: &[u16]| if ports.is_empty() { WEB.to_vec() } else { ports.to_vec() };
        let is_low = |port: &u16| *port < FIRST_FREE_PORT && *port != NAME_SERVER.port() && *port != 0;
        let is_high = |port: &u16| *port >= FIRST_FREE_PORT;
        let mut places = Self::none(addresses);
        let low: BTreeSet<u16> = names().flat_map(|rule| ports(&rule.value.ports)).filter(is_low).collect();
        for port in &low {
            places.listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, *port));
        }
        // `localhost` is the sandbox's own loopback; at these ports it is this machine's.
        let loopback: BTreeSet<u16> = policy.localhost.iter().map(|port| port.value).collect();
        let is_taken = |port: &u16| low.contains(port) || taken.contains(port) || *port == 0;
        for port in loopback.into_iter().filter(|port| !is_taken(port)) {
            places.listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        }
        let mut next = addresses.first.to_bits() + 1;
        let mut below: BTreeSet<u16> = BTreeSet::new();
        let mut own: HashMap<&str, Ipv4Addr> = HashMap::new();
        for rule in names() {
            let high = rule.value.ports.iter().filter(|port| is_high(port)).collect::<BTreeSet<_>>();
            match &rule.value.host {
                HostPattern::Name(name) => {
                    for port in high {
                        let address = *own.entry(name).or_insert(Ipv4Addr::from_bits(next));
                        places.listen(SocketAddrV4::new(address, *port));
                    }
                    next = next.max(own.get(name.as_str()).map_or(0, |address| address.to_bits() + 1));
                }
                HostPattern::Subdomains(_) => below.extend(high),
                HostPattern::Address(_) => {}
            }
        }
        places.own = own.into_iter().map(|(name, address)| (name.into(), address)).collect();
        let room = MOST_SOCKETS.saturating_sub(places.sockets.len());
        let shared = room.checked_div(below.len()).unwrap_or(0).min(SHARED);
        for address in (next..).take(shared).map(Ipv4Addr::from_bits) {
            below.iter().for_each(|port| places.listen(SocketAddrV4::new(address, *port)));
            places.shared.push(address);
        }
        if shared == 0 {
            places.omitted += below.len();
        }
        places
    }

    fn listen(&mut self, at: SocketAddrV4) {
        if self.sockets.contains(&at) {
            return;
        }
        if self.sockets.len() < MOST_SOCKETS { self.sockets.push(at) } else { self.omitted += 1 }
    }

    /// Where somebody has to listen.
    pub fn sockets(&self) -> &[SocketAddrV4] {
        &self.sockets
    }

    /// Which addresses names have.
    pub fn addresses(&self) -> NamedAddresses {
        self.addresses
    }

    /// How many places there was no room for.
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

/// The names of one sandbox and their addresses.
#[derive(Debug)]
pub struct Names(Mutex<Table>);

#[derive(Debug)]
struct Table {
    among: NamedAddresses,
    addresses: HashMap<Box<str>, Ipv4Addr>,
    names: HashMap<Ipv4Addr, Box<str>>,
    shared: Vec<Ipv4Addr>,
    next: u32,
    /// How many of the names only a wildcard allows.
    found: usize,
}

/// What a question for a name comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// It is allowed, and this is its address.
    Address(Ipv4Addr),
    /// There are too many names already.
    Full,
    /// It is not allowed.
    Denied(Denied),
}

impl Names {
    /// No name is known but those that have a place of their own.
    pub fn new(places: &Places) -> Self {
        let known = places.own.iter().cloned();
        // One that found no room for its sockets has its address all the same.
        let given = places.own.iter().map(|(_, address)| address).chain(&places.shared);
        let next = given.map(|address| address.to_bits()).max();
        Self(Mutex::new(Table {
            among: places.addresses,
            addresses: known.clone().collect(),
            names: known.map(|(name, address)| (address, name)).collect(),
            shared: places.shared.clone(),
            next: next.unwrap_or(places.addresses.first.to_bits()) + 1,
            found: 0,
        }))
    }

    /// The address of `host`, if the rules allow it on some port.
    pub(crate) fn address_of(&self, rules: &Rules, host: &Host) -> Named {
        if let Some(denied) = why_not(rules, host) {
            return Named::Denied(denied);
        }
        let name = host.to_string();
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = table.addresses.get(name.as_str()) {
            return Named::Address(*address);
        }
        // The policy bounds those that it names itself.
        let is_found = !rules.allowing(host).any(|rule| matches!(rule.net.host, HostPattern::Name(_)));
        if is_found && table.found >= MOST_FOUND {
            return Named::Full;
        }
        let has_high_port = |rule: &Rule| rule.net.ports.iter().any(|port| *port >= FIRST_FREE_PORT);
        let shared = if rules.allowing(host).any(has_high_port) { table.shared.pop() } else { None };
        let address = shared.unwrap_or_else(|| Ipv4Addr::from_bits(table.next));
        if !table.among.contain(address) {
            return Named::Full;
        }
        table.next += u32::from(shared.is_none());
        table.found += usize::from(is_found);
        table.addresses.insert(name.as_str().into(), address);
        table.names.insert(address, name.into());
        Named::Address(address)
    }

    /// The name that `address` was told for; nothing when nobody was told that address.
    pub(crate) fn name_at(&self, address: Ipv4Addr) -> Option<Host> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.names.get(&address).map(|name| Host::Name(name.as_ref().to_owned()))
    }

    /// The host that a connection to `address` means. One that we make up and nobody was told is judged as what it is, and named by no
    /// rule; it is never this machine, also where it looks like its loopback.
    pub(crate) fn host_at(&self, address: Ipv4Addr) -> Host {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.names.get(&address) {
            Some(name) => Host::Name(name.as_ref().to_owned()),
            None if table.among.contain(address) => Host::Address(address.into()),
            None => Host::of_address(address.into()),
        }
    }
}

/// Why no port of `host` may be reached; nothing when some may. A rule that looks at requests may allow some of them, which is judged
/// when they come.
fn why_not(rules: &Rules, host: &Host) -> Option<Denied> {
    let judge = |port: u16| match decide(rules, &Target { host, port, access: Access::Connection }) {
        Decision::Allowed(_) => None,
        Decision::Denied(denied) if denied.reason == Reason::NeedsInspection => None,
        Decision::Denied(denied) => Some(denied),
    };
    let ports = |rule: &Rule| if rule.net.ports.is_empty() { WEB.to_vec() } else { rule.net.ports.clone() };
    let mut first = None;
    for port in rules.allowing(host).flat_map(ports) {
        let denied = judge(port)?;
        first.get_or_insert(denied);
    }
    first.or_else(|| judge(WEB[0]))
}

#[cfg(test)]
mod tests;
