//! The name of a run: sortable by time, unguessable, safe in a file name.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// A run's id: 48 bits of time and 80 random bits, in 26 letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RunId(String);

/// Why no id could be made.
#[derive(Debug, thiserror::Error)]
#[error("could not get random bytes from the kernel")]
pub struct NoRandomness(#[source] std::io::Error);

/// Why a text is not an id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a run id; write the 26 letters and digits that `ringfence log` shows, or its first few")]
pub struct NotARunId(String);

impl RunId {
    /// A new id.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut random = [0u8; 10];
        let mut filled = 0;
        while filled < random.len() {
            filled += rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| NoRandomness(errno.into()))?;
        }
        let milliseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let mut bits = milliseconds & ((1 << 48) - 1);
        for byte in random {
            bits = (bits << 8) | u128::from(byte);
        }
        let letters = (0..LENGTH).rev().map(|place| {
            let index = (bits >> (5 * place)) & 31;
            char::from(ALPHABET[index as usize])
        });
        Ok(Self(letters.collect()))
    }

    /// Stands in where no id could be made.
    pub(crate) fn unknown() -> Self {
        Self("0".repeat(LENGTH))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = NotARunId;

    fn try_from(text: String) -> Result<Self, NotARunId> {
        text.parse()
    }
}

impl FromStr for RunId {
    type Err = NotARunId;

    fn from_str(text: &str) -> Result<Self, NotARunId> {
        if text.len() == LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte)) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotARunId(text.chars().take(64).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_parse_again_and_sort_by_time() {
        let first = RunId::generate().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        let second = RunId::generate().unwrap();
        assert!(first < second);
        assert_eq!(first.as_str().parse::<RunId>().unwrap(), first);
    }

    #[test]
    fn a_path_is_not_an_id() {
        for text in ["", "../../etc/passwd", "01hzzzzzzzzzzzzzzzzzzzzzz/", "UPPERCASEUPPERCASEUPPERCAS"] {
            assert!(text.parse::<RunId>().is_err(), "{text}");
        }
    }
}
