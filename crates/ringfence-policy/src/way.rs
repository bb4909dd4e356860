//! Single words about the way out of a sandbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be spoken over a connection that is not looked into. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetProtocol {
    /// HTTP, or TLS that says which name it wants.
    Web,
    /// Anything.
    Tcp,
}

/// What becomes of a host that no rule names. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownHosts {
    /// It is denied.
    Deny,
    /// A person is asked.
    Ask,
}
