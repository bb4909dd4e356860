//! Crates of Rust, unpacked, with a configuration that leads cargo to them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use sha2::Sha256;

use super::failure::{CacheError, failed};
use super::lock::{Problem, is_hex, is_plain, shown};
use super::store;

const MOST_CRATES: usize = 20_000;
const MOST_CHECKSUM_FILE: u64 = 16 * 1024 * 1024;
/// The one registry that is known, as lock files name it.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// The configuration, in the cache.
pub(super) const CONFIG: &str = "config.toml";
const VENDOR: &str = "vendor";

/// One crate of the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Crate {
    name: String,
    version: String,
    checksum: String,
}

impl Crate {
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// Reads a lock file as cargo writes it, and nothing else: it is no TOML reader.
pub(super) fn parse(text: &str) -> Result<Vec<Crate>, Problem> {
    let mut crates = BTreeSet::new();
    let mut package: Option<Package> = None;
    let mut inside_list = false;
    for (index, line) in text.lines().enumerate() {
        let at = |what: String| Problem::at(index + 1, what);
        if inside_list {
            inside_list = line != "]";
            continue;
        }
        match line {
            "[[package]]" => {
                if let Some(done) = package.replace(Package::default()) {
                    crates.extend(done.finish().map_err(at)?);
                }
            }
            "dependencies = [" if package.is_some() => inside_list = true,
            "" => {}
            _ if line.starts_with('#') => {}
            _ => {
                let Some((key, value)) = line.split_once(" = ") else {
                    return Err(at(format!("{} is not known", shown(line))));
                };
                match (&mut package, key) {
                    (None, "version") if matches!(value, "3" | "4") => {}
                    (None, "version") => {
                        return Err(at("only versions 3 and 4 are read; use a newer cargo".to_owned()));
                    }
                    (Some(package), _) => package.take(key, value).map_err(at)?,
                    (None, _) => return Err(at(format!("{} is not known", shown(key)))),
                }
            }
        }
        if crates.len() > MOST_CRATES {
            return Err(at(format!("it names more than {MOST_CRATES} crates")));
        }
    }
    if inside_list {
        return Err(Problem::new("it ends in the middle of a list"));
    }
    if let Some(done) = package {
        crates.extend(done.finish().map_err(Problem::new)?);
    }
    if crates.is_empty() {
        Err(Problem::new("it names no crate of a registry"))
    } else {
        Ok(crates.into_iter().collect())
    }
}

#[derive(Default)]
struct Package {
    name: Option<String>,
    version: Option<String>,
    source: Option<String>,
    checksum: Option<String>,
}

impl Package {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let text = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let text =
            text.filter(|text| !text.contains(['"', '\\'])).ok_or_else(|| format!("{} is not a text", shown(value)))?;
        let slot = match key {
            "name" => &mut self.name,
            "version" => &mut self.version,
            "source" => &mut self.source,
            "checksum" => &mut self.checksum,
            _ => return Err(format!("{} is not known", shown(key))),
        };
        match slot.replace(text.to_owned()) {
            Some(_) => Err(format!("`{key}` is there twice")),
            None => Ok(()),
        }
    }

    /// The crate; nothing for a package of the workspace itself.
    fn finish(self) -> Result<Option<Crate>, String> {
        let (Some(name), Some(version)) = (self.name, self.version) else {
            return Err("a package has no name or no version".to_owned());
        };
        if !is_plain(&name, b"_-") || !is_plain(&version, b".+-") {
            return Err(format!("{} is not a crate", shown(&format!("{name} {version}"))));
        }
        match (self.source.as_deref(), self.checksum) {
            (None, None) => Ok(None),
            (Some(CRATES_IO), Some(checksum)) if is_hex(&checksum, 64) => Ok(Some(Crate { name, version, checksum })),
            (Some(CRATES_IO), _) => Err(format!("`{name}` has no checksum")),
            (source, _) => {
                let source = source.map(shown).unwrap_or_default();
                Err(format!("`{name}` comes from {source}; only crates of crates.io are fetched"))
            }
        }
    }
}

/// A project that wants exactly these crates. Without their default features each wants only what is in the same lock file.
fn manifest(crates: &[Crate]) -> String {
    let mut out = "[package]\nname = \"ringfence-cache\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n[dependencies]\n".to_owned();
    for (index, it) in crates.iter().enumerate() {
        // Writing to a text cannot fail.
        writeln!(
            out,
            "c{index} = {{ package = \"{}\", version = \"={}\", default-features = false }}",
            it.name, it.version
        )
        .ok();
    }
    out
}

/// The same crates as a lock file, so that those which were withdrawn meanwhile are still found.
fn lock_file(crates: &[Crate]) -> String {
    let mut out = "version = 3\n".to_owned();
    for it in crates {
        writeln!(
            out,
            "\n[[package]]\nname = \"{}\"\nversion = \"{}\"\nsource = \"{CRATES_IO}\"\nchecksum = \"{}\"",
            it.name, it.version, it.checksum
        )
        .ok();
    }
    out
}

/// Prepares `command`, which is cargo's, to fetch into `files`, working in `work`. It has a home of its own, so that every
/// archive is fetched and looked at anew; `settings` are the user's.
pub(super) fn command(
    command: &mut Command,
    crates: &[Crate],
    work: &Path,
    files: &Path,
    settings: Option<&Path>,
) -> Result<(), CacheError> {
    let home = work.join("home");
    let source = work.join("src");
    for folder in [&home, &source] {
        std::fs::create_dir(folder).map_err(failed("make", folder))?;
    }
    if let Some(settings) = settings.map(|home| home.join(CONFIG)).filter(|settings| settings.is_file()) {
        std::fs::copy(&settings, home.join(CONFIG)).map_err(failed("copy", &settings))?;
    }
    for (name, text) in
        [("Cargo.toml", manifest(crates)), ("Cargo.lock", lock_file(crates)), ("src/lib.rs", String::new())]
    {
        let path = work.join(name);
        std::fs::write(&path, text).map_err(failed("write", &path))?;
    }
    command.args(["vendor", "--versioned-dirs", "--respect-source-config", "--quiet"]).arg(files.join(VENDOR));
    command.env("CARGO_HOME", home).env_remove("CARGO_TARGET_DIR").env_remove("CARGO_NET_OFFLINE");
    Ok(())
}

/// Holds what came against the checksums: of each archive, and of each unpacked crate what it says of itself.
pub(super) fn check(crates: &[Crate], work: &Path, files: &Path) -> Result<usize, CacheError> {
    let archives = work.join("home/registry/cache");
    let registries: Vec<_> = store::folder(&archives)?;
    for it in crates {
        let name = format!("{}.crate", it.folder());
        let archive = registries.iter().map(|registry| registry.join(&name)).find(|path| path.is_file());
        let missing = || CacheError::Fetched { problem: format!("`{}` is missing", it.folder()) };
        if store::digest::<Sha256>(&archive.ok_or_else(missing)?)? != it.checksum {
            return Err(CacheError::Fetched { problem: format!("`{}` has another checksum", it.folder()) });
        }
        let path = files.join(VENDOR).join(it.folder()).join(".cargo-checksum.json");
        let text = store::read_capped(&path, MOST_CHECKSUM_FILE)?;
        let said: serde_json::Value = serde_json::from_slice(&text).map_err(|_| missing())?;
        if said["package"] != it.checksum.as_str() {
            return Err(CacheError::Fetched { problem: format!("`{}` was made of another archive", it.folder()) });
        }
    }
    for folder in store::folder(&files.join(VENDOR))? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !crates.iter().any(|it| it.folder() == name) {
            return Err(CacheError::Fetched { problem: format!("{} is not in the lock file", shown(&name)) });
        }
    }
    let config = files.join(CONFIG);
    let text = format!(
        "[source.crates-io]\nreplace-with = \"ringfence-cache\"\n\n[source.ringfence-cache]\ndirectory = \"{}/cargo/{VENDOR}\"\n",
        super::AT
    );
    std::fs::write(&config, text).map_err(failed("write", &config))?;
    Ok(crates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, rest: &str) -> String {
        format!("version = 4\n\n[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{rest}")
    }

    fn of_registry(checksum: &str) -> String {
        format!("source = \"{CRATES_IO}\"\nchecksum = \"{checksum}\"\ndependencies = [\n \"b 1.0.0\",\n]\n")
    }

    #[test]
    fn crates_of_the_registry_are_read_and_the_projects_own_are_not() {
        let sum = "a".repeat(64);
        let own = "\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let text = format!("# made\n{}{own}", package("cfg-if", "1.0.0+x-1", &of_registry(&sum)));
        let read = parse(&text).unwrap();
        assert_eq!(read, [Crate { name: "cfg-if".into(), version: "1.0.0+x-1".into(), checksum: sum }]);
        assert_eq!(parse(&lock_file(&read)).unwrap(), read, "what is written is read as the same");
        assert!(manifest(&read).contains("package = \"cfg-if\", version = \"=1.0.0+x-1\""));
    }

    #[test]
    fn names_that_lead_elsewhere_other_sources_and_missing_checksums_are_refused() {
        let good = of_registry(&"a".repeat(64));
        for (name, version) in [
            ("../x", "1.0.0"),
            ("a/b", "1.0.0"),
            ("-x", "1.0.0"),
            ("a", "../1"),
            ("a", "1\" }"),
            ("a\n", "1"),
            ("", "1"),
            ("a", ""),
        ] {
            assert!(parse(&package(name, version, &good)).is_err(), "{name} {version}");
        }
        for rest in [
            format!("source = \"{CRATES_IO}\"\n"),
            format!("source = \"{CRATES_IO}\"\nchecksum = \"x\"\n"),
            "source = \"git+https://evil.test/x#1\"\n".to_owned(),
            format!("source = \"registry+https://evil.test/i\"\nchecksum = \"{}\"\n", "a".repeat(64)),
            format!("{good}build = \"x\"\n"),
            format!("{good}name = \"b\"\n"),
            "dependencies = [\n".to_owned(),
        ] {
            assert!(parse(&package("a", "1.0.0", &rest)).is_err(), "{rest}");
        }
        for text in ["", "version = 1\n", "[metadata]\n", "[[patch.unused]]\n", "x"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&package("a", "1.0.0", &good)).is_ok(), "the twin is read");
    }
}
