//! What was counted of all processes of a program together, by the kernel or as somebody tells it.

use std::fmt;
use std::sync::Arc;

use ringfence_linux::cgroup::{Cgroup, CgroupUsage};

use crate::BoxFuture;

/// Somebody who knows what was counted, such as a container engine.
pub(super) trait Told: fmt::Debug + Send + Sync {
    /// What was counted by now; nothing when it cannot be known.
    fn usage(&self) -> BoxFuture<'_, Option<CgroupUsage>>;
}

/// Where what is counted can be read.
#[derive(Debug, Clone)]
pub(super) enum Counters {
    /// A cgroup of this host, which is removed with the last of these.
    Cgroup(Arc<Cgroup>),
    /// Somebody has to be asked.
    Told(Arc<dyn Told>),
}

impl Counters {
    pub(super) async fn usage(&self) -> Option<CgroupUsage> {
        match self {
            Self::Cgroup(group) => group.usage().ok(),
            Self::Told(told) => told.usage().await,
        }
    }
}
