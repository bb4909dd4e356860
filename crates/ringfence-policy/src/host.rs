//! Which hosts a rule means. One canonical form per host; whatever has none is refused at load.
//!
//! Nothing here resolves names: a pattern is compared with the name that was asked for, before any lookup.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::budget::NetBudget;
use crate::diagnostic::{Invalid, quote};
use crate::path::Glob;
use crate::policy::NetProtocol;

const BAD_HOST: &str = "policy::bad-host";
const BAD_PORT: &str = "policy::bad-port";
const HOW: &str = "write a name (`pypi.org`), its subdomains (`*.pypi.org`) or an address (`192.0.2.7`)";

/// The hosts that a rule means, in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// Exactly this name.
    Name(String),
    /// Every true subdomain of this name, not the name itself.
    Subdomains(String),
    /// Exactly this address.
    Address(IpAddr),
}

impl HostPattern {
    /// Whether `name`, as a program asked for it, is meant. A name without a canonical form is never meant.
    pub fn covers_name(&self, name: &str) -> bool {
        match canonical(name) {
            Ok(other @ (Self::Name(_) | Self::Address(_))) => self.covers(&other),
            Ok(Self::Subdomains(_)) | Err(_) => false,
        }
    }

    /// Whether every host that `other` means is meant by this too.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(mine), Self::Name(theirs)) => mine == theirs,
            (Self::Address(mine), Self::Address(theirs)) => mine == theirs,
            (Self::Subdomains(mine), Self::Name(theirs)) => is_below(theirs, mine),
            (Self::Subdomains(mine), Self::Subdomains(theirs)) => mine == theirs || is_below(theirs, mine),
            (Self::Name(_), Self::Subdomains(_) | Self::Address(_))
            | (Self::Subdomains(_), Self::Address(_))
            | (Self::Address(_), Self::Name(_) | Self::Subdomains(_)) => false,
        }
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).and_then(|rest| rest.strip_suffix('.')).is_some_and(|rest| !rest.is_empty())
}

impl FromStr for HostPattern {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let pattern = canonical(text)?;
        if let Self::Name(name) | Self::Subdomains(name) = &pattern
            && (name == "localhost" || name.ends_with(".localhost"))
        {
            return Err(Invalid::new(
                BAD_HOST,
                format!("{} is this machine, not a host of the network", quote(text)),
                "list its ports under `net.localhost`, such as `localhost: [5432]`",
            ));
        }
        Ok(pattern)
    }
}

fn canonical(text: &str) -> Result<HostPattern, Invalid> {
    let refuse = |what: &str, advice: &str| Err(Invalid::new(BAD_HOST, format!("{} {what}", quote(text)), advice));
    if text.is_empty() {
        return refuse("names no host", HOW);
    }
    if text.contains("://") {
        return refuse("is a URL, not a host", "write the host alone, such as `pypi.org`");
    }
    if text.contains('@') {
        return refuse("has a user name in front", "write the host alone, such as `pypi.org`");
    }
    if text.contains(['/', '?', '#', '\\']) {
        return refuse("has more than a host", "write the host alone; paths go under `paths:` of a rule");
    }
    if text.contains('%') {
        return refuse("has a percent sign: an escape or a zone", "write the characters themselves, without a zone");
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse("has a space or a control character", HOW);
    }
    if !text.is_ascii() {
        return refuse(
            "has letters beyond ASCII, which may look like others",
            "write its ASCII form, which starts with `xn--`",
        );
    }
    if let Some(address) = parse_address(text) {
        return match address {
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => refuse("is an IPv4 address in IPv6 dress", &format!("write `{v4}`")),
                None => Ok(HostPattern::Address(address)),
            },
            IpAddr::V4(_) => Ok(HostPattern::Address(address)),
        };
    }
    if text.contains([':', '[', ']']) {
        return refuse("is not a host", "write a port after a name (`pypi.org:443`), an IPv6 address as `2001:db8::7`");
    }
    let lower = text.to_ascii_lowercase();
    let dotless = lower.strip_suffix('.').unwrap_or(&lower);
    let (name, wild) = match dotless.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (dotless, false),
    };
    if name == "*" || name.is_empty() || wild && !name.contains('.') {
        return refuse("would match nearly every host", "name at least two labels, such as `*.pypi.org`");
    }
    if name.contains('*') {
        return refuse("has a `*` that is not the whole first label", "write it as `*.pypi.org`");
    }
    if dotless.len() > 253 {
        return refuse("is longer than the 253 bytes of a host name", HOW);
    }
    for label in name.split('.') {
        if label.is_empty() {
            return refuse("has an empty label (two dots in a row, or one in front)", HOW);
        }
        if label.len() > 63 {
            return refuse("has a label of more than 63 bytes", HOW);
        }
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
        if !label.bytes().all(inner) || label.starts_with('-') || label.ends_with('-') {
            return refuse("is not a host name", HOW);
        }
    }
    if let Some(last) = name.rsplit('.').next()
        && ends_like_a_number(last)
    {
        return match read_odd_ipv4(name) {
            Some(address) => {
                refuse("is an IPv4 address in an odd notation", &format!("if it is meant, write `{address}`"))
            }
            None => refuse("ends like a number, but is no address", HOW),
        };
    }
    Ok(if wild { HostPattern::Subdomains(name.to_owned()) } else { HostPattern::Name(name.to_owned()) })
}

fn parse_address(text: &str) -> Option<IpAddr> {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.strip_suffix('.').unwrap_or(text).parse().ok()
}

/// Resolvers take a name whose last label is a number for an IPv4 address.
fn ends_like_a_number(label: &str) -> bool {
    label.bytes().all(|b| b.is_ascii_digit()) || read_odd_number(label).is_some()
}

/// What `inet_aton` would make of `2852039166`, `0251.0376.0251.0376`, `0xa9fea9fe` or `169.254.43518`.
fn read_odd_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(read_odd_number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }
    let rest_bits = 8 * u32::try_from(4 - front.len()).ok()?;
    if *last >= 1_u64 << rest_bits {
        return None;
    }
    let head = front.iter().fold(0_u64, |head, part| (head << 8) | part);
    u32::try_from((head << rest_bits) | last).ok().map(Ipv4Addr::from)
}

fn read_odd_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some("") => Some(0),
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Subdomains(name) => write!(f, "*.{name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for HostPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for HostPattern {
    fn schema_name() -> Cow<'static, str> {
        "HostPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A host name (`pypi.org`), its true subdomains (`*.pypi.org`) or an address",
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "examples": ["pypi.org", "*.pypi.org", "192.0.2.7"]
        })
    }
}

/// One entry of `net.allow` or `net.deny`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NetRule {
    /// The hosts meant.
    pub host: HostPattern,
    /// The ports meant, in order; empty means every port. An allow rule that names none means [`NetRule::WEB_PORTS`].
    pub ports: Vec<u16>,
    /// The HTTP methods meant, in order; empty means every method.
    pub methods: Vec<String>,
    /// The URL paths meant; empty means every path.
    pub paths: Vec<Glob>,
    /// The name of a credential that the proxy adds. Such a rule always looks into TLS.
    pub credential: Option<String>,
    /// Whether TLS is opened and looked into.
    pub inspect: bool,
    /// What may be spoken over connections that are not looked into.
    pub protocol: NetProtocol,
    /// Whether a channel to strangers is meant.
    pub acknowledge: bool,
    /// How much of each host may be used.
    pub budget: NetBudget,
    /// Headers that are not passed on, in either direction: in small letters and in order. Such a rule always looks into TLS.
    pub strip: Vec<String>,
}

impl NetRule {
    /// What an allow rule without ports means.
    pub const WEB_PORTS: [u16; 2] = [80, 443];

    /// A rule for these hosts on every port, with any method and path.
    pub fn new(host: HostPattern) -> Self {
        Self {
            host,
            ports: Vec::new(),
            methods: Vec::new(),
            paths: Vec::new(),
            credential: None,
            inspect: false,
            protocol: NetProtocol::Web,
            acknowledge: false,
            budget: NetBudget::default(),
            strip: Vec::new(),
        }
    }

    /// Whether TLS is opened and looked into.
    pub fn inspects(&self) -> bool {
        self.inspect || self.credential.is_some() || !self.strip.is_empty()
    }

    /// Whether everything that `other` permits is permitted by this too. A credential is neither added nor left out: where one
    /// is bound to a host, nobody else's key passes there.
    pub fn covers(&self, other: &Self) -> bool {
        self.host.covers(&other.host)
            && covers_all(&self.ports, &other.ports)
            && covers_all(&self.methods, &other.methods)
            && covers_all(&self.paths, &other.paths)
            && self.credential == other.credential
            && (other.inspects() || !self.inspects())
            && other.protocol <= self.protocol
            && (self.acknowledge || !other.acknowledge)
            && self.budget.covers(&other.budget)
            && self.strip.iter().all(|header| other.strip.contains(header))
    }

    /// What both permit, when one of the hosts lies within the other.
    pub(crate) fn meet(&self, other: &Self) -> Option<Self> {
        let host = if self.host.covers(&other.host) {
            other.host.clone()
        } else if other.host.covers(&self.host) {
            self.host.clone()
        } else {
            return None;
        };
        if self.credential != other.credential {
            return None;
        }
        Some(Self {
            host,
            ports: meet_lists(&self.ports, &other.ports)?,
            methods: meet_lists(&self.methods, &other.methods)?,
            paths: meet_lists(&self.paths, &other.paths)?,
            credential: self.credential.clone(),
            inspect: self.inspects() || other.inspects(),
            protocol: self.protocol.min(other.protocol),
            acknowledge: self.acknowledge && other.acknowledge,
            budget: self.budget.meet(&other.budget),
            strip: unite(&self.strip, &other.strip),
        })
    }

    /// `HOST` or `HOST:PORT`; the ports that were not named stay empty.
    pub(crate) fn parse_plain(text: &str) -> Result<Self, Invalid> {
        let (host, port) = split_port(text)?;
        let mut rule = Self::new(host.parse()?);
        rule.ports.extend(port);
        Ok(rule)
    }

    pub(crate) fn with_web_ports(mut self) -> Self {
        if self.ports.is_empty() {
            self.ports.extend(Self::WEB_PORTS);
        }
        self
    }
}

/// Empty lists mean "all".
pub(crate) fn covers_all<T: PartialEq>(mine: &[T], theirs: &[T]) -> bool {
    mine.is_empty() || (!theirs.is_empty() && theirs.iter().all(|item| mine.contains(item)))
}

/// `None` when nothing is left, since an empty list would mean "all".
pub(crate) fn meet_lists<T: PartialEq + Clone>(mine: &[T], theirs: &[T]) -> Option<Vec<T>> {
    match (mine, theirs) {
        ([], all) | (all, []) => Some(all.to_vec()),
        _ => {
            let both: Vec<T> = mine.iter().filter(|item| theirs.contains(item)).cloned().collect();
            (!both.is_empty()).then_some(both)
        }
    }
}

/// All headers of both lists, in order.
pub(crate) fn unite(mine: &[String], theirs: &[String]) -> Vec<String> {
    let mut both = [mine, theirs].concat();
    both.sort_unstable();
    both.dedup();
    both
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), Invalid> {
    // `2001:db8::7` has colons of its own; with a port it is written `[2001:db8::7]:443`.
    if text.parse::<Ipv6Addr>().is_ok() || text.ends_with(']') || text.contains("://") {
        return Ok((text, None));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => Ok((host, Some(parse_port(port)?))),
        _ => Ok((text, None)),
    }
}

/// A port number from 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, Invalid> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<u16>().ok().filter(|port| digits && *port != 0).ok_or_else(|| {
        Invalid::new(
            BAD_PORT,
            format!("{} is not a port", quote(text)),
            "write a number from 1 to 65535, such as `443`",
        )
    })
}

/// As an entry of `net.allow`: `pypi.org`, `pypi.org:8443`, `[2001:db8::7]:443`.
impl FromStr for NetRule {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse_plain(text).map(Self::with_web_ports)
    }
}

impl fmt::Display for NetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.host)?;
        if !self.ports.is_empty() && self.ports != Self::WEB_PORTS {
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            write!(f, ":{}", ports.join(","))?;
        }
        if !self.methods.is_empty() {
            write!(f, " {}", self.methods.join(","))?;
        }
        for path in &self.paths {
            write!(f, " {path}")?;
        }
        if self.protocol == NetProtocol::Tcp {
            f.write_str(" by tcp")?;
        }
        match &self.credential {
            Some(name) => write!(f, " with credential {name}")?,
            None if self.inspects() => f.write_str(" inspected")?,
            None => {}
        }
        if !self.strip.is_empty() {
            write!(f, " without {}", self.strip.join(","))?;
        }
        if self.acknowledge {
            f.write_str(" acknowledged")?;
        }
        if !self.budget.is_unlimited() {
            write!(f, " within {}", self.budget)?;
        }
        Ok(())
    }
}

impl Serialize for NetRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.acknowledge {
            map.serialize_entry("acknowledge", &true)?;
        }
        if !self.budget.is_unlimited() {
            map.serialize_entry("budget", &self.budget)?;
        }
        if let Some(credential) = &self.credential {
            map.serialize_entry("credential", credential)?;
        }
        map.serialize_entry("host", &self.host)?;
        if self.inspects() {
            map.serialize_entry("inspect", &true)?;
        }
        if !self.methods.is_empty() {
            map.serialize_entry("methods", &self.methods)?;
        }
        if !self.paths.is_empty() {
            map.serialize_entry("paths", &self.paths)?;
        }
        if !self.ports.is_empty() {
            map.serialize_entry("ports", &self.ports)?;
        }
        if self.protocol == NetProtocol::Tcp {
            map.serialize_entry("protocol", &self.protocol)?;
        }
        if !self.strip.is_empty() {
            map.serialize_entry("strip", &self.strip)?;
        }
        map.end()
    }
}
