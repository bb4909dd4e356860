//! The attacks, by what they are aimed at.

mod calls;
mod files;
mod limits;
mod network;
mod processes;

use super::attack::Attack;

/// Every attack, in the order of the guarantees.
pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    [limits::TIME, processes::ENDS, processes::SEEN, files::ATTACKS, network::ATTACKS, limits::AMOUNTS, calls::ATTACKS]
        .into_iter()
        .flatten()
}
