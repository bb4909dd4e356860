//! `ringfence check`.

use std::io::{self, IsTerminal};

use ringfence::check::{Check, CheckError, Progress, Report, Row, Verdict};
use ringfence::host::{Fact, facts};
use ringfence::launcher::Launcher;
use ringfence::{Guarantee, Outcome, Strength};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::CheckArgs;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, policy, render, setup};

/// When nobody says how wide the screen is.
const WIDTH: usize = 100;
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=120;
/// Where the name of an attack begins, and what it tries.
const ID: usize = 16;
const TRIED: usize = ID + 17;
/// Where begins what held a guarantee.
const BY: usize = 19;
/// Of the JSON.
const FORMAT: u32 = 1;

#[derive(Debug, thiserror::Error)]
enum CheckFailure {
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl CheckFailure {
    fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Check(CheckError::NothingRuns(outcome)) => Some(outcome),
            _ => None,
        }
    }
}

impl Fatal for CheckFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Check(CheckError::NoSuchAttack { .. }) => 2,
            _ => self
                .outcome()
                .map(Outcome::conventional_exit_code)
                .filter(|code| *code > 1)
                .unwrap_or(crate::OUR_FAILURE),
        }
    }

    fn details(&self) -> Option<String> {
        let outcome = self.outcome()?;
        match (&outcome.refusal, &outcome.error) {
            (Some(refusal), _) => Some(render::refusal(refusal)),
            (None, Some(error)) => Some(render::failure(error)),
            (None, None) => None,
        }
    }
}

/// Exit code 1 unless every attack was made and held.
pub(crate) fn check(args: &CheckArgs) -> Done {
    let context = setup::load(&args.layers, Vec::new())?;
    let files = policy::names(&context.loaded.files);
    let setup = setup::engine_setup(context, Launcher::here())?;
    let check = Check::prepare(setup, args.only.as_deref()).map_err(CheckFailure::from)?;
    let runtime = setup::runtime()?;
    let ended = runtime.block_on(until_interrupted(&check, Screen::new(args)));
    // In this order: what still runs ends with the event loop, and only then is what it works in removed.
    drop(runtime);
    drop(check);
    let report = match ended? {
        Ended::Checked(report) => report,
        Ended::Interrupted(code) => return Ok(code),
    };
    let facts = facts();
    let text = if args.json {
        format!("{:#}\n", as_json(&report, &facts, &files))
    } else {
        harmless(&Page::new(args).write(&report, &facts, &files))
    };
    match chatter::data(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CheckFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(u8::from(!report.holds())),
    }
}

enum Ended {
    Checked(Box<Report>),
    Interrupted(u8),
}

async fn until_interrupted(check: &Check, mut screen: Screen) -> Result<Ended, CheckFailure> {
    let listen = |kind| signal(kind).map_err(CheckFailure::Signals);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut show = |progress: Progress<'_>| screen.show(progress);
    let ended = tokio::select! {
        report = check.run(&mut show) => report.map(|report| Ended::Checked(Box::new(report))).map_err(CheckFailure::from),
        _ = interrupt.recv() => Ok(Ended::Interrupted(130)),
        _ = terminate.recv() => Ok(Ended::Interrupted(143)),
        _ = hangup.recv() => Ok(Ended::Interrupted(129)),
    };
    screen.clear();
    ended
}

/// One line that says what is going on, where somebody looks.
struct Screen {
    is_watched: bool,
}

impl Screen {
    fn new(args: &CheckArgs) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_watched: io::stderr().is_terminal() && !args.json && !is_dumb }
    }

    fn show(&mut self, Progress { done, all, next }: Progress<'_>) {
        if self.is_watched {
            chatter::say_raw(&format!("\r\x1b[K{:>3}/{all}  {next}", done + 1));
        }
    }

    fn clear(&self) {
        if self.is_watched {
            chatter::say_raw("\r\x1b[K");
        }
    }
}

/// How the report looks.
struct Page {
    width: usize,
    colours: bool,
    /// Whether a guarantee that was not attacked is shown.
    whole: bool,
}

impl Page {
    fn new(args: &CheckArgs) -> Self {
        let stdout = io::stdout();
        let columns = rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            width: columns.filter(|columns| *columns > 0).unwrap_or(WIDTH).clamp(*WIDTHS.start(), *WIDTHS.end()),
            colours: stdout.is_terminal() && !no_colour,
            whole: args.only.is_none(),
        }
    }

    fn write(&self, report: &Report, facts: &[Fact], files: &[String]) -> String {
        let mut text = format!("{:<BY$}what holds it\n", "guarantee");
        text.push_str(&format!("  {:<14}{:<17}what was tried\n\n", "result", "attack"));
        for evidence in &report.enforced {
            let strength = match evidence.strength {
                Strength::Enforced => "enforced",
                Strength::Watched => "watched",
            };
            self.guarantee(&mut text, report, evidence.guarantee, &format!("{strength}: {}", evidence.evidence));
        }
        for guarantee in &report.not_enforced {
            self.guarantee(&mut text, report, *guarantee, "nothing: this backend does not keep it");
        }
        text.push_str(&self.facts(report, facts, files));
        text
    }

    /// A guarantee, what held it, and the attacks on it.
    fn guarantee(&self, text: &mut String, report: &Report, guarantee: Guarantee, by: &str) {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.guarantee == guarantee).collect();
        if rows.is_empty() && !self.whole {
            return;
        }
        text.push_str(&self.wrapped(&format!("{:<BY$}", guarantee.name()), by));
        for row in &rows {
            let (word, colour, why) = match &row.verdict {
                Verdict::Held => ("held", "32", None),
                Verdict::Broken { how } => ("BROKEN", "1;31", Some(how)),
                Verdict::Inconclusive { why } => ("inconclusive", "33", Some(why)),
                Verdict::NotTried { why } => ("not tried", "33", Some(why)),
            };
            let start = format!("  {} {:<16} ", self.painted(&format!("{word:<13}"), colour), row.id);
            text.push_str(&self.wrapped_after(&start, &" ".repeat(TRIED), row.tried));
            if let Some(why) = why {
                text.push_str(&self.wrapped(&format!("{}→ ", " ".repeat(ID)), why));
            }
        }
        if rows.is_empty() {
            text.push_str(&format!("  {:<14}no attack on it was made\n", "-"));
        }
    }

    fn facts(&self, report: &Report, facts: &[Fact], files: &[String]) -> String {
        let mut text = String::from("\n");
        let mut line = |name: &str, value: &str| text.push_str(&self.wrapped(&format!("{name:<13}"), value));
        line("version", concat!("ringfence ", env!("CARGO_PKG_VERSION")));
        // To the second, in UTC.
        line("date", &report.date.get(..19).map_or_else(|| report.date.clone(), |date| format!("{date}Z")));
        for fact in facts.iter().filter(|fact| ["kernel", "machine", "user", "cgroups"].contains(&fact.name)) {
            line(fact.name, &fact.value);
        }
        line("backend", &backend(report));
        line("policy", &if files.is_empty() { "built-in defaults only".to_owned() } else { files.join(", ") });
        line("policy hash", &report.policy_hash);
        if let Some(head) = &report.ledger_head {
            line("ledger", &format!("{} records, the last is {}", head.records, head.hash));
        }
        line("guarantees", &strengths(report));
        line(
            "attacks",
            &format!("{} in {:.1} s: {}", report.rows.len(), report.duration.as_secs_f64(), counts(report)),
        );
        line("controls", "what held gets through without the wall, or was seen at work by the host");
        let (result, colour) = match report.holds() {
            true => ("EVERYTHING THAT WAS ATTACKED HELD", "1;32"),
            false if report.count(|verdict| matches!(verdict, Verdict::Broken { .. })) > 0 => ("NOT SAFE", "1;31"),
            false => ("NOT SHOWN", "1;33"),
        };
        line("result", &self.painted(result, colour));
        text.push_str(&format!("\nsigned       {}  {}\n", "_".repeat(30), "_".repeat(12)));
        text
    }

    fn painted(&self, text: &str, colour: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// `start` and then the words, in lines of our width; later lines begin below the first word.
    fn wrapped(&self, start: &str, words: &str) -> String {
        self.wrapped_after(start, &" ".repeat(start.chars().count()), words)
    }

    /// Likewise, where `start` looks as wide as `indent`.
    fn wrapped_after(&self, start: &str, indent: &str, words: &str) -> String {
        let mut text = start.to_owned();
        let mut width = indent.len();
        for (index, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && width + 1 + length > self.width {
                text.truncate(text.trim_end().len());
                text.push_str(&format!("\n{indent}"));
                width = indent.len();
            } else if index > 0 {
                text.push(' ');
                width += 1;
            }
            text.push_str(word);
            width += length;
        }
        text.push('\n');
        text
    }
}

fn backend(report: &Report) -> String {
    let Some(kind) = report.backend else { return "none was used".to_owned() };
    let tier = if kind.isolates() { "a wall" } else { "no wall" };
    match &report.fell_back {
        Some(fell_back) => {
            format!("{kind} ({tier}), because {} could not be had: {}", fell_back.wanted, fell_back.reason)
        }
        None => format!("{kind} ({tier})"),
    }
}

fn strengths(report: &Report) -> String {
    let of = |strength| report.enforced.iter().filter(|evidence| evidence.strength == strength).count();
    let proven = report.enforced.iter().filter(|evidence| evidence.evidence.contains("seen inside")).count();
    format!(
        "{} enforced, {} watched, {} not kept; {proven} were proven from inside",
        of(Strength::Enforced),
        of(Strength::Watched),
        report.not_enforced.len()
    )
}

fn counts(report: &Report) -> String {
    let count = |is_meant: fn(&Verdict) -> bool| report.count(is_meant);
    format!(
        "{} held, {} broken, {} inconclusive, {} not tried",
        count(|verdict| *verdict == Verdict::Held),
        count(|verdict| matches!(verdict, Verdict::Broken { .. })),
        count(|verdict| matches!(verdict, Verdict::Inconclusive { .. })),
        count(|verdict| matches!(verdict, Verdict::NotTried { .. }))
    )
}

fn as_json(report: &Report, facts: &[Fact], files: &[String]) -> Value {
    let host: serde_json::Map<String, Value> =
        facts.iter().map(|fact| (fact.name.to_owned(), json!(fact.value))).collect();
    let count = |is_meant: fn(&Verdict) -> bool| report.count(is_meant);
    json!({
        "v": FORMAT,
        "version": env!("CARGO_PKG_VERSION"),
        "date": report.date,
        "host": host,
        "backend": report.backend,
        "isolates": report.backend.is_some_and(ringfence_policy::BackendKind::isolates),
        "fellBack": report.fell_back,
        "policyFiles": files,
        "policyHash": report.policy_hash,
        "ledgerHead": report.ledger_head,
        "enforced": report.enforced,
        "notEnforced": report.not_enforced,
        "attacks": report.rows,
        "summary": {
            "held": count(|verdict| *verdict == Verdict::Held),
            "broken": count(|verdict| matches!(verdict, Verdict::Broken { .. })),
            "inconclusive": count(|verdict| matches!(verdict, Verdict::Inconclusive { .. })),
            "notTried": count(|verdict| matches!(verdict, Verdict::NotTried { .. })),
        },
        "durationMs": u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
        "holds": report.holds(),
    })
}
