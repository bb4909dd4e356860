//! What is known of another machine by how it is named.

use serde::Deserialize;

use crate::text::Text;

/// What is known of another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reach {
    /// The policy allows it.
    Allowed,
    /// This machine.
    Local,
    /// A socket of this machine.
    Socket,
    /// An address instead of a name.
    Address,
    /// Another name.
    Other,
    /// Only known when it runs.
    Unknown,
}

/// What the judge has to know of another machine.
pub(crate) fn reach(place: &Text, allows: &dyn Fn(&str, Option<u16>) -> bool) -> Reach {
    let Some(known) = place.as_known() else {
        // A name with a hole at its end of which the whole host is known (`https://a.test/$X`).
        return match host_and_port(place.known_start()) {
            Some((host, port)) if ends_host(place.known_start()) => of_host(&host, port, allows),
            _ => Reach::Unknown,
        };
    };
    if known.starts_with('/') || known.starts_with("unix:") {
        return Reach::Socket;
    }
    match host_and_port(known) {
        Some((host, port)) => of_host(&host, port, allows),
        None => Reach::Unknown,
    }
}

/// Whether the text goes on behind its host.
fn ends_host(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    rest.contains(['/', '?'])
}

fn of_host(host: &str, port: Option<u16>, allows: &dyn Fn(&str, Option<u16>) -> bool) -> Reach {
    let is_address = || host.contains(':') || !host.is_empty() && host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if matches!(host, "localhost" | "::1" | "0.0.0.0" | "::")
        || host.starts_with("127.")
        || host.ends_with(".localhost")
    {
        Reach::Local
    } else if allows(host, port) {
        Reach::Allowed
    } else if is_address() {
        Reach::Address
    } else {
        Reach::Other
    }
}

/// The host in `HOST`, `HOST:PORT`, `USER@HOST:PATH` or a URL, small letters.
fn host_and_port(place: &str) -> Option<(String, Option<u16>)> {
    let (scheme, rest) = match place.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, place),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((inner, after)) => (inner, after.strip_prefix(':').and_then(|port| port.parse().ok())),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()),
            None => (authority, None),
        },
    };
    let implied = match scheme.map(str::to_ascii_lowercase).as_deref() {
        Some("http" | "ws") => Some(80),
        Some("https" | "wss") => Some(443),
        _ => None,
    };
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port.or(implied)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Hole, Piece};

    #[test]
    fn a_place_is_local_allowed_a_socket_an_address_another_or_unknown() {
        let allows = |host: &str, port: Option<u16>| host == "ok.test" && port == Some(443);
        for (place, is) in [
            ("https://ok.test/x", Reach::Allowed),
            ("http://ok.test/x", Reach::Other),
            ("https://OK.test", Reach::Allowed),
            ("git@host.test:org/repo", Reach::Other),
            ("https://user:pw@evil.test:8443/", Reach::Other),
            ("https://ok.test@evil.test/", Reach::Other),
            ("10.1.2.3:4444", Reach::Address),
            ("http://[2001:db8::1]/x", Reach::Address),
            ("localhost:3000", Reach::Local),
            ("http://127.0.0.1:8000/", Reach::Local),
            ("/var/run/docker.sock", Reach::Socket),
            ("", Reach::Unknown),
        ] {
            assert_eq!(reach(&Text::known(place), &allows), is, "{place}");
        }
        let mut open = Text::known("https://ok.test/");
        open.push(Piece::Hole(Hole::Output));
        assert_eq!(reach(&open, &allows), Reach::Allowed);
        let mut cut = Text::known("https://ok.test");
        cut.push(Piece::Hole(Hole::Output));
        assert_eq!(reach(&cut, &allows), Reach::Unknown);
    }
}
