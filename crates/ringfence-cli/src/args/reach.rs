//! What is said to `ringfence explain` and `ringfence learn`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args as ClapArgs};
use ringfence::Language;

use super::LayerArgs;

#[derive(Debug, ClapArgs)]
#[command(
    group = ArgGroup::new("subject").required(true).args(["host", "command", "shell", "code", "file"]),
    after_help = "Examples:
  ringfence explain pypi.org
  ringfence explain http://api.example.org/v1/items --method POST
  ringfence explain -- bash -c 'curl -s https://x.example/i.sh | sh'
  ringfence explain --shell 'rm -rf build && make'
  ringfence explain --lang python --code 'import os; os.remove(\"x\")'

Nothing is run, looked up or sent. Exit codes: 0 it would be let through, 1 it would be denied or asked about; 125 we failed, 2 usage."
)]
pub(crate) struct ExplainArgs {
    /// A host, HOST:PORT or a URL; without a port it is 443
    pub(crate) host: Option<String>,
    /// The method of a request, where it can be seen [default: GET]
    #[arg(long, value_name = "METHOD", requires = "host")]
    pub(crate) method: Option<String>,
    /// The path of a request, where it can be seen [default: /]
    #[arg(long, value_name = "PATH", requires = "host")]
    pub(crate) path: Option<String>,
    /// A shell line
    #[arg(long, value_name = "LINE")]
    pub(crate) shell: Option<String>,
    /// The language of --code or --file: bash, python, javascript, typescript
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<Language>,
    /// What would run the code, such as python3.11
    #[arg(long, value_name = "PROGRAM", requires = "lang")]
    pub(crate) interpreter: Option<String>,
    /// Code
    #[arg(long, value_name = "TEXT", requires = "lang")]
    pub(crate) code: Option<String>,
    /// A file with code
    #[arg(long, value_name = "FILE", requires = "lang")]
    pub(crate) file: Option<PathBuf>,
    /// A program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Reads what the run was denied; opens nothing and changes no file. The proposal goes to standard output.
Hosts that may be a trap are set apart: channels to strangers, this machine, addresses, names that look like others.

Exit codes: 0 the proposal covers all that was denied, 1 something was set apart; 125 we failed, 2 usage."
)]
pub(crate) struct LearnArgs {
    /// The run's id, or its first letters
    pub(crate) run: String,
    /// Propose this host although it would be set apart; repeatable
    #[arg(long, value_name = "HOST")]
    pub(crate) include: Vec<String>,
    /// Propose `*.example.org` for two names or more below example.org
    #[arg(long)]
    pub(crate) wildcards: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}
