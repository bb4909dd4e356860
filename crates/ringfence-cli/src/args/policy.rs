//! What is said to `ringfence policy`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use ringfence_policy::Preset;

use super::LayerArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print the resolved policy, each line with the layer that set it
    Show {
        #[command(flatten)]
        layers: LayerArgs,
        /// As JSON, values only
        #[arg(long)]
        json: bool,
    },
    /// Look for mistakes and dangerous settings
    Lint {
        #[command(flatten)]
        layers: LayerArgs,
    },
    /// Check the examples of every command rule
    Test {
        #[command(flatten)]
        layers: LayerArgs,
    },
    /// Print the JSON Schema of sandbox.policy.yaml
    Schema,
    /// Say what B allows more and less than A
    Diff {
        /// A policy file
        a: PathBuf,
        /// Another policy file
        b: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a sandbox.policy.yaml with comments
    Init {
        /// A preset to begin with; repeatable
        #[arg(long, value_name = "PRESET")]
        preset: Vec<PresetArg>,
        /// Print it instead of writing the file
        #[arg(long)]
        stdout: bool,
    },
}

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
