//! Engines that misbehave, as small servers behind sockets; and real ones, where there are some.

mod misbehaving;
mod real;
mod volumes;

use std::path::Path;

use super::address::{Address, EngineKind, Location};

fn at(path: &Path) -> Address {
    Address { kind: EngineKind::Docker, location: Location::Local(path.to_owned()), said_by: None }
}
