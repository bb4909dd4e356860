//! What an attack is made of.

use std::fmt;
use std::time::Duration;

use ringfence_policy::{BackendKind, Overrides, ResolvedPolicy};

use super::CheckError;
use super::arena::Field;
use super::host::{Nap, Sightings, Tree};
use crate::Guarantee;
use crate::outcome::Outcome;

/// One attack on one guarantee.
pub(super) struct Attack {
    /// Its stable name: the row of the catalogue of attacks that the tests go by, and what is special about it.
    pub(super) id: &'static str,
    pub(super) guarantee: Guarantee,
    /// What it tries, for a person.
    pub(super) tries: &'static str,
    pub(super) control: Control,
    /// One of these programs is needed besides a shell and the core utilities.
    pub(super) needs: &'static [&'static str],
    /// Whether the policy forbids what it tries.
    pub(super) applies: fn(&ResolvedPolicy) -> bool,
    /// Sets it up, for this kind of wall; the control is told the same.
    pub(super) set: fn(&Field, &ResolvedPolicy, BackendKind) -> Result<Probe, CheckError>,
}

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attack").field("id", &self.id).field("guarantee", &self.guarantee).finish_non_exhaustive()
    }
}

/// What shows that the probe works.
#[derive(Debug, Clone, Copy)]
pub(super) enum Control {
    /// The same probe under `none` gets through.
    WithoutWall,
    /// `none` keeps this guarantee too: the probe itself shows on the host that it did what it should.
    Own(&'static str),
}

/// A forbidden act, set up.
pub(super) struct Probe {
    /// For a shell.
    pub(super) script: String,
    /// From `$1` on.
    pub(super) arguments: Vec<String>,
    /// A span that only this probe sleeps: the host looks for it meanwhile.
    pub(super) nap: Option<Nap>,
    /// Limits to try with. The control runs without them.
    pub(super) limits: Overrides,
    /// Whether it is meant to come to its end behind the wall.
    pub(super) ends: Ends,
    /// Looks at the host, and says how it got through.
    pub(super) judge: Judge,
}

/// Whether a probe comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// If it does not, nothing was shown.
    Always,
    /// It is meant to be stopped on the way.
    Perhaps,
}

/// What the host can tell.
#[derive(Debug)]
pub(super) struct Ended<'a> {
    pub(super) outcome: &'a Outcome,
    pub(super) seen: &'a Sightings,
    pub(super) elapsed: Duration,
    /// Sleepers that were still there when the run was over.
    pub(super) left: usize,
}

/// What a look at the host says.
#[derive(Debug)]
pub(super) enum Found {
    GotThrough(String),
    Stopped,
    /// It cannot be told.
    Unclear(String),
}

pub(super) type Judge = Box<dyn FnOnce(&Ended<'_>) -> Result<Found, CheckError> + Send>;

impl Probe {
    pub(super) fn new(
        script: impl Into<String>,
        judge: impl FnOnce(&Ended<'_>) -> Result<Found, CheckError> + Send + 'static,
    ) -> Self {
        Self {
            script: script.into(),
            arguments: Vec::new(),
            nap: None,
            limits: Overrides::default(),
            ends: Ends::Always,
            judge: Box::new(judge),
        }
    }

    /// A probe that got through when `secret` is in its output.
    pub(super) fn for_secret(script: impl Into<String>, secret: String) -> Self {
        Self::new(script, move |ended| {
            let out = ended.outcome.stdout.contains(&secret) || ended.outcome.stderr.contains(&secret);
            Ok(Found::when(out, "a secret of the host came out"))
        })
    }

    /// A probe that got through when `tree` is no longer as it was.
    pub(super) fn for_change(script: impl Into<String>, tree: Tree) -> Self {
        Self::new(script, move |_| Ok(tree.change()?.map_or(Found::Stopped, Found::GotThrough)))
    }

    /// A probe that got through when the host sees it sleep.
    pub(super) fn for_nap(script: impl Into<String>, nap: Nap, how: &'static str) -> Self {
        Self::new(script, move |ended| Ok(Found::when(ended.seen.most > 0, how))).napping(nap)
    }

    /// With an argument more.
    #[must_use]
    pub(super) fn with(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// With the host looking for who sleeps for `nap`, which is an argument more.
    #[must_use]
    pub(super) fn napping(mut self, nap: Nap) -> Self {
        self.arguments.push(nap.span.clone());
        self.nap = Some(nap);
        self
    }

    /// Meant to be stopped on its way.
    #[must_use]
    pub(super) fn stopped_on_its_way(mut self) -> Self {
        self.ends = Ends::Perhaps;
        self
    }
}

impl Found {
    pub(super) fn when(got_through: bool, how: impl Into<String>) -> Self {
        if got_through { Self::GotThrough(how.into()) } else { Self::Stopped }
    }
}
