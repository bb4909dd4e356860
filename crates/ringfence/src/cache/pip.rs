//! Wheels of Python. Only wheels: to make one of a source package would execute its code.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use sha2::Sha256;

use super::failure::{CacheError, failed};
use super::lock::{Problem, is_hex, is_plain, shown};
use super::store;

const MOST_REQUIREMENTS: usize = 20_000;

/// One package that is wanted in exactly one version.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    /// `name[extra]==version`, made anew from its parts.
    package: String,
    /// The condition after `;`: the package may be left out on this machine.
    marker: Option<String>,
    /// The hashes that it may have, of which one is the wheel's.
    sha256: Vec<String>,
}

/// Reads a requirements file in which everything is pinned and hashed. Nothing but packages is allowed in it: an option could
/// name another file or another index.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, Problem> {
    let mut requirements = Vec::new();
    let mut logical = String::new();
    let mut first = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if line.bytes().any(|byte| byte != b'\t' && !(b' '..=b'~').contains(&byte))
            && !line.trim_start().starts_with('#')
        {
            return Err(Problem::at(number, "it has characters beyond ASCII"));
        }
        let line = without_comment(line);
        let begin = *first.get_or_insert(number);
        match line.strip_suffix('\\') {
            Some(more) => {
                logical.push_str(more);
                logical.push(' ');
                continue;
            }
            None => logical.push_str(line),
        }
        first = None;
        let whole = std::mem::take(&mut logical);
        if !whole.trim().is_empty() {
            requirements.push(parse_requirement(whole.trim()).map_err(|what| Problem::at(begin, what))?);
        }
        if requirements.len() > MOST_REQUIREMENTS {
            return Err(Problem::at(number, format!("it names more than {MOST_REQUIREMENTS} packages")));
        }
    }
    if !logical.is_empty() {
        return Err(Problem::new("its last line goes on and there is nothing more"));
    }
    if requirements.is_empty() { Err(Problem::new("it names no package")) } else { Ok(requirements) }
}

fn without_comment(line: &str) -> &str {
    if line.starts_with('#') {
        return "";
    }
    let cut = [" #", "\t#"].iter().filter_map(|mark| line.find(mark)).min();
    cut.and_then(|cut| line.get(..cut)).unwrap_or(line)
}

fn parse_requirement(line: &str) -> Result<Requirement, String> {
    if line.starts_with('-') {
        return Err(format!("{} is an option; list packages only, all in this file", shown(line)));
    }
    let mut sha256 = Vec::new();
    let mut head = Vec::new();
    for word in line.split_whitespace() {
        match word.strip_prefix("--hash=") {
            Some(hash) => match hash.strip_prefix("sha256:") {
                Some(hash) if is_hex(hash, 64) => sha256.push(hash.to_owned()),
                _ => return Err(format!("{} is not a hash such as `sha256:…`", shown(hash))),
            },
            None if word.starts_with('-') || !sha256.is_empty() => {
                return Err(format!("{} is not expected here; after a package come hashes only", shown(word)));
            }
            None => head.push(word),
        }
    }
    let head = head.join(" ");
    let (package, marker) = match head.split_once(';') {
        Some((package, marker)) => (package, Some(marker.trim())),
        None => (head.as_str(), None),
    };
    let package = parse_package(package)?;
    if sha256.is_empty() {
        return Err(format!(
            "`{package}` has no hash; make the file with hashes, such as by `pip-compile --generate-hashes`"
        ));
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b" ._<>=!~\"'(),+-".contains(&byte);
    if let Some(marker) = marker.filter(|marker| marker.is_empty() || marker.len() > 500 || !marker.bytes().all(fits)) {
        return Err(format!("{} is not a condition", shown(marker)));
    }
    Ok(Requirement { package, marker: marker.map(str::to_owned), sha256 })
}

fn parse_package(text: &str) -> Result<String, String> {
    let wrong = || format!("{} does not name one version of a package, such as `six==1.17.0`", shown(text));
    let plain: String = text.chars().filter(|c| *c != ' ').collect();
    let (name, version) = plain.split_once("==").ok_or_else(wrong)?;
    let (name, extras) = match name.split_once('[') {
        Some((name, extras)) => (name, Some(extras.strip_suffix(']').ok_or_else(wrong)?)),
        None => (name, None),
    };
    let named = |name: &str| is_plain(name, b"._-");
    if !named(name) || !is_plain(version, b".!+_-") || !extras.is_none_or(|extras| extras.split(',').all(named)) {
        return Err(wrong());
    }
    Ok(plain)
}

/// The file that is given to pip: only what was understood.
fn written(requirements: &[Requirement]) -> String {
    let mut out = String::new();
    for requirement in requirements {
        out.push_str(&requirement.package);
        if let Some(marker) = &requirement.marker {
            out.push_str(" ; ");
            out.push_str(marker);
        }
        for hash in &requirement.sha256 {
            out.push_str(" --hash=sha256:");
            out.push_str(hash);
        }
        out.push('\n');
    }
    out
}

/// Prepares `command`, which is pip's, to fetch into `files`, working in `work`.
pub(super) fn command(
    command: &mut Command,
    requirements: &[Requirement],
    work: &Path,
    files: &Path,
) -> Result<(), CacheError> {
    let list = work.join("requirements.txt");
    std::fs::write(&list, written(requirements)).map_err(failed("write", &list))?;
    command.args(["download", "--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-input"]);
    command.args(["--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--dest"]).arg(files);
    command.arg("--requirement").arg(list);
    Ok(())
}

/// Holds what came against the hashes: each file is one of a package, and each package that has no condition has its file.
pub(super) fn check(requirements: &[Requirement], files: &Path) -> Result<usize, CacheError> {
    let mut found = BTreeSet::new();
    for file in store::files_of(files)? {
        let path = files.join(&file.path);
        let name = file.path.to_string_lossy();
        if !name.ends_with(".whl") || name.contains('/') {
            return Err(CacheError::Fetched { problem: format!("{} is not a wheel", shown(&name)) });
        }
        let sha256 = store::digest::<Sha256>(&path)?;
        if !requirements.iter().any(|requirement| requirement.sha256.contains(&sha256)) {
            return Err(CacheError::Fetched { problem: format!("{} has none of the hashes", shown(&name)) });
        }
        found.insert(sha256);
    }
    let missing = requirements
        .iter()
        .find(|wanted| wanted.marker.is_none() && !wanted.sha256.iter().any(|hash| found.contains(hash)));
    match missing {
        Some(missing) => Err(CacheError::Fetched { problem: format!("`{}` is missing", missing.package) }),
        None => Ok(found.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(digit: &str) -> String {
        format!("--hash=sha256:{}", digit.repeat(64))
    }

    #[test]
    fn pinned_and_hashed_packages_are_read_and_written_anew() {
        let text = format!(
            "# made by a tool, with é\nsix==1.17.0 \\\n    {} \\\n    {}  # why\n\nuvicorn[standard]==0.30.0 ; python_version >= \"3.9\" {}\n",
            hash("a"),
            hash("b"),
            hash("c")
        );
        let read = parse(&text).unwrap();
        assert_eq!(
            written(&read),
            format!(
                "six==1.17.0 {} {}\nuvicorn[standard]==0.30.0 ; python_version >= \"3.9\" {}\n",
                hash("a"),
                hash("b"),
                hash("c")
            )
        );
        assert_eq!(parse(&written(&read)).unwrap(), read);
    }

    #[test]
    fn options_places_and_whatever_is_not_pinned_are_refused() {
        let good = hash("a");
        for hostile in [
            "-r ../../other.txt",
            "--index-url http://evil.test",
            "--find-links /etc",
            "-e .",
            "six==1.17.0",
            "six>=1.0 {h}",
            "six {h}",
            "six==1.* {h}",
            "six @ file:///etc/passwd {h}",
            "git+http://evil.test/x {h}",
            "./local.whl {h}",
            "/etc/x.whl {h}",
            "../up==1 {h}",
            "a..b==1 {h}",
            "-x==1 {h}",
            "six==../1 {h}",
            "six==1.17.0 {h} --index-url=http://evil.test",
            "six==1.17.0 --global-option=x {h}",
            "six==1.17.0 --hash=md5:aa",
            "six==1.17.0 --hash=sha256:AA",
            "six==1.17.0 ; os.system {h} extra",
            "six==1.17.0 ; `x` {h}",
            "s\u{456}x==1.0 {h}",
            "six==1.17.0 {h} \\",
            "",
        ] {
            let text = hostile.replace("{h}", &good);
            assert!(parse(&text).is_err(), "{text}");
        }
        assert!(parse(&format!("six==1.17.0 {good}")).is_ok(), "the twin is read");
    }
}
