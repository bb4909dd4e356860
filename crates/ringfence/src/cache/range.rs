//! What a package of Node.js says that it depends on: names, and ranges of versions.
//!
//! npm takes the same text for a folder, an archive or a repository, depending on its letters, and executes what a
//! repository says. So a range is read by its grammar, and all else is refused.

use serde_json::{Map, Value};

use super::lock::{is_plain, shown};

const MOST_RANGE: usize = 1024;

/// `a` or `@scope/a`.
pub(super) fn is_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_part(scope) && is_part(name)),
        None => is_part(name),
    }
}

/// A part of a name, which is also a part of a path.
pub(super) fn is_part(part: &str) -> bool {
    let part = part.strip_prefix('_').unwrap_or(part);
    is_plain(part, b"._-~") && part != "node_modules"
}

/// Exactly one version.
pub(super) fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit()) && is_plain(version, b".+-") && !is_archive(version)
}

/// npm takes whatever ends like this for a file.
fn is_archive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    [".tgz", ".tar", ".tar.gz", ".gz"].iter().any(|end| text.ends_with(end))
}

/// A range of versions, a label such as `latest`, or `npm:NAME@RANGE`.
fn is_wanted(text: &str) -> bool {
    match text.strip_prefix("npm:") {
        // The name's own `@` comes first.
        Some(alias) => match alias.rsplit_once('@') {
            Some(("", _)) | None => is_name(alias),
            Some((name, range)) => is_name(name) && is_range(range),
        },
        None => is_range(text),
    }
}

fn is_range(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b" .*^~<>=|+-".contains(&byte);
    text.len() <= MOST_RANGE
        && text.bytes().all(fits)
        && !is_archive(text.trim_end())
        && text.split("||").all(|part| part.split(' ').all(is_comparison))
}

/// `^1.2`, `>=1.0.0-rc.1`, `*`, `-` between two versions, a sign that stands alone, or a label.
fn is_comparison(word: &str) -> bool {
    let version = word.trim_start_matches(['^', '~', '<', '>', '=']);
    let starts = version.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '*');
    version.is_empty() || version == "-" || (starts && !version.contains(['^', '~', '<', '>', '=', '|']))
}

/// The dependencies under `key`, written anew.
pub(super) fn dependencies(package: &Map<String, Value>, key: &str) -> Result<Option<Value>, String> {
    let Some(value) = package.get(key) else { return Ok(None) };
    let map = value.as_object().ok_or_else(|| format!("has no list of packages as `{key}`"))?;
    for (name, wanted) in map {
        if !is_name(name) {
            return Err(format!("depends on {}, which is not the name of a package", shown(name)));
        }
        let wanted = wanted.as_str().unwrap_or_default().trim_matches(' ');
        if map.get(name).is_some_and(Value::is_string) && is_wanted(wanted) {
            continue;
        }
        return Err(format!(
            "depends on `{name}` as {}, which is not a range of versions; only packages of a registry are fetched",
            shown(wanted)
        ));
    }
    let kept =
        map.iter().map(|(name, wanted)| (name.clone(), wanted.as_str().unwrap_or_default().trim_matches(' ').into()));
    Ok(Some(Value::Object(kept.collect())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, wanted: &Value) -> Result<Option<Value>, String> {
        dependencies(json!({ "dependencies": { name: wanted } }).as_object().unwrap(), "dependencies")
    }

    #[test]
    fn a_dependency_that_is_no_range_of_versions_is_refused() {
        for wanted in [
            "git+file:///ws/evil",
            "git+https://h.test/x",
            "git://h.test/x",
            "git@h.test:a/b",
            "github:a/b",
            "a/b",
            "a/b#semver:^1",
            "https://h.test/a.tgz",
            "file:../x",
            "file:x",
            "link:x",
            "workspace:*",
            ".",
            "..",
            "./x",
            "~/x",
            "/ws/evil",
            "c:x",
            "x.tgz",
            "1.0.0-x.TGZ",
            "1.0.0-x.tar.gz",
            "1.0.0-x.tar",
            " . ",
            "1 .x",
            "npm:evil@git+file:///x",
            "npm:../x@1",
            "npm:npm:a@1",
            "npm:",
            "npm:@",
            "NPM:a@1",
            "1\n2",
            "1\u{a0}",
            "$x",
        ] {
            assert!(read("a", &json!(wanted)).is_err(), "{wanted}");
        }
        for wanted in [json!(1), json!(null), json!(["1"]), json!({})] {
            assert!(read("a", &wanted).is_err(), "{wanted}");
        }
        for name in ["../a", "@s", "@s/a/b", "a/b", ".a", "-a", "", "a b", "node_modules", "@/a", "file:a"] {
            assert!(read(name, &json!("1")).is_err(), "{name}");
        }
        for wanted in [
            "",
            "*",
            "x",
            "1",
            "1.x",
            "^1.2.3",
            "~> 1.2",
            ">= 1.0.0 < 2.0.0-rc.1+build.5 || 3.0.0 - 4.1.X",
            "^16.8||^17.0",
            "v1.2.3",
            "latest",
            "npm:@s/a@^1.0.0",
            "npm:a@1",
            "npm:a",
            "npm:@s/a",
        ] {
            assert!(read("@s/a", &json!(wanted)).is_ok(), "the twin is read: {wanted}");
        }
    }
}
