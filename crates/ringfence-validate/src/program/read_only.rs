//! Commands that only look: so that nobody is asked about them.

use crate::analysis::Analysis;

/// Whether every command of `analysis` only reads, and nothing about it is unknown.
pub fn is_read_only(_analysis: &Analysis) -> bool {
    false
}
