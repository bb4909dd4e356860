//! The hosts that a program's databases are on: this machine, or somebody else's.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The host of what is named after the machines that others use.
pub(super) const LIVE: &str = "production.elsewhere";

/// Whether a name says that it is of the machines that others use: `PROD_DB_URL`, `MONGODB_URI_PRODUCTION`, `LIVE_DB`.
pub(super) fn says_live(name: &str) -> bool {
    let is_word = |word: &str| matches!(word, "PROD" | "PRODUCTION" | "LIVE" | "PRD");
    name.to_ascii_uppercase().split(|sign: char| !sign.is_ascii_alphanumeric()).any(is_word)
}

/// Stands for what is not known of a host.
pub(super) const UNCLEAR: &str = "\u{0}";

/// The hosts that an address, or a list of settings, leads to.
pub(super) fn hosts_of(said: &str, is_host: bool) -> Vec<String> {
    let named = |settings: &str| -> Vec<String> {
        let values = settings.split([' ', '&', ';', '?']).filter_map(|setting| {
            let (key, value) = setting.split_once('=')?;
            matches!(key.trim().to_ascii_lowercase().as_str(), "host" | "hostaddr").then_some(value)
        });
        values.flat_map(|value| value.trim_matches(['\'', '"']).split(',')).map(without_port).collect()
    };
    if said.starts_with("sqlite") {
        return vec!["localhost".to_owned()];
    }
    let Some((_, rest)) = said.split_once("://") else {
        let named = named(said);
        let whole = is_host && named.is_empty();
        return if whole { said.split(',').map(without_port).collect() } else { named };
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let mut all = named(behind);
    // Where the address names none, its settings may.
    if all.is_empty() || !hosts.is_empty() {
        all.extend(hosts.split(',').map(without_port));
    }
    all
}

/// `HOST:PORT`, `[ADDRESS]:PORT`, or a socket's path.
fn without_port(host: &str) -> String {
    let host = host.trim();
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.to_owned();
    }
    match host {
        socket if socket.starts_with('/') => "localhost".to_owned(),
        address if address.parse::<Ipv6Addr>().is_ok() => address.to_owned(),
        host => host.split([':', '/', '?', '#']).next().unwrap_or_default().to_owned(),
    }
}

/// Where a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// The developer's own: this machine, or a service beside it by a bare name.
    Near,
    Far,
    /// Not known.
    Unclear,
}

pub(super) fn side(host: &str) -> Side {
    if let Ok(address) = host.parse::<Ipv6Addr>() {
        let address = address.to_canonical();
        return if address.is_loopback() || address.is_unspecified() { Side::Near } else { Side::Far };
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return if address.is_loopback() || address.is_unspecified() { Side::Near } else { Side::Far };
    }
    let is_name = host.chars().all(|sign| sign.is_ascii_alphanumeric() || "._-".contains(sign));
    if !is_name || !host.is_empty() && host.chars().all(|sign| sign.is_ascii_digit() || sign == '.') {
        return Side::Unclear;
    }
    let is_near = !host.contains('.') && !says_live(host) || host == "host.docker.internal";
    if is_near { Side::Near } else { Side::Far }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_near_only_where_its_host_is_known_to_be() {
        let cases: &[(&str, &[&str], Side)] = &[
            ("postgresql://u:p@localhost/app", &["localhost"], Side::Near),
            ("postgresql://u:p@db:5432/app", &["db"], Side::Near),
            ("postgresql:///app", &[""], Side::Near),
            ("postgresql://u@[::1]:5432/app", &["::1"], Side::Near),
            ("postgresql://u@[2001:db8::7]/app", &["2001:db8::7"], Side::Far),
            ("postgresql://u:p@db.corp.example/app?user=x@localhost", &["db.corp.example"], Side::Far),
            ("postgresql://db.corp.example#@localhost", &["db.corp.example"], Side::Far),
            ("postgresql:///app?host=db.corp.example", &["db.corp.example"], Side::Far),
            ("postgresql://u@127.0.0.1.stranger.example/app", &["127.0.0.1.stranger.example"], Side::Far),
            ("postgresql://\0:\0@\0/app", &["\0"], Side::Unclear),
            ("postgresql://\0/app", &["\0"], Side::Unclear),
            ("postgresql://u@\0.internal/app", &["\0.internal"], Side::Unclear),
            ("postgresql://u@3232235777/app", &["3232235777"], Side::Unclear),
            ("dbname=a host=db.corp.example port=5432", &["db.corp.example"], Side::Far),
            ("mysql://u@…/app", &["…"], Side::Unclear),
            ("sqlite:///app.db", &["localhost"], Side::Near),
        ];
        for (said, hosts, expected) in cases {
            assert_eq!(hosts_of(said, false), *hosts, "{said}");
            assert!(hosts.iter().all(|host| side(host) == *expected), "{said}");
        }
        assert_eq!(hosts_of("/var/run/postgresql", true), ["localhost"]);
        assert_eq!(hosts_of("a.corp.example:5432,db", true), ["a.corp.example", "db"]);
    }
}
