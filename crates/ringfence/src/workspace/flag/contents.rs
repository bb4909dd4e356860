//! What contents say, where a name alone does not tell. Whatever cannot be read or understood is taken for the worst.

use std::collections::BTreeSet;

use serde_json::Value;

/// What has to be known of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Nothing: the name is enough.
    Name,
    /// Nothing of them, and the name is enough where it may be executed.
    Executable,
    /// git's configuration, which counts always; dangerous keys are told.
    GitConfig,
    /// git's attributes, which count when they name a driver.
    Attributes,
    /// A package's JSON, which counts when it is new or its commands differ.
    Package,
    /// A Python project, which counts when anything but plain facts differs.
    PythonProject,
    /// A cargo manifest, which counts when what it has executed differs.
    CargoManifest,
}

impl Check {
    pub(super) fn named(name: &str) -> Self {
        match name {
            "executable" => Self::Executable,
            "git-config" => Self::GitConfig,
            "attributes" => Self::Attributes,
            "package" => Self::Package,
            "pyproject" => Self::PythonProject,
            "cargo" => Self::CargoManifest,
            _ => Self::Name,
        }
    }
}

/// What a file held or holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    /// There is no file.
    Absent,
    /// There is one, and what it holds is not known.
    Unknown,
    /// This.
    Known(String),
}

impl Text {
    fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// Whether a change from `before` to `after` counts: nothing, or what is to be told besides.
pub(super) fn counts(check: Check, folded: &[String], before: &Text, after: &Text) -> Option<Option<String>> {
    let not_known = Some(Some("its contents could not be read".to_owned()));
    match (check, after) {
        (Check::Name | Check::Executable, _) => Some(None),
        (Check::GitConfig, Text::Known(after)) => Some(new_dangerous_keys(before.known(), after)),
        (Check::GitConfig, _) => Some(None),
        // Nothing executes what is no longer there.
        (_, Text::Absent) => None,
        (_, Text::Unknown) => not_known,
        (Check::Attributes, Text::Known(after)) => {
            let drivers = new_lines(before.known(), after, |line| {
                line.contains("filter") || line.contains("diff=") || line.contains("merge=")
            });
            (!drivers.is_empty()).then(|| Some(listed("drivers", &drivers)))
        }
        (Check::Package, Text::Known(after)) => package(folded, before, after),
        (Check::PythonProject, Text::Known(after)) => by_lines(before, after, python_lines),
        (Check::CargoManifest, Text::Known(after)) => by_lines(before, after, cargo_lines),
    }
}

fn listed(what: &str, items: &[String]) -> String {
    const MOST: usize = 8;
    const MOST_LETTERS: usize = 80;
    let shortened = |item: &String| item.chars().take(MOST_LETTERS).collect::<String>();
    let mut text = items.iter().take(MOST).map(shortened).collect::<Vec<_>>().join(", ");
    if items.len() > MOST {
        text.push_str(&format!(" and {} more", items.len() - MOST));
    }
    format!("{what}: {text}")
}

fn new_lines(before: Option<&str>, after: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let old: BTreeSet<&str> = before.into_iter().flat_map(str::lines).map(str::trim).collect();
    let lines = after.lines().map(str::trim).filter(|line| !line.starts_with('#') && wanted(line));
    lines.filter(|line| !old.contains(line)).map(str::to_owned).collect()
}

/// Sections and keys of git's configuration by which git executes a program, or reads more configuration.
const DANGEROUS_KEYS: &[&str] = &[
    "core.fsmonitor",
    "core.hookspath",
    "core.sshcommand",
    "core.pager",
    "core.editor",
    "core.askpass",
    "core.gitproxy",
    "core.worktree",
    "core.attributesfile",
    "core.alternaterefscommand",
    "sequence.editor",
    "extensions.worktreeconfig",
    "uploadpack.packobjectshook",
    "ssh.variant",
    "imap.tunnel",
    "web.browser",
    "diff.external",
    "init.templatedir",
    "commit.template",
    "protocol.allow",
    "safe.directory",
    "safe.barerepository",
    "sendemail.sendmailcmd",
    "sendemail.tocmd",
    "sendemail.cccmd",
    "instaweb.httpd",
    "pack.packobjectshook",
    "interactive.difffilter",
    "http.proxy",
    "http.sslverify",
];
const DANGEROUS_SECTIONS: &[&str] = &[
    "alias",
    "filter",
    "credential",
    "include",
    "includeif",
    "difftool",
    "mergetool",
    "merge",
    "pager",
    "browser",
    "man",
    "gpg",
    "url",
    "submodule",
    "hook",
    "trailer",
    "tar",
    "guitool",
    "lfs",
    "maintenance",
    "protocol",
    "remotehelper",
];
const DANGEROUS_LAST: &[&str] = &[
    "command",
    "cmd",
    "textconv",
    "driver",
    "helper",
    "program",
    "uploadpack",
    "receivepack",
    "vcs",
    "proxy",
    "pushurl",
    "clean",
    "smudge",
    "process",
    "sshcommand",
    "path",
];

fn new_dangerous_keys(before: Option<&str>, after: &str) -> Option<String> {
    let old = before.map(git_settings).unwrap_or_default();
    let new: BTreeSet<String> = git_settings(after)
        .into_iter()
        .filter(|setting| !old.contains(setting))
        .map(|(key, _)| key)
        .filter(|key| is_dangerous(key))
        .collect();
    let new: Vec<String> = new.into_iter().collect();
    (!new.is_empty()).then(|| listed("keys", &new))
}

fn is_dangerous(key: &str) -> bool {
    let section = key.split('.').next().unwrap_or_default();
    let last = key.rsplit('.').next().unwrap_or_default();
    let lower = key.to_lowercase();
    DANGEROUS_KEYS.contains(&lower.as_str()) || DANGEROUS_SECTIONS.contains(&section) || DANGEROUS_LAST.contains(&last)
}

/// Whether a text is git's configuration of a repository, or would be dangerous as one.
pub(super) fn is_git_config(text: &str) -> bool {
    git_settings(text)
        .iter()
        .any(|(key, _)| key.starts_with("core.repositoryformat") || key.starts_with("core.bare") || is_dangerous(key))
}

/// Every key with its value, loosely read: sections and keys in lower case.
fn git_settings(text: &str) -> BTreeSet<(String, String)> {
    let mut section = String::new();
    let mut settings = BTreeSet::new();
    for line in text.trim_start_matches('\u{feff}').lines() {
        let mut line = line.trim();
        // A setting, or another section, may stand in the same line.
        while let Some((header, after)) = line.strip_prefix('[').and_then(split_header) {
            let (name, sub) = header.split_once([' ', '\t']).unwrap_or((header, ""));
            let sub = sub.trim().trim_matches('"');
            section = name.to_lowercase();
            if !sub.is_empty() {
                section = format!("{section}.{sub}");
            }
            line = after.trim();
        }
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "true"));
        settings.insert((format!("{section}.{}", key.trim().to_lowercase()), value.trim().to_owned()));
    }
    settings
}

/// Parts a line after its `[` at the bracket that ends the header; one in quotes does not.
fn split_header(line: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let mut escaped = false;
    for (at, character) in line.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some((line.get(..at)?, line.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// Fields of a package by which something is executed.
const PACKAGE_FIELDS: &[&str] = &[
    "scripts",
    "bin",
    "tasks",
    "gypfile",
    "packageManager",
    "husky",
    "lint-staged",
    "simple-git-hooks",
    "pre-commit",
    "gitHooks",
    "pnpm",
    "yarn",
    "volta",
    "wireit",
    "nx",
    "trustedDependencies",
    "scripts-descriptions",
    "plugins",
    "eslintConfig",
    "prettier",
    "jest",
    "babel",
    "stylelint",
    "ava",
    "mocha",
    "nyc",
];
/// Scripts that an install executes.
const INSTALL_SCRIPTS: &[&str] = &["preinstall", "install", "postinstall", "prepare", "preprepare", "postprepare"];

fn package(folded: &[String], before: &Text, after: &str) -> Option<Option<String>> {
    let Ok(Value::Object(now)) = serde_json::from_str::<Value>(after) else {
        return Some(Some("it could not be understood".to_owned()));
    };
    if folded.iter().any(|name| name == "node_modules") {
        // There are hundreds, and only what an install executes is executed by their being there.
        let scripts = now.get("scripts").and_then(Value::as_object);
        let found: Vec<String> = INSTALL_SCRIPTS
            .iter()
            .filter(|name| scripts.is_some_and(|scripts| scripts.contains_key(**name)))
            .map(|name| (*name).to_owned())
            .chain(now.get("gypfile").is_some().then(|| "gypfile".to_owned()))
            .collect();
        return (!found.is_empty()).then(|| Some(listed("scripts", &found)));
    }
    let was = match before {
        Text::Absent => None,
        Text::Unknown => return Some(Some("what it said before is not known".to_owned())),
        Text::Known(before) => match serde_json::from_str::<Value>(before) {
            Ok(Value::Object(was)) => Some(was),
            Ok(_) | Err(_) => return Some(Some("what it said before could not be understood".to_owned())),
        },
    };
    let Some(was) = was else { return Some(Some("it is new".to_owned())) };
    let differing: Vec<String> = PACKAGE_FIELDS
        .iter()
        .filter(|field| was.get(**field) != now.get(**field))
        .map(|field| (*field).to_owned())
        .collect();
    (!differing.is_empty()).then(|| Some(listed("changed", &differing)))
}

/// Counts when the lines that matter differ. A text that lines cannot be told apart in counts always.
fn by_lines(before: &Text, after: &str, lines: fn(&str) -> Vec<&str>) -> Option<Option<String>> {
    let before = match before {
        Text::Absent => "",
        Text::Unknown => return Some(Some("what it said before is not known".to_owned())),
        Text::Known(before) => before,
    };
    let long_strings = |text: &str| text.contains("\"\"\"") || text.contains("'''");
    if long_strings(before) || long_strings(after) {
        return Some(None);
    }
    let (old, new) = (lines(before), lines(after));
    if old == new {
        return None;
    }
    let old: BTreeSet<&str> = old.into_iter().collect();
    let added: Vec<String> = new.iter().filter(|line| !old.contains(*line)).map(|line| (*line).to_owned()).collect();
    Some((!added.is_empty()).then(|| listed("new", &added)))
}

fn cargo_lines(text: &str) -> Vec<&str> {
    const WORDS: &[&str] = &["build", "proc-macro", "proc_macro", "links", "patch", "replace", "runner", "\\u", "\\U"];
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    // The header of build dependencies executes nothing that the list of dependencies does not.
    lines.filter(|line| WORDS.iter().any(|word| line.contains(word)) && *line != "[build-dependencies]").collect()
}

/// Sections of a Python project that hold plain facts.
const PLAIN_SECTIONS: &[&str] = &[
    "[project]",
    "[project.urls]",
    "[project.optional-dependencies]",
    "[dependency-groups]",
    "[tool.poetry.dependencies]",
    "[tool.ruff]",
    "[tool.ruff.lint]",
    "[tool.ruff.format]",
    "[tool.black]",
    "[tool.isort]",
    "[tool.pyright]",
    "[tool.coverage.run]",
    "[tool.coverage.report]",
];

fn python_lines(text: &str) -> Vec<&str> {
    const WORDS: &[&str] = &["scripts", "entry-points", "backend", "plugin", "\\u", "\\U"];
    let mut plain = false;
    let mut kept = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            plain = PLAIN_SECTIONS.contains(&line);
        }
        if !plain || WORDS.iter().any(|word| line.contains(word)) {
            kept.push(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Check, before: &str, after: &str) -> Option<Option<String>> {
        counts(kind, &[], &Text::Known(before.to_owned()), &Text::Known(after.to_owned()))
    }

    #[test]
    fn f08_dangerous_keys_of_gits_configuration_are_named_however_they_are_written() {
        let before = "[core]\n\tbare = false\n[alias]\n\tst = status\n";
        let say = |after: &str| check(Check::GitConfig, before, &format!("{before}{after}")).unwrap();
        assert_eq!(say("[core]\n\tfsmonitor = touch /tmp/p\n").as_deref(), Some("keys: core.fsmonitor"));
        assert_eq!(say("[CORE] FSMonitor=x # ]\n").as_deref(), Some("keys: core.fsmonitor"));
        assert_eq!(
            say("[core]\nhooksPath = .x\n[alias]\nci = !sh\n").as_deref(),
            Some("keys: alias.ci, core.hookspath")
        );
        assert_eq!(say("[filter \"a\"]\nclean = sh\n").as_deref(), Some("keys: filter.a.clean"));
        assert_eq!(say("[diff \"a\"]\ncommand = sh\n").as_deref(), Some("keys: diff.a.command"));
        assert_eq!(say("[include]\npath = /tmp/x\n").as_deref(), Some("keys: include.path"));
        assert_eq!(say("[includeIf \"gitdir:/\"]\npath = /tmp/x\n").as_deref(), Some("keys: includeif.gitdir:/.path"));
        assert_eq!(say("[user]\nname = me\n"), None, "flagged all the same, with no key to name");
    }

    #[test]
    fn f21_a_package_counts_when_it_is_new_cannot_be_understood_or_its_commands_differ() {
        let before = r#"{"name":"a","scripts":{"test":"x"},"dependencies":{}}"#;
        assert_eq!(check(Check::Package, before, &before.replace("\"a\"", "\"b\"")), None);
        assert_eq!(
            check(Check::Package, before, r#"{"name":"a","scripts":{"test":"x"},"dependencies":{"b":"1"}}"#),
            None
        );
        let changed = check(Check::Package, before, &before.replace("\"x\"", "\"y\""));
        assert_eq!(changed.unwrap().as_deref(), Some("changed: scripts"));
        assert!(check(Check::Package, before, "{").is_some());
        assert!(check(Check::Package, before, &"[".repeat(100_000)).is_some());
        assert!(check(Check::Package, "not json", before).is_some());
        let new = counts(Check::Package, &[], &Text::Absent, &Text::Known("{}".to_owned()));
        assert_eq!(new.unwrap().as_deref(), Some("it is new"));
        assert!(counts(Check::Package, &[], &Text::Unknown, &Text::Known("{}".to_owned())).is_some());
        assert!(counts(Check::Package, &[], &Text::Absent, &Text::Unknown).is_some());
        assert!(counts(Check::Package, &[], &Text::Unknown, &Text::Absent).is_none());
    }

    #[test]
    fn a_package_below_node_modules_counts_when_an_install_executes_something() {
        let folded = ["node_modules".to_owned(), "x".to_owned(), "package.json".to_owned()];
        let new = |text: &str| counts(Check::Package, &folded, &Text::Absent, &Text::Known(text.to_owned()));
        assert_eq!(new(r#"{"scripts":{"test":"x"}}"#), None);
        assert!(new(r#"{"scripts":{"postinstall":"x"}}"#).is_some());
        assert!(new("{").is_some());
    }

    #[test]
    fn manifests_count_when_more_than_plain_facts_differ() {
        let cargo = "[package]\nname = \"a\"\nversion = \"1\"\n[dependencies]\n";
        assert_eq!(check(Check::CargoManifest, cargo, &format!("{cargo}serde = \"1\"\n")), None);
        for hostile in ["build = \"x.rs\"", "\"build\"='x.rs'", "package.build = 'x'", "\"bu\\u0069ld\" = 'x'"] {
            let after = cargo.replace("version", &format!("{hostile}\nversion"));
            assert!(check(Check::CargoManifest, cargo, &after).is_some(), "{hostile}");
        }
        let python =
            "[project]\nname = \"a\"\ndependencies = [\n  \"x\",\n]\n[build-system]\nrequires = [\"hatchling\"]\n";
        assert_eq!(check(Check::PythonProject, python, &python.replace("\"x\"", "\"y\"")), None);
        for (from, to) in [
            ("hatchling", "evil"),
            ("name = \"a\"", "name = \"a\"\nscripts = { a = \"b:c\" }"),
            ("[build-system]", "[project.scripts]\na = \"b:c\"\n[build-system]"),
            ("[build-system]", "[tool.pytest.ini_options]\naddopts = \"-p evil\"\n[build-system]"),
            ("[project]", "x = '''\n[project]\n'''\n[project]"),
        ] {
            assert!(check(Check::PythonProject, python, &python.replace(from, to)).is_some(), "{to}");
        }
    }

    #[test]
    fn attributes_count_when_they_name_a_driver() {
        assert_eq!(check(Check::Attributes, "", "* text=auto\n"), None);
        assert!(check(Check::Attributes, "", "*.x filter=lfs\n").is_some());
        assert!(check(Check::Attributes, "* text=auto\n", "* text=auto\n* diff=evil\n").is_some());
        assert_eq!(check(Check::Attributes, "*.x filter=lfs\n", "*.x filter=lfs\n* text\n"), None);
    }
}
