//! Where our guest is in a container.

/// What the place of the guest begins with.
pub(super) const GUEST_PLACE: &str = "/.ringfence-";

/// Where the guest is in one container: in the root itself, under a name that nobody knew before. An image that knew the place
/// could have a link there, or on the way to it, and something of its own be executed instead of us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestPlace(String);

impl GuestPlace {
    /// A new one.
    pub(crate) fn new() -> Result<Self, crate::run_id::NoRandomness> {
        crate::run_id::RunId::generate().map(|id| Self(format!("{GUEST_PLACE}{id}")))
    }

    /// The place, of a file or of a volume with it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn fixed() -> Self {
        Self(format!("{GUEST_PLACE}0"))
    }
}
