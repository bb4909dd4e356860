//! How refusals, failures and diagnostics look to a person.

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteDiagnostic, NamedSource, Report};
use ringfence::Refusal;
use ringfence::layers::LoadedFile;
use ringfence::outcome::Failure;
use ringfence_policy::{Diagnostic, Severity};

use crate::terminal::harmless;

const WIDTH: usize = 100;
/// A longer line of a file is not shown: it would bury what is wrong with it.
const MOST_LINE: usize = 400;

/// A refusal: what, by which rule, where, why, and what would permit it.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let place = match &refusal.place {
        Some(place) => place.to_string(),
        None => "built in".to_owned(),
    };
    let mut text = format!(
        "refused: {}\n\n  rule    {}\n  policy  {place}\n  reason  {}\n",
        refusal.subject, refusal.rule, refusal.reason
    );
    if let Some(hint) = &refusal.hint {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    harmless(&text)
}

/// A failure of ours: what was attempted, why it failed, what to do.
pub(crate) fn failure(failure: &Failure) -> String {
    let mut text = error_chain(&failure.chain);
    if let Some(hint) = &failure.hint {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    harmless(&text)
}

/// `error: …`, then each cause on a line of its own.
pub(crate) fn error_chain(chain: &[String]) -> String {
    let mut lines = chain.iter();
    let mut text = format!("error: {}\n", lines.next().map_or("unknown", String::as_str));
    for cause in lines {
        text.push_str(&format!("  because {cause}\n"));
    }
    harmless(&text)
}

/// Diagnostics with the lines that they point at.
pub(crate) fn diagnostics(diagnostics: &[Diagnostic], files: &[LoadedFile]) -> String {
    let theme = if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || !is_terminal() {
        GraphicalTheme::unicode_nocolor()
    } else {
        GraphicalTheme::unicode()
    };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false);
    let mut text = String::new();
    for diagnostic in diagnostics {
        let report = report(diagnostic, files);
        if handler.render_report(&mut text, report.as_ref()).is_err() {
            text.push_str(&format!("{diagnostic}\n"));
        }
        text.push('\n');
    }
    text
}

fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}

fn report(diagnostic: &Diagnostic, files: &[LoadedFile]) -> Report {
    let mut shown =
        MietteDiagnostic::new(harmless(&diagnostic.message)).with_code(diagnostic.code).with_severity(match diagnostic
            .severity
        {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        });
    if let Some(advice) = &diagnostic.advice {
        shown = shown.with_help(harmless(advice));
    }
    let source = diagnostic.place.as_ref().and_then(|place| files.iter().find(|file| file.name == place.file));
    match (source, &diagnostic.span) {
        (Some(file), Some(span)) if lines_are_short(&file.text, span.start) => {
            // Only whole characters of the text may be pointed at.
            let text = harmless_lines(&file.text);
            let length = span.end.saturating_sub(span.start).max(1);
            shown = shown.with_label(LabeledSpan::underline((span.start.min(text.len()), length)));
            Report::new(shown).with_source_code(NamedSource::new(harmless(&file.name), text))
        }
        _ => match &diagnostic.place {
            Some(place) => {
                shown.message = format!("{}: {}", harmless(&place.to_string()), shown.message);
                Report::new(shown)
            }
            None => Report::new(shown),
        },
    }
}

/// Whether the line at `at` and its neighbours, which are shown with it, can be shown whole.
fn lines_are_short(text: &str, at: usize) -> bool {
    let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    text.lines().skip(line.saturating_sub(1)).take(3).all(|line| line.len() <= MOST_LINE)
}

/// The text with every control character replaced by one of the same length, so that places in it stay right.
fn harmless_lines(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let acts = character.is_control() && character != '\n' && character != '\t';
            let bidi = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}');
            let (shown, count) = if acts || bidi { ('?', character.len_utf8()) } else { (character, 1) };
            std::iter::repeat_n(shown, count)
        })
        .collect()
}
