//! Which crate may know which. The table is the architecture; a manifest that disagrees is wrong.

use super::rust_source::{code_only, has_word, lines_before_tests};
use super::{Tree, Violation, violation};
use crate::step::{Failure, Screen, Verbosity, capture};
use crate::workspace::Workspace;

struct Room {
    name: &'static str,
    /// Crates of ours that it is built on.
    uses: &'static [&'static str],
    /// Crates of ours that only its tests may use besides.
    tests_use: &'static [&'static str],
    purity: Purity,
}

#[derive(PartialEq)]
enum Purity {
    /// Computes, and touches nothing outside.
    Pure,
    Worldly,
}

const ROOMS: &[Room] = &[
    Room { name: "ringfence-policy", uses: &[], tests_use: &[], purity: Purity::Pure },
    Room { name: "ringfence-validate", uses: &["ringfence-policy"], tests_use: &[], purity: Purity::Pure },
    Room { name: "ringfence-egress", uses: &["ringfence-policy"], tests_use: &[], purity: Purity::Worldly },
    Room { name: "ringfence-linux", uses: &[], tests_use: &[], purity: Purity::Worldly },
    Room { name: "ringfence-guest", uses: &["ringfence-linux"], tests_use: &[], purity: Purity::Worldly },
    Room {
        name: "ringfence",
        uses: &["ringfence-egress", "ringfence-policy", "ringfence-linux", "ringfence-guest", "ringfence-validate"],
        tests_use: &["ringfence-testkit"],
        purity: Purity::Worldly,
    },
    Room { name: "ringfence-hook", uses: &["ringfence", "ringfence-policy"], tests_use: &[], purity: Purity::Worldly },
    Room { name: "ringfence-mcp", uses: &["ringfence", "ringfence-policy"], tests_use: &[], purity: Purity::Worldly },
    Room {
        name: "ringfence-cli",
        uses: &["ringfence", "ringfence-hook", "ringfence-mcp", "ringfence-policy"],
        tests_use: &["ringfence-testkit"],
        purity: Purity::Worldly,
    },
    Room {
        name: "ringfence-testkit",
        uses: &["ringfence", "ringfence-policy"],
        tests_use: &["ringfence-linux"],
        purity: Purity::Worldly,
    },
    Room { name: "xtask", uses: &[], tests_use: &[], purity: Purity::Worldly },
];

/// Crates whose purpose is to reach outside.
const WORLDLY_CRATES: &[&str] = &[
    "async-io",
    "async-std",
    "hyper",
    "libc",
    "mio",
    "nix",
    "polling",
    "reqwest",
    "rustix",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "ureq",
];

/// Parts of the standard library that reach outside.
const WORLDLY_MODULES: &[&str] = &["std::fs", "std::process", "std::env"];

#[derive(Debug, PartialEq)]
enum For {
    Everything,
    Tests,
}

#[derive(Debug, PartialEq)]
struct Dependency {
    line: usize,
    package: String,
    purpose: For,
}

fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &str, &str)> {
    tree.texts().filter_map(|(path, text)| {
        let folder = path.strip_suffix("/Cargo.toml")?;
        let name = folder.strip_prefix("crates/").or_else(|| (folder == "xtask").then_some(folder))?;
        (!name.contains('/')).then_some((path, name, text))
    })
}

pub(super) fn dependencies_point_one_way(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, folder, text) in manifests(tree) {
        let Some(room) = ROOMS.iter().find(|room| room.name == folder) else {
            found.push(violation(
                path,
                1,
                format!("crate `{folder}` is not in the table of rooms, add it to ROOMS in xtask/src/tidy/arrows.rs"),
            ));
            continue;
        };
        if package_name(text).is_none_or(|name| name != folder) {
            found.push(violation(path, 1, format!("the folder is `{folder}`, give the package the same name")));
        }
        for Dependency { line, package, purpose } in dependencies(text) {
            let ours = package.starts_with("ringfence") || package == "xtask";
            let listed = room.uses.contains(&package.as_str());
            let listed_for_tests = purpose == For::Tests && room.tests_use.contains(&package.as_str());
            if ours && !listed && !listed_for_tests {
                let message = format!(
                    "`{folder}` may not use `{package}`, move the code or change ROOMS in xtask/src/tidy/arrows.rs"
                );
                found.push(violation(path, line, message));
            }
            if room.purity == Purity::Pure && purpose == For::Everything && WORLDLY_CRATES.contains(&package.as_str()) {
                found.push(violation(
                    path,
                    line,
                    format!("`{folder}` is pure and `{package}` is not, take what it reads as an argument"),
                ));
            }
        }
    }
    found
}

pub(super) fn lints_are_inherited(tree: &Tree) -> Vec<Violation> {
    let inherits = |text: &str| {
        sections(text).any(|(_, section, entry)| section == "lints" && squeezed(entry) == "workspace=true")
    };
    let wrong = manifests(tree).filter(|(_, _, text)| !inherits(text));
    wrong
        .map(|(path, _, _)| {
            violation(path, 1, "the workspace's lints are not inherited, add `[lints] workspace = true`")
        })
        .collect()
}

/// A pure crate's own source stays away from files, processes and the environment.
pub(super) fn pure_crates_do_nothing(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for room in ROOMS.iter().filter(|room| room.purity == Purity::Pure) {
        let source = format!("crates/{}/src/", room.name);
        for (path, text) in tree.rust().filter(|(path, _)| path.starts_with(&source) && !path.ends_with("/tests.rs")) {
            let code = code_only(text);
            for (index, line) in code.lines().take(lines_before_tests(&code)).enumerate() {
                for module in WORLDLY_MODULES.iter().filter(|module| has_word(line, module)) {
                    found.push(violation(
                        path,
                        index + 1,
                        format!("`{}` is pure, take what `{module}` gives as an argument", room.name),
                    ));
                }
            }
        }
    }
    found
}

/// Of a room, packages below which nothing is looked at. Each has a reason.
const LEFT_OUT: [(&str, &str); 3] = [
    // brush-parser lists what its tests need among what it needs itself; nothing calls it.
    ("ringfence-validate", "insta"),
    // Locks of a cache of brush-parser's: they wait, and do nothing else.
    ("ringfence-validate", "parking_lot"),
    // More stack for the parser of Python.
    ("ringfence-validate", "stacker"),
];

/// The same for all that a pure crate pulls in. Asks cargo: only it knows which optional parts are switched on.
pub(super) fn pure_crates_pull_in_nothing(workspace: &Workspace) -> Result<Vec<Violation>, Failure> {
    let mut found = Vec::new();
    for room in ROOMS.iter().filter(|room| room.purity == Purity::Pure) {
        let words = ["tree", "--package", room.name, "--edges", "normal", "--prefix", "none", "--all-features"];
        let left_out = LEFT_OUT.into_iter().filter(|(of, _)| *of == room.name);
        let words = words.into_iter().chain(left_out.flat_map(|(_, package)| ["--prune", package]));
        let text = capture(&Screen::new(Verbosity::Summary), workspace.cargo(words))?.required()?;
        let path = format!("crates/{}/Cargo.toml", room.name);
        found.extend(worldly_in(&text).map(|name| {
            let message =
                format!("`{}` is pure but pulls in `{name}`, see `cargo tree -p {} -i {name}`", room.name, room.name);
            violation(&path, 1, message)
        }));
    }
    Ok(found)
}

fn worldly_in(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| WORLDLY_CRATES.contains(name))
}

fn package_name(manifest: &str) -> Option<&str> {
    sections(manifest).find(|(_, section, _)| *section == "package").and_then(|_| {
        sections(manifest).find_map(|(_, section, entry)| {
            let (key, value) = entry.split_once('=')?;
            (section == "package" && key.trim() == "name").then(|| value.trim().trim_matches('"'))
        })
    })
}

/// Each entry of a manifest with its line and section, `[a.b]` itself as an empty entry.
fn sections(manifest: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_start_matches('[').trim_end_matches(']').trim();
            return Some((index + 1, section, ""));
        }
        (!line.is_empty() && !line.starts_with('#')).then_some((index + 1, section, line))
    })
}

fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    for (line, section, entry) in sections(manifest) {
        let Some((purpose, own_section)) = dependency_section(section) else { continue };
        match (own_section, entry) {
            (Some(name), "") => found.push(Dependency { line, package: name.to_owned(), purpose }),
            (Some(_), entry) => {
                if let (Some(renamed), Some(last)) = (renamed(entry), found.last_mut()) {
                    last.package = renamed;
                }
            }
            (None, entry) => {
                let key = entry.split(['=', '.']).next().unwrap_or_default().trim().trim_matches(['"', '\'']);
                let package = renamed(entry).unwrap_or_else(|| key.to_owned());
                if !package.is_empty() {
                    found.push(Dependency { line, package, purpose });
                }
            }
        }
    }
    found
}

/// Whether a section lists dependencies, for what, and of which one alone if it is `[dependencies.NAME]`.
fn dependency_section(section: &str) -> Option<(For, Option<&str>)> {
    // `target.'cfg(…)'.dependencies` counts like `dependencies`; the condition may hold dots.
    let at = ["dev-dependencies", "build-dependencies", "dependencies"].iter().find_map(|kind| {
        let start = section.rfind(kind)?;
        (start == 0 || section.get(..start)?.ends_with('.')).then_some((*kind, start + kind.len()))
    });
    let (kind, end) = at?;
    let rest = section.get(end..)?;
    let name = if rest.is_empty() { None } else { Some(rest.strip_prefix('.')?.trim_matches(['"', '\''])) };
    Some((if kind == "dev-dependencies" { For::Tests } else { For::Everything }, name))
}

fn renamed(entry: &str) -> Option<String> {
    let squeezed = squeezed(entry);
    let (before, after) = squeezed.split_once("package=\"")?;
    let is_key = before.is_empty() || before.ends_with(['{', ',', '.']);
    is_key.then(|| after.split('"').next().unwrap_or_default().to_owned())
}

fn squeezed(entry: &str) -> String {
    entry.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    fn arrows(folder: &str, rest: &str, expected: &[&str]) {
        let name = folder.rsplit('/').next().unwrap();
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        expect(dependencies_point_one_way, &[(&format!("{folder}/Cargo.toml"), &text)], expected);
    }

    #[test]
    fn a_crate_uses_only_what_its_row_lists() {
        arrows("crates/ringfence", "[dependencies]\nringfence-policy.workspace = true\ntokio.workspace = true\n", &[]);
        arrows("crates/ringfence-cli", "[dependencies]\nringfence.workspace = true\n", &[]);
        arrows(
            "crates/ringfence-cli",
            "[dependencies]\nringfence-linux.workspace = true\n",
            &["crates/ringfence-cli/Cargo.toml:4"],
        );
        arrows(
            "crates/ringfence-linux",
            "[dependencies]\nringfence = { path = \"../x\" }\n",
            &["crates/ringfence-linux/Cargo.toml:4"],
        );
        arrows("xtask", "[dependencies]\nringfence-policy.workspace = true\n", &["xtask/Cargo.toml:4"]);
    }

    #[test]
    fn the_testkit_is_for_tests() {
        arrows("crates/ringfence", "[dev-dependencies]\nringfence-testkit.workspace = true\n", &[]);
        arrows(
            "crates/ringfence",
            "[dependencies]\nringfence-testkit.workspace = true\n",
            &["crates/ringfence/Cargo.toml:4"],
        );
    }

    #[test]
    fn a_forbidden_crate_is_found_however_it_is_written() {
        for (hostile, line) in [
            ("[dependencies]\ntokio = \"1\"\n", 4),
            ("[dependencies]\n\"tokio\" = \"1\"\n", 4),
            ("[dependencies.tokio]\nversion = \"1\"\n", 3),
            ("[dependencies]\nquiet = { version = \"1\", package = \"tokio\" }\n", 4),
            ("[dependencies]\nquiet = { package=\"libc\", version = \"1\" }\n", 4),
            ("[dependencies.quiet]\nversion = \"1\"\npackage = \"rustix\"\n", 3),
            ("[target.'cfg(target_os = \"linux\")'.dependencies]\nlibc.workspace = true\n", 4),
            ("[build-dependencies]\nlibc = \"0.2\" # only here\n", 4),
        ] {
            arrows("crates/ringfence-policy", hostile, &[&format!("crates/ringfence-policy/Cargo.toml:{line}")]);
        }
        for good in [
            "[dependencies]\nserde.workspace = true\n# tokio = \"1\"\n",
            "[dev-dependencies]\ntempfile = \"3\"\n",
            "[features]\ntokio = []\n",
            "[package.metadata]\ntokio = 1\n",
        ] {
            arrows("crates/ringfence-policy", good, &[]);
        }
    }

    #[test]
    fn a_crate_that_the_table_does_not_know_is_a_violation() {
        arrows("crates/ringfence-utopia", "", &["crates/ringfence-utopia/Cargo.toml:1"]);
        let named_otherwise = "[package]\nname = \"fence\"\n";
        expect(
            dependencies_point_one_way,
            &[("crates/ringfence/Cargo.toml", named_otherwise)],
            &["crates/ringfence/Cargo.toml:1"],
        );
    }

    #[test]
    fn lints_come_from_the_workspace() {
        let check =
            |text: &str, expected: &[&str]| expect(lints_are_inherited, &[("xtask/Cargo.toml", text)], expected);
        check("[lints]\nworkspace = true\n", &[]);
        check("[lints]\nworkspace=true # all of them\n", &[]);
        check("[lints.rust]\nunsafe_code = \"allow\"\n", &["xtask/Cargo.toml:1"]);
        check("[package]\nworkspace = true\n", &["xtask/Cargo.toml:1"]);
        check("# [lints]\n# workspace = true\n", &["xtask/Cargo.toml:1"]);
    }

    #[test]
    fn a_pure_crate_reads_nothing_but_its_tests_may() {
        let path = "crates/ringfence-policy/src/a.rs";
        let check =
            |path: &str, text: &str, expected: &[&str]| expect(pure_crates_do_nothing, &[(path, text)], expected);
        check(path, "fn f() { std::fs::read(\"x\"); }\n", &["crates/ringfence-policy/src/a.rs:1"]);
        check(path, "\nuse std::env;\n", &["crates/ringfence-policy/src/a.rs:2"]);
        check(path, "// std::fs is not for us\nuse std::fmt;\n", &[]);
        check(path, "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n", &[]);
        check("crates/ringfence/src/a.rs", "use std::fs;\n", &[]);
    }

    #[test]
    fn what_cargo_tree_lists_is_looked_at_by_whole_name() {
        let tree = "ringfence-policy v0.1.0 (/x)\nlibc v0.2.1\nlibc-free v1.0.0\nserde v1.0.0 (*)\n";
        assert_eq!(worldly_in(tree).collect::<Vec<_>>(), ["libc"]);
    }
}
