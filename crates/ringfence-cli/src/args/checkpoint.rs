//! The flags of `ringfence checkpoint`.

use std::ffi::OsString;

use clap::{Args as ClapArgs, Subcommand};
use ringfence::checkpoint::{CheckpointName, Point};

use crate::diff::ColourArg;
use crate::session::SessionName;

#[derive(Debug, Subcommand)]
#[command(after_help = "A checkpoint is of the workspace: files, folders, links and their permissions. It is not of
/tmp, the home or running programs, nor of extended attributes. Checkpoints end with their session.

Examples:
  ringfence checkpoint create work --name 'tests pass'
  ringfence checkpoint diff work
  ringfence checkpoint restore work 'tests pass'
  ringfence checkpoint restore work 0

Exit codes: 0 done, 125 we failed, 2 usage, or there is no such checkpoint, or programs run.")]
pub(crate) enum CheckpointCommand {
    /// Remember the workspace as it is; prints the checkpoint's number
    Create {
        /// The session
        session: SessionName,
        /// What to call it
        #[arg(long)]
        name: Option<CheckpointName>,
        /// Print what is known about it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the checkpoints of a session, each with the runs since the one before
    List {
        /// The session
        session: SessionName,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what differs between two checkpoints, or between one and the workspace as it is
    Diff(CheckpointDiffArgs),
    /// Make the workspace what it was. What is there now becomes a checkpoint first
    Restore {
        /// The session
        session: SessionName,
        /// The checkpoint's number or name; 0 is the host's workspace, without any change
        checkpoint: Point,
        /// Kill first what earlier runs left in the background; a run that goes on is never killed
        #[arg(long)]
        kill: bool,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget checkpoints, and remove what only they held
    Drop {
        /// The session
        session: SessionName,
        /// Numbers or names
        #[arg(required_unless_present = "all", value_name = "CHECKPOINT")]
        checkpoints: Vec<Point>,
        /// All that there are
        #[arg(long, conflicts_with = "checkpoints")]
        all: bool,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckpointDiffArgs {
    /// The session
    pub(crate) session: SessionName,
    /// The first checkpoint, by number or name; 0 is the host's workspace [default: the newest]
    pub(crate) from: Option<Point>,
    /// The second checkpoint, or `now`
    #[arg(default_value = "now")]
    pub(crate) to: Point,
    /// Only these files and folders, by their path or a pattern below the workspace; repeatable
    #[arg(long = "path", value_name = "PATH")]
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
