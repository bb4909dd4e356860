//! Engines that are not reached by a socket of this machine: over TLS with certificates on both sides, and through `ssh`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use ringfence_testkit::canary::until;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::api::socket;
use crate::origin::{FETCH, Origin};
use crate::stage::{Ended, SOON};
use crate::walls::{Walled, for_each_engine};

/// Docker's `docker` engine alone: the rest is the same for all.
fn for_docker(more: &str, act: impl Fn(&Walled)) {
    for_each_engine(more, |place| {
        if place.wall.to_string() == "docker" {
            act(place);
        }
    });
}

/// A run that changes its workspace, and what is said of it.
fn changed(place: &Walled, environment: &[(&str, String)]) -> Ended {
    place.stage.write("note", "as it was\n");
    let mut run = place.stage.ringfence(["run", "-q", "--apply", "--", "sh", "-c", "cat note; echo changed > note"]);
    for (name, value) in environment {
        run = run.env(name, value);
    }
    run.run()
}

fn is_changed(place: &Walled, ended: &Ended) {
    assert_eq!((ended.code, ended.text().as_str()), (0, "as it was\n"), "{ended:?}");
    assert_eq!(place.stage.read("note").as_deref(), Some("changed\n"));
    assert!(place.is_soon_empty(), "a container is left");
}

/// What is listed is this machine's, wherever the engine is.
fn is_reached(place: &Walled, environment: &[(&str, String)], origin: &Origin) {
    origin.forget();
    let argv = ["run", "-q", "--", "python3", "-c", FETCH, &origin.url("/far"), "http://evil.test/"];
    let mut run = place.stage.ringfence(argv);
    for (name, value) in environment {
        run = run.env(name, value);
    }
    let ended = run.run();
    assert!(ended.text().starts_with("200 hello\n403 Ringfence denied"), "{ended:?}");
    assert_eq!(origin.asked(), ["GET /far 0"]);
}

fn is_untouched(place: &Walled, ended: &Ended, why: &str) {
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(ended.stderr.contains(why), "{ended:?}");
    assert_eq!(place.stage.read("note").as_deref(), Some("as it was\n"));
}

/// An authority, and what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

struct Signed {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        Signed { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        Arc::new(roots)
    }
}

/// The folder that `DOCKER_CERT_PATH` names: who is trusted, and who we are.
fn certificates(folder: PathBuf, trusted: &Authority, own: &Signed) -> String {
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, label: &str, bytes: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        std::fs::write(folder.join(name), format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")).unwrap();
    };
    write("ca.pem", "CERTIFICATE", trusted.certificate.der());
    write("cert.pem", "CERTIFICATE", own.certificate.der());
    write("key.pem", "PRIVATE KEY", &own.key.serialize_der());
    folder.to_str().unwrap().to_owned()
}

/// A port of this machine where the engine is to be had over TLS, for who has a certificate of `authority`.
fn tls_port(engine: PathBuf, authority: &Authority, server: &Signed) -> u16 {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients =
        WebPkiClientVerifier::builder_with_provider(authority.roots(), Arc::clone(&provider)).build().unwrap();
    let chain: Vec<CertificateDer<'static>> = vec![server.certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_client_cert_verifier(clients).with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let (config, engine) = (Arc::clone(&config), engine.clone());
            std::thread::spawn(move || carry(&config, near, &engine));
        }
    });
    port
}

/// Carries bytes both ways until one side ends.
fn carry(config: &Arc<ServerConfig>, mut near: TcpStream, engine: &Path) -> Option<()> {
    let mut tls = ServerConnection::new(Arc::clone(config)).ok()?;
    while tls.is_handshaking() {
        tls.complete_io(&mut near).ok()?;
    }
    let mut far = UnixStream::connect(engine).ok()?;
    let tls = Arc::new(std::sync::Mutex::new(tls));
    let (mut answers, mut out, back) = (far.try_clone().ok()?, near.try_clone().ok()?, Arc::clone(&tls));
    std::thread::spawn(move || {
        let mut bytes = [0u8; 16 * 1024];
        while let Ok(read @ 1..) = answers.read(&mut bytes) {
            let mut tls = back.lock().unwrap();
            if tls.writer().write_all(&bytes[..read]).is_err() || tls.write_tls(&mut out).is_err() {
                break;
            }
            while tls.wants_write() && tls.write_tls(&mut out).is_ok() {}
        }
        out.shutdown(Shutdown::Both).ok();
    });
    let carried = carry_in(&tls, &mut near, &mut far);
    // Whoever waits for an answer at one end would wait for ever when the other is gone.
    near.shutdown(Shutdown::Both).ok();
    far.shutdown(Shutdown::Both).ok();
    carried
}

/// Carries what comes from outside to the engine.
fn carry_in(tls: &std::sync::Mutex<ServerConnection>, near: &mut TcpStream, far: &mut UnixStream) -> Option<()> {
    let mut bytes = [0u8; 16 * 1024];
    let (mut next, mut end) = (0, 0);
    loop {
        // Some may have come with the end of the handshake. What was opened is taken at once: only so much may wait.
        let mut plain = vec![0u8; tls.lock().unwrap().process_new_packets().ok()?.plaintext_bytes_to_read()];
        tls.lock().unwrap().reader().read_exact(&mut plain).ok()?;
        far.write_all(&plain).ok()?;
        if next == end {
            (next, end) = (0, near.read(&mut bytes).ok().filter(|read| *read > 0)?);
        }
        next += tls.lock().unwrap().read_tls(&mut &bytes[next..end]).ok()?;
    }
}

#[test]
fn an_engine_over_tls_runs_programs_for_who_has_its_certificates_or_is_skipped_loudly() {
    let origin = Origin::start();
    for_docker(&origin.listed(), |place| {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let server = authority.sign("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let client = authority.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
        let foreign = stranger.sign("client", ExtendedKeyUsagePurpose::ClientAuth);
        let port = tls_port(socket(&place.wall), &authority, &server);
        let at = |folder: String| {
            [
                ("DOCKER_HOST", format!("tcp://127.0.0.1:{port}")),
                ("DOCKER_TLS_VERIFY", "1".to_owned()),
                ("DOCKER_CERT_PATH", folder),
            ]
        };
        let folder = |name: &str| place.stage.path().join(name);
        let ours = certificates(folder("ours"), &authority, &client);
        is_changed(place, &changed(place, &at(ours.clone())));
        is_reached(place, &at(ours), &origin);
        let deceived = certificates(folder("deceived"), &stranger, &client);
        is_untouched(place, &changed(place, &at(deceived)), "could not agree on TLS");
        let unknown = certificates(folder("unknown"), &authority, &foreign);
        is_untouched(place, &changed(place, &at(unknown)), "docker");
    });
}

/// A server for `ssh` on a port of this machine; killed when dropped.
struct Sshd {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Sshd {
    const PROGRAM: &str = "/usr/sbin/sshd";

    fn start(folder: PathBuf, engine: &str) -> Self {
        std::fs::create_dir(&folder).unwrap();
        // It insists on a folder for itself.
        std::fs::create_dir_all("/run/sshd").unwrap();
        for name in ["host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
            assert!(keygen.status().unwrap().success());
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let shown = folder.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/user.pub\nStrictModes no\n\
             UsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSetEnv DOCKER_HOST={engine}\n"
        );
        std::fs::write(folder.join("config"), config).unwrap();
        let key = std::fs::read_to_string(folder.join("host.pub")).unwrap();
        std::fs::write(folder.join("known"), format!("[127.0.0.1]:{port} {key}")).unwrap();
        std::fs::write(folder.join("nobody"), "").unwrap();
        let child = Command::new(Self::PROGRAM)
            .args(["-D", "-e", "-f"])
            .arg(folder.join("config"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sshd = Self { child, folder, port };
        assert!(until(SOON, || TcpStream::connect(("127.0.0.1", sshd.port)).is_ok()), "sshd does not listen");
        sshd
    }

    /// What leads our program through an `ssh` with this key, and this list of known hosts.
    fn environment(&self, key: &str, known: &str) -> Vec<(&'static str, String)> {
        let bin = self.folder.join(format!("{key}-{known}"));
        std::fs::create_dir(&bin).unwrap();
        let shown = self.folder.display();
        let script = format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F none -i {shown}/{key} -o IdentitiesOnly=yes -o UserKnownHostsFile={shown}/{known} \"$@\"\n"
        );
        std::fs::write(bin.join("ssh"), script).unwrap();
        assert!(Command::new("chmod").arg("755").arg(bin.join("ssh")).status().unwrap().success());
        vec![
            ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display())),
            ("DOCKER_HOST", format!("ssh://root@127.0.0.1:{}", self.port)),
        ]
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn an_engine_is_reached_through_ssh_by_known_keys_alone_or_is_skipped_loudly() {
    if !rustix::process::geteuid().is_root() || !Path::new(Sshd::PROGRAM).exists() {
        eprintln!("SKIPPED: ssh: it takes root and an installed openssh-server to have a server here");
        return;
    }
    let origin = Origin::start();
    for_docker(&origin.listed(), |place| {
        let (engine, _) = place.wall.engine.clone().unwrap();
        let sshd = Sshd::start(place.stage.path().join("ssh"), &engine);
        let environment = sshd.environment("user", "known");
        is_changed(place, &changed(place, &environment));
        is_reached(place, &environment, &origin);
        let stranger = changed(place, &sshd.environment("stranger", "known"));
        is_untouched(place, &stranger, "Permission denied");
        let unknown = changed(place, &sshd.environment("user", "nobody"));
        is_untouched(place, &unknown, "Host key verification failed");
    });
}
