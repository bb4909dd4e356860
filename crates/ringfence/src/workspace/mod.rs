//! What programs change in a workspace, kept beside it until somebody has looked at it.
//!
//! A run behind a wall writes to a private layer. When it ends, the layer becomes a [`ChangeSet`]: every path that would
//! differ, what was there before, and what is there now, with its contents in [`Objects`]. A set is looked at, applied in
//! whole or in part, or thrown away. Nothing here trusts what a program wrote: names, links and contents are data.

pub mod apply;
pub mod at_once;
pub mod beneath;
pub mod between;
mod carry_out;
pub mod change;
pub mod compare;
pub mod copy;
mod copy_error;
pub mod diff;
pub mod discard;
pub mod flag;
pub mod harvest;
pub mod journal;
mod keep;
pub mod kept;
pub mod layer;
pub mod merged;
pub mod mirror;
pub mod named;
mod node;
pub mod objects;
mod overlay;
mod resume;
pub mod selection;
mod swap;
pub mod undo;
pub mod untouched;

pub use at_once::AtOnce;
pub use change::{Before, Change, ChangeSet, Counts, Node, Place, Stamp, Was};
pub use keep::KeepError;
pub(crate) use keep::{About, Found, bounds, keep, keep_left, set_of};
pub use objects::{ObjectId, Objects};

#[cfg(test)]
mod tests;
