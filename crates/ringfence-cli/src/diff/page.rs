//! A set as a page for people: what it is, what to look at first, the list, then the lines. Every name and every line was
//! written by a program that is not trusted, so all of it goes through `terminal`.

use std::io::{self, Write};

use ringfence::workspace::change::{Change, OtherKind, WasKind};
use ringfence::workspace::diff::{Body, Hunk, Kind, Row, Sign};
use ringfence::workspace::flag::{Flag, Judgement};
use ringfence::workspace::{Before, Node};

use super::View;
use super::paint::{Paint, Tone};
use crate::terminal::{plain_line, plain_path};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Summary and list.
    List,
    /// The lines that differ, too.
    Lines,
}

/// Names below one reason; all stand in the list.
const MOST_NAMES: usize = 10;
/// Letters of a bar of pluses and minuses.
const MOST_BAR: usize = 24;
const MOST_SUBJECT: usize = 200;

pub(super) fn write(view: &View<'_>, depth: Depth, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    summary(view, paint, out)?;
    if view.rows.is_empty() {
        return Ok(());
    }
    held_back(view, paint, out)?;
    list(view, paint, out)?;
    if depth == Depth::Lines {
        for (row, body) in view.bodies() {
            one(view, row, &body, paint, out)?;
        }
    }
    Ok(())
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn summary(view: &View<'_>, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let subject: String = view.set.subject.chars().take(MOST_SUBJECT).collect();
    let run = paint.tone(Tone::Heading, view.set.run_id.as_str());
    writeln!(out, "{run}  {}", plain_line(subject.as_bytes()))?;
    writeln!(out, "{}", paint.tone(Tone::Quiet, &format!("in {}", plain_path(&view.set.workspace))))?;
    if view.rows.is_empty() {
        return writeln!(out, "no changes");
    }
    let kinds = ["added", "changed", "removed", "renamed", "mode", "link", "type"];
    let parts: Vec<String> = kinds
        .iter()
        .map(|kind| (kind, view.rows.iter().filter(|row| row.kind.word() == *kind).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    writeln!(out, "{}: {}", counted(view.rows.len(), "change", "changes"), parts.join(", "))
}

/// What is not applied by itself, with the reasons.
fn held_back(view: &View<'_>, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    let mut reasons: Vec<(&Flag, Vec<(&Change, &Flag)>)> = Vec::new();
    let mut flagged = 0;
    let mut denied: Vec<(&Change, &str)> = Vec::new();
    for (change, judgement) in judged(view) {
        match judgement {
            Judgement::Free => {}
            Judgement::Denied(rule) => denied.push((change, rule)),
            Judgement::Flagged(flags) => {
                flagged += 1;
                for flag in flags {
                    match reasons.iter_mut().find(|(first, _)| first.rule == flag.rule) {
                        Some((_, changes)) => changes.push((change, flag)),
                        None => reasons.push((flag, vec![(change, flag)])),
                    }
                }
            }
        }
    }
    if flagged > 0 {
        let title = format!("{} flagged", counted(flagged, "change is", "changes are"));
        let title = paint.tone(Tone::Warning, &title);
        let them = if flagged == 1 { "it" } else { "them" };
        writeln!(out, "\n{title}: the host would execute or obey {them} later. `apply` holds {them} back")?;
    }
    for (first, changes) in &reasons {
        for (change, flag) in changes.iter().take(MOST_NAMES) {
            let detail = flag.detail.as_ref().map(|detail| format!("  ({})", plain_line(detail.as_bytes())));
            let gone = if change.after.is_none() { "  (removed)" } else { "" };
            let name = paint.tone(Tone::Heading, &plain_path(change.place.as_path()));
            writeln!(out, "  {} {name}{}{gone}", paint.tone(Tone::Warning, "!"), detail.unwrap_or_default())?;
        }
        if changes.len() > MOST_NAMES {
            writeln!(out, "    and {} more, marked `!` below", changes.len() - MOST_NAMES)?;
        }
        let reason = format!("{}: {}", first.rule, first.reason);
        for line in wrapped(&reason, paint.width.saturating_sub(6)) {
            writeln!(out, "      {}", paint.tone(Tone::Quiet, &line))?;
        }
    }
    if !denied.is_empty() {
        let title = format!("{} denied", counted(denied.len(), "change is", "changes are"));
        writeln!(out, "\n{}: by the policy, and never applied", paint.tone(Tone::Denied, &title))?;
        for (change, rule) in denied.iter().take(MOST_NAMES) {
            let name = paint.tone(Tone::Heading, &plain_path(change.place.as_path()));
            writeln!(out, "  {} {name}  ({})", paint.tone(Tone::Denied, "x"), plain_line(rule.as_bytes()))?;
        }
        if denied.len() > MOST_NAMES {
            writeln!(out, "    and {} more, marked `x` below", denied.len() - MOST_NAMES)?;
        }
    }
    Ok(())
}

/// Text of ours in lines of at most this many letters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Every change that is shown with its judgement; a rename has two.
fn judged<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a Change, &'a Judgement)> {
    let shown = view.rows.iter().flat_map(|row| [row.from, Some(row.change)]).flatten();
    shown.filter_map(|index| Some((view.set.changes.get(index)?, view.judgements.get(index)?)))
}

/// The mark of the stricter of the judgements about a row.
fn mark(view: &View<'_>, row: &Row) -> (char, Tone) {
    let from = row.from.and_then(|from| view.judgements.get(from));
    let all = [Some(view.judgement(row)), from];
    let any = |wanted: fn(&Judgement) -> bool| all.iter().flatten().any(|judgement| wanted(judgement));
    if any(|judgement| matches!(judgement, Judgement::Denied(_))) {
        ('x', Tone::Denied)
    } else if any(|judgement| matches!(judgement, Judgement::Flagged(_))) {
        ('!', Tone::Warning)
    } else {
        (' ', Tone::Quiet)
    }
}

fn list(view: &View<'_>, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let names: Vec<String> = view.rows.iter().map(|row| name(view, row)).collect();
    let left = paint.width.saturating_sub(11 + 8 + MOST_BAR).max(20);
    let widest = names.iter().map(|name| name.chars().count()).filter(|width| *width <= left).max().unwrap_or(0);
    let stats: Vec<(usize, usize, &'static str)> = view
        .bodies()
        .map(|(_, body)| {
            let (added, removed) = body.lines();
            (added, removed, remark(&body))
        })
        .collect();
    let most = stats.iter().map(|(added, removed, _)| added + removed).max().unwrap_or(0);
    let digits = most.to_string().len();
    let (mut all_added, mut all_removed, mut untold) = (0, 0, 0);
    for (index, (row, (added, removed, remark))) in view.rows.iter().zip(&stats).enumerate() {
        all_added += added;
        all_removed += removed;
        if view.is_told_by_others(index) {
            untold += 1;
            continue;
        }
        let name = names.get(index).map_or("", String::as_str);
        let (mark, tone) = mark(view, row);
        let kind = match row.kind {
            Kind::Added => paint.tone(Tone::Added, "added  "),
            Kind::Removed => paint.tone(Tone::Removed, "removed"),
            kind => format!("{:<7}", kind.word()),
        };
        let gap = " ".repeat(widest.saturating_sub(name.chars().count()));
        let facts = facts(view, row);
        let lines = if added + removed > 0 {
            let (plus, minus) = bar(*added, *removed, most);
            let bar = paint.tone(Tone::Added, &plus) + &paint.tone(Tone::Removed, &minus);
            format!("{:>digits$} {bar}", added + removed)
        } else {
            String::new()
        };
        let told: Vec<&str> = [&lines, *remark, &facts].into_iter().filter(|fact| !fact.is_empty()).collect();
        let facts = if told.is_empty() { String::new() } else { format!("{gap} | {}", told.join(", ")) };
        writeln!(out, "  {kind} {} {name}{facts}", paint.tone(tone, &mark.to_string()))?;
    }
    let mut total = format!("{} added, {} removed", counted(all_added, "line", "lines"), all_removed);
    if untold > 0 {
        total.push_str(&format!("; {} shown by what is inside", counted(untold, "folder is", "folders are")));
    }
    writeln!(out, "  {}", paint.tone(Tone::Quiet, &total))
}

/// The path, as it is listed.
fn name(view: &View<'_>, row: &Row) -> String {
    let Some(change) = view.change(row) else { return String::new() };
    let mut name = plain_path(change.place.as_path());
    let folder = match (&change.after, &change.before) {
        (Some(after), _) => matches!(after, Node::Folder { .. }),
        (None, Before::Was(was)) => was.kind == WasKind::Folder,
        (None, Before::Nothing | Before::Unknown) => false,
    };
    if folder {
        name.push('/');
    }
    match view.from(row) {
        Some(from) => format!("{} -> {name}", plain_path(from.as_path())),
        None => name,
    }
}

fn remark(body: &Body) -> &'static str {
    match body {
        Body::Nothing | Body::Text(_) => "",
        Body::Binary => "binary",
        Body::TooLarge => "too large to compare",
        Body::Lost(_) => "what was there is not known",
        Body::Unreadable => "its contents cannot be read",
    }
}

/// Pluses and minuses, as many as fit; at least one of each that there is.
fn bar(added: usize, removed: usize, most: usize) -> (String, String) {
    let scaled = |count: usize| match (count, most) {
        (0, _) => 0,
        (count, most) if most <= MOST_BAR => count,
        (count, most) => (count * MOST_BAR / most).max(1),
    };
    ("+".repeat(scaled(added)), "-".repeat(scaled(removed)))
}

/// What is to be said besides lines: type, permissions, target, size.
fn facts(view: &View<'_>, row: &Row) -> String {
    let Some(change) = view.change(row) else { return String::new() };
    let before = row.from.and_then(|from| view.set.changes.get(from)).unwrap_or(change);
    let was = match &before.before {
        Before::Was(was) => Some(was),
        Before::Nothing | Before::Unknown => None,
    };
    let mut facts: Vec<String> = Vec::new();
    if row.kind == Kind::Type
        && let Some(was) = was
    {
        facts.push(format!("was {}", was_type(&was.kind)));
    }
    match &change.after {
        Some(Node::Link { target }) => {
            let was = was.and_then(|was| match &was.kind {
                WasKind::Link(target) => Some(format!("{} => ", plain_path(target.as_ref()))),
                WasKind::File(_) | WasKind::Folder | WasKind::Other(_) => None,
            });
            facts.push(format!("link to {}{}", was.unwrap_or_default(), plain_path(target.as_ref())));
        }
        Some(Node::Other(other)) => facts.push(other_type(*other).to_owned()),
        Some(Node::File { mode, size, .. }) => {
            match was.filter(|was| matches!(was.kind, WasKind::File(_))) {
                Some(was) if was.mode != *mode => facts.push(format!("mode {:04o} => {mode:04o}", was.mode)),
                Some(_) => {}
                None if mode & 0o7111 != 0 => facts.push(format!("mode {mode:04o}")),
                None => {}
            }
            if *size == 0 {
                facts.push("empty".to_owned());
            }
        }
        Some(Node::Folder { mode }) => match was.filter(|was| was.kind == WasKind::Folder) {
            Some(was) => facts.push(format!("mode {:04o} => {mode:04o}", was.mode)),
            None if !matches!(mode, 0o700 | 0o750 | 0o755 | 0o775) => facts.push(format!("mode {mode:04o}")),
            None => {}
        },
        None => {
            if let Some(target) = was.and_then(|was| match &was.kind {
                WasKind::Link(target) => Some(target),
                WasKind::File(_) | WasKind::Folder | WasKind::Other(_) => None,
            }) {
                facts.push(format!("link to {}", plain_path(target.as_ref())));
            }
        }
    }
    if change.before == Before::Unknown {
        facts.push("the host changed it while the program ran".to_owned());
    }
    if let Kind::Renamed { similarity } = row.kind {
        facts.push(format!("{similarity}% the same"));
    }
    facts.join(", ")
}

fn was_type(kind: &WasKind) -> &'static str {
    match kind {
        WasKind::File(_) => "a file",
        WasKind::Link(_) => "a link",
        WasKind::Folder => "a folder",
        WasKind::Other(other) => other_type(*other),
    }
}

fn other_type(other: OtherKind) -> &'static str {
    match other {
        OtherKind::Pipe => "a pipe",
        OtherKind::Socket => "a socket",
        OtherKind::Device => "a device",
    }
}

/// One row with its lines.
fn one(view: &View<'_>, row: &Row, body: &Body, paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    if *body == Body::Nothing {
        // The list has said all of it.
        return Ok(());
    }
    let (added, removed) = body.lines();
    let name = name(view, row);
    let counts = if added + removed > 0 { format!(" +{added} -{removed}") } else { String::new() };
    let used = 4 + row.kind.word().len() + 1 + name.chars().count() + 1 + counts.chars().count();
    let rule = "─".repeat(paint.width.saturating_sub(used).max(3));
    let title = paint.tone(Tone::Heading, &format!("{} {name}", row.kind.word()));
    writeln!(out, "\n{} {title} {}{counts}", paint.tone(Tone::Quiet, "───"), paint.tone(Tone::Quiet, &rule))?;
    match view.judgement(row) {
        Judgement::Free => {}
        Judgement::Flagged(flags) => {
            for flag in flags {
                let detail = flag.detail.as_ref().map(|detail| format!(" ({})", plain_line(detail.as_bytes())));
                let text = format!("! {}{}", flag.rule, detail.unwrap_or_default());
                writeln!(out, "{}", paint.tone(Tone::Warning, &text))?;
            }
        }
        Judgement::Denied(rule) => {
            let text = format!("x denied by {}", plain_line(rule.as_bytes()));
            writeln!(out, "{}", paint.tone(Tone::Denied, &text))?;
        }
    }
    let facts = facts(view, row);
    if !facts.is_empty() {
        writeln!(out, "{}", paint.tone(Tone::Quiet, &facts))?;
    }
    match body {
        Body::Nothing => Ok(()),
        Body::Text(found) => hunks(found, paint, out),
        Body::Binary => writeln!(out, "binary{}", sizes(view, row)),
        Body::TooLarge => writeln!(out, "too large to be compared line by line{}", sizes(view, row)),
        Body::Unreadable => writeln!(out, "what was kept of it cannot be read"),
        Body::Lost(found) if found.is_empty() => {
            writeln!(out, "what was there is not known: the host's file changed since")
        }
        Body::Lost(found) => {
            writeln!(out, "what was there is not known: the host's file changed since. This is all of the new one")?;
            hunks(found, paint, out)
        }
    }
}

fn sizes(view: &View<'_>, row: &Row) -> String {
    let Some(change) = view.change(row) else { return String::new() };
    let before = row.from.and_then(|from| view.set.changes.get(from)).unwrap_or(change);
    let old = match &before.before {
        Before::Was(was) if matches!(was.kind, WasKind::File(_)) => Some(was.stamp.size),
        Before::Was(_) | Before::Nothing | Before::Unknown => None,
    };
    let new = match &change.after {
        Some(Node::File { size, .. }) => Some(*size),
        Some(Node::Link { .. } | Node::Folder { .. } | Node::Other(_)) | None => None,
    };
    match (old, new) {
        (Some(old), Some(new)) => format!(": {old} => {new} bytes"),
        (None, Some(size)) | (Some(size), None) => format!(": {size} bytes"),
        (None, None) => String::new(),
    }
}

fn hunks(hunks: &[Hunk], paint: Paint, out: &mut dyn Write) -> io::Result<()> {
    for hunk in hunks {
        let place =
            format!("@@ -{},{} +{},{} @@", hunk.before_start, hunk.before_count, hunk.after_start, hunk.after_count);
        writeln!(out, "{}", paint.tone(Tone::Place, &place))?;
        for (sign, line) in &hunk.lines {
            let (text, whole) = line.strip_suffix(b"\n").map_or((line.as_slice(), false), |text| (text, true));
            let text = plain_line(text);
            match sign {
                Sign::Same => writeln!(out, " {text}")?,
                Sign::Removed => writeln!(out, "{}", paint.tone(Tone::Removed, &format!("-{text}")))?,
                Sign::Added => writeln!(out, "{}", paint.tone(Tone::Added, &format!("+{text}")))?,
            }
            if !whole {
                writeln!(out, "{}", paint.tone(Tone::Quiet, "\\ no line end at the end of the file"))?;
            }
        }
    }
    Ok(())
}
