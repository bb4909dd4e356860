//! Opening TLS: a certificate authority for one sandbox, whose key is written nowhere. (Process 1 behind a wall may be a copy of
//! this process and hold it, too: it can neither be traced nor dumped, and the authority is trusted behind that wall alone.)
//!
//! To the inside we are the origin, with a certificate of that authority. To the origin we are a client that verifies.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::host::Host;
use crate::roots::{Roots, pem};

/// The most hosts whose certificates are kept. When there are more, all are forgotten and made again.
const MOST_LEAVES: usize = 1024;

/// The name of every authority.
const AUTHORITY: &str = "Ringfence sandbox authority";

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// Which HTTP is spoken inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    Http1,
    Http2,
}

impl Version {
    /// What was agreed on; nothing means HTTP/1.1.
    pub(crate) fn agreed(protocol: Option<&[u8]>) -> Self {
        if protocol == Some(HTTP2) { Self::Http2 } else { Self::Http1 }
    }

    /// The best that is offered.
    pub(crate) fn offered<'a>(protocols: Option<impl Iterator<Item = &'a [u8]>>) -> Self {
        let offered = protocols.into_iter().flatten().any(|protocol| protocol == HTTP2);
        if offered { Self::Http2 } else { Self::Http1 }
    }

    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Http1 => vec![HTTP1.to_vec()],
            Self::Http2 => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        }
    }
}

/// Opens TLS for one sandbox.
pub struct Inspector {
    provider: Arc<CryptoProvider>,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    leaf_key: KeyPair,
    serial: AtomicU64,
    leaves: Mutex<HashMap<(Host, Version), Arc<ServerConfig>>>,
    roots: Roots,
    to_origin: OnceLock<ToOrigin>,
}

/// How we are a client to an origin.
struct ToOrigin {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// Why TLS cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// A certificate could not be made.
    #[error("a certificate for a sandbox could not be made")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// This system trusts nobody, so no origin could be verified.
    #[error("no root certificates were found; install the system's `ca-certificates`")]
    NoRoots,
    /// The system's random numbers failed.
    #[error("random numbers could not be had")]
    Random,
}

impl Inspector {
    /// A new authority. Origins are verified against the roots of this system.
    pub fn new() -> Result<Self, InspectError> {
        Self::with(Roots::of_system())
    }

    /// A new authority. Origins are verified against `roots` alone.
    pub fn trusting(roots: Vec<CertificateDer<'static>>) -> Result<Self, InspectError> {
        Self::with(Roots::These(roots))
    }

    fn with(roots: Roots) -> Result<Self, InspectError> {
        if roots.are_none() {
            return Err(InspectError::NoRoots);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut params = CertificateParams::default();
        params.distinguished_name = named(AUTHORITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let mut random = [0; 16];
        provider.secure_random.fill(&mut random).map_err(|_| InspectError::Random)?;
        let [first, rest @ ..] = random;
        let mut serial = vec![first & 0x7f];
        serial.extend(rest);
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self {
            to_origin: OnceLock::new(),
            issuer: Issuer::new(params, key),
            certificate,
            leaf_key: KeyPair::generate()?,
            serial: AtomicU64::new(1),
            leaves: Mutex::new(HashMap::new()),
            roots,
            provider,
        })
    }

    /// The authority's certificate, and no key.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The authority's certificate alone, for trust stores that add it to others.
    pub fn certificate_pem(&self) -> String {
        pem(&self.certificate)
    }

    /// The authority's certificate and every root that origins are verified against, for variables that name one file:
    /// hosts that are not inspected still have to be trusted.
    pub fn bundle_pem(&self) -> String {
        self.roots.pem_after(&self.certificate)
    }

    /// Every root that origins are verified against.
    pub(crate) fn roots(&self) -> &Roots {
        &self.roots
    }

    /// How we are a client to an origin.
    pub(crate) fn to_origin(&self, version: Version) -> Result<Arc<ClientConfig>, InspectError> {
        let made = match self.to_origin.get() {
            Some(made) => made,
            // Of two at once, the first stays.
            None => {
                let made = self.make_to_origin()?;
                self.to_origin.get_or_init(|| made)
            }
        };
        Ok(Arc::clone(match version {
            Version::Http1 => &made.http1,
            Version::Http2 => &made.http2,
        }))
    }

    fn make_to_origin(&self) -> Result<ToOrigin, InspectError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.roots.to_verify());
        if store.is_empty() {
            return Err(InspectError::NoRoots);
        }
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        let speaking = |version: Version| {
            let mut config = config.clone();
            config.alpn_protocols = version.protocols();
            Arc::new(config)
        };
        Ok(ToOrigin { http1: speaking(Version::Http1), http2: speaking(Version::Http2) })
    }

    /// How we are `host` to the inside.
    pub(crate) fn to_inside(&self, host: &Host, version: Version) -> Result<Arc<ServerConfig>, InspectError> {
        let key = (host.clone(), version);
        let known = self.leaves.lock().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone);
        if let Some(config) = known {
            return Ok(config);
        }
        let mut params = CertificateParams::new(vec![host.to_string()])?;
        params.distinguished_name = named("Ringfence sandbox");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        // One key serves all hosts, and a serial made of the key would be the same for all.
        params.serial_number = Some(SerialNumber::from(self.serial.fetch_add(1, Ordering::Relaxed)));
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?.der().clone();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![leaf, self.certificate.clone()], private)?;
        config.alpn_protocols = version.protocols();
        let config = Arc::new(config);
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        leaves.insert(key, Arc::clone(&config));
        Ok(config)
    }
}

/// The name that an origin has to prove.
pub(crate) fn server_name(host: &Host) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    ServerName::try_from(host.to_string())
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// Shows no key.
impl fmt::Debug for Inspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").finish_non_exhaustive()
    }
}

/// Variables that lead programs to a proxy at `address`, such as `127.0.0.1:3128`, as it is named inside. A convenience: there
/// is no other way out, whether they are obeyed or not.
pub fn proxy_environment(address: &str) -> Vec<(&'static str, String)> {
    let http = format!("http://{address}");
    let socks = format!("socks5h://{address}");
    vec![
        ("HTTP_PROXY", http.clone()),
        ("http_proxy", http.clone()),
        ("HTTPS_PROXY", http.clone()),
        ("https_proxy", http),
        ("ALL_PROXY", socks.clone()),
        ("all_proxy", socks),
        ("NO_PROXY", String::new()),
        ("no_proxy", String::new()),
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
    ]
}
