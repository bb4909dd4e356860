//! Packages of Node.js, as the folder that npm itself keeps them in.
//!
//! npm follows what a lock file and a description say: it clones repositories and executes what lies in them. So both are
//! written anew, from what is listed here and was judged; nothing else of the lock file reaches npm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::Sha512;

use super::failure::{CacheError, failed};
use super::lock::{Problem, is_hex, is_plain, shown};
use super::registry::{Registries, origin};
use super::{range, store};

const MOST_PACKAGES: usize = 50_000;
/// Lists of packages with ranges of versions.
const DEPENDENCIES: [&str; 4] = ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"];
/// What is true of a package or is not said.
const FLAGS: [&str; 5] = ["dev", "optional", "devOptional", "peer", "inBundle"];
/// Which machines a package is for.
const MACHINES: [&str; 3] = ["os", "cpu", "libc"];
/// No such program can be: what would clone a repository fails.
const NO_GIT: &str = "/dev/null/no-git";

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
    let mut written = Map::new();
    let mut root = Map::new();
    for (place, package) in packages {
        let refuse = |what: String| Problem::new(format!("{} {what}", shown(place)));
        let package = package.as_object().ok_or_else(|| refuse("is not described".to_owned()))?;
        if place.is_empty() {
            root = read_root(package)?;
            continue;
        }
        if !is_place(place) {
            let why = "is not a place below `node_modules`; projects with several packages are not known";
            return Err(refuse(why.to_owned()));
        }
        let (anew, archive) = read_package(place, package, packages).map_err(refuse)?;
        written.insert(place.clone(), Value::Object(anew));
        if let Some((hash, archive)) = archive {
            archives.insert(hash, archive);
        }
    }
    if archives.is_empty() {
        return Err(Problem::new("it names no package"));
    }
    root.extend([("name".to_owned(), json!("project")), ("version".to_owned(), json!("0.0.0"))]);
    written.insert(String::new(), Value::Object(root.clone()));
    let lock = json!({ "name": "project", "version": "0.0.0", "lockfileVersion": 3, "packages": written });
    Ok(Packages { lock, root: Value::Object(root), archives })
}

fn read_root(package: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    if package.contains_key("workspaces") {
        return Err(Problem::new("projects with several packages (`workspaces`) are not known"));
    }
    let mut root = Map::new();
    read_dependencies(package, &mut root).map_err(|what| Problem::new(format!("the project {what}")))?;
    Ok(root)
}

/// What is written anew of one package, and its archive by its hash, unless it lies in another's.
type Understood = (Map<String, Value>, Option<(String, Archive)>);

fn read_package(place: &str, package: &Map<String, Value>, all: &Map<String, Value>) -> Result<Understood, String> {
    if package.get("link").is_some() {
        return Err("is a link to a folder, not an archive".to_owned());
    }
    let mut anew = Map::new();
    // Without a `resolved` npm fetches `name@version`, whatever that says.
    match package.get("version").and_then(Value::as_str) {
        Some(version) if range::is_version(version) => anew.insert("version".to_owned(), json!(version)),
        _ => return Err("has no version".to_owned()),
    };
    match package.get("name").map(Value::as_str) {
        None => {}
        Some(Some(name)) if range::is_name(name) => {
            anew.insert("name".to_owned(), json!(name));
        }
        Some(_) => return Err("has another name that is none of a package".to_owned()),
    }
    read_dependencies(package, &mut anew)?;
    let is_set = |key: &str| package.get(key) == Some(&Value::Bool(true));
    anew.extend(FLAGS.iter().filter(|flag| is_set(flag)).map(|flag| ((*flag).to_owned(), json!(true))));
    for key in MACHINES {
        if let Some(machines) = package.get(key) {
            let fits = |word: &str| is_plain(word.strip_prefix('!').unwrap_or(word), b"_-");
            anew.insert(key.to_owned(), words(machines, key, fits)?);
        }
    }
    if let Some(bundled) = bundled(package) {
        anew.insert("bundleDependencies".to_owned(), words(bundled, "bundleDependencies", range::is_name)?);
    }
    if is_set("inBundle") {
        // Otherwise npm would fetch it, and there is no hash of it.
        let mut above =
            place.match_indices("/node_modules/").filter_map(|(end, _)| all.get(place.get(..end)?)?.as_object());
        return if above.any(|package| bundled(package).is_some()) {
            Ok((anew, None))
        } else {
            Err("is said to lie in the archive of another package, and none has any".to_owned())
        };
    }
    match package.get("resolved").map(Value::as_str) {
        // Without it npm looks into lists of versions, which it does not find in a cache that it cannot write.
        None => {
            return Err(
                "has no `resolved`; make the file anew with `npm install --omit-lockfile-registry-resolved=false`"
                    .to_owned(),
            );
        }
        Some(Some(from)) => {
            origin(from)?;
            anew.insert("resolved".to_owned(), json!(from));
        }
        Some(None) => return Err("does not come from a registry".to_owned()),
    }
    let Some((integrity, hash)) = package.get("integrity").and_then(Value::as_str).and_then(sha512) else {
        return Err("has no hash of the kind sha512; make the lock file anew with a newer npm".to_owned());
    };
    anew.insert("integrity".to_owned(), json!(integrity));
    let optional = is_set("optional") || is_set("devOptional");
    let required = if optional { Required::Perhaps } else { Required::Yes };
    Ok((anew, Some((hash, Archive { place: place.to_owned(), required }))))
}

fn bundled(package: &Map<String, Value>) -> Option<&Value> {
    package.get("bundleDependencies").filter(|names| names.as_array().is_none_or(|names| !names.is_empty()))
}

/// A list of words that fit, written anew.
fn words(list: &Value, key: &str, fits: impl Fn(&str) -> bool) -> Result<Value, String> {
    let one = std::slice::from_ref(list);
    let list = if list.is_string() { one } else { list.as_array().map_or(&[][..], Vec::as_slice) };
    if list.is_empty() || !list.iter().all(|word| word.as_str().is_some_and(&fits)) {
        return Err(format!("has a `{key}` that is not a list of plain words"));
    }
    Ok(Value::Array(list.to_vec()))
}

/// Writes what `package` depends on into `anew`.
fn read_dependencies(package: &Map<String, Value>, anew: &mut Map<String, Value>) -> Result<(), String> {
    for key in DEPENDENCIES {
        anew.extend(range::dependencies(package, key)?.map(|list| (key.to_owned(), list)));
    }
    // Which of the peers may be missing.
    let meta = package.get("peerDependenciesMeta").and_then(Value::as_object).into_iter().flatten();
    let optional: Vec<&String> =
        meta.filter(|(_, said)| said["optional"] == Value::Bool(true)).map(|(name, _)| name).collect();
    if let Some(odd) = optional.iter().find(|name| !range::is_name(name)) {
        return Err(format!("has a peer {}, which is not the name of a package", shown(odd)));
    }
    if !optional.is_empty() {
        let kept = optional.into_iter().map(|name| (name.clone(), json!({ "optional": true })));
        anew.insert("peerDependenciesMeta".to_owned(), Value::Object(kept.collect()));
    }
    Ok(())
}

/// `node_modules/a`, `node_modules/@scope/a`, and the same one below the other.
fn is_place(place: &str) -> bool {
    let mut parts = place.split('/');
    loop {
        match parts.next() {
            None => return true,
            Some("node_modules") => {}
            Some(_) => return false,
        }
        let fits = match parts.next() {
            Some(part) => match part.strip_prefix('@') {
                Some(scope) => range::is_part(scope) && parts.next().is_some_and(range::is_part),
                None => range::is_part(part),
            },
            None => false,
        };
        if !fits {
            return false;
        }
    }
}

/// The hash `sha512-BASE64` alone, and the same in hexadecimal digits.
fn sha512(integrity: &str) -> Option<(String, String)> {
    let encoded = integrity.split(' ').find_map(|hash| hash.strip_prefix("sha512-"))?;
    let bytes = STANDARD.decode(encoded).ok().filter(|bytes| bytes.len() == 64)?;
    Some((format!("sha512-{}", STANDARD.encode(&bytes)), store::hex(&bytes)))
}

/// Holds where archives come from against the user's own registries.
pub(super) fn judge(packages: &Packages, registries: &Registries) -> Result<(), Problem> {
    for (place, package) in packages.lock["packages"].as_object().into_iter().flatten() {
        if let Some(from) = package["resolved"].as_str() {
            registries.judge(from).map_err(|what| Problem::new(format!("{} {what}", shown(place))))?;
        }
    }
    Ok(())
}

/// Writes what was understood of the lock file into `work`. Of the workspace nothing else is there: no settings, no scripts.
pub(super) fn write(packages: &Packages, work: &Path) -> Result<(), CacheError> {
    for (name, value) in [("package.json", &packages.root), ("package-lock.json", &packages.lock)] {
        let path = work.join(name);
        std::fs::write(&path, value.to_string()).map_err(failed("write", &path))?;
    }
    Ok(())
}

/// What npm is asked for the user's registries. Without the option it would take a folder above for the project.
pub(super) const QUESTION: [&str; 4] = ["config", "list", "--json", "--no-workspaces"];

/// What keeps npm from executing anything but itself, whatever its settings say. The user's registries stay as they are.
pub(super) const ENVIRONMENT: [(&str, &str); 5] = [
    ("npm_config_git", NO_GIT),
    ("npm_config_allow_git", "none"),
    ("npm_config_ignore_scripts", "true"),
    ("npm_config_audit", "false"),
    ("npm_config_fund", "false"),
];

/// Prepares `command`, which is npm's, to fetch into `files`.
pub(super) fn command(command: &mut Command, files: &Path) {
    command.args(["ci", "--no-workspaces", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]);
    command.args(["--logs-max=0", "--cache"]).arg(files);
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
            assert_eq!(read.root, json!({ "name": "project", "version": "0.0.0", "dependencies": { "a": "1" } }));
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

    #[test]
    fn nothing_but_what_is_listed_reaches_npm() {
        let text = json!({
            "name": "evil", "lockfileVersion": 2, "requires": true, "scripts": { "install": "x" },
            "dependencies": { "a": { "version": "git+file:///ws/evil" } },
            "packages": {
                "": { "name": "file:x", "version": "git+file:///x", "scripts": { "install": "x" }, "bin": { "a": "x" },
                      "dependencies": { "a": "^1.0.0" }, "overrides": { "a": "file:x" }, "hasInstallScript": true },
                "node_modules/a": { "name": "b", "version": "1.0.0", "resolved": "https://r.test/a.tgz",
                    "integrity": format!("sha1-x {} md5-x", integrity()), "hasInstallScript": true,
                    "hasShrinkwrap": true, "_hasShrinkwrap": true, "bin": { "a": "../../x" }, "dev": "x", "optional": true,
                    "os": ["linux", "!win32"], "cpu": "x64", "engines": { "node": "1" }, "scripts": { "install": "x" },
                    "peerDependencies": { "c": "*" }, "peerDependenciesMeta": { "c": { "optional": true, "x": 1 } } },
            }
        });
        let read = parse(&text.to_string()).unwrap();
        let root = json!({ "name": "project", "version": "0.0.0", "dependencies": { "a": "^1.0.0" } });
        assert_eq!(read.root, root);
        assert_eq!(
            read.lock,
            json!({ "name": "project", "version": "0.0.0", "lockfileVersion": 3, "packages": {
                "": root,
                "node_modules/a": { "name": "b", "version": "1.0.0", "resolved": "https://r.test/a.tgz",
                    "integrity": integrity(), "optional": true, "os": ["linux", "!win32"], "cpu": ["x64"],
                    "peerDependencies": { "c": "*" }, "peerDependenciesMeta": { "c": { "optional": true } } },
            } })
        );
    }

    #[test]
    fn a_repository_is_not_named_by_any_part_of_a_package() {
        let good = json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": integrity() });
        let with = |key: &str, value: Value| {
            let mut package = good.clone();
            package[key] = value;
            parse(&lock("node_modules/a", &package))
        };
        let evil = "git+file:///ws/evil";
        for key in DEPENDENCIES {
            assert!(with(key, json!({ "b": evil })).is_err(), "{key}");
            assert!(with(key, json!({ evil: "1" })).is_err(), "{key}");
            assert!(with(key, json!([evil])).is_err(), "{key}");
            let root =
                json!({ "lockfileVersion": 3, "packages": { "": { key: { "a": evil } }, "node_modules/a": good } });
            assert!(parse(&root.to_string()).is_err(), "{key} of the project");
            assert!(with(key, json!({ "b": "^1.0.0" })).is_ok(), "the twin is read");
        }
        for version in [evil, "file:x", "latest", "1.0.0-x.tgz", "../1", ""] {
            assert!(with("version", json!(version)).is_err(), "{version}");
        }
        for (key, value) in [
            ("name", json!("file:x")),
            ("name", json!(1)),
            ("resolved", json!("https://r.test@h.test/a.tgz")),
            ("os", json!([1])),
            ("cpu", json!({})),
            ("bundleDependencies", json!(true)),
            ("peerDependenciesMeta", json!({ "../x": { "optional": true } })),
        ] {
            assert!(with(key, value.clone()).is_err(), "{key} {value}");
        }
        assert!(
            with("version", json!("1.0.0-rc.1+x")).is_ok() && with("name", json!("@s/b")).is_ok(),
            "twins are read"
        );
    }

    #[test]
    fn what_is_said_to_lie_in_an_archive_has_one_around_it() {
        let inner = json!({ "version": "1.0.0", "inBundle": true, "resolved": "git+file:///ws/evil" });
        let text = |bundled: Value, place: &str| {
            let outer = json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": integrity(),
                "bundleDependencies": bundled });
            json!({ "lockfileVersion": 3, "packages": { "node_modules/a": outer, place: inner } }).to_string()
        };
        assert!(parse(&text(json!(["b"]), "node_modules/b")).is_err());
        assert!(parse(&text(json!([]), "node_modules/a/node_modules/b")).is_err());
        let read = parse(&text(json!(["b"]), "node_modules/a/node_modules/b")).unwrap();
        let kept = &read.lock["packages"]["node_modules/a/node_modules/b"];
        assert_eq!(kept, &json!({ "version": "1.0.0", "inBundle": true }), "the twin is read, without the address");
    }

    #[test]
    fn an_archive_of_a_host_that_is_no_registry_of_the_user_is_refused() {
        let package = json!({ "version": "1.0.0", "resolved": "https://r.test/a.tgz", "integrity": integrity() });
        let read = parse(&lock("node_modules/a", &package)).unwrap();
        assert!(judge(&read, &Registries::read("{}")).is_err());
        assert_eq!(judge(&read, &Registries::read(r#"{ "@s:registry": "https://r.test/npm/" }"#)), Ok(()));
    }
}
