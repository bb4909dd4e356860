//! Images of an engine: a name becomes an id, and only ids are used from then on. What a name means may change while we look.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;

use super::engine::{Engine, SHORT, encoded, json, next};
use super::failure::{EngineError, EngineFailure, clean};
use super::spec::ImageId;

/// How long fetching an image may take.
const MOST_PULL: Duration = Duration::from_secs(30 * 60);
/// How long nothing may be told while an image is fetched.
const MOST_PULL_SILENCE: Duration = Duration::from_secs(120);
/// The longest line about progress.
const MOST_LINE: usize = 64 * 1024;
const PULL: &str = "fetch the image";

/// Whether an image that the engine does not have may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pull {
    /// What is not here is an error.
    Never,
    /// `image.pull: allow`.
    Allow,
}

/// An image that an engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// What it is.
    pub(crate) id: ImageId,
    /// What it was asked for as.
    pub(crate) name: String,
    /// What registries know it as: `name@sha256:…`.
    pub(crate) digests: BTreeSet<String>,
    /// The variables that it sets, as `NAME=value`.
    pub(crate) env: Vec<String>,
    /// `linux/amd64`.
    pub(crate) platform: String,
    /// The places that it declares as volumes.
    pub(crate) volumes: Vec<String>,
}

impl Resolved {
    /// The names of the variables that it sets.
    pub(crate) fn variables(&self) -> Vec<String> {
        self.env.iter().map(|text| text.split('=').next().unwrap_or_default().to_owned()).collect()
    }
}

/// How far fetching is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Which part, when it is about one.
    pub(crate) part: Option<String>,
    /// What is done.
    pub(crate) status: String,
    /// How much of it is done, and of how much.
    pub(crate) bytes: Option<(u64, u64)>,
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// Not a name.
    #[error("`{0}` is not the name of an image")]
    NotAName(String),
    /// The engine does not have it, and it may not be fetched.
    #[error("the engine does not have the image `{0}`")]
    Absent(String),
    /// What the engine has under that name is something else.
    #[error("`{name}` is pinned, and the engine has {found} under that name")]
    Mismatch {
        /// What was asked for.
        name: String,
        /// What is there.
        found: String,
    },
    /// It is not for Linux.
    #[error("the image `{name}` is for `{platform}`, and not for Linux")]
    Platform {
        /// What was asked for.
        name: String,
        /// What it is for.
        platform: String,
    },
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ResolveError {
    /// What to do.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotAName(_) => "write it such as `python:3.14-slim`, or `ghcr.io/acme/tools@sha256:…`".to_owned(),
            Self::Absent(name) => format!(
                "fetch it yourself (`docker pull {name}`), permit it with `image.pull: allow` in the policy, or build one of \
                 ours with `ringfence image build`"
            ),
            Self::Mismatch { name, .. } => format!(
                "remove what the engine has under that name, or correct the digest in `{name}`; what was pinned is not run otherwise"
            ),
            Self::Platform { .. } => "use an image for Linux".to_owned(),
            Self::Engine(_) => "`ringfence doctor` says what is wrong with the engine".to_owned(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    volumes: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    status: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default, rename = "progressDetail")]
    detail: Option<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    current: Option<u64>,
    total: Option<u64>,
}

/// A name, taken apart: what comes after `@` is what it must be.
struct Reference<'a> {
    text: &'a str,
    name: &'a str,
    pinned: Option<ImageId>,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || text.len() > 512 || !text.bytes().all(is_word) || text.contains("..") || text.contains("//")
        {
            return None;
        }
        match text.split_once('@') {
            // Nothing but a whole digest pins; a half one must not become a name.
            Some((name, digest)) => {
                let pinned = ImageId::parse(digest).filter(|_| digest.starts_with("sha256:"))?;
                Some(Self { text, name, pinned: Some(pinned) })
            }
            None if text.starts_with("sha256:") => Some(Self { text, name: text, pinned: Some(ImageId::parse(text)?) }),
            None => Some(Self { text, name: text, pinned: None }),
        }
    }
}

/// Finds the image that `reference` means, and fetches it first when that is permitted and needed.
pub(crate) async fn resolve(
    engine: &Engine,
    reference: &str,
    pull: Pull,
    on_progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Resolved, ResolveError> {
    let parsed = Reference::parse(reference).ok_or_else(|| ResolveError::NotAName(clean(reference)))?;
    let found = match inspect(engine, &parsed).await? {
        Some(found) => found,
        None if pull == Pull::Never || parsed.name.starts_with("sha256:") => {
            return Err(ResolveError::Absent(reference.to_owned()));
        }
        None => {
            fetch(engine, &parsed, on_progress).await?;
            inspect(engine, &parsed).await?.ok_or_else(|| ResolveError::Absent(reference.to_owned()))?
        }
    };
    read(&parsed, found)
}

async fn inspect(engine: &Engine, reference: &Reference<'_>) -> Result<Option<Inspected>, ResolveError> {
    // A locally built image has no digest of a registry: what is pinned may be its id, under its plain name.
    let names = match &reference.pinned {
        Some(_) if reference.text != reference.name => vec![reference.text, reference.name],
        _ => vec![reference.text],
    };
    for name in names {
        match engine.get(&format!("/images/{}/json", encoded(name)), SHORT, "look at the image").await {
            Ok(found) => return Ok(Some(found)),
            Err(EngineError { failure: EngineFailure::Absent(_), .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn read(reference: &Reference<'_>, found: Inspected) -> Result<Resolved, ResolveError> {
    let nonsense = || EngineFailure::Garbage("the image's id is none".to_owned()).during("look at the image");
    let id = ImageId::parse(&found.id).ok_or_else(nonsense)?;
    let digests: BTreeSet<String> =
        found.repo_digests.into_iter().flatten().take(64).map(|digest| clean(&digest)).collect();
    if let Some(pinned) = &reference.pinned {
        let has = |digest: &String| digest.rsplit_once('@').is_some_and(|(_, digest)| digest == pinned.as_str());
        if id != *pinned && !digests.iter().any(has) {
            return Err(ResolveError::Mismatch { name: reference.text.to_owned(), found: id.as_str().to_owned() });
        }
    }
    let platform = clean(&format!("{}/{}", found.os, found.architecture));
    if found.os != "linux" {
        return Err(ResolveError::Platform { name: reference.text.to_owned(), platform });
    }
    let config = found.config.unwrap_or_default();
    Ok(Resolved {
        id,
        name: reference.text.to_owned(),
        digests,
        env: config.env.unwrap_or_default(),
        platform,
        volumes: config.volumes.into_iter().flatten().map(|(place, _)| place).collect(),
    })
}

async fn fetch(
    engine: &Engine,
    reference: &Reference<'_>,
    on_progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<(), ResolveError> {
    // Without a tag or a digest an engine would fetch every tag that there is.
    let last = reference.text.rsplit('/').next().unwrap_or_default();
    let full = if last.contains([':', '@']) { reference.text.to_owned() } else { format!("{}:latest", reference.text) };
    let path = format!("/images/create?fromImage={}", encoded(&full));
    let silent = || EngineFailure::Silent { seconds: MOST_PULL_SILENCE.as_secs() };
    let pull = async {
        let open = engine.open(Method::POST, &path, json(Vec::new()));
        let mut body = tokio::time::timeout(MOST_PULL_SILENCE, open).await.map_err(|_| silent())??;
        let mut line = Vec::new();
        loop {
            let piece = tokio::time::timeout(MOST_PULL_SILENCE, next(&mut body)).await.map_err(|_| silent())??;
            let Some(piece) = piece else { break };
            for byte in piece {
                if byte != b'\n' {
                    line.push(byte);
                }
                if line.len() > MOST_LINE {
                    return Err(EngineFailure::Garbage("a line about progress is too long".to_owned()));
                }
                if byte == b'\n' {
                    tell(&line, on_progress)?;
                    line.clear();
                }
            }
        }
        tell(&line, on_progress)
    };
    match tokio::time::timeout(MOST_PULL, pull).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(EngineFailure::Absent(_))) => Err(ResolveError::Absent(reference.text.to_owned())),
        Ok(Err(failure)) => Err(failure.during(PULL).into()),
        Err(_) => Err(EngineFailure::Silent { seconds: MOST_PULL.as_secs() }.during(PULL).into()),
    }
}

fn tell(line: &[u8], on_progress: &(dyn Fn(Progress) + Send + Sync)) -> Result<(), EngineFailure> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let told: Told = serde_json::from_slice(line).map_err(|error| EngineFailure::Garbage(clean(&error.to_string())))?;
    if let Some(error) = told.error {
        return Err(EngineFailure::Refused { status: 200, message: clean(&error) });
    }
    let bytes = told.detail.and_then(|detail| detail.current.zip(detail.total));
    on_progress(Progress { part: told.id.map(|id| clean(&id)), status: clean(&told.status), bytes });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn found(id: &str, digests: &[&str]) -> Inspected {
        let digests = digests.iter().map(|digest| (*digest).to_owned()).collect();
        Inspected {
            id: id.into(),
            repo_digests: Some(digests),
            config: None,
            os: "linux".into(),
            architecture: "amd64".into(),
        }
    }

    #[test]
    fn what_is_pinned_is_what_is_used_or_nothing_is() {
        let check = |text: &str, found: Inspected| read(&Reference::parse(text).unwrap(), found).map(|image| image.id);
        let digest_a = format!("tools@{A}");
        assert_eq!(check(&digest_a, found(B, &[&digest_a])).unwrap().as_str(), B, "by the registry's digest");
        assert_eq!(check(&digest_a, found(A, &[])).unwrap().as_str(), A, "by its id");
        assert_eq!(check(A, found(A, &[])).unwrap().as_str(), A);
        assert_eq!(check("tools:1", found(B, &[])).unwrap().as_str(), B);
        for (text, found) in [
            (digest_a.as_str(), found(B, &[])),
            (&digest_a, found(B, &[&format!("tools@{B}")])),
            (&digest_a, found(B, &[&format!("tools@{A}x")])),
            (A, found(B, &[])),
        ] {
            assert!(matches!(check(text, found), Err(ResolveError::Mismatch { .. })), "{text}");
        }
        assert!(matches!(check("tools:1", found("latest", &[])), Err(ResolveError::Engine(_))), "an id that is a name");
        let other = Inspected { os: "windows".into(), ..found(A, &[]) };
        assert!(matches!(check("tools:1", other), Err(ResolveError::Platform { .. })));
    }

    #[test]
    fn a_name_that_could_be_something_else_is_none() {
        for hostile in [
            "",
            "-x",
            "../x",
            "a b",
            "a?b=c",
            "a#b",
            "a%2fb",
            "a\nb",
            "a//b",
            "a@",
            "a@sha256:",
            "a@sha256:aa",
            "a@md5:aa",
            "sha256:aa",
            &format!("a@{}", &A[7..]),
            &format!("a@{A}@{A}"),
            &"a".repeat(513),
        ] {
            assert!(Reference::parse(hostile).is_none(), "{hostile:?}");
        }
        for good in ["a", "python:3.14-slim", "localhost:5000/a/b:c", "ghcr.io/acme/tools"] {
            assert!(Reference::parse(good).is_some_and(|parsed| parsed.pinned.is_none()), "{good}");
        }
    }

    #[test]
    fn an_error_in_the_middle_of_progress_is_an_error() {
        let seen = std::sync::Mutex::new(Vec::new());
        let on_progress = |progress: Progress| seen.lock().unwrap().push(progress);
        tell(br#"{"status":"Downloading","id":"x","progressDetail":{"current":1,"total":2}}"#, &on_progress).unwrap();
        tell(b"  ", &on_progress).unwrap();
        let error = tell(br#"{"error":"denied\nby registry"}"#, &on_progress).unwrap_err();
        assert!(error.to_string().contains("denied by registry"));
        assert!(matches!(tell(b"<html>", &on_progress), Err(EngineFailure::Garbage(_))));
        let one = Progress { part: Some("x".into()), status: "Downloading".into(), bytes: Some((1, 2)) };
        assert_eq!(*seen.lock().unwrap(), [one]);
    }
}
