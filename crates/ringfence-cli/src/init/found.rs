//! What a project is written in, and which agents work on it.

use std::ffi::OsStr;
use std::path::Path;

use ringfence_policy::Preset;

use super::target::Target;

/// The presets for what lies in `project`.
pub(super) fn presets(project: &Path) -> Vec<Preset> {
    const MARKS: [(&str, Preset); 9] = [
        ("pyproject.toml", Preset::Python),
        ("requirements.txt", Preset::Python),
        ("setup.py", Preset::Python),
        ("Pipfile", Preset::Python),
        ("uv.lock", Preset::Python),
        ("package.json", Preset::Node),
        ("deno.json", Preset::Node),
        ("tsconfig.json", Preset::Node),
        ("Cargo.toml", Preset::Rust),
    ];
    let mut found: Vec<Preset> =
        MARKS.iter().filter(|(name, _)| project.join(name).is_file()).map(|(_, preset)| *preset).collect();
    found.dedup();
    if found.is_empty() {
        found.push(Preset::Workspace);
    }
    found
}

/// The agents that left traces in `project`, or are installed.
pub(super) fn targets(project: &Path, path: &OsStr) -> Vec<Target> {
    let installed = |program: &&str| {
        std::env::split_paths(path).any(|folder| folder.is_absolute() && folder.join(program).is_file())
    };
    Target::ALL
        .into_iter()
        .filter(|target| {
            target.traces().iter().any(|trace| project.join(trace).exists()) || target.programs().iter().any(installed)
        })
        .collect()
}
