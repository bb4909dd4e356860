//! `ringfence diff`: what a run changed, for people and programs.

mod args;
mod json;
mod page;
mod paint;

use std::io::{self, BufWriter, Write};

use ringfence::state::StateError;
use ringfence::workspace::change::Change;
use ringfence::workspace::diff::{Body, Contents, Effort, LookedAt, Row, compare, look_at};
use ringfence::workspace::flag::Judgement;
use ringfence::workspace::selection::{NotAmongThem, Selection};
use ringfence::workspace::{ChangeSet, Node, Objects, Place};

use crate::terminal::plain_path;
use crate::{Done, Fatal, chosen, setup};

use self::paint::Paint;

pub(crate) use self::args::{ColourArg, DiffArgs};

#[derive(Debug, thiserror::Error)]
enum DiffFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("could not find out which folder this is")]
    Here(#[source] io::Error),
    #[error(transparent)]
    Selection(#[from] NotAmongThem),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for DiffFailure {}

/// A set with everything that is shown of it.
struct View<'a> {
    set: &'a ChangeSet,
    judgements: &'a [Judgement],
    rows: &'a [Row],
    contents: &'a Contents<'a>,
}

impl View<'_> {
    fn change(&self, row: &Row) -> Option<&Change> {
        self.set.changes.get(row.change)
    }

    fn judgement(&self, row: &Row) -> &Judgement {
        // There is one for each change; were there none, nothing may pass for free.
        const NONE: &Judgement = &Judgement::Denied(String::new());
        self.judgements.get(row.change).unwrap_or(NONE)
    }

    /// Where what was renamed came from.
    fn from(&self, row: &Row) -> Option<&Place> {
        row.from.and_then(|from| self.set.changes.get(from)).map(|change| &change.place)
    }

    /// What was compared, row by row. The effort is the same each time, and so is what comes out.
    fn bodies(&self) -> impl Iterator<Item = (&Row, Body)> {
        let mut effort = Effort::default();
        self.rows.iter().map(move |row| (row, compare(self.set, row, self.contents, &mut effort)))
    }

    /// Whether a folder is told by what is listed in it.
    fn is_told_by_others(&self, index: usize) -> bool {
        let Some(row) = self.rows.get(index) else { return false };
        let Some(change) = self.change(row) else { return false };
        let ordinary = matches!(&change.after, None | Some(Node::Folder { mode: 0o700 | 0o750 | 0o755 | 0o775 }));
        let next = self.rows.get(index + 1).and_then(|row| Some((row.kind, self.change(row)?)));
        ordinary
            && *self.judgement(row) == Judgement::Free
            && next.is_some_and(|(kind, next)| kind == row.kind && next.place.folder().as_ref() == Some(&change.place))
    }
}

pub(crate) fn diff(args: &DiffArgs) -> Done {
    let state = setup::state().map_err(DiffFailure::State)?;
    let (kept, set) = chosen::find(&state, &args.run, &here()?)?;
    show_set(&set, &kept.objects(), args)
}

fn here() -> Result<std::path::PathBuf, DiffFailure> {
    std::env::current_dir().and_then(|here| here.canonicalize()).map_err(DiffFailure::Here)
}

/// Shows `set`, whose contents are in `objects`.
pub(crate) fn show_set(set: &ChangeSet, objects: &Objects, args: &DiffArgs) -> Done {
    let chosen = Selection::of(set, &args.paths, &here()?).map_err(DiffFailure::Selection)?;
    let shown = look_at(set, objects, &chosen, |&LookedAt { judgements, rows, contents }| {
        let mut out = BufWriter::new(io::stdout().lock());
        show(&View { set, judgements, rows, contents }, args, &mut out).and_then(|()| out.flush())
    });
    match shown {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(DiffFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(0),
    }
}

fn show(view: &View<'_>, args: &DiffArgs, out: &mut dyn Write) -> io::Result<()> {
    let what = if args.stat { page::Depth::List } else { page::Depth::Lines };
    if args.json {
        return json::write(view, what, out);
    }
    if args.name_only {
        for row in view.rows {
            let places = view.from(row).into_iter().chain(view.change(row).map(|change| &change.place));
            for place in places {
                writeln!(out, "{}", plain_path(place.as_path()))?;
            }
        }
        return Ok(());
    }
    page::write(view, what, Paint::new(args.color), out)
}
