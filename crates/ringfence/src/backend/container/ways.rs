//! How the workspace and all else that can be written comes into a container.

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
pub(super) fn way(address: &Address, facts: &Facts, kernel: ringfence_linux::wall::Kernel) -> Way {
    let is_root = rustix::process::geteuid().is_root();
    // A socket may be here and its engine in a virtual machine.
    let here = rustix::system::uname();
    let same_kernel =
        kernel == ringfence_linux::wall::Kernel::Host && here.release().to_bytes() == facts.kernel.as_bytes();
    if is_root && address.is_local() && !facts.rootless && same_kernel { Way::Laid } else { Way::Filled }
}
