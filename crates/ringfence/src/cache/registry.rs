//! Where archives of Node.js may come from: the registries that the user's own settings of npm name.
//!
//! A lock file may be a program's. An address of its choice would carry out what the program knows, and reach whatever this
//! machine reaches.

use std::collections::BTreeSet;

use serde_json::Value;

use super::lock::shown;

/// The registry that npm knows by itself. Where the user has another, npm asks that one instead.
const NPMJS: &str = "https://registry.npmjs.org";
const MOST_ADDRESS: usize = 2048;
/// Hosts whose addresses npm takes for repositories, which it clones.
const HOSTS_OF_REPOSITORIES: [&str; 5] = ["github.com", "gist.github.com", "gitlab.com", "bitbucket.org", "git.sr.ht"];

/// The user's registries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Registries {
    /// The one of packages without a registry of their own.
    pub(super) default: Option<String>,
    origins: BTreeSet<String>,
}

impl Registries {
    /// From the answer to `npm config list --json`. What is not understood adds none.
    pub(super) fn read(answer: &str) -> Self {
        let settings: Value = serde_json::from_str(answer).unwrap_or_default();
        let named = |key: &str| key == "registry" || (key.starts_with('@') && key.ends_with(":registry"));
        let known = settings.as_object().into_iter().flatten().filter(|(key, _)| named(key));
        let known = known.filter_map(|(_, value)| value.as_str()).filter_map(|address| origin(address).ok());
        Self {
            default: settings["registry"].as_str().map(str::to_owned),
            origins: known.map(|(origin, _)| origin).chain([NPMJS.to_owned()]).collect(),
        }
    }

    /// Whether an archive may be fetched from here; if not, why.
    pub(super) fn judge(&self, address: &str) -> Result<(), String> {
        let (origin, path) = origin(address)?;
        if !self.origins.contains(&origin) {
            return Err(format!(
                "comes from {}, which is no registry of your npm settings; set `registry` there, or make the lock file anew",
                shown(&origin)
            ));
        }
        let (_, host) = origin.split_once("://").unwrap_or_default();
        let host = host.strip_prefix("www.").unwrap_or(host);
        // Paths with this part are the registry of such a host, to npm as well.
        if HOSTS_OF_REPOSITORIES.contains(&host) && !(host == "gitlab.com" && path.contains("/-/")) {
            return Err(format!("comes from {}, which npm takes for a repository", shown(address)));
        }
        Ok(())
    }
}

/// `https://host:port` and the path of an address in which nothing can be read in two ways.
pub(super) fn origin(address: &str) -> Result<(String, &str), String> {
    let wrong = || format!("comes from {}, which is not a plain address of a registry", shown(address));
    let (scheme, rest) = address.split_once("://").ok_or_else(wrong)?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
    let in_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~%@+!?=&".contains(&byte);
    let steps = path.contains("/.") || path.to_ascii_lowercase().contains("%2e");
    let fits = address.len() <= MOST_ADDRESS && host.bytes().all(in_host) && path.bytes().all(in_path) && !steps;
    let port = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => return Err(wrong()),
    };
    if !fits || !host.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(wrong());
    }
    let host = host.to_ascii_lowercase();
    Ok((format!("{scheme}://{}", host.strip_suffix(port).unwrap_or(&host)), path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_come_from_the_users_own_registries_and_from_nowhere_else() {
        let settings = r#"{ "registry": "http://127.0.0.1:4873/", "@corp:registry": "https://NPM.corp.test:443/api/npm/",
                            "@lab:registry": "https://gitlab.com/api/v4/packages/npm/", "proxy": "https://evil.test/" }"#;
        let registries = Registries::read(settings);
        for address in [
            "https://evil.test/a.tgz",
            "http://127.0.0.1:4874/a.tgz",
            "http://127.0.0.1/a.tgz",
            "http://registry.npmjs.org/a.tgz",
            "https://registry.npmjs.org@evil.test/a.tgz",
            "https://registry.npmjs.org.evil.test/a.tgz",
            "https://evil.test\\@registry.npmjs.org/a.tgz",
            "https://registry.npmjs.org\\.evil.test/a.tgz",
            "https:registry.npmjs.org/a.tgz",
            "https:///registry.npmjs.org/a.tgz",
            "https://registry.npmjs.org:444/a.tgz",
            "https://registry.npmjs.org/../a.tgz",
            "https://registry.npmjs.org/%2E%2e/a.tgz",
            "https://registry.npmjs.org/a.tgz#x",
            "https://registry.npmjs.org/a\n.tgz",
            "https://github.com/a/b",
            "https://gitlab.com/evil/repository",
            "https://gitlab.com/evil/repository.git",
            "https://gitlab.com/x/-/../../evil/repository",
            "git+https://registry.npmjs.org/a.tgz",
            "git+file:///ws/evil",
            "file:///ws/a.tgz",
            "HTTPS://registry.npmjs.org/a.tgz",
            "",
        ] {
            assert!(registries.judge(address).is_err(), "{address}");
        }
        for address in [
            "https://registry.npmjs.org/@s/a/-/a-1.0.0.tgz",
            "http://127.0.0.1:4873/@s%2fa/-/a-1.0.0.tgz",
            "https://npm.corp.test/api/npm/a/-/a-1.0.0+x.tgz?y=1",
            "https://gitlab.com/api/v4/projects/1/packages/npm/@lab/a/-/@lab/a-1.0.0.tgz",
        ] {
            assert_eq!(registries.judge(address), Ok(()), "the twin is taken: {address}");
        }
        assert_eq!(registries.default.as_deref(), Some("http://127.0.0.1:4873/"));
        for odd in ["", "[]", "{", "{\"registry\": 1}"] {
            let none = Registries::read(odd);
            assert!(none.judge("http://127.0.0.1:4873/a.tgz").is_err(), "{odd}");
            assert_eq!(none.judge("https://registry.npmjs.org/a.tgz"), Ok(()));
        }
    }
}
