//! A workspace whose changes go straight to the host.

use ringfence_policy::ResolvedPolicy;

use crate::engine::Inner;
use crate::workspace::Found;
use crate::workspace::apply::ApplyError;
use crate::workspace::at_once::{AtOnce, Terms, apply_at_once};

impl Inner {
    /// Takes what was changed straight to the host, as the policy says.
    pub(crate) fn apply_directly(&self, found: &Found, policy: &ResolvedPolicy) -> Result<AtOnce, ApplyError> {
        apply_at_once(&self.state, &self.ledger, &found.set, Terms::Direct, policy.fs.size.value.get())
    }
}
