//! Who a program is.

use std::fmt;
use std::str::FromStr;

use crate::diagnostic::{Invalid, quote};

/// A numeric user and group, written `"1000:1000"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UserId {
    /// The user; never 0.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl FromStr for UserId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        const HOW: &str = "write two numbers above 0, such as `\"1000:1000\"`";
        let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u32>().ok()).flatten();
        let ids = text.split_once(':').and_then(|(uid, gid)| Some((number(uid)?, number(gid)?)));
        match ids {
            Some((0, _) | (_, 0)) => {
                Err(Invalid::new("policy::root", "the program is never root", format!("{HOW}; no wall needs more")))
            }
            // The kernel takes this one for "leave unchanged".
            Some((uid, gid)) if uid != u32::MAX && gid != u32::MAX => Ok(Self { uid, gid }),
            _ => Err(Invalid::new("policy::bad-user", format!("{} is not a user and a group", quote(text)), HOW)),
        }
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}
