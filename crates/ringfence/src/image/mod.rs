//! Images as roots: reads OCI layouts, unpacks them safely, and keeps what was unpacked.
//!
//! What is read here is untrusted: an image comes from somebody else, and a layout may lie in the workspace. Every blob is
//! held against its digest, every reader has a cap, and nothing is written outside the one folder that is unpacked into.
//! **Must not** fetch anything, run anything, or decide whether an image may be used.

mod archive;
mod blob;
mod compression;
mod layout;
mod store;
#[cfg(test)]
mod tests;
mod unpack;

pub use blob::{BlobError, Digest};
pub use layout::{Chosen, Layout, LayoutError};
pub use store::{StoreError, Unpacked, find, obtain, sweep};
pub use unpack::{Layer, Limits, Step, UnpackError, Unpacker};
