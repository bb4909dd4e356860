//! From a wall that was proven to one with a way out.

use std::io;

use ringfence_policy::NetMode;

use super::StartError;
use super::door::Doors;
use super::guest::Proofs;
use crate::egress::Egress;
use crate::guarantee::Guarantee;
use crate::plan::Plan;
use crate::way_out::WayOut;

/// What is attempted when the way out is opened.
pub(super) const LISTEN: &str = "listen in the wall's network";

/// Opens the way out that the policy of `plan` allows, at the `doors` of a wall of which `proofs` were found.
pub(super) async fn lead_out(
    mut proofs: Proofs,
    doors: Option<Doors>,
    way_out: Option<WayOut>,
    plan: &Plan,
) -> Result<(Proofs, Option<Egress>), StartError> {
    let policy = &plan.policy().net;
    let none = proofs.iter_mut().find(|(name, _)| *name == Guarantee::NetNone.name());
    // No network leads there: it is the one thing of the host's that answers.
    let shown: Vec<&str> = policy.unix.iter().map(|socket| socket.value.as_str()).collect();
    let shown =
        if shown.is_empty() { String::new() } else { format!(", and of the host's sockets {}", shown.join(", ")) };
    let missing = |what| {
        let source = io::Error::new(io::ErrorKind::UnexpectedEof, what);
        Err(StartError::Io { attempt: LISTEN, source })
    };
    let (doors, way_out) = match (policy.mode.value, doors, way_out) {
        (NetMode::Allowlist, Some(doors), Some(way_out)) => (doors, way_out.with_secrets(plan.workspace()).await?),
        (NetMode::Allowlist, None, _) => return missing("the guest opened no door"),
        (NetMode::Allowlist, _, None) => return missing("nobody prepared the way out"),
        (NetMode::None | NetMode::Open, ..) => {
            if let Some((_, found)) = none {
                found.push_str(&shown);
            }
            return Ok((proofs, None));
        }
    };
    // The same look, and besides what it found there are doors, which are no way out by themselves.
    if let Some((name, found)) = none {
        *name = Guarantee::NetAllowlist.name().to_owned();
        *found = format!("{found}{shown}, and {}", doors.describe());
        if let Some(upstream) = &policy.upstream {
            found.push_str(&format!(", which goes out through {} and leaves names to it", upstream.value));
        }
    }
    let egress = Egress::open(doors, way_out, plan).map_err(|source| StartError::Io { attempt: LISTEN, source })?;
    Ok((proofs, Some(egress)))
}
