//! The words of `ringfence mcp`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use ringfence_policy::TimeSpan;

use super::LayerArgs;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  claude mcp add ringfence -- ringfence mcp
  ringfence mcp --http 127.0.0.1:8899

Without --http it speaks over standard input and output, and ends with them.")]
pub(crate) struct McpArgs {
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
    /// How the tools are listed; both ways are understood
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) tool_names: NamesArg,
    /// How many containers wait for calls, where the wall is a container; each is used once, and 0 means that none waits
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub(crate) warm: u16,
    /// Serve over HTTP at this address of this machine, for clients that bring a token; port 0 means any
    #[arg(long, value_name = "ADDRESS", help_heading = "HTTP")]
    pub(crate) http: Option<SocketAddr>,
    /// Read the tokens from a file that only you can read, one a line and each for one client [default: make one, and print it]
    #[arg(long, value_name = "FILE", requires = "http", help_heading = "HTTP")]
    pub(crate) token_file: Option<PathBuf>,
    /// The most sandboxes that a client may keep
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=64), help_heading = "Limits for each client")]
    pub(crate) sandboxes: u16,
    /// The most programs that a client may run at once
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64), help_heading = "Limits for each client")]
    pub(crate) runs: u16,
    /// The time that its programs may run in all
    #[arg(long, value_name = "TIME", default_value = "24h", help_heading = "Limits for each client")]
    pub(crate) run_time: TimeSpan,
    /// How many runs may fail in a row before it is told to stop; 0 means any number
    #[arg(long, value_name = "COUNT", default_value_t = 100, help_heading = "Limits for each client")]
    pub(crate) retries: u32,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub(crate) enum NamesArg {
    /// sandboxed_code_run
    #[default]
    Plain,
    /// sandboxed_code.run
    Dotted,
}
