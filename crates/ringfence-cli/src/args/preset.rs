//! Presets, as flags name them.

use clap::ValueEnum;
use ringfence_policy::Preset;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PresetArg {
    ReadOnly,
    Workspace,
    Python,
    Node,
    Rust,
    Ci,
    Strict,
}

impl From<PresetArg> for Preset {
    fn from(preset: PresetArg) -> Self {
        match preset {
            PresetArg::ReadOnly => Self::ReadOnly,
            PresetArg::Workspace => Self::Workspace,
            PresetArg::Python => Self::Python,
            PresetArg::Node => Self::Node,
            PresetArg::Rust => Self::Rust,
            PresetArg::Ci => Self::Ci,
            PresetArg::Strict => Self::Strict,
        }
    }
}
