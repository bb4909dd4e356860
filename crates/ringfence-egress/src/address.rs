//! Which addresses are public. A name that is allowed says nothing about where it leads.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::io::Errno;

use crate::host::Host;
use crate::rules::{Rule, Rules};

/// What kind of place an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// Reachable by everybody.
    Public,
    /// `0.0.0.0/8`, `::`.
    Unspecified,
    /// This machine.
    Loopback,
    /// RFC 1918, unique local and site local.
    Private,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// The service that hands a cloud machine its secrets.
    Metadata,
    /// Carrier-grade NAT, `100.64.0.0/10`: the neighbours.
    SharedByCarrier,
    /// To many at once, or to all.
    Multicast,
    /// Set aside: documentation, benchmarks, tunnels with an owner of their own, future use.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "a public address",
            Self::Unspecified => "no address",
            Self::Loopback => "this machine",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::SharedByCarrier => "an address shared by a carrier's customers",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
        })
    }
}

/// What kind of place `address` is. An IPv4 address inside an IPv6 address counts as what it is itself.
pub fn kind_of(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(v4) => kind_of_v4(v4),
        IpAddr::V6(v6) => kind_of_v6(v6),
    }
}

fn kind_of_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, d] = address.octets();
    match (a, b, c, d) {
        (169, 254, 169, 254 | 253 | 123) | (169, 254, 170, 2 | 23) | (100, 100, 100, 200) | (168, 63, 129, 16) => {
            AddressKind::Metadata
        }
        (0, ..) => AddressKind::Unspecified,
        (127, ..) => AddressKind::Loopback,
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => AddressKind::Private,
        (169, 254, ..) => AddressKind::LinkLocal,
        (100, 64..=127, ..) => AddressKind::SharedByCarrier,
        (224..=239, ..) | (255, 255, 255, 255) => AddressKind::Multicast,
        (192, 0, 0 | 2, _)
        | (192, 31, 196, _)
        | (192, 52, 193, _)
        | (192, 88, 99, _)
        | (192, 175, 48, _)
        | (198, 18..=19, ..)
        | (198, 51, 100, _)
        | (203, 0, 113, _)
        | (240..=255, ..) => AddressKind::Reserved,
        _ => AddressKind::Public,
    }
}

fn kind_of_v6(address: Ipv6Addr) -> AddressKind {
    if address == Ipv6Addr::UNSPECIFIED {
        return AddressKind::Unspecified;
    }
    if address == Ipv6Addr::LOCALHOST {
        return AddressKind::Loopback;
    }
    let segments = address.segments();
    let [.., g, h] = segments;
    let v4 = |high: u16, low: u16| kind_of_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match segments {
        // Dressed IPv4: mapped, compatible, translated, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            v4(g, h)
        }
        [0x2002, high, low, ..] => v4(high, low),
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254 | 0x23] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => AddressKind::Metadata,
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => AddressKind::Private,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        // Teredo and its neighbours, documentation, segment routing.
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => AddressKind::Reserved,
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}

/// How an address was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CameBy {
    /// A name leads to it.
    Name,
    /// It was asked for itself.
    Itself,
}

/// Whether a connection to `address` may be made for a name, or for the address itself, that is allowed on `port`.
pub(crate) fn judge(rules: &Rules, address: IpAddr, port: u16, came_by: CameBy) -> Result<(), String> {
    let host = Host::of_address(address);
    if let Some(rule) = rules.denying(&host).find(|rule| rule.covers_port(port)) {
        return Err(format!("it leads to {address}, which `{}` denies", rule.name));
    }
    let kind = match kind_of(address) {
        AddressKind::Loopback => AddressKind::Loopback,
        _ if is_our_own(address) => AddressKind::Loopback,
        kind => kind,
    };
    // What a rule says of requests to the address does not hold for a name that leads there.
    let names_it = |rule: &Rule| rule.covers_port(port) && (came_by == CameBy::Itself || !rule.judges_requests());
    if kind == AddressKind::Public || rules.allowing(&host).any(names_it) {
        return Ok(());
    }
    if kind == AddressKind::Loopback && rules.localhost_rule(port).is_some() {
        return Ok(());
    }
    // Which address it is stays unsaid: names of the inside of a network are not for a program that may not go there.
    Err(format!("it leads to {kind}, which no rule names"))
}

/// Whether everybody reaches it.
pub(crate) fn is_public(address: IpAddr) -> bool {
    kind_of(address) == AddressKind::Public && !is_our_own(address)
}

/// Whether it is one of this machine's own, which is then no more public than its loopback. The kernel says from where it would
/// speak to it; nothing is sent.
fn is_our_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = match UdpSocket::bind((any, 0)) {
        Ok(socket) => socket,
        // A machine without that protocol has no address of it. Who cannot ask for another reason takes it for ours.
        Err(error) => {
            let known = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
            return !error.raw_os_error().is_some_and(|errno| known.contains(&errno));
        }
    };
    // Where there is no way to it, it is not here.
    let from = socket.connect((address, 9)).and_then(|()| socket.local_addr());
    from.is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: AddressKind) {
        assert_eq!(kind_of(text.parse().unwrap()), expected, "{text}");
    }

    #[test]
    fn e09_only_public_addresses_are_public_in_every_dress() {
        for public in ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.3.1", "2606:4700::1111", "2a00::1"] {
            check(public, AddressKind::Public);
        }
        for (text, kind) in [
            ("0.0.0.0", AddressKind::Unspecified),
            ("0.1.2.3", AddressKind::Unspecified),
            ("::", AddressKind::Unspecified),
            ("127.0.0.1", AddressKind::Loopback),
            ("127.255.0.3", AddressKind::Loopback),
            ("::1", AddressKind::Loopback),
            ("10.0.0.7", AddressKind::Private),
            ("172.16.0.1", AddressKind::Private),
            ("172.31.255.255", AddressKind::Private),
            ("192.168.1.1", AddressKind::Private),
            ("fc00::1", AddressKind::Private),
            ("fd12:3456::1", AddressKind::Private),
            ("fec0::1", AddressKind::Private),
            ("169.254.1.1", AddressKind::LinkLocal),
            ("fe80::1", AddressKind::LinkLocal),
            ("169.254.169.254", AddressKind::Metadata),
            ("169.254.170.2", AddressKind::Metadata),
            ("100.100.100.200", AddressKind::Metadata),
            ("fd00:ec2::254", AddressKind::Metadata),
            ("100.64.0.1", AddressKind::SharedByCarrier),
            ("100.127.255.255", AddressKind::SharedByCarrier),
            ("224.0.0.1", AddressKind::Multicast),
            ("255.255.255.255", AddressKind::Multicast),
            ("ff02::1", AddressKind::Multicast),
            ("192.0.2.1", AddressKind::Reserved),
            ("198.18.0.1", AddressKind::Reserved),
            ("240.0.0.1", AddressKind::Reserved),
            ("2001:db8::1", AddressKind::Reserved),
            ("2001::1", AddressKind::Reserved),
            ("64:ff9b:1::1", AddressKind::Reserved),
            ("4000::1", AddressKind::Reserved),
            ("::ffff:10.0.0.1", AddressKind::Private),
            ("::ffff:127.0.0.1", AddressKind::Loopback),
            ("::127.0.0.1", AddressKind::Loopback),
            ("::ffff:0:10.0.0.1", AddressKind::Private),
            ("64:ff9b::169.254.169.254", AddressKind::Metadata),
            ("64:ff9b::8.8.8.8", AddressKind::Public),
            ("2002:7f00:1::", AddressKind::Loopback),
            ("2002:a00:1::", AddressKind::Private),
        ] {
            check(text, kind);
        }
    }

    #[test]
    fn an_address_that_is_not_public_is_reached_when_a_rule_names_it_and_its_port() {
        let rules = Rules::none()
            .allow(crate::Rule::new("10.0.0.7:5432".parse().unwrap(), "r"))
            .deny(crate::Rule::new(ringfence_policy::NetRule::new("1.2.3.4".parse().unwrap()), "d"))
            .localhost(8080);
        let allowed = |text: &str, port: u16| judge(&rules, text.parse().unwrap(), port, CameBy::Name).is_ok();
        assert!(allowed("10.0.0.7", 5432));
        assert!(!allowed("10.0.0.7", 80));
        assert!(!allowed("10.0.0.8", 5432));
        assert!(allowed("127.0.0.1", 8080));
        assert!(!allowed("127.0.0.1", 80));
        assert!(allowed("8.8.8.8", 443));
        assert!(!allowed("1.2.3.4", 443));
        assert!(!allowed("::ffff:1.2.3.4", 443));
    }

    #[test]
    fn an_address_of_this_machine_is_not_public_whatever_it_looks_like() {
        assert!(is_our_own("127.0.0.1".parse().unwrap()));
        assert!(!is_our_own("192.0.2.1".parse().unwrap()), "nobody has it");
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let own = socket.connect(("192.0.2.1", 9)).and_then(|()| socket.local_addr());
        match own {
            Ok(own) => assert!(is_our_own(own.ip()), "{own}"),
            Err(_) => eprintln!("SKIPPED: this machine has no address but loopback"),
        }
    }
}
