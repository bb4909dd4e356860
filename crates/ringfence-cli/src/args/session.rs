//! The words of `ringfence session`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_policy::TimeSpan;

use super::{LayerArgs, OutputArgs, RunLimitArgs, WallLimitArgs, WorkArgs};
use crate::session::SessionName;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Raise a wall and keep it; prints the session's name
    Start(Box<SessionStartArgs>),
    /// Run a program, a shell line or code in a session
    Exec(Box<ExecArgs>),
    /// List the sessions that are open
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Wait for a run in the background, and print what it wrote
    Wait {
        /// The session
        name: SessionName,
        /// The run's id, as `exec --background` printed it
        run: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Send a signal to a run in a session
    Signal {
        /// The session
        name: SessionName,
        /// The run's id
        run: String,
        /// The signal, by name or number
        #[arg(default_value = "TERM", value_parser = parse_signal)]
        signal: i32,
    },
    /// End sessions and everything in them
    Stop {
        /// The sessions
        #[arg(required_unless_present = "all")]
        names: Vec<SessionName>,
        /// All that are open
        #[arg(long)]
        all: bool,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Example:
  ringfence session start work
  ringfence session exec work -- make test
  ringfence session exec -t work -- bash
  ringfence session stop work")]
pub(crate) struct SessionStartArgs {
    /// Its name [default: made up]
    pub(crate) name: Option<SessionName>,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    #[command(flatten)]
    pub(crate) wall: WallLimitArgs,
    /// Where the workspace appears inside: a path, or `same`
    #[arg(long, value_name = "PATH")]
    pub(crate) at: Option<PathBuf>,
    /// End when nothing ran for this long [default: 30m]
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<TimeSpan>,
    /// End after this long [default: 8h, at most 7 days]
    #[arg(long, value_name = "TIME")]
    pub(crate) life: Option<TimeSpan>,
    /// Stay in the foreground, such as below a service manager
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Print what is known about the session as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Say that it is open on standard output, and then let go of the terminal
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "ringfence session exec [OPTIONS] NAME -- COMMAND [ARGUMENT]...
       ringfence session exec [OPTIONS] NAME --shell LINE
       ringfence session exec [OPTIONS] NAME --lang LANGUAGE (--code SOURCE | FILE | -)")]
#[command(after_help = "Exit codes: as of `ringfence run`.")]
pub(crate) struct ExecArgs {
    /// The session
    pub(crate) name: SessionName,
    #[command(flatten)]
    pub(crate) limits: RunLimitArgs,
    /// Pass standard input on to the program
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// Give the program a terminal, and connect it with this one. Its control sequences reach it unfiltered
    #[arg(long, short = 't', conflicts_with_all = ["json", "events", "background"])]
    pub(crate) terminal: bool,
    /// Print the run's id and let it go on, as long as the policy's max_timeout; see `session wait`
    #[arg(long, conflicts_with_all = ["stdin", "json", "events"])]
    pub(crate) background: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

fn parse_signal(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("TERM", 15),
        ("CONT", 18),
        ("STOP", 19),
    ];
    let number = known.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    number.or_else(|| name.parse().ok().filter(|number| (1..=31).contains(number))).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("write one of {}, or a number up to 31", names.join(", "))
    })
}
