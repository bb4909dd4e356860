//! `ringfence hook`: judges what an agent's own tools are about to do.
//!
//! An agent asks before each tool call, in its own format: one JSON object on standard input, one on standard output. Each agent has a
//! file that translates; what is allowed is decided in one place, by the policy. Whatever fails denies: exit code 2, which every one of
//! these agents takes for a no, with the reason on standard error.

mod after;
mod agent;
mod call;
mod claude_code;
mod codex;
mod cursor;
mod files;
mod gemini;
mod input;
mod judge;
mod names;
mod paths;
mod search;
mod shell;
mod web;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args as ClapArgs;
use serde_json::{Map, Value};

pub(crate) use self::agent::Agent;
use self::call::{Answer, Event};
use self::judge::Judge;
pub(crate) use self::shell::joined;
use crate::args::LayerArgs;
use crate::setup::Context;
use crate::{chatter, setup};

/// By which each agent is told no when nothing else can be said.
const BLOCKED: u8 = 2;

#[derive(Debug, ClapArgs)]
#[command(after_help = "An agent's settings name it; `ringfence init` writes them. To try it:
  echo '{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"ls\"}}' | ringfence hook claude-code

Exit codes: 0 it was answered, on standard output; 2 it was denied, for the reason on standard error.")]
pub(crate) struct HookArgs {
    /// Whose call it is
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

/// Why a call could not be judged, which denies it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotJudged(String);

impl NotJudged {
    fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

pub(crate) fn hook(args: &HookArgs) -> u8 {
    // A panic would end us by a signal, and some agents take that for a yes.
    std::panic::set_hook(Box::new(|panic| {
        chatter::say(&format!("the call could not be judged, so it is denied: {panic}"));
        std::process::exit(i32::from(BLOCKED));
    }));
    let answered = input::read(std::io::stdin().lock()).and_then(|input| answer(args, &input));
    let told = answered.and_then(|answer| {
        let text = answer.to_string();
        chatter::data(&format!("{text}\n"))
            .map_err(|error| NotJudged::because(format!("nobody heard the answer: {error}")))
    });
    match told {
        Ok(()) => 0,
        Err(reason) => {
            chatter::say(&format!("the call could not be judged, so it is denied: {reason}"));
            BLOCKED
        }
    }
}

/// What is said to `input`.
fn answer(args: &HookArgs, input: &Map<String, Value>) -> Result<Value, NotJudged> {
    let agent = args.agent;
    let event = agent.read(input)?;
    go_to_project(agent, input, &args.layers)?;
    let context = setup::load(&args.layers, Vec::new()).map_err(|error| NotJudged::because(in_full(&error)))?;
    let state = setup::state().map_err(|error| NotJudged::because(error.to_string()))?;
    match event {
        Event::Before(call) => {
            let judge = Judge::new(agent, &args.layers, &context, Some(state.clone()));
            let answer = judge.judge(&call)?;
            after::record_before(agent, &state, &call, &answer)?;
            Ok(agent.answer(&call, answer))
        }
        Event::After(returned) => after::after(agent, &state, &returned),
    }
}

/// The policy is that of the project that the agent was started in. Where a command happens to stand decides nothing: a model can go to
/// any folder, also to one that has a policy of its own.
fn go_to_project(agent: Agent, input: &Map<String, Value>, layers: &LayerArgs) -> Result<(), NotJudged> {
    if layers.workspace.is_some() {
        return Ok(());
    }
    let named = agent.project(input, |name| std::env::var_os(name).map(PathBuf::from));
    let Some(project) = named else { return Ok(()) };
    std::env::set_current_dir(&project)
        .map_err(|error| NotJudged::because(format!("the project {} cannot be entered: {error}", project.display())))
}

/// An error with its causes and, of a policy, with what is wrong in it.
fn in_full(error: &dyn crate::Fatal) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    if let Some(details) = error.details() {
        text.push_str(&format!("\n{details}"));
    }
    text
}

/// Where the project is and what its policy says, for the parts of a judgement.
#[derive(Clone, Copy)]
struct Ground<'a> {
    agent: Agent,
    layers: &'a LayerArgs,
    context: &'a Context,
}

/// What one part of a judgement says: nothing, where nothing speaks against it.
type Objection = Option<Answer>;
