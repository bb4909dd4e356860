//! What a run tells while it goes on.

use base64::Engine as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::run_id::RunId;

/// The version of the events' JSON form.
pub const FORMAT: u32 = 1;

/// Which of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something that policy forbids was tried, or a limit was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// The guarantee or rule.
    pub rule: String,
    /// What happened.
    pub message: String,
}

/// What the program uses at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageSample {
    /// Since the start.
    pub wall_time_ms: u64,
    /// Of all its processes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Something has to be done before the wall can be raised, and takes a while.
    Preparing {
        /// What.
        what: String,
    },
    /// The wall stands and the program was executed.
    Started {
        /// The run.
        run_id: RunId,
        /// The backend's name.
        backend: String,
    },
    /// The program wrote.
    Output {
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// Output over the cap was left out here.
    Omitted {
        /// Of which stream.
        stream: Stream,
        /// How much.
        bytes: u64,
    },
    /// A look at what is in use.
    Usage(UsageSample),
    /// A limit was reached or a rule broken.
    Violation(Violation),
    /// The run is over; nothing follows.
    Ended(Box<Outcome>),
}

impl Serialize for Event {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("v", &FORMAT)?;
        match self {
            Self::Started { run_id, backend } => {
                map.serialize_entry("event", "started")?;
                map.serialize_entry("runId", run_id)?;
                map.serialize_entry("backend", backend)?;
            }
            Self::Preparing { what } => {
                map.serialize_entry("event", "preparing")?;
                map.serialize_entry("what", what)?;
            }
            Self::Output { stream, bytes } => {
                map.serialize_entry("event", stream)?;
                match std::str::from_utf8(bytes) {
                    Ok(text) => map.serialize_entry("data", text)?,
                    Err(_) => {
                        map.serialize_entry("dataBase64", &base64::engine::general_purpose::STANDARD.encode(bytes))?
                    }
                }
            }
            Self::Omitted { stream, bytes } => {
                map.serialize_entry("event", "omitted")?;
                map.serialize_entry("stream", stream)?;
                map.serialize_entry("bytes", bytes)?;
            }
            Self::Usage(usage) => {
                map.serialize_entry("event", "usage")?;
                map.serialize_entry("usage", usage)?;
            }
            Self::Violation(violation) => {
                map.serialize_entry("event", "violation")?;
                map.serialize_entry("violation", violation)?;
            }
            Self::Ended(outcome) => {
                map.serialize_entry("event", "ended")?;
                map.serialize_entry("outcome", outcome)?;
            }
        }
        map.end()
    }
}
