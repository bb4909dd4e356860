//! The promises that a backend can keep and a test can attack.

use std::fmt;

use ringfence_policy::{NetMode, ResolvedPolicy};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guarantee {
    /// The run ends at its time limit, whatever the program does.
    TimeLimit,
    /// Output is kept up to a cap, and the supervisor's memory does not grow with it.
    OutputLimit,
    /// The run ends when the program ends, although a child of it holds the pipe.
    PromptReturn,
    /// Nothing that the program started outlives the run.
    NoSurvivors,
    /// Only listed variables of the host's environment are inside.
    CleanEnvironment,
    /// No descriptor of ours is inside.
    CleanDescriptors,
    /// Only what the policy shows can be read or written.
    FsConfined,
    /// Files that match `fs.deny` are absent.
    FsDeny,
    /// Files that match `fs.protect` cannot be changed or made.
    FsProtect,
    /// `fs.workspace.mode` holds.
    FsWorkspaceMode,
    /// `fs.size` holds.
    FsQuota,
    /// No network but an own loopback.
    NetNone,
    /// Only the hosts of `net.allow` can be reached.
    NetAllowlist,
    /// `proc.memory` holds.
    Memory,
    /// `proc.cpus` holds.
    Cpus,
    /// `proc.processes` holds.
    Processes,
    /// `proc.file_size` holds.
    FileSize,
    /// `proc.open_files` holds.
    OpenFiles,
    /// No core file is written.
    NoCoreFile,
    /// The program cannot gain privileges.
    NoNewPrivileges,
    /// The program has no capability and is not root on the host.
    Unprivileged,
    /// Dangerous system calls are refused.
    KernelFilter,
    /// Other processes of the host cannot be seen or signalled.
    ProcessesHidden,
}

impl Guarantee {
    /// Every guarantee, in the order in which they are shown.
    pub const ALL: [Self; 23] = [
        Self::TimeLimit,
        Self::OutputLimit,
        Self::PromptReturn,
        Self::NoSurvivors,
        Self::CleanEnvironment,
        Self::CleanDescriptors,
        Self::FsConfined,
        Self::FsDeny,
        Self::FsProtect,
        Self::FsWorkspaceMode,
        Self::FsQuota,
        Self::NetNone,
        Self::NetAllowlist,
        Self::Memory,
        Self::Cpus,
        Self::Processes,
        Self::FileSize,
        Self::OpenFiles,
        Self::NoCoreFile,
        Self::NoNewPrivileges,
        Self::Unprivileged,
        Self::KernelFilter,
        Self::ProcessesHidden,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeLimit => "time.limit",
            Self::OutputLimit => "output.limit",
            Self::PromptReturn => "time.prompt-return",
            Self::NoSurvivors => "proc.no-survivors",
            Self::CleanEnvironment => "env.clean",
            Self::CleanDescriptors => "fd.clean",
            Self::FsConfined => "fs.confined",
            Self::FsDeny => "fs.deny",
            Self::FsProtect => "fs.protect",
            Self::FsWorkspaceMode => "fs.workspace",
            Self::FsQuota => "fs.size",
            Self::NetNone => "net.none",
            Self::NetAllowlist => "net.allowlist",
            Self::Memory => "proc.memory",
            Self::Cpus => "proc.cpus",
            Self::Processes => "proc.processes",
            Self::FileSize => "proc.file-size",
            Self::OpenFiles => "proc.open-files",
            Self::NoCoreFile => "proc.no-core",
            Self::NoNewPrivileges => "priv.no-new",
            Self::Unprivileged => "priv.none",
            Self::KernelFilter => "kernel.filter",
            Self::ProcessesHidden => "proc.hidden",
        }
    }

    /// Whether it is a limit on what the host spends, which a policy may let be watched. What keeps a program in is
    /// enforced, or it is not kept: a look that comes too late undoes nothing.
    pub fn may_be_watched(self) -> bool {
        matches!(self, Self::Memory | Self::Cpus | Self::Processes)
    }

    /// What it means, for a person.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::TimeLimit => "the run ends at its time limit",
            Self::OutputLimit => "output is capped, head and tail kept",
            Self::PromptReturn => "a background child does not delay the end",
            Self::NoSurvivors => "nothing the program started outlives it",
            Self::CleanEnvironment => "only listed environment variables go in",
            Self::CleanDescriptors => "no inherited descriptor goes in",
            Self::FsConfined => "only what the policy shows can be read or written",
            Self::FsDeny => "denied files are absent",
            Self::FsProtect => "files the host would execute later cannot be changed",
            Self::FsWorkspaceMode => "the workspace mode holds",
            Self::FsQuota => "disk use is limited",
            Self::NetNone => "there is no network",
            Self::NetAllowlist => "only listed hosts can be reached",
            Self::Memory => "memory is limited",
            Self::Cpus => "processor time is limited",
            Self::Processes => "the number of processes is limited",
            Self::FileSize => "the size of one file is limited",
            Self::OpenFiles => "open files are limited",
            Self::NoCoreFile => "no core file is written",
            Self::NoNewPrivileges => "privileges cannot be gained",
            Self::Unprivileged => "the program is not root and has no capability",
            Self::KernelFilter => "dangerous system calls are refused",
            Self::ProcessesHidden => "other processes cannot be seen or signalled",
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Guarantee {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let known = Self::ALL.into_iter().find(|guarantee| guarantee.name() == name);
        known.ok_or_else(|| serde::de::Error::custom("not the name of a guarantee"))
    }
}

impl Serialize for Guarantee {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How firmly a guarantee is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// The supervisor looks now and then, and kills when it is over.
    Watched,
    /// The kernel keeps it, or the supervisor without a gap.
    Enforced,
}

/// What shows that one guarantee was in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The promise.
    pub guarantee: Guarantee,
    /// How firmly it was kept.
    pub strength: Strength,
    /// What was done or seen.
    pub evidence: String,
}

/// What `policy` asks of a wall.
pub fn required(policy: &ResolvedPolicy) -> Vec<Guarantee> {
    Guarantee::ALL
        .into_iter()
        .filter(|guarantee| match guarantee {
            Guarantee::FsDeny => !policy.fs.deny.is_empty(),
            Guarantee::FsProtect => !policy.fs.protect.is_empty(),
            Guarantee::NetNone => policy.net.mode.value == NetMode::None,
            Guarantee::NetAllowlist => policy.net.mode.value == NetMode::Allowlist,
            Guarantee::TimeLimit
            | Guarantee::OutputLimit
            | Guarantee::PromptReturn
            | Guarantee::NoSurvivors
            | Guarantee::CleanEnvironment
            | Guarantee::CleanDescriptors
            | Guarantee::FsConfined
            | Guarantee::FsWorkspaceMode
            | Guarantee::FsQuota
            | Guarantee::Memory
            | Guarantee::Cpus
            | Guarantee::Processes
            | Guarantee::FileSize
            | Guarantee::OpenFiles
            | Guarantee::NoCoreFile
            | Guarantee::NoNewPrivileges
            | Guarantee::Unprivileged
            | Guarantee::KernelFilter
            | Guarantee::ProcessesHidden => true,
        })
        .collect()
}
