//! The command line as clap reads it.

mod apply;
mod cache;
mod changes;
mod checkpoint;
mod image;
mod mcp;
mod policy;
mod reach;
mod session;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use self::apply::{ApplyArgs, ApplyWhen, UndoArgs};
pub(crate) use self::cache::CacheCommand;
pub(crate) use self::changes::{ChangesArgs, ChangesCommand};
pub(crate) use self::checkpoint::{CheckpointCommand, CheckpointDiffArgs};
pub(crate) use self::image::{EngineArg, ImageBuildArgs, ImageCommand, SourceArg};
pub(crate) use self::mcp::{McpArgs, NamesArg};
pub(crate) use self::policy::PolicyCommand;
pub(crate) use self::reach::{ExplainArgs, LearnArgs};
pub(crate) use self::session::{ExecArgs, SessionCommand, SessionStartArgs};
use crate::diff::DiffArgs;
use crate::hook::HookArgs;
use crate::init::InitArgs;
use clap::{ArgGroup, Args as ClapArgs, FromArgMatches, Parser, Subcommand, ValueEnum};
use ringfence::Language;
use ringfence_policy::{Bytes, Cpus, Field, NetMode, NetRule, TimeSpan, WorkspaceMode, WorkspaceSource};

/// `--version` with what this build can do.
const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (policy format 1, ledger format 1, backends: native, landlock, spawn, none)");

/// Runs the commands and code that AI agents write, inside walls, under a policy, with proof.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version = VERSION, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line. Of a run and a hook, which somebody waits for, only their own part is built. What that does not
    /// take, a wish for help included, is read again as a whole, which has the words for it.
    pub(crate) fn read() -> Self {
        let words: Vec<OsString> = std::env::args_os().collect();
        let words = words.get(1..).unwrap_or_default();
        let command = match words.first().and_then(|word| word.to_str()) {
            Some("run") => part::<RunArgs>(words).ok().map(|run| Command::Run(Box::new(run))),
            Some("hook") => part::<HookArgs>(words).ok().map(Command::Hook),
            Some(_) | None => None,
        };
        command.map_or_else(Self::parse, |command| Self { command })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program, a shell line or code under the policy
    Run(Box<RunArgs>),
    /// Keep a sandbox for many runs: start one, run in it, list, stop
    #[command(subcommand)]
    Session(SessionCommand),
    /// Remember the workspace of a session as it is, and go back to it
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Show what a run changed in its workspace, and what of it the host would execute later
    Diff(DiffArgs),
    /// Bring what a run changed to the workspace, all or part of it
    Apply(ApplyArgs),
    /// Take back what was applied last
    Undo(UndoArgs),
    /// List what programs changed and nobody has applied yet
    Changes(ChangesArgs),
    /// Throw kept changes away
    Discard {
        /// The runs' ids, or their first letters
        #[arg(required_unless_present = "all", value_name = "RUN")]
        runs: Vec<String>,
        /// All that are kept
        #[arg(long, conflicts_with = "runs")]
        all: bool,
    },
    /// Fetch packages for programs without a network, and look after them
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Show, check and compare policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Set up the agents of this project: the policy, their hooks, and the MCP server
    Init(InitArgs),
    /// Judge a tool call of an agent, as its hook: reads the call from standard input and answers in the agent's own format
    Hook(HookArgs),
    /// Say what a command, a program or a connection would do and what the policy says to it, without running it
    Explain(ExplainArgs),
    /// Propose the least policy that would have let through what a run was denied
    Learn(LearnArgs),
    /// Make, list, verify and remove the images that stand behind container walls
    #[command(subcommand)]
    Image(ImageCommand),
    /// Serve agents that speak the Model Context Protocol
    Mcp(McpArgs),
    /// List past runs, show one, or verify the ledger
    Log(LogArgs),
    /// Say what this host can enforce, and how to get what is missing
    Doctor(DoctorArgs),
    /// Attack the wall that this host and policy would use, and print what held
    Check(CheckArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages
    #[command(hide = true)]
    Man {
        /// The folder to write them to
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// What `--backend` takes.
const BACKENDS: [&str; 9] =
    ["auto", "native", "docker", "podman", "microvm", "kubernetes", "landlock", "spawn", "none"];

impl LayerArgs {
    /// The wall that was named, by whichever flag.
    pub(crate) fn named_backend(&self) -> Option<String> {
        match (self.docker, self.podman) {
            (true, _) => Some("docker".to_owned()),
            (false, true) => Some("podman".to_owned()),
            (false, false) => self.backend.clone(),
        }
    }
}

/// Where the policy comes from.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct LayerArgs {
    /// The wall
    #[arg(long, visible_alias = "sandbox", value_name = "BACKEND", value_parser = BACKENDS, help_heading = "Policy")]
    pub(crate) backend: Option<String>,
    /// Short for --backend docker
    #[arg(long, conflicts_with = "backend", help_heading = "Policy")]
    pub(crate) docker: bool,
    /// Short for --backend podman
    #[arg(long, conflicts_with_all = ["backend", "docker"], help_heading = "Policy")]
    pub(crate) podman: bool,
    /// The OCI runtime that the container engine is to use, such as runsc
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub(crate) runtime: Option<String>,
    /// The image that stands inside, instead of the policy's
    #[arg(long, value_name = "NAME", help_heading = "Policy")]
    pub(crate) image: Option<String>,
    /// The project's policy file, instead of the nearest sandbox.policy.yaml
    #[arg(long, value_name = "FILE", env = "RINGFENCE_POLICY", help_heading = "Policy")]
    pub(crate) policy: Option<PathBuf>,
    /// The folder that the program works in [default: the policy's, or this one]
    #[arg(long, value_name = "DIR", help_heading = "Policy")]
    pub(crate) workspace: Option<PathBuf>,
    /// A file with an operator's permission to go beyond the policy
    #[arg(long, value_name = "FILE", help_heading = "Policy")]
    pub(crate) grant_file: Vec<PathBuf>,
}

#[derive(Debug, ClapArgs)]
#[command(override_usage = "ringfence run [OPTIONS] -- COMMAND [ARGUMENT]...
       ringfence run [OPTIONS] --shell LINE
       ringfence run [OPTIONS] --lang LANGUAGE (--code SOURCE | FILE | -)")]
#[command(after_help = "Examples:
  ringfence run -- python3 -c 'print(1)'
  ringfence run --timeout 10s --shell 'make && ./test'
  ringfence run --lang python --code 'print(6 * 7)'
  ringfence run --json --lang python script.py

Exit codes: the program's own; 124 time limit, 125 we failed, 126 refused, 127 not found, 128+n signal, 2 usage.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    #[command(flatten)]
    pub(crate) limits: RunLimitArgs,
    #[command(flatten)]
    pub(crate) wall: WallLimitArgs,
    /// Take the flags for this field (such as net.allow) as an operator's permission to widen it; repeatable.
    /// The policy must list the field under overrides.grantable
    #[arg(long, value_name = "FIELD", value_parser = parse_field, help_heading = "Policy")]
    pub(crate) grant: Vec<Field>,
    /// Where the workspace appears inside: a path, or `same`
    #[arg(long, value_name = "PATH")]
    pub(crate) at: Option<PathBuf>,
    /// Pass standard input on to the program
    #[arg(long)]
    pub(crate) stdin: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print the plan and start nothing
    #[arg(long, conflicts_with = "events")]
    pub(crate) dry_run: bool,
    /// Apply what it changed: clean (without a value), if it succeeds and nothing is flagged; unflagged, however it ends, but
    /// for what is flagged
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "clean")]
    #[arg(conflicts_with = "dry_run")]
    pub(crate) apply: Option<ApplyWhen>,
    /// Say yes to what this rule asks about the command; repeatable. Never to hosts, which are asked about while it runs
    #[arg(long, value_name = "RULE", help_heading = "Policy")]
    pub(crate) approve: Vec<String>,
    /// Whom questions go to: the person at the terminal, or nobody, and then what needs asking is denied
    #[arg(long, value_name = "WHOM", default_value = "terminal", help_heading = "Policy")]
    pub(crate) ask: Asked,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Whom a run asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Asked {
    // Who sits at the terminal
    #[default]
    Terminal,
    // Nobody: whoever types there may not be a person
    Nobody,
}

/// What belongs to one run.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct RunLimitArgs {
    /// Time limit, such as 30s or 5m; at most the policy's max_timeout
    #[arg(long, value_name = "TIME", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) timeout: Option<TimeSpan>,
    /// Kept of each of stdout and stderr, such as 1MiB
    #[arg(long, value_name = "SIZE", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) output: Option<Bytes>,
    /// Set a variable inside; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Pass a variable of the host, if the policy permits it; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) pass_env: Vec<String>,
    /// The folder below the workspace to start in
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

/// What belongs to a wall.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct WallLimitArgs {
    /// Memory, such as 512MiB
    #[arg(long, value_name = "SIZE", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) memory: Option<Bytes>,
    /// Processors, such as 1.5
    #[arg(long, value_name = "N", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads
    #[arg(long, value_name = "N", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) processes: Option<u32>,
    /// How the workspace is shown: read-only, or ephemeral (an empty folder)
    #[arg(long, value_name = "MODE", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) mode: Option<WorkspaceMode>,
    /// What is shown of the workspace: live, or copy (what the host changes later is not seen)
    #[arg(long, value_name = "SOURCE", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) source: Option<WorkspaceSource>,
    /// The network
    #[arg(long, value_name = "MODE", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) net: Option<NetArg>,
    /// Reach only this host of those that the policy allows; repeatable
    #[arg(long, value_name = "HOST", help_heading = "Limits (they only narrow the policy)")]
    pub(crate) allow_host: Vec<NetRule>,
}

/// How a run is shown.
#[derive(Debug, Default, Clone, Copy, ClapArgs)]
pub(crate) struct OutputArgs {
    /// Print the outcome (of a dry run, the plan) as JSON and nothing else
    #[arg(long, conflicts_with = "events")]
    pub(crate) json: bool,
    /// Print events as JSON lines while it runs
    #[arg(long)]
    pub(crate) events: bool,
    /// Say only what went wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// What is to be run.
#[derive(Debug, Default, ClapArgs)]
#[command(group = ArgGroup::new("work").args(["command", "shell", "lang"]).required(true))]
pub(crate) struct WorkArgs {
    /// A line for the shell
    #[arg(long, value_name = "LINE")]
    pub(crate) shell: Option<OsString>,
    /// Code in a language: bash, python, javascript or typescript
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// What runs the code, such as python3.11: a name on the PATH inside, or an absolute path inside
    #[arg(long, value_name = "PROGRAM", requires = "lang")]
    pub(crate) interpreter: Option<String>,
    /// The code itself
    #[arg(long, value_name = "SOURCE", requires = "lang")]
    pub(crate) code: Option<OsString>,
    /// A file with code, or - for standard input
    #[arg(value_name = "FILE", requires = "lang", conflicts_with = "code")]
    pub(crate) file: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}

/// The words of one command, its own name first.
fn part<A: ClapArgs + FromArgMatches>(words: &[OsString]) -> Result<A, clap::Error> {
    let mut command = A::augment_args(clap::Command::new("ringfence"));
    A::from_arg_matches(&command.try_get_matches_from_mut(words)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetArg {
    None,
    Allowlist,
    Open,
}

impl From<NetArg> for NetMode {
    fn from(mode: NetArg) -> Self {
        match mode {
            NetArg::None => Self::None,
            NetArg::Allowlist => Self::Allowlist,
            NetArg::Open => Self::Open,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LogCommand>,
    /// How many runs to list
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show all records of one run
    Show {
        /// The run's id, or its first letters
        run: String,
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Check that no record was changed, moved or removed
    Verify,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = "Each attack is a run like any other, from a private folder; your workspace is not touched.
Each is also made without a wall, to show that it would get through there.

Exit codes: 0 every attack was made and held; 1 one got through, showed nothing or was not made;
125 we failed, 126 refused, 2 usage.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    /// Only this attack, such as F14-descriptor, or those on a guarantee, such as fs.confined
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_field(text: &str) -> Result<Field, String> {
    Field::all().find(|field| field.to_string() == text).ok_or_else(|| {
        let names: Vec<String> = Field::all().map(|field| field.to_string()).collect();
        format!("no such field; write one of {}", names.join(", "))
    })
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if ringfence::request::is_variable_name(name) => Ok((name.to_owned(), value.to_owned())),
        Some((name, _)) => Err(format!("`{name}` is not a variable's name; write NAME=VALUE")),
        None => Err("write NAME=VALUE, or use --pass-env NAME to pass the host's value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_run_needs_exactly_one_kind_of_work() {
        let parse = |line: &[&str]| Args::try_parse_from([&["ringfence", "run"], line].concat()).is_ok();
        assert!(parse(&["--", "true"]));
        assert!(parse(&["--shell", "true"]));
        assert!(parse(&["--lang", "python", "--code", "1"]));
        assert!(parse(&["--lang", "python", "x.py"]));
        assert!(parse(&["--lang", "python", "-"]));
        assert!(!parse(&[]));
        assert!(!parse(&["--"]));
        assert!(!parse(&["--shell", "true", "--", "true"]));
        assert!(!parse(&["--code", "1"]));
        assert!(!parse(&["x.py"]));
        assert!(!parse(&["--json", "--events", "--", "true"]));
    }
}
