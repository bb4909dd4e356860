//! Packages of Node.js, as the folder that npm itself keeps them in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::Sha512;

use super::failure::{CacheError, failed};
use super::lock::{Problem, is_hex, is_plain, shown};
use super::store;

const MOST_PACKAGES: usize = 50_000;
/// What of the project's own description stands in a lock file and decides what is installed.
const ROOT_KEYS: [&str; 6] =
    ["name", "version", "dependencies", "devDependencies", "optionalDependencies", "peerDependencies"];

/// What a lock file names.
#[derive(Debug)]
pub(super) struct Packages {
    /// The lock file, written anew.
    lock: Value,
    /// The project's description, made from it.
    root: Value,
    /// The hash of each archive, in hexadecimal digits, and whether it must be there.
    archives: BTreeMap<String, Archive>,
}

#[derive(Debug)]
struct Archive {
    place: String,
    required: Required,
}

#[derive(Debug, PartialEq, Eq)]
enum Required {
    Yes,
    /// For other machines than this one, perhaps.
    Perhaps,
}

/// Reads a lock file in which every package is an archive with a hash.
pub(super) fn parse(text: &str) -> Result<Packages, Problem> {
    let lock: Value = serde_json::from_str(text).map_err(|error| Problem::at(error.line(), "it is not JSON"))?;
    if !matches!(lock["lockfileVersion"].as_u64(), Some(2 | 3)) {
        return Err(Problem::new("only versions 2 and 3 are read; make it anew with npm 7 or newer"));
    }
    let packages = lock["packages"].as_object().ok_or_else(|| Problem::new("it has no `packages`"))?;
    if packages.len() > MOST_PACKAGES {
        return Err(Problem::new(format!("it names more than {MOST_PACKAGES} packages")));
    }
    let mut archives = BTreeMap::new();
    let mut root = json!({ "name": "project", "version": "0.0.0" });
    for (place, package) in packages {
        let refuse = |what: &str| Err(Problem::new(format!("{} {what}", shown(place))));
        let Some(package) = package.as_object() else { return refuse("is not described") };
        if place.is_empty() {
            root = read_root(package)?;
            continue;
        }
        if !is_place(place) {
            return refuse("is not a place below `node_modules`; projects with several packages are not known");
        }
        if package.get("link").is_some() {
            return refuse("is a link to a folder, not an archive");
        }
        if package.get("inBundle") == Some(&Value::Bool(true)) {
            continue;
        }
        match package.get("resolved").map(Value::as_str) {
            // Without it npm looks into lists of versions, which it does not find in a cache that it cannot write.
            None => {
                return refuse(
                    "has no `resolved`; make the file anew with `npm install --omit-lockfile-registry-resolved=false`",
                );
            }
            Some(Some(from)) if from.starts_with("https://") || from.starts_with("http://") => {}
            Some(_) => return refuse("does not come from a registry"),
        }
        let Some(hash) = package.get("integrity").and_then(Value::as_str).and_then(sha512) else {
            return refuse("has no hash of the kind sha512; make the lock file anew with a newer npm");
        };
        let optional = ["optional", "devOptional"].iter().any(|key| package.get(*key) == Some(&Value::Bool(true)));
        let required = if optional { Required::Perhaps } else { Required::Yes };
        archives.insert(hash, Archive { place: place.clone(), required });
    }
    if archives.is_empty() {
        return Err(Problem::new("it names no package"));
    }
    Ok(Packages { lock, root, archives })
}

fn read_root(package: &Map<String, Value>) -> Result<Value, Problem> {
    if package.contains_key("workspaces") {
        return Err(Problem::new("projects with several packages (`workspaces`) are not known"));
    }
    let kept = package.iter().filter(|(key, _)| ROOT_KEYS.contains(&key.as_str()));
    Ok(Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
}

/// `node_modules/a`, `node_modules/@scope/a`, and the same one below the other.
fn is_place(place: &str) -> bool {
    let mut parts = place.split('/');
    let named =
        |part: &str| is_plain(part, b"._-~") || part.strip_prefix('_').is_some_and(|rest| is_plain(rest, b"._-~"));
    loop {
        match parts.next() {
            None => return true,
            Some("node_modules") => {}
            Some(_) => return false,
        }
        let fits = match parts.next() {
            Some(part) => match part.strip_prefix('@') {
                Some(scope) => named(scope) && parts.next().is_some_and(named),
                None => named(part),
            },
            None => false,
        };
        if !fits {
            return false;
        }
    }
}

/// The strongest hash of `sha512-BASE64`, in hexadecimal digits.
fn sha512(integrity: &str) -> Option<String> {
    let encoded = integrity.split(' ').find_map(|hash| hash.strip_prefix("sha512-"))?;
    let bytes = STANDARD.decode(encoded).ok().filter(|bytes| bytes.len() == 64)?;
    Some(store::hex(&bytes))
}

/// Prepares `command`, which is npm's, to fetch into `files`, working in `work`. Of the workspace nothing is there but what
/// was understood of its lock file: no settings, no scripts.
pub(super) fn command(command: &mut Command, packages: &Packages, work: &Path, files: &Path) -> Result<(), CacheError> {
    for (name, value) in [("package.json", &packages.root), ("package-lock.json", &packages.lock)] {
        let path = work.join(name);
        std::fs::write(&path, value.to_string()).map_err(failed("write", &path))?;
    }
    command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--logs-max=0"]);
    command.arg("--cache").arg(files);
    Ok(())
}

/// Where npm keeps an archive with this hash.
fn content(sha512: &str) -> PathBuf {
    let (first, rest) = sha512.split_at(2);
    let (second, rest) = rest.split_at(2);
    ["_cacache", "content-v2", "sha512", first, second, rest].iter().collect()
}

/// Holds what came against the hashes. `registry` is where it came from: npm finds some packages only under the same address.
pub(super) fn check(packages: &Packages, files: &Path, registry: &str) -> Result<usize, CacheError> {
    for part in ["_logs", "_npx", "_update-notifier-last-checked", "_cacache/tmp"] {
        store::remove(&files.join(part))?;
    }
    let registry = registry.trim();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b":/._-".contains(&byte);
    // With a name and a password in it, or anything else that is odd, it stays outside.
    if registry.starts_with("http") && registry.len() < 512 && registry.bytes().all(fits) {
        let path = files.join("npmrc");
        std::fs::write(&path, format!("registry={registry}\n")).map_err(failed("write", &path))?;
    }
    let mut found = 0;
    for (hash, archive) in &packages.archives {
        debug_assert!(is_hex(hash, 128), "made from 64 bytes");
        let path = files.join(content(hash));
        if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            match archive.required {
                Required::Yes => {
                    return Err(CacheError::Fetched { problem: format!("{} is missing", shown(&archive.place)) });
                }
                Required::Perhaps => continue,
            }
        }
        if store::digest::<Sha512>(&path)? != *hash {
            return Err(CacheError::Fetched { problem: format!("{} has another hash", shown(&archive.place)) });
        }
        found += 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(place: &str, package: &Value) -> String {
        json!({ "lockfileVersion": 3, "packages": { "": { "dependencies": { "a": "1" }, "scripts": { "x": "y" } }, place: package } })
            .to_string()
    }

    fn integrity() -> String {
        format!("sha512-{}", STANDARD.encode([7; 64]))
    }

    #[test]
    fn archives_with_hashes_are_read_and_only_what_is_known_of_the_project_is_kept() {
        let package = json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": integrity() });
        for place in ["node_modules/a", "node_modules/@s/a", "node_modules/a/node_modules/@s/b.c"] {
            let read = parse(&lock(place, &package)).unwrap();
            assert_eq!(read.archives.keys().next().unwrap(), &"07".repeat(64));
            assert_eq!(read.root, json!({ "dependencies": { "a": "1" } }));
        }
    }

    #[test]
    fn places_links_and_whatever_is_no_archive_with_a_hash_are_refused() {
        let from = "https://r.test/a.tgz";
        let good = json!({ "version": "1.0.0", "resolved": from, "integrity": integrity() });
        for place in [
            "../up",
            "node_modules/../x",
            "node_modules/",
            "node_modules",
            "/etc",
            "node_modules/.bin",
            "node_modules/-x",
            "node_modules/@s",
            "node_modules/a/b",
            "packages/a",
            "node_modules/a\u{1b}",
        ] {
            assert!(parse(&lock(place, &good)).is_err(), "{place}");
        }
        for package in [
            json!({ "version": "1.0.0", "resolved": from }),
            json!({ "integrity": integrity() }),
            json!({ "resolved": from, "integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=" }),
            json!({ "resolved": from, "integrity": "sha512-AAAA" }),
            json!({ "resolved": from, "integrity": integrity(), "link": true }),
            json!({ "integrity": integrity(), "resolved": "file:../x.tgz" }),
            json!({ "integrity": integrity(), "resolved": "git+ssh://evil.test/x" }),
            json!({ "integrity": integrity(), "resolved": 1 }),
            json!([]),
        ] {
            assert!(parse(&lock("node_modules/a", &package)).is_err(), "{package}");
        }
        for text in ["", "[]", "{\"lockfileVersion\": 1}", "{\"lockfileVersion\": 3, \"packages\": {}}", "{"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(1_000_000)).is_err(), "depth takes no stack");
        assert!(parse(&lock("node_modules/a", &good)).is_ok(), "the twin is read");
    }
}
