//! The host that a program asks for, in one canonical form, or none.
//!
//! The spelling rules are those of the policy: what no rule could name cannot be asked for. Nothing here resolves names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringfence_policy::HostPattern;

/// No name is longer, and no address.
const LONGEST: usize = 255;

/// A host that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name: lower case, no dot at the end, ASCII, at most 253 bytes.
    Name(String),
    /// An address, in plain notation. Never an IPv4 address in IPv6 dress.
    Address(IpAddr),
    /// The machine that the proxy runs on: `localhost` and all below it, 127.0.0.0/8 and `::1`.
    ThisMachine(Loopback),
}

/// How this machine was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loopback {
    /// By a name, which is not looked up.
    Name,
    /// By this address.
    Address(IpAddr),
}

/// A host without a canonical form, which is never reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {advice}")]
pub struct BadHost {
    problem: String,
    advice: String,
}

impl BadHost {
    pub(crate) fn new(problem: &str) -> Self {
        Self { problem: problem.to_owned(), advice: "write a plain host name in ASCII".to_owned() }
    }
}

impl Host {
    /// Reads a name or an address, with brackets around IPv6 or without.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        if text.len() > LONGEST {
            return Err(BadHost::new("the host has more than 255 bytes"));
        }
        if is_this_machine(text) {
            return Ok(Self::ThisMachine(Loopback::Name));
        }
        match text.parse::<HostPattern>() {
            Ok(HostPattern::Name(name)) => Ok(Self::Name(name)),
            Ok(HostPattern::Address(address)) => Ok(Self::of_address(address)),
            Ok(HostPattern::Subdomains(_)) => Err(BadHost::new("a pattern is not a host")),
            Err(invalid) => Err(BadHost { problem: invalid.message, advice: invalid.advice }),
        }
    }

    /// Reads the bytes that a protocol carries. A zero byte, or anything that is not ASCII, has no canonical form.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, BadHost> {
        match str::from_utf8(bytes) {
            Ok(text) => Self::parse(text),
            Err(_) => Err(BadHost::new("the host is not text")),
        }
    }

    /// An address that came as bytes. An IPv4 address in IPv6 dress is undressed: there is nothing to misread.
    pub fn of_address(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() { Self::ThisMachine(Loopback::Address(address)) } else { Self::Address(address) }
    }

    /// The addresses, where no name has to be looked up.
    pub(crate) fn addresses(&self) -> Option<Vec<IpAddr>> {
        match self {
            Self::Name(_) => None,
            Self::Address(address) | Self::ThisMachine(Loopback::Address(address)) => Some(vec![*address]),
            Self::ThisMachine(Loopback::Name) => {
                Some(vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)])
            }
        }
    }

    /// As it stands in a URL: an IPv6 address has brackets.
    pub fn in_url(&self) -> String {
        match self {
            Self::Address(IpAddr::V6(v6)) | Self::ThisMachine(Loopback::Address(IpAddr::V6(v6))) => format!("[{v6}]"),
            Self::Name(_) | Self::Address(_) | Self::ThisMachine(_) => self.to_string(),
        }
    }
}

fn is_this_machine(text: &str) -> bool {
    let dotless = text.strip_suffix('.').unwrap_or(text);
    let Some(start) = dotless.len().checked_sub("localhost".len()) else { return false };
    let Some((front, end)) = dotless.split_at_checked(start) else { return false };
    // What stands in front must itself be a name: a NUL or an escape in it is no way around that rule.
    end.eq_ignore_ascii_case("localhost")
        && (front.is_empty()
            || front.strip_suffix('.').is_some_and(|labels| {
                labels.split('.').all(|label| {
                    !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                })
            }))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) | Self::ThisMachine(Loopback::Address(address)) => write!(f, "{address}"),
            Self::ThisMachine(Loopback::Name) => f.write_str("localhost"),
        }
    }
}
