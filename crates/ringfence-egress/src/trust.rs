//! What a sandbox needs to trust the authority of its [`Inspector`]: files with certificates and no key, and variables that lead
//! programs to them.

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::inspect::Inspector;

/// Files for the inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// The authority and every root that origins are verified against, as PEM.
    pub bundle: Vec<u8>,
    /// The same for Java, with the usual password `changeit`.
    pub java: Vec<u8>,
}

impl TrustFiles {
    /// What a sandbox with this inspector needs.
    pub fn of(inspector: &Inspector) -> Self {
        let roots = inspector.roots().in_bytes();
        let ours: &[u8] = inspector.certificate();
        let certificates: Vec<&[u8]> = std::iter::once(ours).chain(roots.iter().map(Vec::as_slice)).collect();
        Self { bundle: inspector.bundle_pem().into_bytes(), java: java_key_store(&certificates) }
    }
}

/// A key store of the kind JKS in which `certificates` are trusted. Every Java reads it, with its password or without one.
fn java_key_store(certificates: &[&[u8]]) -> Vec<u8> {
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    const TRUSTED: u32 = 2;
    const PASSWORD: &str = "changeit";
    const SALT: &[u8] = b"Mighty Aphrodite";
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut store = Vec::new();
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    store.extend(length(certificates.len()));
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend(TRUSTED.to_be_bytes());
        put_text(&mut store, &format!("ringfence-{number}"));
        // When it was added, which nobody asks.
        store.extend(0_u64.to_be_bytes());
        put_text(&mut store, "X.509");
        store.extend(length(certificate.len()));
        store.extend(*certificate);
    }
    // Not a secret: it only tells whether the file is whole. The format knows no other hash.
    let mut whole = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        whole.update(&unit.to_be_bytes());
    }
    whole.update(SALT);
    whole.update(&store);
    store.extend(whole.finish().as_ref());
    store
}

/// Short and plain ASCII, so that Java's own form of UTF-8 is the same.
fn put_text(store: &mut Vec<u8>, text: &str) {
    store.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    store.extend(text.as_bytes());
}

/// Variables that lead programs to the bundle ([`TrustFiles::bundle`]) at `path`, as it is named inside.
pub fn trust_environment(path: &str) -> Vec<(&'static str, String)> {
    const VARIABLES: [&str; 14] = [
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "PIP_CERT",
        "npm_config_cafile",
        "AWS_CA_BUNDLE",
        "DENO_CERT",
        "HEX_CACERTS_PATH",
        "BUNDLE_SSL_CA_CERT",
        "NIX_SSL_CERT_FILE",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    ];
    let mut variables: Vec<(&'static str, String)> =
        VARIABLES.into_iter().map(|name| (name, path.to_owned())).collect();
    // It makes Node.js read `SSL_CERT_FILE`, and only once it speaks TLS. `NODE_EXTRA_CA_CERTS` is read at every start.
    variables.push(("NODE_OPTIONS", "--use-openssl-ca".to_owned()));
    variables
}

/// Variables that lead Java to the key store ([`TrustFiles::java`]) at `path`. Each start of Java then says on its standard
/// error that it has picked this up: where its own key store can be replaced, that is the better way.
pub fn java_environment(path: &str) -> Vec<(&'static str, String)> {
    vec![("JAVA_TOOL_OPTIONS", format!("-Djavax.net.ssl.trustStore={path} -Djavax.net.ssl.trustStoreType=JKS"))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_store_has_each_certificate_and_ends_in_what_tells_that_it_is_whole() {
        let store = java_key_store(&[b"one", b"three"]);
        assert_eq!(&store[..12], [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]);
        let first =
            [&[0, 0, 0, 2, 0, 11][..], b"ringfence-0", &[0; 8], &[0, 5], b"X.509", &[0, 0, 0, 3], b"one"].concat();
        assert_eq!(&store[12..12 + first.len()], first);
        assert_eq!(store.len(), 12 + 2 * (first.len() - 3) + 3 + 5 + 20);
    }

    #[test]
    fn what_goes_inside_has_certificates_and_no_key() {
        let authority = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
        let inspector = Inspector::trusting(vec![authority.cert.der().clone()]).unwrap();
        let files = TrustFiles::of(&inspector);
        let text = String::from_utf8(files.bundle.clone()).unwrap();
        assert_eq!((text.matches("BEGIN CERTIFICATE").count(), text.contains("PRIVATE")), (2, false));
        let has = |bytes: &[u8]| files.java.windows(bytes.len()).any(|part| part == bytes);
        assert!(has(inspector.certificate()) && has(authority.cert.der()));
    }
}
