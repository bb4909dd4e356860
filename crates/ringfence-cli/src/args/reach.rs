//! What is said to `ringfence explain` and `ringfence learn`.

use clap::Args as ClapArgs;

use super::LayerArgs;

#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:
  ringfence explain pypi.org
  ringfence explain http://api.example.org/v1/items --method POST

Nothing is run, looked up or sent. Exit codes: 0 it would be let through, 1 it would be denied; 125 we failed, 2 usage.")]
pub(crate) struct ExplainArgs {
    /// A host, HOST:PORT or a URL; without a port it is 443
    pub(crate) host: String,
    /// The method of a request, where it can be seen [default: GET]
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// The path of a request, where it can be seen [default: /]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
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
