//! `ringfence explain`: what the policy says of one place on the network, or of a request.

use std::io;

use ringfence::explain::{BadQuestion, Explanation, Question, explain as explain_question};

use crate::args::ExplainArgs;
use crate::terminal::plain_line;
use crate::{Done, Fatal, chatter, setup};

#[derive(Debug, thiserror::Error)]
enum ExplainFailure {
    #[error(transparent)]
    Question(#[from] BadQuestion),
    #[error("could not write the answer as JSON")]
    Json(#[from] serde_json::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for ExplainFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Question(_) => 2,
            Self::Json(_) | Self::Output(_) => crate::OUR_FAILURE,
        }
    }
}

/// Exit code 1 when it would be denied.
pub(crate) fn explain(args: &ExplainArgs) -> Done {
    let Some(host) = &args.host else { return crate::foresee::foresee(args) };
    let question = Question::read(host, args.method.as_deref(), args.path.as_deref()).map_err(ExplainFailure::from)?;
    let context = setup::load(&args.layers, Vec::new())?;
    let explanation = explain_question(&context.loaded, &question);
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&explanation).map_err(ExplainFailure::from)?),
        false => page(&explanation),
    };
    chatter::data(&text).map_err(ExplainFailure::Output)?;
    Ok(u8::from(!explanation.allowed))
}

fn page(explanation: &Explanation) -> String {
    let verdict = if explanation.allowed { "allowed" } else { "denied" };
    let mut text = format!("{verdict}: {}\n\n", one_line(&explanation.subject));
    let mut row = |name: &str, value: &str| text.push_str(&format!("  {name:<9} {}\n", one_line(value)));
    row("rule", &explanation.rule);
    let place = match (&explanation.layer, &explanation.place) {
        (Some(layer), Some(place)) => format!("{place} ({layer})"),
        (Some(layer), None) => layer.clone(),
        (None, _) => "built in".to_owned(),
    };
    row("policy", &place);
    if let Some(why) = &explanation.why {
        row("reason", why);
    }
    if explanation.allowed {
        row("https", explanation.https.meaning());
    }
    for fact in &explanation.built_in {
        row("built in", fact);
    }
    for fact in &explanation.later {
        row("later", fact);
    }
    if let Some(hint) = &explanation.hint {
        text.push_str(&format!("\nhint: {}\n", one_line(hint)));
    }
    if let Some(fix) = &explanation.fix {
        text.push_str(&format!("\n{}", fix.snippet));
    }
    text
}

fn one_line(text: &str) -> String {
    plain_line(text.as_bytes())
}
