//! `ringfence hook`: what an agent's own tools are about to do is read from standard input and answered on standard output.
//!
//! What is allowed is decided by `ringfence-hook`; here it is told where it is. Whatever fails denies: exit code 2, which every one of
//! these agents takes for a no, with the reason on standard error.

mod record;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ringfence::StateFolder;
use ringfence::mask::Mask;
use ringfence_hook::{Agent, Event, Ground, Judge, MOST_BYTES, NotJudged, Wall};
use serde_json::{Map, Value};

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
    #[arg(value_parser = agents())]
    pub(crate) agent: Agent,
    #[command(flatten)]
    pub(crate) layers: LayerArgs,
}

fn agents() -> impl TypedValueParser<Value = Agent> {
    let names = Agent::ALL.map(|agent| PossibleValue::new(agent.name()).help(agent.title()));
    PossibleValuesParser::new(names).try_map(|name| Agent::named(&name).ok_or("there is no such agent"))
}

pub(crate) fn hook(args: &HookArgs) -> u8 {
    // A panic would end us by a signal, and some agents take that for a yes.
    std::panic::set_hook(Box::new(|panic| {
        chatter::say(&format!("the call could not be judged, so it is denied: {panic}"));
        std::process::exit(i32::from(BLOCKED));
    }));
    let answered = read(std::io::stdin().lock()).and_then(|input| answer(args, &input));
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

/// One byte more than is taken, so that what is longer is known for it.
fn read(from: impl Read) -> Result<Map<String, Value>, NotJudged> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| NotJudged::because(format!("it could not be read: {error}")))?;
    ringfence_hook::parse(&bytes)
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
            let judge = Judge::new(ground(agent, &args.layers, context, state.clone())?);
            let answer = judge.judge(&call)?;
            record::before(agent, &state, &call, &answer)?;
            Ok(agent.answer(&call, answer))
        }
        Event::After(returned) => {
            record::after(agent, &state, &returned)?;
            let masked = returned.masked(&Mask::of(std::env::vars_os()));
            Ok(agent.answer_after(&returned, masked))
        }
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

fn ground(agent: Agent, layers: &LayerArgs, context: Context, state: StateFolder) -> Result<Ground, NotJudged> {
    let program =
        std::env::current_exe().map_err(|error| NotJudged::because(format!("nobody knows where we are: {error}")))?;
    let backend = layers.named_backend();
    let wall = if backend.is_some() { Wall::ByHook } else { Wall::ByPolicy };
    let mut flags: Vec<String> = backend.map(|backend| format!("--backend={backend}")).into_iter().collect();
    flags.extend(layers.runtime.as_ref().map(|runtime| format!("--runtime={runtime}")));
    flags.extend(layers.image.as_ref().map(|image| format!("--image={image}")));
    for file in &layers.grant_file {
        flags.push(format!("--grant-file={}", real(file)?));
    }
    Ok(Ground {
        agent,
        loaded: context.loaded,
        workspace: context.workspace,
        own: context.own,
        state: Some(state),
        program,
        flags,
        wall,
        home: std::env::var_os("HOME").map(PathBuf::from),
        path: std::env::var_os("PATH").unwrap_or_default(),
        user: rustix::process::getuid().as_raw(),
    })
}

/// The real path of a file, as a text that can stand in a command.
fn real(file: &Path) -> Result<String, NotJudged> {
    let real = file.canonicalize().map_err(|error| NotJudged::because(format!("{}: {error}", file.display())))?;
    real.into_os_string().into_string().map_err(|_| NotJudged::because(format!("{} is no text", file.display())))
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
