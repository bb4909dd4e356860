//! The audit log: JSON lines outside the sandbox, each holding the hash of the one before.
//!
//! Whoever changes, moves or removes a line breaks the chain, and whoever cuts the end disagrees with the anchor beside
//! it; [`verify()`] says where. The entry `planned` is durable before anything starts.

mod append;
mod read;
mod record;
mod verify;

pub use append::{Durability, Ledger, LedgerError};
pub use read::{Head, ReadError, RunSummary, head, records_of, summaries};
pub use record::{Entry, Kind, Record};
pub use verify::{Problem, Verified, verify};

const FILE: &str = "ledger.jsonl";
const ANCHOR: &str = "ledger.head";
/// Of one line: a writer makes none longer, and a reader takes none longer.
const MOST_LINE: usize = 256 * 1024;
