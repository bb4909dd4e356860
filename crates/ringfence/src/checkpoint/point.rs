//! How checkpoints are named and meant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Letters of a name.
pub(super) const MOST_NAME: usize = 64;
/// The word for the workspace as it is.
const NOW: &str = "now";

/// What somebody calls a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointName(pub(super) String);

impl FromStr for CheckpointName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let plain = text.chars().all(|letter| !letter.is_control()) && text.trim() == text;
        if !is_number && plain && text != NOW && !text.starts_with('-') && text.chars().count() <= MOST_NAME {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("write a word or a few, at most {MOST_NAME} letters, and neither a number nor `{NOW}`"))
        }
    }
}

/// A state of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Point {
    /// As it is.
    Now,
    /// The checkpoint with this number; 0 is the host's own workspace, without any change.
    Number(u64),
    /// The newest checkpoint of this name.
    Name(String),
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u64>() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) if text == NOW => Ok(Self::Now),
            Err(_) if text.is_empty() => Err("write a checkpoint's number or name".to_owned()),
            Err(_) => Ok(Self::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str(NOW),
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_number_and_no_word_of_ours() {
        for good in ["a", "before the tests", "v1", "1.0", "ä"] {
            assert!(good.parse::<CheckpointName>().is_ok(), "{good}");
        }
        let long = "a".repeat(65);
        for bad in ["", "1", "007", "now", " a", "a ", "a\nb", "\u{1b}[2J", "-a", &long] {
            assert!(bad.parse::<CheckpointName>().is_err(), "{bad:?}");
        }
        assert_eq!("0".parse(), Ok(Point::Number(0)));
        assert_eq!("now".parse(), Ok(Point::Now));
        assert_eq!("v1".parse(), Ok(Point::Name("v1".to_owned())));
        assert!("".parse::<Point>().is_err());
    }
}
