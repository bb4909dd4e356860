//! What can go wrong between us and an engine. What an engine says is shortened and made harmless before it is in an error of
//! ours: parts of it may come from an image or a container.

pub(crate) use ringfence_linux::chain;
use std::io;

use crate::backend::Unavailable;

use super::address::{Address, EngineKind, Location, Remote};
use super::wire::WireError;

/// The most characters of an engine's words in an error.
const MOST_WORDS: usize = 400;

/// An engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt}")]
pub(crate) struct EngineError {
    /// What was attempted.
    pub(crate) attempt: &'static str,
    /// Why not.
    #[source]
    pub(crate) failure: EngineFailure,
}

/// Why an engine did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineFailure {
    /// No answer within the time.
    #[error("the engine did not answer within {seconds} seconds")]
    Silent {
        /// How long was waited.
        seconds: u64,
    },
    /// There is no such thing.
    #[error("the engine does not have it: {0}")]
    Absent(String),
    /// It is not in a state for that.
    #[error("the engine says that it is not possible now: {0}")]
    Conflict(String),
    /// The engine said no.
    #[error("the engine answered with {status}: {message}")]
    Refused {
        /// HTTP's status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// Nobody to talk to.
    #[error("could not connect to the engine: {0}")]
    Connect(io::Error),
    /// Certificates.
    #[error("could not agree on TLS with the engine: {0}")]
    Tls(io::Error),
    /// No `ssh`.
    #[error("could not start `ssh`: {0}")]
    Ssh(io::Error),
    /// The connection ended too early, or more came than an answer has.
    #[error("the connection to the engine broke: {0}")]
    Lost(String),
    /// The answer is not what an engine says.
    #[error("the engine's answer makes no sense: {0}")]
    Garbage(String),
}

impl EngineFailure {
    /// While doing `attempt`.
    pub(super) fn during(self, attempt: &'static str) -> EngineError {
        EngineError { attempt, failure: self }
    }

    pub(super) fn of_wire(error: WireError) -> Self {
        match error {
            WireError::Connect(error) => Self::Connect(error),
            WireError::Tls(error) => Self::Tls(error),
            WireError::Ssh(error) => Self::Ssh(error),
            WireError::Http(error) if error.is_parse() => Self::Garbage(clean(&chain(&error))),
            WireError::Http(error) => Self::Lost(clean(&chain(&error))),
            WireError::Request => Self::Garbage("a name in the request is none".to_owned()),
        }
    }
}

/// One line of an engine's words, short, and without what a terminal or a reader could be misled by.
pub(crate) fn clean(text: &str) -> String {
    let harmless = |c: char| match c {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => ' ',
        c if c.is_control() || c.is_whitespace() => ' ',
        c => c,
    };
    // Cut first: what is thrown away need not be looked at.
    let mut clean = String::new();
    for c in text.chars().take(4 * MOST_WORDS).map(harmless) {
        if c != ' ' || !(clean.is_empty() || clean.ends_with(' ')) {
            clean.push(c);
        }
    }
    let clean = clean.trim_end();
    match clean.char_indices().nth(MOST_WORDS) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean.to_owned(),
    }
}

/// Why the engine at `address` cannot be used, and what to do.
pub(crate) fn unavailable(address: &Address, failure: &EngineFailure) -> Unavailable {
    let shown = address.shown();
    let name = address.kind.name();
    let said_by = match address.said_by {
        Some(variable) => format!(", as `{variable}` says"),
        None => String::new(),
    };
    let start = match (address.kind, &address.location) {
        (_, Location::Remote(_)) => format!("start {name} there, or correct `{}`", address.kind.variable()),
        (EngineKind::Docker, _) => {
            "start it: `systemctl start docker` (rootless: `systemctl --user start docker`)".to_owned()
        }
        (EngineKind::Podman, _) => {
            "start its socket: `systemctl --user start podman.socket` (for root without `--user`)".to_owned()
        }
    };
    let log = format!("look into its log (`journalctl -u {name}`), or start it again");
    let (reason, fix) = match failure {
        EngineFailure::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => (
            format!("no permission to talk to {name} at {shown}{said_by}"),
            match address.kind {
                EngineKind::Docker => "use rootless podman or rootless docker; or join the group `docker`, which makes you as \
                    good as root: `sudo usermod -aG docker $USER`, then log in again"
                    .to_owned(),
                EngineKind::Podman => "use your own podman: `systemctl --user start podman.socket`, and unset `CONTAINER_HOST`".to_owned(),
            },
        ),
        EngineFailure::Connect(error) if error.kind() == io::ErrorKind::NotFound => {
            (format!("{name} is not running: there is nothing at {shown}{said_by}"), start)
        }
        EngineFailure::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            (format!("{name} is not running: nobody listens at {shown}{said_by}"), start)
        }
        EngineFailure::Connect(error) => (format!("could not reach {name} at {shown}{said_by}: {error}"), start),
        EngineFailure::Tls(error) => (
            format!("could not agree on TLS with {name} at {shown}: {}", clean(&error.to_string())),
            "check `ca.pem`, `cert.pem` and `key.pem` in `DOCKER_CERT_PATH`, and that the server's certificate names the host".to_owned(),
        ),
        EngineFailure::Ssh(error) => {
            (format!("could not start `ssh`, which the way to {shown} needs: {error}"), "install an OpenSSH client".to_owned())
        }
        EngineFailure::Silent { seconds } => {
            (format!("{name} at {shown} did not answer within {seconds} seconds"), log)
        }
        EngineFailure::Lost(why) => match &address.location {
            Location::Remote(Remote::Ssh { host, .. }) => (
                format!("no engine answers at {shown}: {why}"),
                format!("try `ssh -o BatchMode=yes {host} {name} version`: it must work without a question"),
            ),
            _ => (format!("{name} at {shown} broke the connection: {why}"), log),
        },
        EngineFailure::Garbage(why) => (
            format!("what listens at {shown}{said_by} does not speak as {name} does: {why}"),
            format!("correct `{}`, or update {name}", address.kind.variable()),
        ),
        EngineFailure::Absent(message) | EngineFailure::Conflict(message) | EngineFailure::Refused { message, .. } => {
            (format!("{name} at {shown} refused: {message}"), log)
        }
    };
    Unavailable { reason, fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_engine_are_short_and_in_one_line() {
        assert_eq!(clean("no such image:\n\tx"), "no such image: x");
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c"), "a [2Jb c");
        let long = clean(&"é".repeat(1_000_000));
        assert_eq!(long.chars().count(), MOST_WORDS + 1);
        assert!(long.ends_with('…'));
        assert_eq!(clean(&" ".repeat(100_000)), "");
    }
}
