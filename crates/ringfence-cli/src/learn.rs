//! `ringfence learn`: the least policy that would have let a run through.

use std::io;

use ringfence::learn::{Lesson, Wildcards, Wishes, contacts_of, learn as learn_from};
use ringfence::ledger::{ReadError, records_of};
use ringfence::state::StateError;
use ringfence_policy::{NetMode, NotWritable};

use crate::args::LearnArgs;
use crate::terminal::plain_line;
use crate::{Done, Fatal, chatter, setup};

#[derive(Debug, thiserror::Error)]
enum LearnFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("could not write a proposal")]
    NotWritable(#[from] NotWritable),
    #[error("could not write the lesson as JSON")]
    Json(#[from] serde_json::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for LearnFailure {}

/// Exit code 1 when something was set apart.
pub(crate) fn learn(args: &LearnArgs) -> Done {
    let context = setup::load(&args.layers, Vec::new())?;
    let state = setup::state().map_err(LearnFailure::from)?;
    let records = records_of(&state, &args.run).map_err(LearnFailure::from)?;
    let (contacts, omitted) = contacts_of(&records);
    let run = records.first().map_or(args.run.as_str(), |record| &record.run);
    let wishes = Wishes {
        include: args.include.clone(),
        wildcards: if args.wildcards { Wildcards::Asked } else { Wildcards::Never },
    };
    let lesson = learn_from(&context.loaded, run, &contacts, omitted, &wishes).map_err(LearnFailure::from)?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&lesson).map_err(LearnFailure::from)?),
        false => lesson.snippet.clone().unwrap_or_default(),
    };
    if !args.json {
        chatter::say_raw(&talk(&lesson, context.loaded.policy.net.mode.value));
    }
    chatter::data(&text).map_err(LearnFailure::Output)?;
    Ok(u8::from(!lesson.apart.is_empty()))
}

/// What people are told besides the proposal.
fn talk(lesson: &Lesson, mode: NetMode) -> String {
    if lesson.denied == 0 && lesson.omitted == 0 {
        let text = format!("ringfence: run {} was denied nothing\n", lesson.run);
        return match mode {
            NetMode::None => {
                text + "\nhint: under `net.mode: none` nothing is written down; run it once under `net: { mode: allowlist }`, which lets nothing through either\n"
            }
            NetMode::Allowlist | NetMode::Open => text,
        };
    }
    let mut text = String::new();
    if !lesson.apart.is_empty() {
        text.push_str("ringfence: set apart, for you to look at:\n");
    }
    for apart in &lesson.apart {
        let times = if apart.count == 1 { "once".to_owned() } else { format!("{} times", apart.count) };
        let place = if apart.port == 0 { apart.host.clone() } else { format!("{}:{}", apart.host, apart.port) };
        text.push_str(&format!("  {} ({times})\n      {}\n", one_line(&place), one_line(&apart.why)));
    }
    if lesson.apart.iter().any(|apart| apart.can_be_included) {
        text.push_str("\nhint: `--include HOST` proposes one that you know all the same\n");
    }
    if lesson.omitted > 0 {
        text.push_str(&format!(
            "ringfence: {} more were not written down one by one; run it again with what is proposed\n",
            lesson.omitted
        ));
    }
    if lesson.snippet.is_some() {
        text.push_str(&format!(
            "ringfence: {} of {} denied contacts would be let through by this in {}:\n",
            lesson.covered,
            lesson.denied,
            one_line(&lesson.file)
        ));
    }
    for host in &lesson.guessed {
        text.push_str(&format!("  {}: only the name was looked up; the port is a guess\n", one_line(host)));
    }
    for wider in &lesson.wider {
        text.push_str(&format!("  wider than what was seen: {}\n", one_line(wider)));
    }
    text
}

fn one_line(text: &str) -> String {
    plain_line(text.as_bytes())
}
