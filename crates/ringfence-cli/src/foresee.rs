//! `ringfence explain -- COMMAND`: what a request would do, the rules that fire, and the verdict. Nothing is run.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use ringfence::analysis::surroundings;
use ringfence::explain::request::{Foreseen, command_line, foresee as foresee_work};
use ringfence::language::UnknownInterpreter;
use ringfence::{Request, Work};
use ringfence_policy::Verdict;

use crate::args::ExplainArgs;
use crate::terminal::plain_line;
use crate::{Done, Fatal, chatter, setup};

/// A longer file is not read.
const MOST_CODE: u64 = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
enum ForeseeFailure {
    #[error("could not read {}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is longer than 4 MiB, and not read", .0.display())]
    TooLong(PathBuf),
    #[error(transparent)]
    Interpreter(#[from] UnknownInterpreter),
    #[error("could not write the answer as JSON")]
    Json(#[from] serde_json::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for ForeseeFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interpreter(_) => 2,
            Self::File { .. } | Self::TooLong(_) | Self::Json(_) | Self::Output(_) => crate::OUR_FAILURE,
        }
    }
}

/// Exit code 1 when it would be denied or asked about.
pub(crate) fn foresee(args: &ExplainArgs) -> Done {
    let work = work(args)?;
    let context = setup::load(&args.layers, Vec::new())?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let around = surroundings(&Request::new(work.clone()), &context.workspace, home.as_deref());
    let foreseen = foresee_work(&work, &context.loaded.policy, &around, &context.workspace);
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&foreseen).map_err(ForeseeFailure::from)?),
        false => {
            let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let paint = if io::stdout().is_terminal() && !no_colour { Paint::Colours } else { Paint::Plain };
            page(&foreseen, paint)
        }
    };
    chatter::data(&text).map_err(ForeseeFailure::Output)?;
    Ok(u8::from(foreseen.verdict != Verdict::Allow))
}

fn work(args: &ExplainArgs) -> Result<Work, ForeseeFailure> {
    if let Some(line) = &args.shell {
        return Ok(Work::Shell(line.clone()));
    }
    let Some(language) = args.lang.filter(|_| args.code.is_some() || args.file.is_some()) else {
        return Ok(Work::Argv(args.command.clone()));
    };
    let source = match (&args.code, &args.file) {
        (Some(code), _) => code.clone().into_bytes(),
        (None, Some(path)) => {
            let failed = |source| ForeseeFailure::File { path: path.clone(), source };
            let mut bytes = Vec::new();
            File::open(path).map_err(failed)?.take(MOST_CODE + 1).read_to_end(&mut bytes).map_err(failed)?;
            if bytes.len() as u64 > MOST_CODE {
                return Err(ForeseeFailure::TooLong(path.clone()));
            }
            bytes
        }
        (None, None) => Vec::new(),
    };
    let interpreter = args.interpreter.as_deref().map(|program| language.interpreter(program)).transpose()?;
    Ok(Work::Code { language, source, name: None, interpreter })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paint {
    Colours,
    Plain,
}

impl Paint {
    fn verdict(self, verdict: Verdict) -> String {
        let (word, colour) = match verdict {
            Verdict::Allow => ("allow", "32"),
            Verdict::Ask => ("ask", "33"),
            Verdict::Deny => ("deny", "31;1"),
        };
        match self {
            Self::Colours => format!("\x1b[{colour}m{word}\x1b[0m"),
            Self::Plain => word.to_owned(),
        }
    }

    fn faint(self, text: &str) -> String {
        match self {
            Self::Colours => format!("\x1b[2m{text}\x1b[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

fn page(foreseen: &Foreseen, paint: Paint) -> String {
    let mut text = format!(
        "{}: {} (validate: {})\n\nwhat would happen\n",
        paint.verdict(foreseen.verdict),
        one_line(&foreseen.subject),
        foreseen.level
    );
    branches(&mut text, &foreseen.steps, "  ", paint);
    if foreseen.findings.is_empty() {
        text.push_str("\nno rule speaks of it\n");
        return text;
    }
    text.push_str("\nrules\n");
    for finding in &foreseen.findings {
        text.push_str(&format!(
            "  {} {}: it {}\n      {}\n      instead: {}\n",
            paint.verdict(finding.verdict),
            one_line(&finding.rule),
            one_line(&finding.subject),
            one_line(&finding.reason),
            one_line(&finding.instead)
        ));
    }
    text
}

/// The tree of steps, with what each does by itself.
fn branches(text: &mut String, steps: &[ringfence::analysis::Step], indent: &str, paint: Paint) {
    use ringfence::analysis::Does;
    for (place, step) in steps.iter().enumerate() {
        let is_last = place + 1 == steps.len();
        let (branch, below) = if is_last { ("└ ", "  ") } else { ("├ ", "│ ") };
        let name = match &step.does {
            Does::Command { argv } => command_line(argv),
            Does::Pipeline => "a pipeline".to_owned(),
            Does::Group => "a group".to_owned(),
            Does::Code { language } => format!("code in {}", language.name()),
        };
        text.push_str(&format!("{indent}{branch}{}\n", one_line(&name)));
        let inner = format!("{indent}{below}");
        for act in &step.facts {
            text.push_str(&format!("{inner}  {}\n", paint.faint(&one_line(&act.fact.to_string()))));
        }
        branches(text, &step.inner, &inner, paint);
    }
}

fn one_line(text: &str) -> String {
    plain_line(text.as_bytes())
}
