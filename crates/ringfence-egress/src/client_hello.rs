//! The first message of TLS, as far as it says which name is wanted. Pure.

use crate::host::Host;

/// The most bytes in which a ClientHello must be whole. Those with post-quantum keys have about 2,000.
const LONGEST: usize = 32 * 1024;

/// The first byte of TLS: a handshake record.
pub(crate) const HANDSHAKE: u8 = 22;

/// What a ClientHello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The name that is wanted; none where the client sent none.
    pub name: Option<Host>,
    /// Whether another, encrypted ClientHello is inside, which may want another name.
    pub encrypted: bool,
}

/// Why bytes are not a ClientHello that can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHello {
    /// Not TLS, or broken.
    NotTls,
    /// Too many bytes.
    TooLong,
    /// The name is not a host name, or there are several.
    Name,
}

/// Reads a ClientHello from the beginning of `bytes`; `None` when more is to come.
pub fn read_hello(bytes: &[u8]) -> Result<Option<ClientHello>, BadHello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(hello) = whole_message(&message)? {
            return read_message(hello).map(Some);
        }
        // A hello may be spread over records; each has to be a handshake record of some bytes.
        match rest {
            [HANDSHAKE, 3, 0..=4, high, low, after @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length == 0 || length > 16 * 1024 {
                    return Err(BadHello::NotTls);
                }
                match after.split_at_checked(length) {
                    Some((payload, next)) => {
                        message.extend_from_slice(payload);
                        rest = next;
                    }
                    None if bytes.len() >= LONGEST => return Err(BadHello::TooLong),
                    None => return Ok(None),
                }
            }
            [] | [HANDSHAKE] | [HANDSHAKE, 3] | [HANDSHAKE, 3, 0..=4] | [HANDSHAKE, 3, 0..=4, _] => return Ok(None),
            [..] => return Err(BadHello::NotTls),
        }
        if message.len() > LONGEST {
            return Err(BadHello::TooLong);
        }
    }
}

fn whole_message(message: &[u8]) -> Result<Option<&[u8]>, BadHello> {
    match message {
        [] => Ok(None),
        [1, a, b, c, body @ ..] => {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            if length > LONGEST { Err(BadHello::TooLong) } else { Ok(body.get(..length)) }
        }
        [1, ..] => Ok(None),
        [..] => Err(BadHello::NotTls),
    }
}

/// Takes pieces from the front.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], BadHello> {
        let (piece, rest) = self.0.split_at_checked(length).ok_or(BadHello::NotTls)?;
        self.0 = rest;
        Ok(piece)
    }

    fn number<const BYTES: usize>(&mut self) -> Result<usize, BadHello> {
        Ok(self.take(BYTES)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A piece with its length in front.
    fn piece<const BYTES: usize>(&mut self) -> Result<Cursor<'a>, BadHello> {
        let length = self.number::<BYTES>()?;
        self.take(length).map(Cursor)
    }
}

const SERVER_NAME: usize = 0;
const ENCRYPTED_CLIENT_HELLO: usize = 0xfe0d;

fn read_message(body: &[u8]) -> Result<ClientHello, BadHello> {
    let mut body = Cursor(body);
    body.take(2 + 32)?;
    body.piece::<1>()?;
    body.piece::<2>()?;
    body.piece::<1>()?;
    let mut hello = ClientHello { name: None, encrypted: false };
    if body.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.piece::<2>()?;
    if !body.0.is_empty() {
        return Err(BadHello::NotTls);
    }
    let mut has_name = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number::<2>()?;
        let contents = extensions.piece::<2>()?;
        match kind {
            SERVER_NAME if has_name => return Err(BadHello::Name),
            SERVER_NAME => {
                has_name = true;
                hello.name = Some(read_name(contents)?);
            }
            ENCRYPTED_CLIENT_HELLO => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// Exactly one entry, which is a name and no address.
fn read_name(mut contents: Cursor<'_>) -> Result<Host, BadHello> {
    let mut list = contents.piece::<2>()?;
    let kind = list.number::<1>()?;
    let name = list.piece::<2>()?;
    if kind != 0 || !list.0.is_empty() || !contents.0.is_empty() {
        return Err(BadHello::Name);
    }
    match Host::parse_bytes(name.0) {
        Ok(host @ Host::Name(_)) => Ok(host),
        Ok(Host::Address(_) | Host::ThisMachine(_)) | Err(_) => Err(BadHello::Name),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::pki_types::ServerName;

    use super::*;

    /// What a real client sends first.
    fn hello(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name).unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_of_a_real_clients_hello_is_read_also_when_it_comes_in_pieces() {
        let bytes = hello("Sub.Example.com");
        let expected = ClientHello { name: Some(Host::parse("sub.example.com").unwrap()), encrypted: false };
        assert_eq!(read_hello(&bytes), Ok(Some(expected.clone())));
        for cut in 0..bytes.len() {
            assert_eq!(read_hello(&bytes[..cut]), Ok(None), "{cut}");
        }
        // The same message, one byte to a record.
        let scattered: Vec<u8> = bytes[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
        assert_eq!(read_hello(&scattered), Ok(Some(expected)));
    }

    #[test]
    fn a_hello_for_an_address_has_no_name() {
        assert_eq!(read_hello(&hello("192.0.2.7")), Ok(Some(ClientHello { name: None, encrypted: false })));
    }

    #[test]
    fn a_second_encrypted_hello_is_noticed() {
        let mut bytes = hello("a.example.com");
        assert!(!read_hello(&bytes).unwrap().unwrap().encrypted);
        // The extension for the extended master secret, which is empty, becomes one for an encrypted hello.
        let at = bytes.windows(4).position(|window| window == [0, 23, 0, 0]).unwrap();
        bytes[at..at + 2].copy_from_slice(&[0xfe, 0x0d]);
        assert!(read_hello(&bytes).unwrap().unwrap().encrypted);
    }

    #[test]
    fn what_is_not_a_hello_is_refused() {
        assert_eq!(read_hello(b"GET / HTTP/1.1\r\n"), Err(BadHello::NotTls));
        assert_eq!(read_hello(&[22, 3, 1, 0, 0]), Err(BadHello::NotTls));
        assert_eq!(read_hello(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Err(BadHello::NotTls));
        assert_eq!(read_hello(&[22, 3, 1, 0, 4, 1, 255, 255, 255]), Err(BadHello::TooLong));
        assert_eq!(read_hello(&[21, 3, 1, 0, 2, 1, 0]), Err(BadHello::NotTls));
        let bytes = hello("a.example.com");
        let at = bytes.windows(13).position(|window| window == b"a.example.com").unwrap();
        let mut zero = bytes.clone();
        zero[at + 1] = 0;
        assert_eq!(read_hello(&zero), Err(BadHello::Name));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_the_beginning_of_one_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            changed in proptest::collection::vec((0_usize..260, any::<u8>()), 0..6),
        ) {
            drop(read_hello(&bytes));
            let mut real = hello("a.example.com");
            for (at, byte) in changed {
                if let Some(place) = real.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(Some(ClientHello { name: Some(name), .. })) = read_hello(&real) {
                prop_assert!(matches!(name, Host::Name(_)));
            }
        }
    }
}
