//! Facts in words, for people and models.

use std::fmt;

use crate::analysis::{Change, Contact, Fact, Flow, Privilege, Removal, SystemAct, Trick, Unknown};

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reads { path } => write!(f, "reads {path}"),
            Self::Writes { path } => write!(f, "writes {path}"),
            Self::Removes { path, removal } => match removal {
                Removal::One => write!(f, "removes {path}"),
                Removal::Tree => write!(f, "removes {path} and everything below"),
                Removal::Shred => write!(f, "destroys the contents of {path}"),
            },
            Self::Changes { path, change } => match change {
                Change::Mode { mode, tree: true } => write!(f, "sets the permissions of {path} and below to {mode}"),
                Change::Mode { mode, tree: false } => write!(f, "sets the permissions of {path} to {mode}"),
                Change::Owner { tree: true } => write!(f, "changes the owner of {path} and below"),
                Change::Owner { tree: false } => write!(f, "changes the owner of {path}"),
                Change::Attributes => write!(f, "changes attributes of {path}"),
                Change::Link { to } => write!(f, "links {path} to {to}"),
                Change::Times => write!(f, "changes the times of {path}"),
            },
            Self::Contacts { place, contact, sends } => {
                let way = match contact {
                    Contact::Fetch => "fetches from",
                    Contact::Send => "sends to",
                    Contact::Shell => "runs commands at",
                    Contact::Connect => "connects to",
                    Contact::Listen => "listens at",
                    Contact::Probe => "looks up or probes",
                };
                write!(f, "{way} {place}")?;
                if !sends.is_empty() {
                    write!(f, ", sending {}", flows(sends))?;
                }
                Ok(())
            }
            Self::Executes { from } => write!(f, "executes {}", flows(from)),
            Self::Imports { module } => write!(f, "imports {module}"),
            Self::Calls { name } => write!(f, "calls {name}"),
            Self::Privilege { privilege } => f.write_str(privilege_words(*privilege)),
            Self::System { act, about } => {
                f.write_str(act_words(*act))?;
                if about.pieces().is_empty() { Ok(()) } else { write!(f, ": {about}") }
            }
            Self::ReadsEnvironment { name: Some(name) } => write!(f, "reads the variable {name}"),
            Self::ReadsEnvironment { name: None } => f.write_str("reads all variables"),
            Self::SetsEnvironment { name, .. } => write!(f, "sets the variable {name}"),
            Self::Tricks { trick } => f.write_str(trick_words(*trick)),
            Self::Leads { path, does: Some(does), .. } => write!(f, "{does}, where {path} leads"),
            Self::Leads { path, to, does: None } => write!(f, "names {to}, where {path} leads"),
            Self::Unknown { unknown } => write!(f, "{unknown}"),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why } => write!(f, "cannot be read: {why}"),
            Self::Disagreement => f.write_str("is read differently by two parsers"),
            Self::TooMuch { bound } => write!(f, "is more than is read ({bound})"),
            Self::Program => f.write_str("starts a program whose name is only known when it runs"),
            Self::Language => f.write_str("runs code in a language that is not read"),
            Self::Link { path } => write!(f, "goes through the link {path}, and where that leads cannot be told"),
            Self::Script { path } => write!(f, "runs the code in {path}, which was not given"),
        }
    }
}

fn flows(flows: &[Flow]) -> String {
    let words: Vec<String> = flows
        .iter()
        .map(|flow| match flow {
            Flow::Network => "what comes from the network".to_owned(),
            Flow::Decoded => "what is decoded from something unreadable".to_owned(),
            Flow::File { path } => format!("the contents of {path}"),
            Flow::Environment => "variables of the environment".to_owned(),
            Flow::Input => "its input".to_owned(),
            Flow::Literal => "a text that stands here".to_owned(),
            Flow::Unknown => "something that is only known when it runs".to_owned(),
        })
        .collect();
    words.join(", ")
}

fn privilege_words(privilege: Privilege) -> &'static str {
    match privilege {
        Privilege::OtherUser => "becomes another user",
        Privilege::SetUserId => "makes a file that gives its starter more rights",
        Privilege::Capabilities => "works on capabilities",
        Privilege::Namespaces => "works on namespaces or mounts",
        Privilege::Kernel => "works on the kernel",
        Privilege::OtherProcess => "reaches into another process",
        Privilege::ContainerEngine => "gets the rights of a container engine",
        Privilege::Defences => "switches off a defence",
        Privilege::ForeignCode => "calls native code",
    }
}

fn act_words(act: SystemAct) -> &'static str {
    match act {
        SystemAct::Power => "switches the machine off or on",
        SystemAct::Disk => "works on a disk",
        SystemAct::Users => "manages users",
        SystemAct::Firewall => "changes packet filters or routes",
        SystemAct::Services => "manages services",
        SystemAct::Schedule => "schedules commands for later",
        SystemAct::Packages => "manages packages of the system",
        SystemAct::Traces => "removes traces",
        SystemAct::Kill => "ends processes",
        SystemAct::Exhaustion => "uses up the machine",
        SystemAct::Trust => "changes what the machine trusts",
        SystemAct::Records => "destroys what a database keeps",
    }
}

fn trick_words(trick: Trick) -> &'static str {
    match trick {
        Trick::Evaluates => "evaluates a text that is not known",
        Trick::ByBuiltName => "reaches something by a name that is put together",
        Trick::InnerParts => "reaches for the inner parts of the language",
        Trick::Deserialises => "loads objects that can run code",
        Trick::DynamicImport => "imports by a name that is put together, or from elsewhere",
        Trick::Lookalikes => "uses letters that look like others",
        Trick::Obscured => "is written so that it is hard to read",
        Trick::Redefines => "changes the meaning of later commands",
    }
}
