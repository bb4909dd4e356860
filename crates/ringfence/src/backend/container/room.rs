//! How much room a container has for the workspace that it is filled with.

use super::places::in_memory;

/// Room is given in steps of so much, so that a container that stands already fits a workspace that grew a little.
const STEP_BYTES: u64 = 256 << 10;
const STEP_FILES: u64 = 64;

/// Room for a workspace, beside what programs may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Room {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

impl Room {
    /// Enough for so many bytes in so many files and folders, and the same for all that are nearly as large.
    pub(super) fn for_a_copy(bytes: u64, files: u64) -> Self {
        let up = |value: u64, step: u64| value.div_ceil(step).max(1).saturating_mul(step);
        Self { bytes: up(bytes, STEP_BYTES), files: up(files, STEP_FILES) }
    }

    /// What that takes in memory.
    pub(super) fn memory(self) -> u64 {
        in_memory(self.bytes, self.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_and_little_more_than_is_needed() {
        for (bytes, files) in [(0, 0), (1, 1), (STEP_BYTES, STEP_FILES), (STEP_BYTES + 1, 5000), (9 << 30, 199_999)] {
            let room = Room::for_a_copy(bytes, files);
            assert!(room.bytes >= bytes && room.files >= files, "{room:?}");
            assert!(room.bytes <= bytes + STEP_BYTES && room.files <= files + STEP_FILES, "{room:?}");
        }
        assert_eq!(Room::for_a_copy(10, 3), Room::for_a_copy(2000, 40), "a few files more change nothing");
        assert_eq!(Room::for_a_copy(u64::MAX, 1).bytes, u64::MAX);
    }
}
