//! Where programs and files are, and lines that wait until somebody types.

use super::{Handler, Run};
use crate::analysis::{Fact, Flow};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "complete" | "compgen" | "bind" => completes,
        "which" | "type" => which,
        "realpath" | "readlink" => real_path,
        _ => return None,
    })
}

/// `complete -C LINE` and `bind -x KEY:LINE`: the line runs when somebody types.
fn completes(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(
        &["-C", "-F", "-W", "-A", "-G", "-P", "-S", "-X", "-x", "-f", "-q", "-u", "-r", "-m"],
        super::Style::Usual,
    );
    let option = if name == "bind" { "-x" } else { "-C" };
    for code in words.values(&[option]).cloned().collect::<Vec<_>>() {
        match code.known() {
            Some(line) if name == "bind" => {
                let line = line.rsplit_once("\":").map_or(line, |(_, line)| line.trim().trim_matches('"'));
                run.later(line, code.span);
            }
            Some(line) => run.later(line, code.span),
            None => run.fact(code.span, Fact::Executes { from: vec![Flow::Unknown] }),
        }
    }
}

/// Where programs lie: those that are known lie where programs do.
pub(super) fn which(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let asks = |word: &Argument| matches!(word.known(), Some("-p" | "-P" | "-v" | "-a" | "-ap" | "-aP"));
    let names: Vec<&Argument> = rest.iter().filter(|word| !word.text.known_start().starts_with('-')).collect();
    let places: Option<Vec<String>> = names
        .iter()
        .map(|word| {
            let known = word.known().filter(|known| !known.contains('/') && super::is_known(known))?;
            let own = super::runs(known) == super::Runs::Here || run.reading.scope.has_function(known);
            Some(if own { known.to_owned() } else { format!("/usr/bin/{known}") })
        })
        .collect();
    run.output = match places {
        Some(places) if !places.is_empty() && (name != "type" || rest.iter().any(asks)) => {
            // Or nothing, where it is not installed.
            let mut found = Stream::literal(Text::known(format!("{}\n", places.join("\n"))));
            found.or(Stream::literal(Text::default()));
            found
        }
        _ => Stream::from(vec![Flow::Unknown]),
    };
}

/// Compiles, or says where a library of its own lies.
pub(super) fn compiler(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let rest = run.rest();
    if let [asked] = rest.as_slice()
        && let Some(library) = asked.known().and_then(|word| word.strip_prefix("-print-file-name="))
        && library.starts_with("lib")
        && !library.contains(['/', ' ', '\n'])
    {
        run.output = Stream::literal(Text::known(format!("/usr/lib/{library}\n")));
    }
}

/// What a path from the root leads to is, as far as words go, itself.
fn real_path(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let rest = run.rest();
    let mut paths = rest.iter().filter(|word| !word.text.known_start().starts_with('-'));
    if let (Some(path), None) = (paths.next().and_then(Argument::known), paths.next())
        && path.starts_with('/')
    {
        run.output = Stream::literal(Text::known(format!("{path}\n")));
    }
}

impl Run<'_, '_> {
    /// A line that runs later, if at all: read by itself, and nothing that it sets is kept.
    pub(super) fn later(&mut self, line: &str, span: crate::span::Span) {
        let saved = self.reading.scope.clone();
        let origin = crate::analysis::Origin::Made(span);
        let (steps, _) = self.reading.shell_stream(line, origin, &Stream::default());
        self.inner.extend(steps);
        self.reading.scope.leave_child(saved);
    }
}
