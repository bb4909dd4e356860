//! Checking the ledger's chain from end to end.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use super::read::next_line;
use super::record::{self, NO_RECORD};
use super::{ANCHOR, FILE};
use crate::state::StateFolder;

/// Something that is not as we wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1; nothing when it concerns the file as a whole.
    pub line: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// What checking found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Records whose hash and place are right.
    pub good: u64,
    /// What is not.
    pub problems: Vec<Problem>,
}

/// More problems than this are not listed.
const MOST_PROBLEMS: usize = 100;

/// Checks every line's hash, the chain between them, and the end against the anchor.
pub fn verify(state: &StateFolder) -> io::Result<Verified> {
    let path = state.path().join(FILE);
    let mut found = Verified::default();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            check_anchor(&state.path().join(ANCHOR), 0, &[], &mut found)?;
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut number = 0;
    let mut next_seq = 0;
    let mut prev = NO_RECORD.to_owned();
    // The anchor is written after the log: a killed writer leaves it behind by at most its last write.
    let mut hashes: Vec<(u64, String)> = Vec::new();
    while next_line(&mut reader, &mut line)? {
        number += 1;
        let record = match record::unseal(&line) {
            Ok(record) => record,
            Err(problem) => {
                found.add(Some(number), problem);
                continue;
            }
        };
        if record.seq != next_seq {
            found.add(
                Some(number),
                &format!("has number {} where {next_seq} is due: lines were removed, repeated or moved", record.seq),
            );
        } else if record.prev != prev {
            found.add(Some(number), "does not follow the line before it");
        } else {
            found.good += 1;
        }
        next_seq = record.seq + 1;
        prev.clone_from(&record.hash);
        hashes.push((next_seq, record.hash));
        if hashes.len() > 64 {
            hashes.remove(0);
        }
    }
    check_anchor(&state.path().join(ANCHOR), next_seq, &hashes, &mut found)?;
    Ok(found)
}

fn check_anchor(path: &Path, next_seq: u64, hashes: &[(u64, String)], found: &mut Verified) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    if text.is_empty() {
        if next_seq > 0 {
            found.add(None, "the anchor beside the ledger is missing, so a cut at its end cannot be ruled out");
        }
        return Ok(());
    }
    let anchor = text.trim_end().split_once(' ').and_then(|(seq, hash)| Some((seq.parse::<u64>().ok()?, hash)));
    match anchor {
        None => found.add(None, "the anchor beside the ledger cannot be read"),
        Some((seq, _)) if seq > next_seq => {
            found.add(None, &format!("the end was cut: {} records are missing", seq - next_seq));
        }
        Some((seq, hash)) if hashes.iter().any(|(known, is)| *known == seq && is == hash) => {}
        Some(_) => found.add(None, "the end is not the one that the anchor beside the ledger remembers"),
    }
    Ok(())
}

impl Verified {
    fn add(&mut self, line: Option<u64>, what: &str) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { line, what: what.to_owned() });
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line} {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Durability, Entry, Kind, Ledger};
    use serde_json::json;

    struct Case {
        _home: tempfile::TempDir,
        state: StateFolder,
    }

    impl Case {
        fn new(entries: u64) -> Self {
            let home = tempfile::tempdir().unwrap();
            let state = StateFolder::prepare(home.path().join("state")).unwrap();
            let ledger = Ledger::open(&state).unwrap();
            for number in 0..entries {
                append(&ledger, number);
            }
            Self { _home: home, state }
        }

        fn lines(&self) -> Vec<String> {
            fs::read_to_string(self.state.path().join(FILE)).unwrap().lines().map(str::to_owned).collect()
        }

        fn rewrite(&self, lines: &[String]) {
            fs::write(self.state.path().join(FILE), lines.join("\n") + "\n").unwrap();
        }

        fn problems(&self) -> Vec<String> {
            verify(&self.state).unwrap().problems.iter().map(ToString::to_string).collect()
        }
    }

    fn append(ledger: &Ledger, number: u64) {
        let entry = Entry { kind: Kind::Ended, run: format!("run{number}"), body: json!({ "number": number }) };
        ledger.append(&[entry], Durability::Written).unwrap();
    }

    #[test]
    fn an_untouched_ledger_has_no_problem() {
        let case = Case::new(5);
        assert_eq!(verify(&case.state).unwrap(), Verified { good: 5, problems: Vec::new() });
    }

    #[test]
    fn what_is_written_after_the_ledger_was_moved_away_is_in_a_new_one_and_not_lost() {
        let case = Case::new(0);
        let ledger = Ledger::open(&case.state).unwrap();
        append(&ledger, 1);
        let moved = case.state.path().join("moved");
        fs::rename(case.state.path().join(FILE), &moved).unwrap();
        append(&ledger, 2);
        append(&ledger, 3);
        assert_eq!(fs::read_to_string(&moved).unwrap().lines().count(), 1);
        assert_eq!(verify(&case.state).unwrap(), Verified { good: 2, problems: Vec::new() });
    }

    #[test]
    fn s09_an_edited_line_is_reported() {
        let case = Case::new(5);
        let mut lines = case.lines();
        lines[2] = lines[2].replace("\"number\":2", "\"number\":9");
        case.rewrite(&lines);
        assert_eq!(case.problems()[0], "line 3 was changed: its hash does not fit its text");
    }

    #[test]
    fn s09_moved_lines_are_reported() {
        let case = Case::new(5);
        let mut lines = case.lines();
        lines.swap(1, 2);
        case.rewrite(&lines);
        assert!(case.problems()[0].starts_with("line 2 has number 2 where 1 is due"), "{:?}", case.problems());
    }

    #[test]
    fn s09_a_cut_end_is_reported() {
        let case = Case::new(5);
        let mut lines = case.lines();
        lines.truncate(3);
        case.rewrite(&lines);
        assert_eq!(case.problems(), ["the end was cut: 2 records are missing"]);
        fs::remove_file(case.state.path().join(FILE)).unwrap();
        assert_eq!(case.problems(), ["the end was cut: 5 records are missing"]);
    }

    #[test]
    fn s09_a_cut_beginning_and_a_removed_middle_are_reported() {
        let case = Case::new(5);
        let lines = case.lines();
        case.rewrite(&lines[1..]);
        assert!(case.problems()[0].starts_with("line 1 has number 1 where 0 is due"));
        let mut middle = lines;
        middle.remove(2);
        case.rewrite(&middle);
        assert!(case.problems()[0].starts_with("line 3 has number 3 where 2 is due"));
    }

    #[test]
    fn s09_a_rewritten_chain_is_reported_by_the_anchor() {
        let case = Case::new(3);
        let other = Case::new(3);
        case.rewrite(&other.lines());
        assert_eq!(case.problems(), ["the end is not the one that the anchor beside the ledger remembers"]);
    }

    #[test]
    fn two_writers_make_one_chain() {
        let case = Case::new(0);
        let ledgers = [Ledger::open(&case.state).unwrap(), Ledger::open(&case.state).unwrap()];
        std::thread::scope(|scope| {
            for ledger in &ledgers {
                scope.spawn(move || (0..50).for_each(|number| append(ledger, number)));
            }
        });
        assert_eq!(verify(&case.state).unwrap(), Verified { good: 100, problems: Vec::new() });
    }

    #[test]
    fn the_chain_goes_on_after_a_write_that_was_cut_off() {
        let case = Case::new(3);
        let path = case.state.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"v\":1,\"seq\":3,\"ti"].concat()).unwrap();
        append(&Ledger::open(&case.state).unwrap(), 9);
        let found = verify(&case.state).unwrap();
        assert_eq!(found.good, 5, "{found:?}");
        assert_eq!(found.problems.len(), 1, "the cut-off line is reported: {found:?}");
    }

    #[test]
    fn a_ledger_whose_last_line_was_changed_takes_no_further_record() {
        let case = Case::new(2);
        let mut lines = case.lines();
        lines[1] = lines[1].replace("\"number\":1", "\"number\":7");
        case.rewrite(&lines);
        let entry = Entry { kind: Kind::Ended, run: String::new(), body: json!({}) };
        let error = Ledger::open(&case.state).unwrap().append(&[entry], Durability::Written).unwrap_err();
        assert!(error.to_string().contains("ringfence log verify"), "{error}");
    }
}
