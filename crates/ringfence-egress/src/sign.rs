//! Signatures over requests, for origins that share a key with the host. The form is that of decision 0036, and origins rely on it.

use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::SecureRandom;
use ring::{digest, hmac};

/// The first word of the header, and of what is signed.
const SCHEME: &str = "Ringfence-HMAC-SHA256";
/// What stands for a body that is not signed.
const UNSIGNED: &str = "unsigned";

/// What a signature is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// `HOST`, or `HOST:PORT` where the port is not 443.
    pub(crate) authority: &'a str,
    /// The path with its query, as it is sent.
    pub(crate) path: &'a str,
    /// All of the body; `None` when it is not known beforehand.
    pub(crate) body: Option<&'a [u8]>,
}

/// What makes a signature good for once, and not for long.
#[derive(Debug)]
pub(crate) struct Stamp {
    /// Seconds since 1970.
    seconds: u64,
    nonce: String,
}

impl Stamp {
    pub(crate) fn now() -> Option<Self> {
        let mut nonce = [0; 16];
        ring::rand::SystemRandom::new().fill(&mut nonce).ok()?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        Some(Self { seconds, nonce: hex(&nonce) })
    }
}

/// The value of the header, and the signature in it.
pub(crate) fn sign(name: &str, key: &[u8], signed: &Signed<'_>, stamp: &Stamp) -> (String, String) {
    let Signed { method, authority, path, body } = signed;
    let Stamp { seconds, nonce } = stamp;
    let body = body.map_or_else(|| UNSIGNED.to_owned(), |body| hex(digest::digest(&digest::SHA256, body).as_ref()));
    // No part has a line end in it, so that two requests never have the same text.
    let text = format!("{SCHEME}\n{name}\n{seconds}\n{nonce}\n{method}\n{authority}\n{path}\n{body}");
    let signature = hex(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref());
    let value = format!("{SCHEME} key={name}, time={seconds}, nonce={nonce}, body={body}, signature={signature}");
    (value, signature)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn stamp() -> Stamp {
        Stamp { seconds: 1_800_000_000, nonce: "00112233445566778899aabbccddeeff".to_owned() }
    }

    #[test]
    fn a_signature_is_the_one_that_others_compute() {
        let signed = Signed { method: "POST", authority: "api.corp.test:8443", path: "/a?b=c", body: Some(b"hello") };
        let (value, signature) = sign("corp", KEY, &signed, &stamp());
        assert_eq!(
            value,
            format!(
                "Ringfence-HMAC-SHA256 key=corp, time=1800000000, nonce=00112233445566778899aabbccddeeff, \
                 body=2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824, signature={signature}"
            )
        );
        // Computed by another implementation of HMAC.
        assert_eq!(signature, "bee96fea880357cafe41dfb54b9b569db33bbd54933040f9dbf02c8008a850dc");
    }

    #[test]
    fn whatever_is_signed_changes_the_signature() {
        let signed = Signed { method: "GET", authority: "a.test", path: "/", body: Some(b"") };
        let of = |signed: Signed<'_>| sign("corp", KEY, &signed, &stamp()).1;
        let others = [
            of(Signed { method: "PUT", ..signed }),
            of(Signed { authority: "a.test:444", ..signed }),
            of(Signed { path: "/?", ..signed }),
            of(Signed { body: Some(b"x"), ..signed }),
            of(Signed { body: None, ..signed }),
            sign("other", KEY, &signed, &stamp()).1,
            sign("corp", b"another key that is long enough!", &signed, &stamp()).1,
            sign("corp", KEY, &signed, &Stamp { seconds: 1, ..stamp() }).1,
            sign("corp", KEY, &signed, &Stamp { nonce: hex(&[0; 16]), ..stamp() }).1,
        ];
        let mut all: Vec<String> = others.into_iter().chain([of(signed)]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn no_two_stamps_are_alike() {
        let (one, other) = (Stamp::now().unwrap(), Stamp::now().unwrap());
        assert!(one.nonce != other.nonce && one.nonce.len() == 32 && one.seconds > 1_700_000_000);
    }
}
