//! What is written after `ringfence changes`.

use std::time::Duration;

use clap::{ArgGroup, Args as ClapArgs, Subcommand};
use ringfence_policy::TimeSpan;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ChangesArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ChangesCommand>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChangesCommand {
    /// Throw old changes away: those that are older than a time, beyond the newest few, or both
    #[command(group = ArgGroup::new("which").args(["older_than", "keep"]).required(true).multiple(true))]
    Prune {
        /// Those that are older, such as 7d or 12h
        #[arg(long, value_name = "TIME", value_parser = parse_age)]
        older_than: Option<Duration>,
        /// Never the newest N
        #[arg(long, value_name = "N")]
        keep: Option<usize>,
    },
}

/// A time as everywhere, or days.
pub(super) fn parse_age(text: &str) -> Result<Duration, String> {
    const DAY: u64 = 24 * 60 * 60;
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()) {
        return days.checked_mul(DAY).map(Duration::from_secs).ok_or_else(|| "write fewer days".to_owned());
    }
    text.parse::<TimeSpan>().map(TimeSpan::get).map_err(|_| "write days, hours or less, such as 7d or 12h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_time_or_days() {
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 24 * 60 * 60)));
        assert_eq!(parse_age("90d").unwrap(), 90 * parse_age("1d").unwrap());
        assert_eq!(parse_age("12h"), Ok(Duration::from_secs(12 * 60 * 60)));
        for bad in ["", "d", "-1d", "7", "1.5d", "99999999999999999d", "7 d"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }
}
