//! What a function does with its arguments, as the books say it.

use crate::analysis::{Flow, Privilege, SystemAct, Trick};

/// One thing that a function does.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Role {
    pub(super) act: RoleAct,
    /// The arguments that it is about, in the order that the act wants them.
    pub(super) args: Vec<Slot>,
}

/// Which argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slot {
    /// By its place, and by its name where it has one.
    At(usize, Option<&'static str>),
    /// By its name alone.
    Named(&'static str),
    /// From this place on.
    From(usize),
    /// The last one.
    Last,
    /// What the function is called on.
    Receiver,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoleAct {
    /// A shell line is run.
    Shell,
    /// A list of words is run, or a line if a shell is asked for.
    Process,
    /// A program is run with a list of arguments, or in a shell if one is asked for.
    Spawn,
    /// A program is run with a list of words whose first is its name again.
    ExecList,
    /// A program is run with the words that follow.
    ExecWords,
    Reads,
    Writes,
    Removes,
    RemovesTree,
    Empties,
    /// Read or written, as the mode says.
    Opens,
    /// Old and new place.
    Moves,
    /// Old and new place.
    Copies,
    Mode,
    Owner,
    /// What is linked to, and the link.
    Links,
    Times,
    Fetches,
    Sends,
    /// A file, or what it holds, is laid where others keep files.
    Uploads,
    Connects,
    Listens,
    Probes,
    RemoteShell,
    Evaluates,
    /// A function is made of its parameters and its body.
    MakesFunction,
    /// The names that a text sees which was given before.
    SeesNames,
    /// Evaluated if it is a text, called if it is a function.
    EvaluatesText,
    Deserialises,
    /// The same, of a file by its path.
    DeserialisesFile,
    /// A file of code by its path.
    ImportsFile,
    /// A library of native code by its path, or by its name.
    LoadsLibrary,
    /// Deserialised, unless a safe loader is named.
    Yaml,
    /// A module by name.
    Imports,
    /// An attribute of something, by name.
    Attribute,
    /// An attribute of something is set, by name.
    SetsAttribute,
    Environment,
    WholeEnvironment,
    SetsEnvironment,
    Privilege(Privilege),
    System(SystemAct),
    Trick(Trick),
    /// A process of its own is made: one too many in a loop.
    Forks,
    /// What it gives comes from there.
    Gives(Given),
    /// What it gives is called this.
    Is(&'static str),
    /// What it gives reads so.
    Text(&'static str),
    /// What it gives is a path made of these.
    Path,
    /// What it gives is what it is given.
    Passes,
    /// The function is called with the rest.
    Applies,
    /// The function is called with the arguments of a list.
    Applied,
    /// Fetched, or sent if the options say so.
    Requests,
    /// A connection by port and host, or to a place.
    Socket,
    /// A file of code, or code itself, that is run beside the program.
    Worker,
    /// Relative paths start there from now on.
    Directory,
    /// Code that the program never sees: run, if it comes from elsewhere and is handed something that acts.
    Loads,
    /// Whoever is at the other end types what is run.
    Obeys,
}

/// Where what a function gives comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Network,
    Decoded,
    Environment,
    Input,
    /// What it is called on.
    Receiver,
    /// Its arguments.
    Arguments,
    /// Nothing that matters.
    Nothing,
}

impl Given {
    pub(super) fn flow(self) -> Option<Flow> {
        match self {
            Self::Network => Some(Flow::Network),
            Self::Decoded => Some(Flow::Decoded),
            Self::Environment => Some(Flow::Environment),
            Self::Input => Some(Flow::Input),
            Self::Receiver | Self::Arguments | Self::Nothing => None,
        }
    }
}

impl RoleAct {
    /// Whether what is given is a command, code, or the name of a module.
    pub(super) fn runs_what_it_is_given(self) -> bool {
        matches!(
            self,
            Self::Shell
                | Self::Process
                | Self::Spawn
                | Self::ExecList
                | Self::ExecWords
                | Self::Evaluates
                | Self::MakesFunction
                | Self::Imports
                | Self::RemovesTree
                | Self::Opens
        )
    }
}

impl Role {
    /// Reads `act:argument,argument`.
    pub(super) fn read(text: &'static str) -> Option<Self> {
        let (act, rest) = text.split_once(':').unwrap_or((text, ""));
        let plain = |act| {
            Some(Self {
                act,
                args: rest.split(',').filter(|slot| !slot.is_empty()).map(Slot::read).collect::<Option<_>>()?,
            })
        };
        // The acts whose first argument is a word of its own.
        let (word, after) = rest.split_once(',').unwrap_or((rest, ""));
        let told = |act| {
            Some(Self {
                act,
                args: after.split(',').filter(|slot| !slot.is_empty()).map(Slot::read).collect::<Option<_>>()?,
            })
        };
        match act {
            "shell" => plain(RoleAct::Shell),
            "process" => plain(RoleAct::Process),
            "spawn" => plain(RoleAct::Spawn),
            "exec-list" => plain(RoleAct::ExecList),
            "exec-words" => plain(RoleAct::ExecWords),
            "reads" => plain(RoleAct::Reads),
            "writes" => plain(RoleAct::Writes),
            "removes" => plain(RoleAct::Removes),
            "tree" => plain(RoleAct::RemovesTree),
            "empties" => plain(RoleAct::Empties),
            "opens" => plain(RoleAct::Opens),
            "moves" => plain(RoleAct::Moves),
            "copies" => plain(RoleAct::Copies),
            "mode" => plain(RoleAct::Mode),
            "owner" => plain(RoleAct::Owner),
            "links" => plain(RoleAct::Links),
            "times" => plain(RoleAct::Times),
            "fetches" => plain(RoleAct::Fetches),
            "sends" => plain(RoleAct::Sends),
            "uploads" => plain(RoleAct::Uploads),
            "connects" => plain(RoleAct::Connects),
            "listens" => plain(RoleAct::Listens),
            "probes" => plain(RoleAct::Probes),
            "remote-shell" => plain(RoleAct::RemoteShell),
            "evaluates" => plain(RoleAct::Evaluates),
            "sees-names" => plain(RoleAct::SeesNames),
            "makes-function" => plain(RoleAct::MakesFunction),
            "evaluates-text" => plain(RoleAct::EvaluatesText),
            "deserialises" => plain(RoleAct::Deserialises),
            "deserialises-file" => plain(RoleAct::DeserialisesFile),
            "imports-file" => plain(RoleAct::ImportsFile),
            "loads-library" => plain(RoleAct::LoadsLibrary),
            "yaml" => plain(RoleAct::Yaml),
            "imports" => plain(RoleAct::Imports),
            "attribute" => plain(RoleAct::Attribute),
            "sets-attribute" => plain(RoleAct::SetsAttribute),
            "environment" => plain(RoleAct::Environment),
            "whole-environment" => plain(RoleAct::WholeEnvironment),
            "sets-environment" => plain(RoleAct::SetsEnvironment),
            "forks" => plain(RoleAct::Forks),
            "path" => plain(RoleAct::Path),
            "applies" => plain(RoleAct::Applies),
            "passes" => plain(RoleAct::Passes),
            "applied" => plain(RoleAct::Applied),
            "requests" => plain(RoleAct::Requests),
            "socket" => plain(RoleAct::Socket),
            "worker" => plain(RoleAct::Worker),
            "loads" => plain(RoleAct::Loads),
            "obeys" => plain(RoleAct::Obeys),
            "directory" => plain(RoleAct::Directory),
            "privilege" => told(RoleAct::Privilege(privilege(word)?)),
            "system" => told(RoleAct::System(system(word)?)),
            "trick" => told(RoleAct::Trick(trick(word)?)),
            "gives" => told(RoleAct::Gives(given(word)?)),
            "is" => told(RoleAct::Is(word)),
            "text" => told(RoleAct::Text(word)),
            _ => None,
        }
    }
}

impl Slot {
    fn read(text: &'static str) -> Option<Self> {
        if text == "self" {
            return Some(Self::Receiver);
        }
        if text == "last" {
            return Some(Self::Last);
        }
        if let Some(name) = text.strip_prefix('=') {
            return Some(Self::Named(name));
        }
        if let Some(from) = text.strip_suffix('+') {
            return Some(Self::From(from.parse().ok()?));
        }
        match text.split_once('/') {
            Some((at, name)) => Some(Self::At(at.parse().ok()?, Some(name))),
            None => Some(Self::At(text.parse().ok()?, None)),
        }
    }
}

fn given(word: &str) -> Option<Given> {
    Some(match word {
        "network" => Given::Network,
        "decoded" => Given::Decoded,
        "environment" => Given::Environment,
        "input" => Given::Input,
        "self" => Given::Receiver,
        "arguments" => Given::Arguments,
        "nothing" => Given::Nothing,
        _ => return None,
    })
}

fn privilege(word: &str) -> Option<Privilege> {
    Some(match word {
        "other-user" => Privilege::OtherUser,
        "namespaces" => Privilege::Namespaces,
        "capabilities" => Privilege::Capabilities,
        "other-process" => Privilege::OtherProcess,
        "foreign-code" => Privilege::ForeignCode,
        "container-engine" => Privilege::ContainerEngine,
        "kernel" => Privilege::Kernel,
        _ => return None,
    })
}

fn system(word: &str) -> Option<SystemAct> {
    Some(match word {
        "power" => SystemAct::Power,
        "kill" => SystemAct::Kill,
        "exhaustion" => SystemAct::Exhaustion,
        "schedule" => SystemAct::Schedule,
        "users" => SystemAct::Users,
        _ => return None,
    })
}

fn trick(word: &str) -> Option<Trick> {
    Some(match word {
        "evaluates" => Trick::Evaluates,
        "by-built-name" => Trick::ByBuiltName,
        "inner-parts" => Trick::InnerParts,
        "dynamic-import" => Trick::DynamicImport,
        "redefines" => Trick::Redefines,
        "obscured" => Trick::Obscured,
        _ => return None,
    })
}
