//! The name of an OCI runtime, as a container engine knows it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::diagnostic::{Invalid, quote};

const MOST: usize = 64;

/// A runtime that the engine has registered, such as `runsc`. A name, never a path: an engine would execute a path as root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Runtime(String);

impl Runtime {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Runtime {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || text.len() > MOST || !text.bytes().all(word) {
            return Err(Invalid::new(
                "policy::bad-runtime",
                format!("{} is not the name of a runtime", quote(text)),
                "write a name that the engine knows, such as `runsc`; letters, digits, `.`, `_` and `-`, no path",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Runtime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_a_name_and_never_an_option_or_a_path() {
        for name in ["runc", "runsc", "kata-runtime", "io.containerd.runsc.v1", "a", &"a".repeat(64)] {
            assert!(name.parse::<Runtime>().is_ok_and(|runtime| runtime.as_str() == name), "{name}");
        }
        let too_long = "a".repeat(65);
        for hostile in
            ["", "-v", "--privileged", "/usr/bin/sh", "a/b", "../x", ".", "..", "_x", "a b", "a\nb", "é", &too_long]
        {
            assert!(hostile.parse::<Runtime>().is_err(), "{hostile:?}");
        }
    }
}
