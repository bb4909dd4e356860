//! Work that waits for the disk, in an event loop.

/// Does something that waits for the disk on this thread: a process with one thread stays one, which is what lets it raise
/// walls itself. Where there are more, the others go on meanwhile.
pub(crate) fn waiting<T>(act: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::current().runtime_flavor() {
        tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(act),
        _ => act(),
    }
}
