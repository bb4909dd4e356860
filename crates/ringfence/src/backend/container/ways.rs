//! How the workspace and all else that can be written comes into a container.

use ringfence_linux::wall::Kernel;
use ringfence_policy::{ResolvedPolicy, WorkspaceMode};

use super::address::Address;
use super::facts::Facts;

/// The two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From outside, by joining the container's mounts: one quota, and a private layer over the workspace itself.
    Laid,
    /// Through the guest: file systems that the engine made, filled with a private copy of the workspace.
    Filled,
}

/// The way into containers of this engine. Only root may join mounts that root's engine made, on this machine and where the
/// kernel is this one's.
pub(super) fn way(address: &Address, facts: &Facts, kernel: Kernel) -> Way {
    let is_root = rustix::process::geteuid().is_root();
    // A socket may be here and its engine in a virtual machine.
    let here = rustix::system::uname();
    let same_kernel = kernel == Kernel::Host && here.release().to_bytes() == facts.kernel.as_bytes();
    if is_root && address.is_local() && !facts.rootless && same_kernel { Way::Laid } else { Way::Filled }
}

/// Whether the workspace comes in a volume that is shown read-only. What a guest fills can be closed to programs by Landlock alone,
/// which a kernel of its own may not have.
pub(super) fn in_a_volume(policy: &ResolvedPolicy, kernel: Kernel, way: Way) -> bool {
    way == Way::Filled && kernel == Kernel::Own && policy.fs.mode.value == WorkspaceMode::ReadOnly
}
