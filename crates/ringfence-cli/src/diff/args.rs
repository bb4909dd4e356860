//! The flags of `ringfence diff`.

use std::ffi::OsString;

use clap::{Args as ClapArgs, ValueEnum};

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  ringfence diff
  ringfence diff --stat
  ringfence diff last src 'docs/**'
  ringfence diff 01k5 --json

Names and contents are shown with everything escaped that a terminal would obey or hide; --json has them exactly.

Exit codes: 0 shown, 125 we failed, 2 usage.")]
pub(crate) struct DiffArgs {
    /// The run: its id, the first letters of it, or `last` for the newest in this workspace
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Only these files and folders, by their path or a pattern below the workspace
    pub(crate) paths: Vec<OsString>,
    /// Summary and list only
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) stat: bool,
    /// Only the paths, one a line
    #[arg(long, conflicts_with = "json")]
    pub(crate) name_only: bool,
    /// As JSON; with --stat without the lines
    #[arg(long)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto", visible_alias = "colour")]
    pub(crate) color: ColourArg,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColourArg {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
