//! What a policy says of a path by its name alone: for doors that judge a file before somebody else touches it.

use std::path::{Component, Path, PathBuf};

use ringfence_policy::{FsPolicy, Glob, Sourced};

use super::change::Place;
use super::flag::{Patterns, asked_about, copied};

/// The patterns of `fs.deny` and `fs.protect`, ready to be held against paths.
pub struct Named {
    deny: Patterns,
    protect: Patterns,
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant {
    /// One file, or nothing yet.
    File,
    /// A folder with all that is in it.
    Folder,
}

impl Named {
    /// The patterns of `policy`.
    pub fn by(policy: &FsPolicy) -> Self {
        let written = |globs: &[Sourced<Glob>]| -> Vec<String> {
            globs.iter().map(|glob| glob.value.as_str().to_owned()).collect()
        };
        Self { deny: Patterns::of(&written(&policy.deny)), protect: Patterns::of_protect(&written(&policy.protect)) }
    }

    /// The pattern of `fs.deny` that names `path`, whatever its letters' case. A file in a copy of the project is named as the project's.
    pub fn denied(&self, path: &Path, meant: Meant) -> Option<String> {
        in_project(plain(path)).find_map(|path| self.deny.naming_any(&path, meant == Meant::Folder))
    }

    /// Why a person looks first before `path` is changed: a pattern of `fs.protect`, or what the host would do with a file of such a name.
    /// Files that daily work changes are free, as are those whose contents would have to be known.
    pub fn asked_about(&self, path: &Path) -> Option<String> {
        let plain = plain(path);
        let by_policy = in_project(plain.clone()).find_map(|path| self.protect.naming_any(&path, false));
        by_policy.map(|glob| format!("`fs.protect` names it by `{glob}`")).or_else(|| {
            let rule = asked_about(&Place::new(plain).ok()?)?;
            Some(format!("{} ({})", rule.why, rule.id))
        })
    }
}

/// A path, and those in the project that it stands for.
fn in_project(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let copied = Place::new(path.clone()).map(|place| copied(&place)).unwrap_or_default();
    std::iter::once(path).chain(copied)
}

/// The names of a path without its root: patterns are relative.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{LayerInput, parse, resolve};

    fn named() -> Named {
        let file = parse("test", "version: 1\nfs: { deny: [\"secrets/**\"], protect: [\"**/kept.txt\"] }\n").unwrap();
        Named::by(&resolve(&[LayerInput { layer: ringfence_policy::Layer::Project, file }], &[]).unwrap().fs)
    }

    #[test]
    fn what_is_denied_is_found_in_any_case_below_denied_folders_and_outside_of_the_workspace() {
        let named = named();
        for denied in [".env", "a/.env", "a/.ENV", "secrets/x/y", "/home/me/.ssh/id_ed25519", ".ssh/config"] {
            assert!(named.denied(Path::new(denied), Meant::File).is_some(), "{denied}");
        }
        assert!(named.denied(Path::new("a/.ssh"), Meant::Folder).is_some());
        // In a copy of the project, in whichever of several that lie within each other.
        for copied in ["x/secrets/y", "x/secrets/.claude/worktrees/y/z", "x/.claude/worktrees/y/secrets/z"] {
            assert!(named.denied(&Path::new(".claude/worktrees").join(copied), Meant::File).is_some(), "{copied}");
        }
        assert_eq!(named.denied(Path::new(".claude/worktrees/x/.claude/worktrees/y/z"), Meant::File), None);
        for free in ["src/main.rs", ".env.example", "environment", "", "/", "a/secrets.rs"] {
            assert_eq!(named.denied(Path::new(free), Meant::File), None, "{free}");
        }
    }

    #[test]
    fn what_the_host_would_obey_is_protected_by_the_policy_or_by_its_kind() {
        let named = named();
        for kept in ["a/kept.txt", ".git/hooks/pre-commit", ".Claude/settings.json", "sandbox.policy.yaml", ".envrc"] {
            assert!(named.asked_about(Path::new(kept)).is_some(), "{kept}");
        }
        for unusual in
            [".github/workflows/ci.yml", ".npmrc", ".gitmodules", "node_modules/.bin/tsc", ".venv/bin/python"]
        {
            assert!(named.asked_about(Path::new(unusual)).is_some(), "{unusual}");
        }
        for daily in [
            "Makefile",
            "package.json",
            "Cargo.toml",
            "build.rs",
            "tests/conftest.py",
            "vite.config.ts",
            "Dockerfile",
            "pyproject.toml",
        ] {
            assert_eq!(named.asked_about(Path::new(daily)), None, "{daily}");
        }
        for free in ["src/main.rs", "README.md", "kept.rs", "src/cmd.rs", "bash", ""] {
            assert_eq!(named.asked_about(Path::new(free)), None, "{free}");
        }
    }

    #[test]
    fn a_file_in_a_copy_of_the_project_is_named_as_the_projects() {
        let named = named();
        let copy = |path: &str| format!(".claude/worktrees/x/{path}");
        assert_eq!(named.asked_about(Path::new(&copy("src/main.rs"))), None);
        for kept in [".envrc", ".claude/settings.json", "a/kept.txt", ".git/hooks/pre-commit"] {
            assert!(named.asked_about(Path::new(&copy(kept))).is_some(), "{kept}");
        }
        assert!(named.denied(Path::new(&copy("secrets/x")), Meant::File).is_some());
        assert_eq!(named.denied(Path::new(&copy("src/secrets.rs")), Meant::File), None);
        for settings in [".claude/settings.json", ".claude/worktrees/x", ".claude/x/worktrees/a/b"] {
            assert!(named.asked_about(Path::new(settings)).is_some(), "{settings}");
        }
    }
}
