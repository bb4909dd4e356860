//! What is written on a container, so that a later start finds what a killed one left.

use std::collections::HashMap;
use std::io;

use ringfence_linux::cgroup;
use sha2::{Digest, Sha256};

/// On everything of ours.
pub(crate) const RUN: &str = "dev.ringfence.run";
/// Whose it is.
pub(crate) const OWNER: &str = "dev.ringfence.owner";
/// Which process made it.
pub(crate) const SUPERVISOR: &str = "dev.ringfence.supervisor";
/// What it is for.
pub(crate) const KIND: &str = "dev.ringfence.kind";
/// Which version of us made it.
pub(crate) const VERSION: &str = "dev.ringfence.version";
/// On a volume with our guest: the hash of what is in it.
pub(crate) const GUEST: &str = "dev.ringfence.guest";

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    /// One run.
    Once,
    /// A session.
    Session,
    /// Waiting to be used.
    #[allow(dead_code, reason = "a pool of warm containers is to come")]
    Pool,
    /// Never started: the way to put a file into a volume.
    Courier,
}

impl ContainerKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Pool => "pool",
            Self::Courier => "courier",
        }
    }
}

/// Who may remove a container: one user of one machine, from one start of it to the next.
///
/// The user belongs to it because one user may not see whether another's processes still run. Machines that were copied from
/// one image share an id, and perhaps an engine; the start tells them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    machine: String,
    boot: String,
    user: u32,
}

impl Owner {
    /// The calling user on this machine.
    pub(crate) fn current() -> io::Result<Self> {
        // A machine without an id of its own is told apart by its start alone.
        let machine = match std::fs::read_to_string("/etc/machine-id") {
            Ok(id) => id,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self::new(&machine, &boot, rustix::process::geteuid().as_raw()))
    }

    /// The ids are secret enough to be told to an engine only as hashes.
    fn new(machine: &str, boot: &str, user: u32) -> Self {
        Self { machine: short_hash("machine", machine.trim()), boot: short_hash("boot", boot.trim()), user }
    }

    /// As it stands on a label.
    pub(crate) fn label(&self) -> String {
        format!("{}-{}-{}", self.machine, self.boot, self.user)
    }

    /// What a label says about whose something is.
    pub(super) fn relation(&self, label: &str) -> Relation {
        let mut parts = label.split('-');
        let (machine, boot, user) = (parts.next(), parts.next(), parts.next());
        if label == self.label() {
            Relation::Ours
        } else if parts.next().is_none()
            && machine == Some(&self.machine)
            && user == Some(&self.user.to_string())
            && boot.is_some_and(|boot| boot.len() == self.boot.len())
        {
            Relation::OtherBoot
        } else {
            Relation::Foreign
        }
    }
}

/// Whose something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    /// Ours, since this machine started.
    Ours,
    /// Ours before it started, or a copied machine's.
    OtherBoot,
    /// Somebody else's.
    Foreign,
}

fn short_hash(purpose: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("ringfence {purpose} {text}"));
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The labels of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Labels {
    run: String,
    owner: String,
    supervisor: String,
    kind: ContainerKind,
}

impl Labels {
    /// For the run `run` of the calling process: letters, digits, `-` and `_`.
    pub(crate) fn new(run: &str, owner: &Owner, kind: ContainerKind) -> io::Result<Self> {
        Ok(Self { run: run.to_owned(), owner: owner.label(), supervisor: cgroup::name_for(run)?, kind })
    }

    /// As an engine takes them.
    pub(crate) fn as_map(&self) -> HashMap<String, String> {
        [
            (RUN, self.run.as_str()),
            (OWNER, &self.owner),
            (SUPERVISOR, &self.supervisor),
            (KIND, self.kind.name()),
            (VERSION, env!("CARGO_PKG_VERSION")),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }

    #[cfg(test)]
    pub(super) fn fixed() -> Self {
        let supervisor = "rf-7-8-9-run1".to_owned();
        let owner = Owner::new("m", "b", 1000).label();
        Self { run: "run1".into(), owner, supervisor, kind: ContainerKind::Once }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_user_of_the_same_machine_is_the_owner() {
        let owner = Owner::new("machine\n", "boot\n", 1000);
        let check = |other: &Owner, expected| assert_eq!(owner.relation(&other.label()), expected, "{other:?}");
        check(&Owner::new("machine", "boot", 1000), Relation::Ours);
        check(&Owner::new("machine", "boot", 0), Relation::Foreign);
        check(&Owner::new("machine", "later", 1000), Relation::OtherBoot);
        check(&Owner::new("other", "boot", 1000), Relation::Foreign);
        check(&Owner::new("machine", "later", 10001), Relation::Foreign);
        for hostile in ["", "-", "--", "x", &format!("{}-x", owner.label()), &format!("{}--1000", owner.machine)] {
            assert_eq!(owner.relation(hostile), Relation::Foreign, "{hostile}");
        }
        assert_eq!(Owner::current().unwrap(), Owner::current().unwrap());
    }

    #[test]
    fn a_run_whose_name_could_be_another_label_has_none() {
        let owner = Owner::current().unwrap();
        for hostile in ["", "a=b", "a b", "a\nb", "a/b", "a,b"] {
            assert!(Labels::new(hostile, &owner, ContainerKind::Once).is_err(), "{hostile:?}");
        }
        let labels = Labels::new("run_1-a", &owner, ContainerKind::Pool).unwrap().as_map();
        assert!(cgroup::is_supervisor_alive(&labels[SUPERVISOR]));
        assert_eq!(labels[KIND], "pool");
        assert_eq!(labels.len(), 5);
    }
}
