//! `ringfence session`: a sandbox that is kept for many runs, by a process of its own.

mod asking;
pub(crate) mod checkpoint;
mod client;
mod host;
mod store;
mod wire;

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;

use ringfence::outcome::{Failure, FailureKind};
use ringfence::session::SessionEnded;
use ringfence::state::StateError;

use crate::args::{SessionCommand, SessionStartArgs};
use crate::{Done, Fatal, chatter, ended, render, setup};
use store::Info;
use wire::Call;

/// What a process says about the session that it opened, or of why there is none, at most.
const MOST_INFO: u64 = 1024 * 1024;
const MOST_NAME: usize = 40;

/// A session's name: a plain word, which is also a folder's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionName(String);

impl FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && text.len() <= MOST_NAME && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("write letters, digits, `-` and `_`, at most {MOST_NAME}, a letter or digit first"))
        }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SessionName {
    /// A name for somebody who gave none.
    fn make_up() -> Result<Self, SessionFailure> {
        let id = ringfence::RunId::generate()?;
        // The end of an id is random.
        let end = id.as_str().get(20..).unwrap_or("session");
        Ok(Self(format!("s-{end}")))
    }
}

/// Why something about sessions failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    RunId(#[from] ringfence::run_id::NoRandomness),
    #[error("a session named `{0}` is open already")]
    Taken(SessionName),
    #[error("there is no session named `{0}`")]
    Unknown(SessionName),
    #[error("could not {attempt} {path}")]
    Folder { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("could not start the process that keeps the session")]
    Spawn(#[source] io::Error),
    #[error("could not talk to the session `{name}`")]
    Talk { name: SessionName, source: io::Error },
    #[error("the session `{0}` ended")]
    Ended(SessionName),
    #[error("there is no run `{0}` in this session")]
    NoSuchRun(String),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
    #[error("could not use the terminal")]
    Terminal(#[source] io::Error),
    #[error("standard input is no terminal")]
    NoTerminal,
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error("{}", .0.chain.first().map_or("it failed", String::as_str))]
    Told(Failure),
}

impl Fatal for SessionFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Taken(_) | Self::Unknown(_) | Self::NoSuchRun(_) | Self::NoTerminal => 2,
            Self::Told(failure) if failure.kind == FailureKind::BadRequest => 2,
            _ => crate::OUR_FAILURE,
        }
    }

    fn details(&self) -> Option<String> {
        match self {
            Self::Told(failure) => Some(render::failure(failure)),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Taken(name) => Some(format!("use another name, or `ringfence session stop {name}` first")),
            Self::Unknown(_) => Some("`ringfence session list` shows those that are open".to_owned()),
            Self::NoSuchRun(_) => Some("write the id that `ringfence session exec --background` printed".to_owned()),
            Self::NoTerminal => Some("leave -t out; -i passes standard input on".to_owned()),
            Self::Talk { name, .. } | Self::Ended(name) => {
                Some(format!("`ringfence session start {name}` opens a new one; what was in the old one is gone"))
            }
            _ => None,
        }
    }
}

pub(crate) fn session(command: SessionCommand) -> Done {
    match command {
        SessionCommand::Start(args) if args.foreground => host::keep(&args),
        SessionCommand::Start(args) => start(&args),
        SessionCommand::Exec(args) => client::exec(&args),
        SessionCommand::List { json } => list(json),
        SessionCommand::Wait { name, run, output } => client::wait(&name, run, output),
        SessionCommand::Signal { name, run, signal } => client::ask(&name, &Call::Signal { run: run.clone(), signal })?
            .ok_or(SessionFailure::NoSuchRun(run))
            .map(|_| 0)
            .map_err(Into::into),
        SessionCommand::Stop { names, all } => stop(names, all),
    }
}

/// Starts a process that keeps the session, and returns when it is open.
fn start(args: &SessionStartArgs) -> Done {
    let spawn = SessionFailure::Spawn;
    // The same words once more, so that it reads the same policy from the same place.
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1));
    if args.name.is_none() {
        command.arg(SessionName::make_up()?.to_string());
    }
    command.args(["--foreground", "--detached"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(spawn)?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MOST_INFO).read_to_end(&mut said).map_err(spawn)?;
    }
    let Ok(info) = serde_json::from_slice::<Info>(&said) else {
        // It has said itself what went wrong; what is data comes by way of us.
        chatter::data(&String::from_utf8_lossy(&said)).map_err(SessionFailure::Output)?;
        let status = child.wait().map_err(spawn)?;
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::OUR_FAILURE));
    };
    let text = if args.json { format!("{:#}\n", serde_json::json!(info)) } else { format!("{}\n", info.name) };
    chatter::data(&text).map_err(SessionFailure::Output)?;
    Ok(0)
}

fn list(json: bool) -> Done {
    let mut listed = Vec::new();
    for info in store::list(&setup::state().map_err(SessionFailure::State)?)? {
        let Ok(name) = info.name.parse::<SessionName>() else { continue };
        // One that ends at this moment is not open.
        let Ok(Some(look)) = client::ask(&name, &Call::Look) else { continue };
        let Ok(look) = serde_json::from_slice::<wire::Look>(&look) else { continue };
        listed.push((info, look));
    }
    if json {
        let all: Vec<_> = listed
            .iter()
            .map(|(info, look)| {
                let mut entry = serde_json::json!(info);
                entry["running"] = look.running.into();
                entry["tasks"] = look.tasks.into();
                entry["memoryBytes"] = look.memory_bytes.into();
                entry
            })
            .collect();
        chatter::data(&format!("{:#}\n", serde_json::json!(all))).map_err(SessionFailure::Output)?;
        return Ok(0);
    }
    if listed.is_empty() {
        chatter::say("no session is open; `ringfence session start` opens one");
        return Ok(0);
    }
    let mut text =
        format!("{:<20} {:<8} {:>4} {:>9}  {:<20} {}\n", "NAME", "BACKEND", "RUNS", "MEMORY", "STARTED", "WORKSPACE");
    for (info, look) in &listed {
        let time = info.started_at.get(..19).map_or_else(|| info.started_at.clone(), |time| format!("{time}Z"));
        let memory = format!("{:.1} MiB", look.memory_bytes as f64 / 1_048_576.0);
        let workspace = crate::terminal::harmless(&info.workspace);
        text.push_str(&format!(
            "{:<20} {:<8} {:>4} {memory:>9}  {time:<20} {workspace}\n",
            info.name, info.backend, look.running
        ));
    }
    chatter::data(&text).map_err(SessionFailure::Output)?;
    Ok(0)
}

fn stop(names: Vec<SessionName>, all: bool) -> Done {
    let names = if all {
        let open = store::list(&setup::state().map_err(SessionFailure::State)?)?;
        open.iter().filter_map(|info| info.name.parse().ok()).collect()
    } else {
        names
    };
    let mut code = 0;
    for name in names {
        match client::ask(&name, &Call::Stop) {
            Ok(answer) => {
                let ended = answer.and_then(|answer| serde_json::from_slice::<SessionEnded>(&answer).ok());
                let Some(ended) = ended else { continue };
                if let Some(counts) = ended.changes {
                    chatter::say(&format!(
                        "{name}: {}",
                        ended::describe_changes(counts, ended.applied.as_ref(), &ended.id)
                    ));
                }
                if ended.full {
                    chatter::say(&format!(
                        "{name}: nothing more could be written at its end (fs.size); to permit more, raise `fs: {{ size: … }}` \
                         in the policy"
                    ));
                }
                if let Some(violation) = &ended.violation {
                    chatter::say(&format!("{name}: {}", ended::describe_later(violation)));
                }
                if let Some(error) = &ended.error {
                    chatter::say_raw(&render::failure(error));
                    code = crate::OUR_FAILURE;
                }
            }
            // The others are ended all the same.
            Err(error) => {
                chatter::error(&error);
                code = error.exit_code();
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_plain_word() {
        for good in ["a", "work", "s-1a_b", "9"] {
            assert!(good.parse::<SessionName>().is_ok(), "{good}");
        }
        let long = "a".repeat(41);
        for bad in ["", "..", ".", "a/b", "-x", "_x", "a b", "ä", "a\0", "a.b", &long] {
            assert!(bad.parse::<SessionName>().is_err(), "{bad}");
        }
        assert!(SessionName::make_up().unwrap().to_string().parse::<SessionName>().is_ok());
    }
}
