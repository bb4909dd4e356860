//! Which engine is meant, and how it is reached. Pure: the environment and the file system are asked by the caller.
//!
//! Who can talk to an engine is root on its machine. So an address that anybody on the way could speak for, or listen to, is
//! refused; and what of an address becomes an argument of `ssh`, or a word for a shell far away, is made of plain
//! characters only.

use std::path::{Path, PathBuf};

/// The longest address.
const LONGEST: usize = 1024;
/// Where Docker listens when nobody says otherwise.
const DOCKER_SOCKET: &str = "/var/run/docker.sock";
/// Likewise Podman, for root.
const PODMAN_SOCKET: &str = "/run/podman/podman.sock";

/// Which kind of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman, by the part of its API that is Docker's.
    Podman,
}

impl EngineKind {
    /// Its name, which is its program's name too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The variable that says where it is.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Docker => "DOCKER_HOST",
            Self::Podman => "CONTAINER_HOST",
        }
    }
}

/// How an engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// Which kind was asked for.
    pub(crate) kind: EngineKind,
    /// Where it is.
    pub(crate) location: Location,
    /// Who said so: a variable, or nobody.
    pub(crate) said_by: Option<&'static str>,
}

/// Where an engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    /// On this machine, behind a socket: what is mounted there are files of this machine.
    Local(PathBuf),
    /// Elsewhere, or nobody can tell: files of this machine are not there.
    Remote(Remote),
}

/// The ways to an engine elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remote {
    /// TCP to this machine, where nobody is on the way. Something else may listen further on, so it is remote.
    Loopback {
        /// A number or `localhost`.
        host: String,
        /// The port.
        port: u16,
    },
    /// TCP, both sides with a certificate.
    Tls {
        /// Its name or number.
        host: String,
        /// The port.
        port: u16,
        /// The folder with `ca.pem`, `cert.pem` and `key.pem`.
        certificates: PathBuf,
    },
    /// Through `ssh`.
    Ssh {
        /// Who to be there.
        user: Option<String>,
        /// Its name, or one from ssh's own configuration.
        host: String,
        /// The port.
        port: Option<u16>,
        /// The engine's socket there, when it is not the usual one.
        socket: Option<String>,
    },
}

impl Address {
    /// Whether files of this machine can be mounted there.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.location, Location::Local(_))
    }

    /// For people.
    pub(crate) fn shown(&self) -> String {
        match &self.location {
            Location::Local(path) => format!("unix://{}", path.display()),
            Location::Remote(Remote::Loopback { host, port }) => format!("tcp://{}:{port}", bracketed(host)),
            Location::Remote(Remote::Tls { host, port, .. }) => format!("tcp://{}:{port} (TLS)", bracketed(host)),
            Location::Remote(Remote::Ssh { user, host, port, socket }) => {
                let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
                let port = port.map(|port| format!(":{port}")).unwrap_or_default();
                format!("ssh://{user}{}{port}{}", bracketed(host), socket.as_deref().unwrap_or_default())
            }
        }
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Why an address cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// Its form is none that we know.
    #[error("`{variable}` is no address of an engine: {why}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Whoever is on the way would be root on the engine's machine.
    #[error("`{variable}` names an engine over the network without TLS")]
    Open {
        /// The variable.
        variable: &'static str,
    },
    /// No folder with certificates is known.
    #[error("`DOCKER_TLS_VERIFY` is set, and there is no folder with certificates")]
    NoCertificates,
    /// The usual places hold no socket.
    #[error("no {kind} was found: there is no socket at {}", .looked.join(" or "))]
    NotFound {
        /// Which engine.
        kind: &'static str,
        /// Where was looked.
        looked: Vec<String>,
    },
}

impl AddressError {
    /// What to do.
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Malformed { variable, .. } => format!(
                "set `{variable}` to such as `unix:///run/docker.sock`, `ssh://user@host` or `tcp://host:2376`, or unset it"
            ),
            Self::Open { variable } => format!(
                "use `ssh://user@host`, or set `DOCKER_TLS_VERIFY=1` and `DOCKER_CERT_PATH` for the certificates of `{variable}`"
            ),
            Self::NoCertificates => {
                "set `DOCKER_CERT_PATH` to the folder with `ca.pem`, `cert.pem` and `key.pem`".to_owned()
            }
            Self::NotFound { kind: "podman", .. } => {
                "install podman and start its socket: `systemctl --user enable --now podman.socket` (for root without `--user`), \
                 or say where it is with `CONTAINER_HOST`"
                    .to_owned()
            }
            Self::NotFound { .. } => "install and start Docker (for yourself alone: `dockerd-rootless-setuptool.sh install`), or say where it is \
                with `DOCKER_HOST`"
                .to_owned(),
        }
    }
}

/// What decides where an engine is.
pub(crate) struct Surroundings<'a> {
    /// A variable of the environment; an empty one counts as none.
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Whether something is there.
    pub(crate) exists: &'a dyn Fn(&Path) -> bool,
    /// Who we are.
    pub(crate) user: u32,
}

/// Finds where the engine of `kind` is.
pub(crate) fn find(kind: EngineKind, surroundings: &Surroundings<'_>) -> Result<Address, AddressError> {
    let variable = |name: &str| (surroundings.variable)(name).filter(|value| !value.is_empty());
    let name = kind.variable();
    if let Some(text) = variable(name) {
        let location = parse(kind, name, &text, &variable)?;
        return Ok(Address { kind, location, said_by: Some(name) });
    }
    let runtime = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let candidates: Vec<PathBuf> = match kind {
        EngineKind::Docker => {
            let rootless = runtime.map(|runtime| runtime.join("docker.sock"));
            [Some(PathBuf::from(DOCKER_SOCKET)), rootless].into_iter().flatten().collect()
        }
        EngineKind::Podman if surroundings.user == 0 => vec![PathBuf::from(PODMAN_SOCKET)],
        EngineKind::Podman => {
            let runtime = runtime.unwrap_or_else(|| PathBuf::from(format!("/run/user/{}", surroundings.user)));
            vec![runtime.join("podman/podman.sock")]
        }
    };
    match candidates.iter().find(|path| (surroundings.exists)(path)) {
        Some(path) => Ok(Address { kind, location: Location::Local(path.clone()), said_by: None }),
        None => Err(AddressError::NotFound {
            kind: kind.name(),
            looked: candidates.iter().map(|path| path.display().to_string()).collect(),
        }),
    }
}

fn parse(
    kind: EngineKind,
    name: &'static str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Location, AddressError> {
    let malformed = |why| AddressError::Malformed { variable: name, why };
    if text.len() > LONGEST || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(malformed("it is too long, or holds blanks"));
    }
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| malformed("it begins with no scheme such as `unix://`"))?;
    match scheme {
        "unix" => {
            let path = PathBuf::from(rest);
            if !path.is_absolute() {
                return Err(malformed("the path of a socket begins with `/`"));
            }
            Ok(Location::Local(path))
        }
        "tcp" => {
            let (host, port, rest) =
                host_and_port(rest).ok_or_else(|| malformed("after `tcp://` comes `host:port`"))?;
            if !rest.is_empty() && rest != "/" {
                return Err(malformed("after the port comes nothing"));
            }
            let verified = kind == EngineKind::Docker && variable("DOCKER_TLS_VERIFY").is_some();
            if verified {
                let folder = variable("DOCKER_CERT_PATH").map(PathBuf::from);
                let home = || variable("HOME").map(|home| PathBuf::from(home).join(".docker"));
                let certificates =
                    folder.or_else(home).filter(|path| path.is_absolute()).ok_or(AddressError::NoCertificates)?;
                return Ok(Location::Remote(Remote::Tls { host, port: port.unwrap_or(2376), certificates }));
            }
            let loopback = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
            if !loopback {
                return Err(AddressError::Open { variable: name });
            }
            Ok(Location::Remote(Remote::Loopback { host, port: port.unwrap_or(2375) }))
        }
        "ssh" => {
            let (user, rest) = match rest.split_once('@') {
                Some((user, rest)) if is_plain(user, "._-") => (Some(user.to_owned()), rest),
                Some(_) => return Err(malformed("the user is made of letters, digits, `.`, `_` and `-`; no password")),
                None => (None, rest),
            };
            let (host, port, path) =
                host_and_port(rest).ok_or_else(|| malformed("after `ssh://` comes `user@host` or `user@host:port`"))?;
            let socket = match path {
                "" | "/" => None,
                path if is_plain(&path[1..], "._-/") => Some(path.to_owned()),
                _ => return Err(malformed("the path of the socket is made of letters, digits, `.`, `_`, `-` and `/`")),
            };
            Ok(Location::Remote(Remote::Ssh { user, host, port, socket }))
        }
        _ => Err(malformed("the scheme is none of `unix`, `tcp` and `ssh`")),
    }
}

/// Letters, digits, and those of `others`; never empty, and never like an option.
fn is_plain(text: &str, others: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// `host[:port][/rest]`, an IPv6 number in brackets.
fn host_and_port(text: &str) -> Option<(String, Option<u16>, &str)> {
    let end = text.find('/').unwrap_or(text.len());
    let (authority, rest) = text.split_at(end);
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (host, after) = inner.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        is_plain(host, "._-").then_some((host, port))?
    };
    // `parse` alone would take `+22`.
    let number = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())?;
    let port = match port {
        Some(port) => Some(number(port).filter(|port| *port != 0)?),
        None => None,
    };
    Some((host.to_owned(), port, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: EngineKind, variables: &[(&str, &str)], files: &[&str], user: u32) -> Result<Address, AddressError> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
        find(kind, &Surroundings { variable: &variable, exists: &exists, user })
    }

    fn docker(host: &str) -> Result<Location, AddressError> {
        found(EngineKind::Docker, &[("DOCKER_HOST", host)], &[], 1000).map(|address| address.location)
    }

    #[test]
    fn what_a_variable_says_goes_before_the_usual_places() {
        let files = ["/var/run/docker.sock", "/run/user/1000/docker.sock"];
        let runtime = ("XDG_RUNTIME_DIR", "/run/user/1000");
        let check = |variables: &[(&str, &str)], files: &[&str], expected: &str| {
            let address = found(EngineKind::Docker, variables, files, 1000).unwrap();
            assert_eq!(address.location, Location::Local(expected.into()));
            assert!(address.is_local());
        };
        check(&[("DOCKER_HOST", "unix:///x.sock"), runtime], &files, "/x.sock");
        check(&[("DOCKER_HOST", ""), runtime], &files, "/var/run/docker.sock");
        check(&[runtime], &files[1..], "/run/user/1000/docker.sock");
        let nowhere = found(EngineKind::Docker, &[runtime], &[], 1000).unwrap_err();
        assert_eq!(
            nowhere.to_string(),
            "no docker was found: there is no socket at /var/run/docker.sock or /run/user/1000/docker.sock"
        );
    }

    #[test]
    fn podman_of_root_and_podman_of_a_user_are_two() {
        let files = ["/run/podman/podman.sock", "/run/user/1000/podman/podman.sock"];
        let check = |variables: &[(&str, &str)], user, expected: &str| {
            let address = found(EngineKind::Podman, variables, &files, user).unwrap();
            assert_eq!(address.location, Location::Local(expected.into()));
        };
        check(&[], 0, "/run/podman/podman.sock");
        check(&[], 1000, "/run/user/1000/podman/podman.sock");
        check(&[("XDG_RUNTIME_DIR", "/run/user/1000")], 1000, "/run/user/1000/podman/podman.sock");
        check(&[("DOCKER_HOST", "unix:///x.sock")], 0, "/run/podman/podman.sock");
        check(&[("CONTAINER_HOST", "unix:///y.sock")], 0, "/y.sock");
        assert!(found(EngineKind::Podman, &[], &files, 1001).is_err(), "another user's engine is not ours");
    }

    #[test]
    fn the_network_without_tls_is_refused_but_for_this_machine() {
        for open in
            ["tcp://10.0.0.7:2375", "tcp://docker.corp:2375", "tcp://127.0.0.1.evil.org:2375", "tcp://0.0.0.0:2375"]
        {
            let refused = docker(open).unwrap_err();
            assert_eq!(refused, AddressError::Open { variable: "DOCKER_HOST" }, "{open}");
            assert!(refused.fix().contains("DOCKER_TLS_VERIFY"));
        }
        for (near, host) in
            [("tcp://127.0.0.1:2375", "127.0.0.1"), ("tcp://localhost:2375", "localhost"), ("tcp://[::1]:2375", "::1")]
        {
            let location = docker(near).unwrap();
            assert_eq!(location, Location::Remote(Remote::Loopback { host: host.into(), port: 2375 }));
        }
        let tls = |more: &[(&str, &str)]| {
            let variables = [&[("DOCKER_HOST", "tcp://10.0.0.7:2376"), ("DOCKER_TLS_VERIFY", "1")], more].concat();
            found(EngineKind::Docker, &variables, &[], 1000)
        };
        let address = tls(&[("DOCKER_CERT_PATH", "/certs")]).unwrap();
        assert!(!address.is_local());
        assert_eq!(address.shown(), "tcp://10.0.0.7:2376 (TLS)");
        assert_eq!(tls(&[]).unwrap_err(), AddressError::NoCertificates);
        assert_eq!(tls(&[("DOCKER_CERT_PATH", "certs")]).unwrap_err(), AddressError::NoCertificates);
    }

    #[test]
    fn what_becomes_an_argument_of_ssh_is_plain() {
        let address = found(
            EngineKind::Podman,
            &[("CONTAINER_HOST", "ssh://me@box:22/run/user/1000/podman/podman.sock")],
            &[],
            0,
        );
        assert_eq!(address.unwrap().shown(), "ssh://me@box:22/run/user/1000/podman/podman.sock");
        assert_eq!(docker("ssh://box").map(|_| ()), Ok(()));
        for hostile in [
            "ssh://-oProxyCommand=touch /x",
            "ssh://-oProxyCommand=x",
            "ssh://me@-oProxyCommand=x",
            "ssh://-l@box",
            "ssh://me:secret@box",
            "ssh://box/$(touch x)",
            "ssh://box/a;b",
            "ssh://box:22x",
            "ssh://box:+22",
            "ssh://box:0",
            "ssh://box`id`",
            "ssh://",
            "ssh://@box",
            "unix://relative",
            "unix:///a\nb",
            "http://127.0.0.1:2375",
            "tcp://127.0.0.1:2375/x",
            "tcp://[::1",
            "/var/run/docker.sock",
            "fd://3",
        ] {
            assert!(matches!(docker(hostile), Err(AddressError::Malformed { .. })), "{hostile}: {:?}", docker(hostile));
        }
    }
}
