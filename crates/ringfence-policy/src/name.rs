//! Values that are one of a few words, such as `mode: review`.

use crate::command::{Reading, Verdict};
use crate::diagnostic::{Invalid, list_words, nearest, quote};
use crate::policy::{
    BackendChoice, BackendKind, CacheKind, Field, Firmness, ImagePull, MountMode, NetMode, NetProtocol, Preset,
    UnknownHosts, WorkspaceMode, WorkspaceSource,
};
use crate::validate::ValidateLevel;

/// A closed set of words.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// What the word chooses.
    const WHAT: &'static str;
    /// Every word, in the order in which a person would list them.
    const ALL: &'static [(&'static str, Self)];

    fn name(self) -> &'static str;

    fn read(text: &str) -> Result<Self, Invalid> {
        if let Some((_, value)) = Self::ALL.iter().find(|(name, _)| *name == text) {
            return Ok(*value);
        }
        let names = || Self::ALL.iter().map(|(name, _)| *name);
        let message = format!("{} is not {}", quote(text), Self::WHAT);
        let choices = list_words(names());
        // `memory` for `proc.memory`.
        let unqualified = || names().find(|name| name.rsplit('.').next() == Some(text));
        let advice = match unqualified().or_else(|| nearest(text, names())) {
            Some(near) => format!("did you mean `{near}`? The choices are {choices}"),
            None => format!("the choices are {choices}"),
        };
        Err(Invalid::new("policy::unknown-word", message, advice))
    }
}

macro_rules! words {
    ($($type:ty, $what:literal: { $($name:literal => [$($value:tt)+]),* $(,)? })*) => {$(
        impl Named for $type {
            const WHAT: &'static str = $what;
            const ALL: &'static [(&'static str, Self)] = &[$(($name, $($value)+)),*];

            // The same list as a match, so that a variant without a word does not compile.
            fn name(self) -> &'static str {
                match self {
                    $($($value)+ => $name),*
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::read(text)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )*};
}

words! {
    Preset, "a preset": {
        "read-only" => [Self::ReadOnly],
        "workspace" => [Self::Workspace],
        "python" => [Self::Python],
        "node" => [Self::Node],
        "rust" => [Self::Rust],
        "ci" => [Self::Ci],
        "strict" => [Self::Strict],
    }
    BackendKind, "a backend": {
        "native" => [Self::Native],
        "docker" => [Self::Docker],
        "podman" => [Self::Podman],
        "microvm" => [Self::Microvm],
        "kubernetes" => [Self::Kubernetes],
        "landlock" => [Self::Landlock],
        "spawn" => [Self::Spawn],
        "none" => [Self::None],
    }
    BackendChoice, "a backend": {
        "auto" => [Self::Auto],
        "native" => [Self::Kind(BackendKind::Native)],
        "docker" => [Self::Kind(BackendKind::Docker)],
        "podman" => [Self::Kind(BackendKind::Podman)],
        "microvm" => [Self::Kind(BackendKind::Microvm)],
        "kubernetes" => [Self::Kind(BackendKind::Kubernetes)],
        "landlock" => [Self::Kind(BackendKind::Landlock)],
        "spawn" => [Self::Kind(BackendKind::Spawn)],
        "none" => [Self::Kind(BackendKind::None)],
    }
    WorkspaceMode, "a mode of the workspace": {
        "review" => [Self::Review],
        "direct" => [Self::Direct],
        "ephemeral" => [Self::Ephemeral],
        "read-only" => [Self::ReadOnly],
    }
    WorkspaceSource, "a source of the workspace": {
        "live" => [Self::Live],
        "copy" => [Self::Copy],
    }
    MountMode, "a mode of a mount": {
        "read-only" => [Self::ReadOnly],
        "read-write" => [Self::ReadWrite],
    }
    NetMode, "a mode of the network": {
        "none" => [Self::None],
        "allowlist" => [Self::Allowlist],
        "open" => [Self::Open],
    }
    NetProtocol, "a protocol": {
        "web" => [Self::Web],
        "tcp" => [Self::Tcp],
    }
    UnknownHosts, "an answer to unknown hosts": {
        "deny" => [Self::Deny],
        "ask" => [Self::Ask],
    }
    ValidateLevel, "a level of reading requests": {
        "off" => [Self::Off],
        "warn" => [Self::Warn],
        "standard" => [Self::Standard],
        "strict" => [Self::Strict],
    }
    Reading, "a verdict on reading": {
        "ask" => [Self::Ask],
        "allow" => [Self::Allow],
    }
    ImagePull, "a way to get images": {
        "never" => [Self::Never],
        "allow" => [Self::Allow],
    }
    CacheKind, "a cache": {
        "pip" => [Self::Pip],
        "npm" => [Self::Npm],
        "cargo" => [Self::Cargo],
    }
    Firmness, "a strength of limits": {
        "watched" => [Self::Watched],
        "enforced" => [Self::Enforced],
    }
    Verdict, "a verdict": {
        "allow" => [Self::Allow],
        "ask" => [Self::Ask],
        "deny" => [Self::Deny],
    }
    Field, "a field that can be granted": {
        "backend" => [Self::Backend],
        "cache" => [Self::Cache],
        "fs.workspace.mode" => [Self::WorkspaceMode],
        "fs.workspace.source" => [Self::WorkspaceSource],
        "fs.size" => [Self::FsSize],
        "net.mode" => [Self::NetMode],
        "net.allow" => [Self::NetAllow],
        "net.localhost" => [Self::NetLocalhost],
        "net.unix" => [Self::NetUnix],
        "net.budget" => [Self::NetBudget],
        "net.unknown" => [Self::NetUnknown],
        "proc.cpus" => [Self::Cpus],
        "proc.memory" => [Self::Memory],
        "proc.processes" => [Self::Processes],
        "proc.limits" => [Self::Limits],
        "proc.timeout" => [Self::Timeout],
        "proc.output" => [Self::Output],
        "proc.env.pass" => [Self::EnvPass],
        "proc.env.set" => [Self::EnvSet],
        "validate" => [Self::Validate],
    }
}
