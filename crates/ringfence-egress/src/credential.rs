//! Secrets that a sandbox uses and never sees.
//!
//! Inside there is a placeholder. On a request that a rule with the credential allows, over TLS that was opened, the
//! placeholder becomes the secret; anywhere else it is refused. On a host that a credential is bound to, nobody else's
//! passes, and what the origin echoes is masked.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE};
use http::request::Parts;
use zeroize::Zeroizing;

use crate::body::Filter;
use crate::decide::{Allowed, ForeignCredentials, Scheme};
use crate::headers;
use crate::host::Host;
use crate::scan::{self, Scanner};
use crate::sign::{Signed, Stamp, sign};

/// Headers that carry credentials.
const CARRIERS: [&str; 11] = [
    "authorization",
    "cookie",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "private-token",
    "job-token",
    "x-auth-token",
    "x-access-token",
    "x-amz-security-token",
    "x-functions-key",
];

/// Parts of a query that carry credentials.
const CARRIERS_IN_QUERY: [&str; 11] = [
    "key",
    "api_key",
    "api-key",
    "apikey",
    "access_token",
    "private_token",
    "token",
    "auth",
    "x-amz-credential",
    "x-amz-security-token",
    "sig",
];

/// A shorter secret, or placeholder, would be found in bytes by accident.
const SHORTEST: usize = 8;
/// A shorter key could be guessed from what it signed.
const SHORTEST_KEY: usize = 32;

/// A secret, and what stands for it inside.
#[derive(Clone)]
pub struct Credential {
    name: Arc<str>,
    placeholder: String,
    secret: Zeroizing<String>,
    header: HeaderName,
    used: Use,
}

/// How a secret is used.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Use {
    /// It is sent, with this before it.
    Sent { prefix: String },
    /// It signs requests, and stays here.
    Signs,
}

/// Why something cannot be a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCredential {
    /// Fewer than eight characters.
    #[error("a secret and its placeholder have at least {SHORTEST} characters")]
    TooShort,
    /// Not printable ASCII, so not fit for a header.
    #[error(
        "a secret and its placeholder are printable ASCII without spaces; take the line end off the file's contents"
    )]
    NotPlain,
    /// A key with fewer than 32 characters.
    #[error("a key that signs has at least {SHORTEST_KEY} characters; `openssl rand -hex 32` makes one")]
    ShortKey,
    /// The placeholder has the secret in it, or is in it.
    #[error("a placeholder has nothing of the secret in it; choose another")]
    Alike,
}

impl Credential {
    /// A credential that rules name `name`. It is sent as `Authorization: Bearer SECRET` where a request has no placeholder.
    pub fn new(name: impl Into<Arc<str>>, placeholder: &str, secret: &str) -> Result<Self, BadCredential> {
        for text in [placeholder, secret] {
            if text.len() < SHORTEST {
                return Err(BadCredential::TooShort);
            }
            if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(BadCredential::NotPlain);
            }
        }
        if placeholder.contains(secret) || secret.contains(placeholder) {
            return Err(BadCredential::Alike);
        }
        Ok(Self {
            name: name.into(),
            placeholder: placeholder.to_owned(),
            secret: Zeroizing::new(secret.to_owned()),
            header: AUTHORIZATION,
            used: Use::Sent { prefix: "Bearer ".to_owned() },
        })
    }

    /// The same in another header: `prefix` and then the secret. After `Basic ` the rest and the secret are sent in base64.
    #[must_use]
    pub fn sent_as(mut self, header: HeaderName, prefix: &str) -> Self {
        self.header = header;
        self.used = Use::Sent { prefix: prefix.to_owned() };
        self
    }

    /// The same as the key of a signature in a header with this name. It is never sent.
    pub fn signing_in(mut self, header: &str) -> Result<Self, BadCredential> {
        if self.secret.len() < SHORTEST_KEY {
            return Err(BadCredential::ShortKey);
        }
        self.header = HeaderName::from_bytes(header.as_bytes()).map_err(|_| BadCredential::NotPlain)?;
        self.used = Use::Signs;
        Ok(self)
    }

    /// Signs a request with the headers `headers`; returns how the signature may be written in an answer.
    pub(crate) fn sign(&self, signed: &Signed<'_>, headers: &mut HeaderMap) -> Result<Vec<Vec<u8>>, String> {
        let unfit = |_| "the signature does not fit into a header".to_owned();
        let stamp = Stamp::now().ok_or("the request cannot be signed: this machine has no clock or no chance")?;
        let (value, signature) = sign(&self.name, self.secret.as_bytes(), signed, &stamp);
        let mut value = HeaderValue::from_str(&value).map_err(unfit)?;
        value.set_sensitive(true);
        headers.insert(self.header.clone(), value);
        Ok(spellings(&signature))
    }

    /// Likewise, with the name of the header as text.
    pub fn sent_in(self, header: &str, prefix: &str) -> Result<Self, BadCredential> {
        let header = HeaderName::from_bytes(header.as_bytes()).map_err(|_| BadCredential::NotPlain)?;
        Ok(self.sent_as(header, prefix))
    }

    /// What stands for the secret inside.
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }
}

/// Shows neither the secret nor how long it is.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The credentials of one sandbox.
#[derive(Debug)]
pub(crate) struct Credentials {
    list: Vec<Credential>,
    placeholders: Arc<[Vec<u8>]>,
}

/// How the bodies of a request with credentials about are handled.
#[derive(Debug)]
pub(crate) struct Handled<'a> {
    pub(crate) request: Filter,
    pub(crate) response: Option<Vec<Vec<u8>>>,
    /// Signs the request when all of it is known.
    pub(crate) signs: Option<&'a Credential>,
}

impl Credentials {
    pub(crate) fn new(list: Vec<Credential>) -> Self {
        let placeholders = list.iter().flat_map(|credential| spellings(&credential.placeholder)).collect();
        Self { list, placeholders }
    }

    /// Whether a placeholder is a part of a host's name, which is in small letters.
    pub(crate) fn are_named_in(&self, host: &Host) -> bool {
        let Host::Name(name) = host else { return false };
        self.list.iter().any(|credential| name.contains(&credential.placeholder.to_ascii_lowercase()))
    }

    /// Puts the secret in where it belongs, and refuses what does not: then it says why.
    pub(crate) fn apply(&self, allowed: &Allowed, scheme: Scheme, parts: &mut Parts) -> Result<Handled<'_>, String> {
        let own = match &allowed.credential {
            None => None,
            Some(name) => {
                let found = self.list.iter().find(|credential| credential.name == *name);
                let found = found.filter(|_| scheme == Scheme::Https);
                Some(found.ok_or_else(|| format!("the credential `{name}` of this rule is not at hand"))?)
            }
        };
        let uri = parts.uri.to_string();
        let is_in = |bytes: &[u8]| scan::contains_any(bytes, &self.placeholders);
        if is_in(uri.as_bytes()) || uri.contains('%') && is_in(&unescaped(&uri)) {
            return Err("a placeholder in a URL is never replaced; send it in a header".to_owned());
        }
        if allowed.foreign == ForeignCredentials::Refused {
            refuse_foreign(own, parts)?;
        }
        let signs = own.filter(|credential| credential.used == Use::Signs);
        match own.map(|credential| (credential, &credential.used)) {
            Some((credential, Use::Sent { prefix })) => substitute(credential, prefix, &mut parts.headers)?,
            Some((_, Use::Signs)) | None => {}
        }
        let left = |value: &HeaderValue| {
            let basic = decoded_basic(value).unwrap_or_default();
            scan::contains_any(value.as_bytes(), &self.placeholders)
                || scan::contains_any(basic.as_bytes(), &self.placeholders)
        };
        if parts.headers.values().any(left) {
            let why = match own {
                Some(own) if own.used == Use::Signs => {
                    "requests to this host are signed; send no placeholder".to_owned()
                }
                Some(own) => format!("the placeholder of a credential belongs into `{}` and nowhere else", own.header),
                None => "the placeholder of a credential goes to the host of its rule alone, over https".to_owned(),
            };
            return Err(why);
        }
        let request = match self.placeholders.is_empty() {
            true => Filter::Nothing,
            false => Filter::Refuse(Scanner::new(Arc::clone(&self.placeholders))),
        };
        let response = (allowed.foreign == ForeignCredentials::Refused).then(|| {
            // What is compressed, or cut in pieces, cannot be looked through.
            parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            parts.headers.remove(RANGE);
            parts.headers.remove(IF_RANGE);
            self.list.iter().flat_map(|credential| spellings(&credential.secret)).collect()
        });
        Ok(Handled { request, response, signs })
    }
}

/// A URL as a host reads it that decodes what is escaped, whether it had to be or not.
fn unescaped(url: &str) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16)?.try_into().ok());
    let mut bytes = url.as_bytes();
    let mut found = Vec::with_capacity(bytes.len());
    while let [first, rest @ ..] = bytes {
        let escaped: Option<(u8, u8)> = digit(rest.first()).zip(digit(rest.get(1))).filter(|_| *first == b'%');
        match (escaped, rest) {
            (Some((high, low)), [_, _, rest @ ..]) => {
                found.push(high << 4 | low);
                bytes = rest;
            }
            _ => {
                found.push(*first);
                bytes = rest;
            }
        }
    }
    found
}

fn refuse_foreign(own: Option<&Credential>, parts: &Parts) -> Result<(), String> {
    let sent = own.filter(|credential| credential.used != Use::Signs);
    let is_own = |value: &HeaderValue| sent.is_some_and(|credential| is_nothing_but(value, &credential.placeholder));
    let own_header = own.map(|credential| credential.header.as_str());
    for carrier in CARRIERS.into_iter().chain(own_header) {
        // One in another spelling is a key there, too, if the host takes it so.
        let mut sent = parts.headers.iter().filter(|(name, _)| headers::are_alike(name.as_str(), carrier));
        if sent.any(|(_, value)| !is_own(value)) {
            return Err(format!("this host is used with the policy's own credential; send none in `{carrier}`"));
        }
    }
    let query = parts.uri.query().unwrap_or_default();
    for part in query.split('&') {
        let name = part.split('=').next().unwrap_or_default().to_ascii_lowercase();
        if CARRIERS_IN_QUERY.contains(&name.as_str()) || name.contains('%') {
            return Err("this host is used with the policy's own credential; send none in the query".to_owned());
        }
    }
    Ok(())
}

/// Whether the value is the placeholder, with at most the name of a scheme in front. More would be room for another key.
fn is_nothing_but(value: &HeaderValue, placeholder: &str) -> bool {
    const LONGEST_PARTNER: usize = 20;
    if let Some(basic) = decoded_basic(value) {
        // Some take a token for the password, others for the user.
        return match basic.split_once(':') {
            Some((user, password)) if password == placeholder => user.len() <= LONGEST_PARTNER,
            Some((user, password)) if user == placeholder => password.len() <= LONGEST_PARTNER,
            Some(_) | None => false,
        };
    }
    let front = value.to_str().ok().and_then(|text| text.strip_suffix(placeholder));
    front.is_some_and(|front| {
        let scheme = front.strip_suffix(' ').unwrap_or(front);
        scheme.len() <= LONGEST_PARTNER && scheme.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

fn substitute(credential: &Credential, prefix: &str, headers: &mut HeaderMap) -> Result<(), String> {
    let unfit = |_| "the credential does not fit into a header".to_owned();
    let mut replaced = false;
    // In its own header alone: anywhere else the origin might keep it, or hand it on.
    for (_, value) in headers.iter_mut().filter(|(name, _)| **name == credential.header) {
        let text = match (value.to_str(), decoded_basic(value)) {
            (Ok(text), _) if text.contains(&credential.placeholder) => {
                text.replace(&credential.placeholder, credential.secret.as_str())
            }
            (_, Some(basic)) if basic.contains(&credential.placeholder) => {
                format!("Basic {}", STANDARD.encode(basic.replace(&credential.placeholder, credential.secret.as_str())))
            }
            _ => continue,
        };
        *value = HeaderValue::from_str(&text).map_err(unfit)?;
        value.set_sensitive(true);
        replaced = true;
    }
    if !replaced {
        let text = match prefix.strip_prefix("Basic ") {
            Some(user) => format!("Basic {}", STANDARD.encode(format!("{user}{}", credential.secret.as_str()))),
            None => format!("{prefix}{}", credential.secret.as_str()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(unfit)?;
        value.set_sensitive(true);
        headers.insert(credential.header.clone(), value);
    }
    Ok(())
}

/// `user:password` of a value such as `Basic dXNlcjpwYXNzd29yZA==`.
fn decoded_basic(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()
}

/// How a secret may be written in what an origin echoes: plain, escaped for a URL, and in base64 wherever it begins.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let mut found = vec![secret.as_bytes().to_vec()];
    let escaped: String = secret
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    if escaped != secret {
        found.push(escaped.to_lowercase().into_bytes());
        found.push(escaped.into_bytes());
    }
    for shift in 0..3_usize {
        let mut bytes = vec![0; shift];
        bytes.extend_from_slice(secret.as_bytes());
        let encoded = STANDARD.encode(&bytes);
        // The characters at both ends depend on what stands beside the secret.
        let end = encoded.trim_end_matches('=').len() - usize::from(bytes.len() % 3 != 0);
        let start = shift + usize::from(shift > 0);
        if let Some(core) = encoded.get(start..end).filter(|core| core.len() >= SHORTEST) {
            found.push(core.as_bytes().to_vec());
        }
    }
    found
}

/// Overwrites `words` in every value.
pub(crate) fn mask_headers(headers: &mut HeaderMap, words: &[Vec<u8>]) {
    for value in headers.values_mut() {
        if scan::contains_any(value.as_bytes(), words) {
            let mut bytes = value.as_bytes().to_vec();
            scan::mask(&mut bytes, words);
            // What was a value is one with stars in it, too.
            *value = HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static("*"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_plain_escaped_and_in_base64_wherever_it_begins() {
        let secret = "s3cr/et+value=x";
        let words = spellings(secret);
        for front in ["", "u", "us", "user:"] {
            for back in ["", "!", "!!"] {
                let encoded = STANDARD.encode(format!("{front}{secret}{back}"));
                assert!(scan::contains_any(encoded.as_bytes(), &words), "{front} {back}");
            }
        }
        assert!(scan::contains_any(b"?t=s3cr%2Fet%2Bvalue%3Dx", &words));
        assert!(!scan::contains_any(STANDARD.encode("another text altogether").as_bytes(), &words));
    }

    #[test]
    fn what_is_escaped_in_a_url_is_read_as_a_host_reads_it() {
        for (url, expected) in [
            ("/%61b%2Ec", "/ab.c"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz%%41", "%zz%A"),
            ("%2561", "%61"),
            ("é%e9", "é\u{fffd}"),
        ] {
            assert_eq!(String::from_utf8_lossy(&unescaped(url)), expected, "{url}");
        }
    }

    #[test]
    fn a_placeholder_in_a_name_is_found_whatever_its_capitals() {
        let all = Credentials::new(vec![Credential::new("a", "Place.Holder", "long-enough").unwrap()]);
        let is_named = |host: &str| all.are_named_in(&Host::parse(host).unwrap());
        assert!(is_named("place.holder.a.test") && is_named("x.PLACE.holder.test") && is_named("place.holder"));
        assert!(!is_named("place.a.test") && !is_named("127.0.0.1") && !is_named("localhost"));
    }

    #[test]
    fn a_signature_is_found_plain_and_in_base64() {
        let key = Credential::new("a", "placeholder", &"k".repeat(SHORTEST_KEY)).unwrap().signing_in("x-sign").unwrap();
        let mut headers = HeaderMap::new();
        let signed = Signed { method: "GET", authority: "a.test", path: "/", body: Some(b"") };
        let words = key.sign(&signed, &mut headers).unwrap();
        let value = headers["x-sign"].to_str().unwrap();
        let signature = value.rsplit('=').next().unwrap();
        for echoed in [value.to_owned(), STANDARD.encode(value), STANDARD.encode(format!("u:{signature}"))] {
            assert!(scan::contains_any(echoed.as_bytes(), &words), "{echoed}");
        }
        assert!(!scan::contains_any(STANDARD.encode(value.replace(signature, "another")).as_bytes(), &words));
    }

    #[test]
    fn a_foreign_key_is_refused_in_every_spelling_of_its_header() {
        let own = Credential::new("a", "placeholder", "long-enough").unwrap().sent_in("x-own-key", "").unwrap();
        let is_refused = |name: &str, value: &str| {
            let request = http::Request::get("/").header(name, value).body(()).unwrap();
            refuse_foreign(Some(&own), &request.into_parts().0).is_err()
        };
        for name in ["X-Api-Key", "X_Api_Key", "x-api_key", "X-Own-Key", "x_own_key", "Private_Token"] {
            assert!(is_refused(name, "another"), "{name}");
        }
        assert!(!is_refused("x-own-key", "placeholder") && !is_refused("x_own_keys", "another"));
    }

    #[test]
    fn a_credential_is_plain_long_enough_and_never_printed() {
        assert_eq!(Credential::new("a", "placeholder", "short").err(), Some(BadCredential::TooShort));
        assert_eq!(Credential::new("a", "placeholder", "long-enough\n").err(), Some(BadCredential::NotPlain));
        assert_eq!(Credential::new("a", "long-enough-x", "long-enough").err(), Some(BadCredential::Alike));
        let credential = Credential::new("a", "placeholder", "long-enough").unwrap();
        assert!(!format!("{credential:?}").contains("long-enough"));
        assert_eq!(credential.signing_in("authorization").err(), Some(BadCredential::ShortKey));
    }
}
