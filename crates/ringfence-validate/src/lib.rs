//! What a command or a program would do, found by reading it.
//!
//! A parser, not patterns: text becomes an [`Analysis`], a tree of steps with facts and the place of each in the text. Rules about facts
//! become findings. Nothing here executes, opens, looks up or asks the clock. It is a second fence and an explanation, never the wall: a
//! program can always do what its text does not show.
//!
//! **Must not** do I/O, panic, or guess: what cannot be told from the text is an [`Unknown`], and unknown is a fact that rules can
//! speak of. What is over a bound of [`Limits`] is unknown as a whole.

mod analysis;
mod code;
mod describe;
mod glob;
mod javascript;
mod judge;
mod language;
mod limits;
mod links;
mod path;
mod places;
mod program;
mod python;
mod reading;
mod rules;
mod shell;
mod span;
mod stream;
mod text;

pub use analysis::{
    Act, Analysis, Change, Contact, Does, Fact, Flow, Origin, Privilege, Removal, Step, SystemAct, Trick, Unknown,
};
pub use judge::{Circumstances, Finding, Judgement, judge, nobody_vouches, nothing_allowed};
pub use language::Language;
pub use limits::Limits;
pub use links::{Last, Leads, follow};
pub use path::{HOLE, PathClass, Surroundings, classify};
pub use places::fits;
pub use program::is_read_only;
pub use reading::{Subject, analyse};
pub use span::Span;
pub use text::{Hole, Piece, Text};
