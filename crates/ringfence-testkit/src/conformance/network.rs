//! What of the network can be reached.

use ringfence::Guarantee;

use super::{Allowed, Case, Probe, Setting};
use crate::Trouble;
use crate::canary::Listener;
use crate::place::Place;

pub(super) fn cases() -> Vec<Case> {
    let works = Allowed::Writes(": > allowed");
    vec![
        Case {
            id: "E14-loopback-of-the-host",
            guarantee: Guarantee::NetNone,
            setting: Setting::DIRECT,
            allowed: works,
            forbidden: knocks,
        },
        Case {
            id: "E12-past-the-allowlist",
            guarantee: Guarantee::NetAllowlist,
            setting: Setting { net: "mode: allowlist, allow: [example.org]", ..Setting::DIRECT },
            allowed: works,
            forbidden: knocks,
        },
        Case {
            id: "E01-empty-allowlist",
            guarantee: Guarantee::NetAllowlist,
            setting: Setting { net: "mode: allowlist, allow: []", ..Setting::DIRECT },
            allowed: works,
            forbidden: knocks,
        },
    ]
}

/// A connection without any proxy to a service of the host.
fn knocks(_: &Place) -> Result<Probe, Trouble> {
    let listener = Listener::start()?;
    let port = listener.port().to_string();
    let script = "bash -c \"exec 3<>/dev/tcp/127.0.0.1/$1\"";
    Ok(Probe::new(script, move |_| {
        let hits = listener.hits();
        Ok((hits > 0).then(|| format!("{hits} connections reached the host")))
    })
    .with(port))
}
