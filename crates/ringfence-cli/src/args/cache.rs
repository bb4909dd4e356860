//! What is written after `ringfence cache`.

use std::time::Duration;

use clap::Subcommand;

use super::LayerArgs;
use super::changes::parse_age;

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Fetch the packages that the workspace's lock files name, for the caches that the policy lists
    Fill {
        #[command(flatten)]
        layers: LayerArgs,
    },
    /// List the caches
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Look at every file of every cache: whether it is what was fetched
    Verify,
    /// Remove the caches that were not used for some time
    Prune {
        /// For so long, such as 7d or 12h
        #[arg(long, value_name = "TIME", value_parser = parse_age, default_value = "30d")]
        older_than: Duration,
    },
}
