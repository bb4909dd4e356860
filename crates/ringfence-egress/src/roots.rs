//! Whom origins are verified against, and what the inside is told of that.
//!
//! A sandbox waits for what goes inside, and most of them never open TLS. So the system's own file of roots goes inside as it is, and
//! is read as certificates only for the first origin that has to be verified.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;

/// Where systems keep all roots in one file: Debian, Fedora, Red Hat, openSUSE, Alpine.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// A longer file is read certificate by certificate, as one that is not there.
const LONGEST_BUNDLE: u64 = 8 * 1024 * 1024;
/// Variables that lead to other roots.
const FILE_VARIABLE: &str = "SSL_CERT_FILE";
const FOLDER_VARIABLE: &str = "SSL_CERT_DIR";

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Whom origins are verified against.
pub(crate) enum Roots {
    /// These.
    These(Vec<CertificateDer<'static>>),
    /// Those of this system, whose file of them holds `bundle`.
    System { bundle: String },
}

impl Roots {
    /// Those of this system.
    pub(crate) fn of_system() -> Self {
        let bundle = match (std::env::var_os(FILE_VARIABLE), std::env::var_os(FOLDER_VARIABLE)) {
            (Some(file), _) => read_bundle(file),
            (None, Some(_)) => None,
            (None, None) => BUNDLES.iter().find_map(read_bundle),
        };
        match bundle {
            Some(bundle) => Self::System { bundle },
            None => Self::These(load()),
        }
    }

    /// Whether there is none, so that no origin could be verified.
    pub(crate) fn are_none(&self) -> bool {
        match self {
            Self::These(roots) => roots.is_empty(),
            Self::System { bundle } => !bundle.contains(BEGIN),
        }
    }

    /// All of them, to verify with.
    pub(crate) fn to_verify(&self) -> Vec<CertificateDer<'static>> {
        match self {
            Self::These(roots) => roots.clone(),
            Self::System { .. } => load(),
        }
    }

    /// All of them as PEM, after `first`.
    pub(crate) fn pem_after(&self, first: &CertificateDer<'_>) -> String {
        match self {
            Self::These(roots) => roots.iter().fold(pem(first), |text, root| text + &pem(root)),
            Self::System { bundle } => {
                let mut text = pem(first);
                text.reserve(bundle.len() + 1);
                text.push_str(bundle);
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                text
            }
        }
    }

    /// All of them as bytes, for stores that are no text.
    pub(crate) fn in_bytes(&self) -> Vec<Vec<u8>> {
        match self {
            Self::These(roots) => roots.iter().map(|root| root.to_vec()).collect(),
            Self::System { bundle } => read_pem(bundle),
        }
    }
}

/// A file among the system's that cannot be read leaves its roots out, and trusts nobody more.
fn load() -> Vec<CertificateDer<'static>> {
    rustls_native_certs::load_native_certs().certs
}

/// The system's roots in one file. Nothing when it is none, or holds anything besides certificates that are told apart.
fn read_bundle(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST_BUNDLE + 1).read_to_string(&mut text).ok()?;
    let is_whole = u64::try_from(text.len()).is_ok_and(|length| length <= LONGEST_BUNDLE);
    // It is shown inside: a key that lies in the same file must not be.
    (is_whole && text.contains(BEGIN) && !text.contains("PRIVATE KEY")).then_some(text)
}

/// The certificates in `text`. What is none is left out.
fn read_pem(text: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for part in text.split(BEGIN).skip(1) {
        let Some((inner, _)) = part.split_once(END) else { continue };
        let packed: Vec<u8> = inner.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        found.extend(STANDARD.decode(packed));
    }
    found
}

/// A certificate as text.
pub(crate) fn pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let mut text = format!("{BEGIN}\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, next) = rest.split_at_checked(64).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = next;
    }
    text + END + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(bytes: &[u8]) -> CertificateDer<'static> {
        CertificateDer::from(bytes.to_vec())
    }

    #[test]
    fn what_is_shown_of_a_systems_file_is_what_a_list_of_the_same_roots_shows() {
        let (ours, roots) = (certificate(b"ours"), vec![certificate(&[7; 100]), certificate(b"two")]);
        let bundle: String = roots.iter().map(pem).collect();
        let (these, system) = (Roots::These(roots), Roots::System { bundle: bundle.trim_end().to_owned() });
        assert_eq!(these.pem_after(&ours), system.pem_after(&ours));
        assert_eq!((these.in_bytes(), these.in_bytes().len()), (system.in_bytes(), 2));
        assert!(!these.are_none() && !system.are_none());
        assert!(Roots::These(Vec::new()).are_none() && Roots::System { bundle: "# none".to_owned() }.are_none());
    }

    #[test]
    fn what_is_no_certificate_is_left_out() {
        let good = pem(&certificate(b"good"));
        let text = format!("# a comment\n{BEGIN}\n!!!\n{END}\n{good}trailing\n{BEGIN}\nAAAA\n");
        assert_eq!(read_pem(&text), [b"good".to_vec()]);
    }

    #[test]
    fn a_file_with_a_key_in_it_is_not_shown_inside_and_one_without_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bundle.pem");
        let check = |text: &str, expected: bool| {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read_bundle(&file).is_some(), expected, "{text}");
        };
        let good = pem(&certificate(b"good"));
        check(&good, true);
        check("", false);
        check("nonsense", false);
        check(&format!("{good}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), false);
        check(&format!("{good}{}", "#".repeat(usize::try_from(LONGEST_BUNDLE).unwrap())), false);
        assert!(read_bundle("/nowhere").is_none());
    }

    #[test]
    fn the_systems_file_holds_no_other_roots_than_are_verified_against() {
        let Roots::System { bundle } = Roots::of_system() else { return };
        let known = load();
        for root in read_pem(&bundle) {
            assert!(known.iter().any(|known| known.as_ref() == root));
        }
    }
}
