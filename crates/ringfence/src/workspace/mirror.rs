//! A private copy of a workspace, and the same workspace in a guest that shares no file with us.
//!
//! The guest is filled from the copy ([`nodes`]). What a program changed there comes back as nodes and is taken into the copy
//! ([`Taking`]), which then is as if the program had worked in it: what differs is found as in every other copy. What comes
//! back was said by a guest that may be anybody's: see [`Taking`]. An earlier state is put back in the guest by [`put_nodes`].

mod putting;
mod sending;
mod taking;

pub use self::putting::put_nodes;
pub use self::sending::{Nodes, nodes};
pub use self::taking::{TakeError, Taking};

#[cfg(test)]
mod tests;
