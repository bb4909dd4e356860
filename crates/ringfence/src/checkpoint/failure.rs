//! Why something about checkpoints failed, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::MOST_CHECKPOINTS;
use crate::ledger::LedgerError;
use crate::outcome::{Failure, FailureKind};
use crate::run_id::{NoRandomness, RunId};
use crate::scratch::ScratchError;
use crate::workspace::harvest::HarvestError;
use crate::workspace::merged::PutError;

/// Why something about checkpoints failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Changes go elsewhere, or nowhere.
    #[error("the workspace of this session has no private layer, so there is nothing to go back to")]
    NoLayer,
    /// There is no such checkpoint.
    #[error("there is no checkpoint `{0}`")]
    Unknown(String),
    /// Another one has it.
    #[error("checkpoint {0} has this name already")]
    NameTaken(u64),
    /// There are too many.
    #[error("this session has {MOST_CHECKPOINTS} checkpoints already")]
    TooMany,
    /// Programs run that could write meanwhile.
    #[error("nothing was restored: {}", busy(.runs, *.left))]
    Busy {
        /// Runs that go on.
        runs: Vec<(RunId, String)>,
        /// Processes besides that earlier runs left behind.
        left: u64,
    },
    /// The layer could not be had.
    #[error("could not get the workspace from behind the wall")]
    Layer(#[source] io::Error),
    /// It could not be told what is different.
    #[error("could not tell what was changed in the workspace")]
    Harvest(#[from] HarvestError),
    /// The state folder could not be written or read.
    #[error("could not keep the checkpoint")]
    Keep(#[source] io::Error),
    /// Likewise.
    #[error("could not keep the checkpoint")]
    Scratch(#[from] ScratchError),
    /// Likewise.
    #[error("could not keep the checkpoint")]
    RunId(#[from] NoRandomness),
    /// A checkpoint could not be read.
    #[error("could not read checkpoint {number}")]
    Load {
        /// Which.
        number: u64,
        /// Why.
        source: io::Error,
    },
    /// The host's own file could not be read.
    #[error("could not compare with the host's workspace")]
    Host(#[source] PutError),
    /// A place could not be brought back.
    #[error("the workspace is only partly as it was")]
    Put(#[source] PutError),
    /// Something wrote meanwhile.
    #[error("the workspace is not as it was: {0:?} is different")]
    NotWhole(PathBuf),
    /// It must be written down first.
    #[error("could not write to the ledger")]
    Ledger(#[from] LedgerError),
    /// The session is over.
    #[error("the session ended meanwhile")]
    Ended,
}

fn busy(runs: &[(RunId, String)], left: u64) -> String {
    let named: Vec<String> = runs.iter().map(|(run, subject)| format!("{run} ({subject})")).collect();
    match named.as_slice() {
        [] if left == 1 => "a process that an earlier run left behind still runs in this session".to_owned(),
        [] => format!("{left} processes that earlier runs left behind still run in this session"),
        [_] => format!("the run {} goes on in this session", named.join(", ")),
        _ => format!("the runs {} go on in this session", named.join(", ")),
    }
}

impl CheckpointError {
    /// The error as somebody is told of it.
    pub fn failure(&self) -> Failure {
        let (kind, hint) = match self {
            Self::NoLayer => {
                (FailureKind::BadRequest, "open a session whose policy says `fs: { workspace: { mode: review } }`")
            }
            Self::Unknown(_) => {
                (FailureKind::BadRequest, "`ringfence checkpoint list SESSION` shows those that there are")
            }
            Self::NameTaken(_) => (FailureKind::BadRequest, "use another name, or drop that one first"),
            Self::TooMany => (FailureKind::BadRequest, "`ringfence checkpoint drop SESSION NUMBER` makes room"),
            Self::Busy { runs, .. } if runs.is_empty() => (
                FailureKind::BadRequest,
                "`ringfence checkpoint restore --kill …` kills what runs left behind, and then restores",
            ),
            Self::Busy { .. } => (
                FailureKind::BadRequest,
                "wait for them with `ringfence session wait`, or end them with `ringfence session signal`",
            ),
            Self::Put(_) | Self::NotWhole(_) => (
                FailureKind::Changes,
                "what was there before is the newest checkpoint; restore that one, or this one again once the reason is gone",
            ),
            Self::Layer(_) | Self::Ended => {
                (FailureKind::Changes, "`ringfence session list` shows whether it is still open")
            }
            Self::Harvest(_) => (
                FailureKind::Changes,
                "have it put right by a program of the session: `ringfence session exec SESSION -- chmod -R u+rwX .` opens what is \
                 closed",
            ),
            Self::Host(_) => (FailureKind::Changes, "make the file readable, and leave it alone while it is compared"),
            Self::Keep(_) | Self::Scratch(_) | Self::RunId(_) | Self::Load { .. } | Self::Ledger(_) => {
                (FailureKind::Changes, "look whether the state folder, which RINGFENCE_STATE_DIR names, has room left")
            }
        };
        Failure::new(kind, self).hint(hint)
    }
}
