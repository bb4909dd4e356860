//! `HOST:PORT`, as it stands in a request. One reading, or none.

use crate::host::{BadHost, Host};

/// A host and, when it was written, a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, where one was written.
    pub port: Option<u16>,
}

impl Authority {
    /// Reads `HOST`, `HOST:PORT` or `[IPV6]:PORT`. A user in front, or a port that is not plain digits, is refused.
    pub fn parse(text: &str) -> Result<Self, BadHost> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(read_port(port)?)),
            Some(_) if !text.starts_with('[') => return Err(BadHost::new("an IPv6 address without brackets")),
            _ => (text, None),
        };
        Ok(Self { host: Host::parse(host)?, port })
    }

    /// Whether this means `host` on `port`, when a missing port means `default`.
    pub(crate) fn agrees_with(&self, host: &Host, port: u16, default: u16) -> bool {
        self.host == *host && self.port.unwrap_or(default) == port
    }
}

fn read_port(text: &str) -> Result<u16, BadHost> {
    let plain = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if plain => Ok(port),
        Ok(_) | Err(_) => Err(BadHost::new("the port is not a plain number from 1 to 65535")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_one_reading_or_none() {
        let check = |text: &str, host: &str, port: Option<u16>| {
            let expected = Authority { host: Host::parse(host).unwrap(), port };
            assert_eq!(Authority::parse(text), Ok(expected), "{text}");
        };
        check("a.test", "a.test", None);
        check("A.test.:443", "a.test", Some(443));
        check("192.0.2.7:80", "192.0.2.7", Some(80));
        check("[2001:db8::7]:443", "2001:db8::7", Some(443));
        check("[2001:db8::7]", "2001:db8::7", None);
        for bad in [
            "",
            ":",
            ":80",
            "a.test:",
            "a.test:0",
            "a.test:080",
            "a.test:+80",
            "a.test:65536",
            "a.test:80:80",
            "a.test: 80",
            "2001:db8::7",
            "user@a.test",
            "a.test:80@b.test:80",
            "[a.test]:80",
            "[::1",
            "a.test,b.test",
            "a.test b.test",
        ] {
            assert!(Authority::parse(bad).is_err(), "{bad}");
        }
    }
}
