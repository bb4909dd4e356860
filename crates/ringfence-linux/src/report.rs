//! What a keeper tells its supervisor, as fixed-size messages on a sequenced-packet socket.
//!
//! The keeper builds them without allocating; [`Report::decode`] refuses every message that is not exactly one of them.

use serde::{Deserialize, Serialize};

/// The number of 64-bit words in a message.
const WORDS: usize = 10;
/// The size of a message in bytes.
pub const SIZE: usize = WORDS * 8;

/// A step of the start that can fail inside the keeper or the program's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u64)]
pub enum Stage {
    /// Making the keeper's own session, subreaper flag, signal descriptor.
    Keeper = 1,
    /// Starting the process that becomes the program.
    Fork = 2,
    /// Making the program's own session.
    Session = 3,
    /// Going to the working directory.
    WorkingDirectory = 4,
    /// Closing inherited descriptors.
    Descriptors = 5,
    /// Setting a resource limit.
    Rlimit = 6,
    /// Setting `no_new_privs`.
    NoNewPrivileges = 7,
    /// Resetting signal handlers and the signal mask.
    Signals = 8,
    /// Executing the program.
    Exec = 9,
    /// Restricting the program's process by Landlock.
    Landlock = 10,
    /// Installing the filter.
    Filter = 11,
    /// Trying to open a file that is closed now.
    ProveFiles = 12,
    /// Trying calls that are refused now.
    ProveFilter = 13,
    /// Trying to signal the keeper.
    ProveSignals = 14,
    /// Reading the program's limits, and trying to raise them.
    ProveLimits = 15,
    /// Comparing the program's environment with the list.
    ProveEnvironment = 16,
}

impl Stage {
    fn from_word(word: u64) -> Option<Self> {
        Some(match word {
            1 => Self::Keeper,
            2 => Self::Fork,
            3 => Self::Session,
            4 => Self::WorkingDirectory,
            5 => Self::Descriptors,
            6 => Self::Rlimit,
            7 => Self::NoNewPrivileges,
            8 => Self::Signals,
            9 => Self::Exec,
            10 => Self::Landlock,
            11 => Self::Filter,
            12 => Self::ProveFiles,
            13 => Self::ProveFilter,
            14 => Self::ProveSignals,
            15 => Self::ProveLimits,
            16 => Self::ProveEnvironment,
            _ => return None,
        })
    }

    /// What was being done, to follow "could not".
    pub fn attempt(self) -> &'static str {
        match self {
            Self::Keeper => "prepare the process that keeps the program",
            Self::Fork => "start a process",
            Self::Session => "give the program its own session",
            Self::WorkingDirectory => "enter the working directory",
            Self::Descriptors => "close inherited descriptors",
            Self::Rlimit => "set a resource limit",
            Self::NoNewPrivileges => "set no_new_privs",
            Self::Signals => "reset signals",
            Self::Exec => "execute the program",
            Self::Landlock => "restrict the program by Landlock",
            Self::Filter => "install the filter of system calls",
            Self::ProveFiles => "prove that files outside are closed",
            Self::ProveFilter => "prove that system calls are refused",
            Self::ProveSignals => "prove that the keeper cannot be signalled",
            Self::ProveLimits => "prove that the program's limits are in force",
            Self::ProveEnvironment => "prove that only listed variables go in",
        }
    }
}

/// What processes used, from the kernel's accounting of reaped children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// User time in microseconds.
    pub user_us: u64,
    /// System time in microseconds.
    pub system_us: u64,
    /// The largest resident size of one process, in bytes.
    pub max_resident_bytes: u64,
    /// Bytes read from block devices.
    pub read_bytes: u64,
    /// Bytes written to block devices.
    pub written_bytes: u64,
}

/// What is in the private layers of a wall when nothing runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    /// Nothing, or there is none.
    Unchanged,
    /// Something was written, changed or removed.
    Changed,
}

/// Whether anything more could be written behind a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// Yes.
    Left,
    /// No: no byte, or no file.
    Full,
}

/// One message from the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The program's first instruction is about to run: `execve` succeeded.
    Started {
        /// The program's process id.
        pid: i32,
    },
    /// The start failed; nothing runs.
    Failed {
        /// The step that failed.
        stage: Stage,
        /// Why, as the system's error number.
        errno: i32,
    },
    /// The program itself ended. What it left behind is being killed.
    Ended {
        /// The status as `wait4` gave it.
        wait_status: i32,
        /// What the program used.
        usage: Usage,
        /// Processes that it left behind, before they are killed.
        left: u32,
    },
    /// Nothing of the program is left.
    Gone {
        /// What the program and everything it started used.
        usage: Usage,
        /// Whether a private layer holds changes.
        layer: Layer,
    },
}

impl Report {
    /// The message's bytes.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut words = [0u64; WORDS];
        match *self {
            Self::Started { pid } => {
                words[0] = 1;
                words[1] = u64::from(pid.cast_unsigned());
            }
            Self::Failed { stage, errno } => {
                words[0] = 2;
                words[1] = stage as u64;
                words[2] = u64::from(errno.cast_unsigned());
            }
            Self::Ended { wait_status, usage, left } => {
                words[0] = 3;
                words[1] = u64::from(wait_status.cast_unsigned());
                words[2] = u64::from(left);
                usage.write(&mut words);
            }
            Self::Gone { usage, layer } => {
                words[0] = 4;
                words[1] = u64::from(layer == Layer::Changed);
                usage.write(&mut words);
            }
        }
        let mut bytes = [0u8; SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The message that `bytes` hold, or nothing when they are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SIZE {
            return None;
        }
        let mut words = [0u64; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let small = |word: u64| u32::try_from(word).ok().map(u32::cast_signed);
        Some(match words[0] {
            1 => Self::Started { pid: small(words[1])? },
            2 => Self::Failed { stage: Stage::from_word(words[1])?, errno: small(words[2])? },
            3 => Self::Ended {
                wait_status: small(words[1])?,
                usage: Usage::read(&words),
                left: u32::try_from(words[2]).ok()?,
            },
            4 => {
                let layer = if words[1] == 0 { Layer::Unchanged } else { Layer::Changed };
                Self::Gone { usage: Usage::read(&words), layer }
            }
            _ => return None,
        })
    }
}

impl Usage {
    fn write(&self, words: &mut [u64; WORDS]) {
        words[3] = self.user_us;
        words[4] = self.system_us;
        words[5] = self.max_resident_bytes;
        words[6] = self.read_bytes;
        words[7] = self.written_bytes;
    }

    fn read(words: &[u64; WORDS]) -> Self {
        Self {
            user_us: words[3],
            system_us: words[4],
            max_resident_bytes: words[5],
            read_bytes: words[6],
            written_bytes: words[7],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_survives_the_wire() {
        let usage = Usage { user_us: 1, system_us: u64::MAX, max_resident_bytes: 3, read_bytes: 4, written_bytes: 5 };
        for report in [
            Report::Started { pid: 42 },
            Report::Failed { stage: Stage::Exec, errno: 2 },
            Report::Ended { wait_status: -1, usage, left: 7 },
            Report::Gone { usage, layer: Layer::Changed },
            Report::Gone { usage, layer: Layer::Unchanged },
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn a_message_of_another_size_tag_or_stage_is_refused() {
        let good = Report::Failed { stage: Stage::Exec, errno: 2 }.encode();
        assert_eq!(Report::decode(&good[..SIZE - 1]), None);
        assert_eq!(Report::decode(&[]), None);
        let mut bad_tag = good;
        bad_tag[0] = 99;
        assert_eq!(Report::decode(&bad_tag), None);
        let mut bad_stage = good;
        bad_stage[8] = 200;
        assert_eq!(Report::decode(&bad_stage), None);
        let mut wide_errno = good;
        wide_errno[23] = 1;
        assert_eq!(Report::decode(&wide_errno), None);
    }
}
