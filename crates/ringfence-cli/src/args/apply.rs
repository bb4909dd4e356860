//! What is said to the commands that change a workspace.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum};

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  ringfence apply
  ringfence apply 01k5 src 'docs/**'
  ringfence apply -i

What the host changed meanwhile is merged where both are text and touched different lines; otherwise it is left as the
host has it. `ringfence undo` takes back what was applied.

Exit codes: 0 all of it is on the host; 1 something was left, and it says why; 125 we failed, 2 usage.")]
pub(crate) struct ApplyArgs {
    /// The run: its id, the first letters of it, or `last` for the newest in this workspace
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Only these files and folders, by their path or a pattern below the workspace
    pub(crate) paths: Vec<OsString>,
    /// Also what the host would execute or obey by itself
    #[arg(long)]
    pub(crate) include_flagged: bool,
    /// Ask for each change
    #[arg(long, short, conflicts_with_all = ["json", "yes", "dry_run"])]
    pub(crate) interactive: bool,
    /// Do not ask, not even on a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// As JSON; asks nothing
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "What was changed since it was applied is left as it is. An undo cannot be undone; apply again.

Exit codes: 0 all of it was taken back; 1 something was left, and it says why; 125 we failed, 2 usage.")]
pub(crate) struct UndoArgs {
    /// List what was applied to the workspace
    #[arg(long, conflicts_with_all = ["force", "dry_run", "prune", "yes"])]
    pub(crate) list: bool,
    /// The workspace [default: the one that this folder is in]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Also what was changed since; a copy of it is kept
    #[arg(long)]
    pub(crate) force: bool,
    /// Forget how to take back all but the newest N
    #[arg(long, value_name = "N", conflicts_with_all = ["force", "dry_run"])]
    pub(crate) prune: Option<usize>,
    /// Do not ask, not even on a terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// As JSON; asks nothing
    #[arg(long)]
    pub(crate) json: bool,
}

/// When `run` applies what a program changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApplyWhen {
    // Said in the flag's own line: with a line for each value the whole page would be twice as long.
    Clean,
    Unflagged,
}
