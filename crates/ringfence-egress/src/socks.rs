//! SOCKS5, as far as it is spoken here: connections, by name or address. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::host::{BadHost, Host};

/// The first byte of every message.
pub(crate) const VERSION: u8 = 5;

/// What could be read of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<T> {
    /// More is to come.
    Incomplete,
    /// The message, and how many bytes it has.
    Complete(T, usize),
}

/// Why a handshake cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHandshake {
    /// Not SOCKS5.
    Version,
    /// The client does not offer to go on without a password. Nobody needs one: the listener says who is asking.
    NoAcceptableMethod,
    /// Something other than a connection was asked for.
    Command,
    /// A kind of address that does not exist.
    AddressType,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The host.
    pub host: Result<Host, BadHost>,
    /// The port.
    pub port: u16,
}

/// Replies that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded,
    Failed,
    NotAllowed,
    CommandNotSupported,
    AddressTypeNotSupported,
}

impl Reply {
    pub(crate) fn bytes(self) -> [u8; 10] {
        let code = match self {
            Self::Succeeded => 0,
            Self::Failed => 1,
            Self::NotAllowed => 2,
            Self::CommandNotSupported => 7,
            Self::AddressTypeNotSupported => 8,
        };
        [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Reads the greeting: version, and the ways of authentication that are offered.
pub fn read_greeting(bytes: &[u8]) -> Result<Read<()>, BadHandshake> {
    match bytes {
        [] | [VERSION] => Ok(Read::Incomplete),
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            None => Ok(Read::Incomplete),
            Some(methods) if methods.contains(&0) => Ok(Read::Complete((), 2 + methods.len())),
            Some(_) => Err(BadHandshake::NoAcceptableMethod),
        },
        [..] => Err(BadHandshake::Version),
    }
}

/// Reads the request that follows the greeting.
pub fn read_request(bytes: &[u8]) -> Result<Read<ConnectRequest>, BadHandshake> {
    let (command, reserved, kind, rest) = match bytes {
        [VERSION, command, reserved, kind, rest @ ..] => (*command, *reserved, *kind, rest),
        [] | [VERSION] | [VERSION, _] | [VERSION, _, _] => return Ok(Read::Incomplete),
        [..] => return Err(BadHandshake::Version),
    };
    if command != 1 || reserved != 0 {
        return Err(BadHandshake::Command);
    }
    let (host, after) = match kind {
        1 => match rest {
            [a, b, c, d, after @ ..] => (Ok(Host::of_address(Ipv4Addr::new(*a, *b, *c, *d).into())), after),
            _ => return Ok(Read::Incomplete),
        },
        3 => match rest.split_first() {
            Some((length, name)) => match name.split_at_checked(usize::from(*length)) {
                Some((name, after)) => (Host::parse_bytes(name), after),
                None => return Ok(Read::Incomplete),
            },
            None => return Ok(Read::Incomplete),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((address, after)) => (Ok(Host::of_address(IpAddr::V6(Ipv6Addr::from(*address)))), after),
            None => return Ok(Read::Incomplete),
        },
        _ => return Err(BadHandshake::AddressType),
    };
    match after {
        [high, low, after @ ..] => {
            let port = u16::from_be_bytes([*high, *low]);
            Ok(Read::Complete(ConnectRequest { host, port }, bytes.len() - after.len()))
        }
        _ => Ok(Read::Incomplete),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_name(name: &[u8]) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        bytes.extend(name);
        bytes.extend([1, 187]);
        bytes
    }

    #[test]
    fn e02_a_name_with_a_zero_byte_in_it_is_no_host() {
        let Ok(Read::Complete(request, _)) = read_request(&by_name(b"evil.test\0.allowed.test")) else { panic!() };
        assert!(request.host.is_err());
        let Ok(Read::Complete(request, length)) = read_request(&by_name(b"Allowed.test")) else { panic!() };
        assert_eq!((request.host, request.port, length), (Host::parse("allowed.test"), 443, 19));
    }

    #[test]
    fn only_connections_without_a_password_are_spoken() {
        assert_eq!(read_greeting(&[5, 2, 2, 0]), Ok(Read::Complete((), 4)));
        assert_eq!(read_greeting(&[5, 1, 2]), Err(BadHandshake::NoAcceptableMethod));
        assert_eq!(read_greeting(&[5, 0]), Err(BadHandshake::NoAcceptableMethod));
        assert_eq!(read_greeting(&[4, 1, 0]), Err(BadHandshake::Version));
        assert_eq!(read_greeting(&[5, 3, 0]), Ok(Read::Incomplete));
        assert_eq!(read_request(&[5, 3, 0, 1, 1, 2, 3, 4, 0, 80]), Err(BadHandshake::Command));
        assert_eq!(read_request(&[5, 1, 0, 9, 1, 2, 3, 4, 0, 80]), Err(BadHandshake::AddressType));
        let Ok(Read::Complete(request, 10)) = read_request(&[5, 1, 0, 1, 127, 0, 0, 1, 0, 80, 9]) else { panic!() };
        assert_eq!(request.host, Host::parse("127.0.0.1"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_handshake_or_the_beginning_of_one_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Read::Complete((), length)) = read_greeting(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Ok(Read::Complete(_, length)) = read_request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
