//! The proxy of a company, through which ours goes out.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::diagnostic::{Invalid, quote};
use crate::host::{HostPattern, parse_port};

const BAD: &str = "policy::bad-upstream";

/// Where the proxy is, written `http://proxy.example.org:3128`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    host: UpstreamHost,
    port: u16,
}

/// The host of a proxy. It may be this machine: some run a small proxy there that knows the password of the large one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UpstreamHost {
    /// A name, in canonical form.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Upstream {
    /// The host.
    pub fn host(&self) -> &UpstreamHost {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Upstream {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        const HOW: &str = "write it such as `http://proxy.example.org:3128`";
        // Whatever stands before an `@` may be a password, so it is not repeated.
        if text.contains('@') {
            let advice =
                "leave them out; a proxy that wants them can be reached through one on this machine that knows them";
            return Err(Invalid::new(BAD, "the URL of a proxy has a name or a password in it", advice));
        }
        let bad = |why: &str| Invalid::new(BAD, format!("{} {why}", quote(text)), HOW);
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(bad("is not the URL of a proxy that is spoken to in plain HTTP")),
            None => return Err(bad("is not a URL")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| bad("does not say on which port"))?;
        let port = parse_port(port)?;
        if host == "localhost" {
            return Ok(Self { host: UpstreamHost::Name(host.to_owned()), port });
        }
        match host.parse::<HostPattern>()? {
            HostPattern::Name(name) => Ok(Self { host: UpstreamHost::Name(name), port }),
            HostPattern::Address(address) => Ok(Self { host: UpstreamHost::Address(address), port }),
            HostPattern::Subdomains(_) => Err(bad("names more than one host")),
        }
    }
}

impl fmt::Display for UpstreamHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address @ IpAddr::V4(_)) => write!(f, "{address}"),
            Self::Address(address @ IpAddr::V6(_)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl Serialize for Upstream {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_one_host_and_a_port_and_reads_back() {
        for text in [
            "http://proxy.example.org:3128",
            "http://localhost:8080",
            "http://[2001:db8::7]:80",
            "http://10.0.0.7:3128",
        ] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), text);
        }
        assert_eq!("http://Proxy.test:3128/".parse::<Upstream>().unwrap().to_string(), "http://proxy.test:3128");
    }

    #[test]
    fn what_is_no_proxy_is_refused_and_a_password_is_not_repeated() {
        for text in [
            "proxy:3128",
            "https://a.test:3128",
            "http://a.test",
            "http://*.a.test:1",
            "http://a.test:0",
            "http://a.test:1/x",
        ] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
        let problem = "http://me:hunter2@a.test:3128".parse::<Upstream>().unwrap_err();
        assert!(!problem.to_string().contains("hunter2"), "{problem}");
    }
}
