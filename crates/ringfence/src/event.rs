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

/// What a program wanted of the network, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// What becomes of it is told under the same number.
    pub number: u64,
    /// The host, in canonical form.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The way that was taken, as in a [`Contact`](crate::egress::Contact).
    pub via: String,
    /// The method, where there was a request to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path, without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What was decided about it, when that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// About what.
    #[serde(flatten)]
    pub wanted: Wanted,
    /// Whether it was let through. What a budget cuts is told once more, as denied.
    pub allowed: bool,
    /// The rule that decided.
    pub rule: String,
    /// Why it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What came of something that was let through, when it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// Of what.
    #[serde(flatten)]
    pub wanted: Wanted,
    /// Bytes out of the sandbox.
    pub bytes_up: u64,
    /// Bytes into it.
    pub bytes_down: u64,
    /// The status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Until there was a connection, or the head of an answer; nothing where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
    /// All in all.
    pub took_ms: u64,
    /// `complete`, `broken`, `idle`, `overBudget` or `cut`.
    pub ending: String,
}

/// How much of the network was not told one by one, since it was too much at once. The outcome counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Untold {
    /// Decisions that let something through.
    pub allowed: u64,
    /// Decisions that denied something.
    pub denied: u64,
    /// Ends of what was told when it was decided.
    pub carried: u64,
}

/// What the way out tells, where it decides host by host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Traffic {
    /// Something was decided.
    Decided(Decided),
    /// Something that was let through has ended.
    Carried(Carried),
    /// Here something was left out.
    Untold(Untold),
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
    /// The network was used, or was to be.
    Traffic {
        /// The run. Of several in one session that go on at once, each is told.
        run_id: RunId,
        /// What of it.
        traffic: Traffic,
    },
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
            Self::Traffic { run_id, traffic } => {
                let name = match traffic {
                    Traffic::Decided(_) => "decided",
                    Traffic::Carried(_) => "carried",
                    Traffic::Untold(_) => "untold",
                };
                map.serialize_entry("event", name)?;
                map.serialize_entry("runId", run_id)?;
                match traffic {
                    Traffic::Decided(decided) => map.serialize_entry(name, decided)?,
                    Traffic::Carried(carried) => map.serialize_entry(name, carried)?,
                    Traffic::Untold(untold) => map.serialize_entry(name, untold)?,
                }
            }
            Self::Ended(outcome) => {
                map.serialize_entry("event", "ended")?;
                map.serialize_entry("outcome", outcome)?;
            }
        }
        map.end()
    }
}
