//! Throws kept changes away, and writes it down.

use std::io;

use serde_json::{Value, json};

use super::kept;
use crate::ledger::{Durability, Entry, Kind, Ledger, LedgerError};
use crate::run_id::RunId;
use crate::state::StateFolder;

/// Why changes are still kept.
#[derive(Debug, thiserror::Error)]
pub enum DiscardError {
    /// What happens to changes is written down first.
    #[error("could not write down that the changes of {run} are thrown away")]
    Ledger {
        /// Whose.
        run: RunId,
        /// Why.
        source: LedgerError,
    },
    /// They could not be removed.
    #[error("could not remove the changes of {run}")]
    Remove {
        /// Whose.
        run: RunId,
        /// Why.
        source: io::Error,
    },
}

/// Removes what is kept of `run`, and says how many bytes that frees. What it was stays in the ledger: how much, and the hash
/// of its list. A set that cannot be read any more is removed, too.
pub fn discard(state: &StateFolder, ledger: &Ledger, run: &RunId) -> Result<u64, DiscardError> {
    let kept = kept::of(state, run);
    let counts = kept.load().map(|set| set.counts()).ok();
    let body = json!({
        "changes": counts.map_or(Value::Null, |counts| json!(counts)),
        "uid": rustix::process::getuid().as_raw(),
    });
    let entry = Entry { kind: Kind::Discarded, run: run.to_string(), body };
    let written = ledger.append(&[entry], Durability::Written);
    written.map_err(|source| DiscardError::Ledger { run: run.clone(), source })?;
    let remove = |source| DiscardError::Remove { run: run.clone(), source };
    let size = kept.size().map_err(remove)?;
    kept.remove().map_err(remove)?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ledger::records_of;

    #[test]
    fn what_is_thrown_away_is_gone_and_written_down_even_if_it_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(folder.path().join("state")).unwrap();
        let ledger = Ledger::open(&state).unwrap();
        let run = RunId::generate().unwrap();
        let kept = kept::of(&state, &run);
        kept.objects().add(&mut b"x".as_slice(), 1).unwrap();
        fs::write(kept.folder().join("list"), "not a list").unwrap();
        assert_eq!(kept::runs(&state).unwrap(), std::slice::from_ref(&run));
        assert!(discard(&state, &ledger, &run).unwrap() > 0);
        assert!(!kept.folder().exists());
        let records = records_of(&state, run.as_str()).unwrap();
        assert_eq!(records.iter().map(|record| record.kind).collect::<Vec<_>>(), [Kind::Discarded]);
    }
}
