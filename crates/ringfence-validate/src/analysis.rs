//! What a request would do: a tree of steps, each with facts.
//!
//! Facts know no policy. A fact is told as soon as the text makes it likely, and says what is unknown about it by holes in its
//! [`Text`]s; rules decide what it means.

use serde::{Deserialize, Serialize};

use crate::language::Language;
use crate::span::Span;
use crate::text::Text;

/// What a request would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Analysis {
    /// In the order of the text.
    pub steps: Vec<Step>,
}

impl Analysis {
    /// Every step, the outer ones before those that they start.
    pub fn all_steps(&self) -> Vec<&Step> {
        let mut found = Vec::new();
        let mut waiting: Vec<&Step> = self.steps.iter().rev().collect();
        while let Some(step) = waiting.pop() {
            found.push(step);
            waiting.extend(step.inner.iter().rev());
        }
        found
    }

    /// Every fact, in the order of [`Analysis::all_steps`].
    pub fn facts(&self) -> impl Iterator<Item = &Act> {
        self.all_steps().into_iter().flat_map(|step| &step.facts)
    }

    /// Every command that is started, also by another one.
    pub fn commands(&self) -> impl Iterator<Item = (&[Text], Span)> {
        self.all_steps().into_iter().filter_map(|step| match &step.does {
            Does::Command { argv } => Some((argv.as_slice(), step.span)),
            Does::Pipeline | Does::Code { .. } | Does::Group => None,
        })
    }
}

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub does: Does,
    /// What it does by itself.
    pub facts: Vec<Act>,
    /// What it starts: the commands of a pipeline, the command behind `sudo`, the line of `sh -c`.
    pub inner: Vec<Step>,
}

/// What a step is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Does {
    /// A program or a command of the shell itself. The words are those that would be executed: quotes taken away, variables put in
    /// where the text sets them. The program's name is the first, as written.
    Command {
        /// At least one word.
        argv: Vec<Text>,
    },
    /// Commands that pass output on, first to last.
    Pipeline,
    /// Commands that belong together: a loop, a function, a substitution.
    Group,
    /// Code.
    Code {
        /// In this language.
        language: Language,
    },
}

/// A fact and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Act {
    /// The word or expression that shows it.
    pub span: Span,
    /// What is done.
    pub fact: Fact,
}

/// Something that is done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fact")]
pub enum Fact {
    /// The contents of a file, or the names in a folder, are read.
    Reads {
        /// The file, the folder, or a pattern.
        path: Text,
    },
    /// A file is made, overwritten or added to.
    Writes {
        /// The file.
        path: Text,
    },
    /// Something is removed, moved away or emptied.
    Removes {
        /// What.
        path: Text,
        /// How much.
        removal: Removal,
    },
    /// Something about a file other than its contents is changed.
    Changes {
        /// The file.
        path: Text,
        /// What.
        change: Change,
    },
    /// Another machine, or a socket of this one, is spoken to.
    Contacts {
        /// The host, `HOST:PORT`, a URL, or the path of a socket, as written.
        place: Text,
        /// In which way.
        contact: Contact,
        /// What is sent there that matters, such as the contents of a secret file. Empty for a plain request.
        sends: Vec<Flow>,
    },
    /// Code is executed that does not stand in the text.
    Executes {
        /// Where it comes from.
        from: Vec<Flow>,
    },
    /// A module is imported.
    Imports {
        /// Its full name.
        module: Text,
    },
    /// A function is called whose full name was found, such as `os.system` or `child_process.exec`.
    Calls {
        /// Its full name.
        name: Text,
    },
    /// More rights are asked for, or a wall is worked on.
    Privilege {
        /// Which.
        privilege: Privilege,
    },
    /// The machine itself is managed.
    System {
        /// How.
        act: SystemAct,
        /// What it is about: a disk, a service, a user.
        about: Text,
    },
    /// An environment variable is read, or all of them.
    ReadsEnvironment {
        /// Nothing for all of them.
        name: Option<Text>,
    },
    /// An environment variable is set for commands that follow, or for one.
    SetsEnvironment {
        /// Its name.
        name: Text,
        /// Its value.
        value: Text,
    },
    /// A way of hiding or of reaching around the language's own order.
    Tricks {
        /// Which.
        trick: Trick,
    },
    /// A path of the request leads elsewhere, through a link. Only a caller can tell: see [`crate::follow`].
    Leads {
        /// As the request names it.
        path: Text,
        /// Where it leads.
        to: Text,
        /// What is done there. Nothing where only the program knows what it does with the name.
        does: Option<Box<Fact>>,
    },
    /// Something could not be told.
    Unknown {
        /// What.
        unknown: Unknown,
    },
}

impl Fact {
    /// Whether somebody who knows the program has said what it does with its words.
    pub(crate) fn tells_of_files(&self) -> bool {
        match self {
            Self::Reads { .. }
            | Self::Writes { .. }
            | Self::Removes { .. }
            | Self::Changes { .. }
            | Self::Contacts { .. }
            | Self::System { .. } => true,
            Self::Executes { .. }
            | Self::Imports { .. }
            | Self::Calls { .. }
            | Self::Privilege { .. }
            | Self::ReadsEnvironment { .. }
            | Self::SetsEnvironment { .. }
            | Self::Tricks { .. }
            | Self::Leads { .. }
            | Self::Unknown { .. } => false,
        }
    }
}

/// How much is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// A file, or an empty folder.
    One,
    /// A folder with everything below.
    Tree,
    /// Its contents, beyond getting them back.
    Shred,
}

/// What about a file is changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Change {
    /// Permissions, as written (`777`, `u+s`).
    Mode {
        /// As written.
        mode: Text,
        /// Also below.
        tree: bool,
    },
    /// Owner or group.
    Owner {
        /// Also below.
        tree: bool,
    },
    /// Extended attributes, access lists, file capabilities, immutability.
    Attributes,
    /// A link is made here.
    Link {
        /// To this.
        to: Text,
    },
    /// Times.
    Times,
}

/// In which way another machine is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contact {
    /// Something is fetched: a download, a clone, an install.
    Fetch,
    /// Something is sent: an upload, a push, a post.
    Send,
    /// A shell or commands there.
    Shell,
    /// A bare connection.
    Connect,
    /// Others may connect to us.
    Listen,
    /// A name is looked up, or a host is probed.
    Probe,
}

/// Where data comes from. Followed through pipes, substitutions, variables and files of one text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum Flow {
    /// From the network.
    Network,
    /// Decoded, decrypted or unpacked from something unreadable: base64, hex, gzip, rot13.
    Decoded,
    /// The contents of a file.
    File {
        /// Its path, as far as known, for people.
        path: String,
    },
    /// Environment variables, all of them or one that looks like a secret.
    Environment,
    /// Standard input of the request.
    Input,
    /// Written in the text itself, in a form that was read: then its steps are there too.
    Literal,
    /// Not known.
    Unknown,
}

/// Rights, and work on walls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Privilege {
    /// Becoming root or another user: `sudo`, `su`, `doas`, `pkexec`, `setuid`.
    OtherUser,
    /// A file that gives its starter more rights.
    SetUserId,
    /// File or process capabilities.
    Capabilities,
    /// `chroot`, `unshare`, `nsenter`, `mount`, `pivot_root`.
    Namespaces,
    /// Kernel modules, kernel parameters, bpf.
    Kernel,
    /// Another process's memory or calls: `ptrace`, `gdb -p`, `/proc/PID/mem`.
    OtherProcess,
    /// The socket of a container engine, privileged containers.
    ContainerEngine,
    /// Security modules switched off: SELinux, AppArmor, ASLR.
    Defences,
    /// Native code from a program in a language: ctypes, ffi, `process.dlopen`.
    ForeignCode,
}

/// Management of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemAct {
    /// Switching off, restarting.
    Power,
    /// File systems and partitions made, wiped or written raw.
    Disk,
    /// Users, groups, passwords.
    Users,
    /// Packet filters, routes, interfaces.
    Firewall,
    /// Services.
    Services,
    /// Commands at a later time: cron, at, timers.
    Schedule,
    /// Packages of the system.
    Packages,
    /// Logs and history removed.
    Traces,
    /// Other processes ended.
    Kill,
    /// So much is used that nothing is left: a fork bomb, a disk filled.
    Exhaustion,
    /// Keys, certificates, what the machine trusts.
    Trust,
    /// What a database keeps for others, dropped.
    Records,
}

/// Ways of hiding and reaching around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trick {
    /// `eval`, `exec`, `Function` of a text that is not known.
    Evaluates,
    /// Attributes or functions by a name that is built, `getattr` with a hole.
    ByBuiltName,
    /// `__subclasses__`, `__globals__`, `constructor.constructor`, frames.
    InnerParts,
    /// Unsafe deserialisation.
    Deserialises,
    /// An import by a name that is built, or of code from elsewhere.
    DynamicImport,
    /// Letters that look like others in names.
    Lookalikes,
    /// Written so that it is hard to read: escapes for plain letters, decoding of a literal.
    Obscured,
    /// The meaning of commands is changed for later ones: aliases, functions named like programs, `PATH`, `LD_PRELOAD`.
    Redefines,
}

/// What could not be told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Unknown {
    /// It is not valid in its language, or a parser failed.
    Unreadable {
        /// What the parser says, short.
        why: String,
    },
    /// Two parsers read it differently.
    Disagreement,
    /// More than is read.
    TooMuch {
        /// Which bound.
        bound: &'static str,
    },
    /// A program whose name is only known when it runs.
    Program,
    /// Code in a language that is not read.
    Language,
    /// Code that is in a file which was not given.
    Script {
        /// Its path.
        path: String,
    },
    /// Where a link leads on which a path goes.
    Link {
        /// The path, as the request names it.
        path: String,
    },
}

/// Where a text within a text comes from, for its places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It stands in the request as it is, from this byte on.
    At(usize),
    /// It was put together from what stands here.
    Made(Span),
}

impl Origin {
    /// The place of `inner`, which is a place in the text within.
    pub fn place(self, inner: Span) -> Span {
        match self {
            Self::At(start) => Span::new(start + inner.start, start + inner.end),
            Self::Made(span) => span,
        }
    }
}
