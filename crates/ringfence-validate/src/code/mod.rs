//! What programs do, whatever language they are written in: one small tree for all, one walk that follows names, constants and data.
//!
//! A reader of a language bounds its text, has it parsed, and brings it into the form of [`tree`]. The walk goes over that tree
//! until it learns nothing more about what names hold and how the program's own functions are called; the last time tells. Nothing is
//! executed: what a call gives back is told by the language's [`book`], or it is not known.
//!
//! **Must not** believe a shadow: what a name holds in one function says nothing about the same name in another.

mod act;
mod below;
mod book;
mod call;
mod callbacks;
mod databases;
mod decode;
pub(crate) mod depth;
mod either;
mod evaluate;
mod few;
mod flows;
mod fold;
mod gits;
mod handed;
mod heap;
mod hosts;
mod left;
mod libraries;
mod lists;
mod lookalike;
mod loops;
mod member;
mod names;
mod own;
mod plain;
mod purpose;
mod quick;
mod role;
mod run;
mod scope;
mod search;
mod special;
mod store;
mod talk;
mod talkers;
mod tampered;
#[cfg(test)]
pub(crate) mod told;
mod touch;
pub(crate) mod tree;
mod value;
mod walk;

pub(crate) use book::Book;
pub(crate) use decode::is_obscured;
pub(crate) use lookalike::looks_alike;
pub(crate) use member::{COUNTED, RAISED};
pub(crate) use value::ANY_KEY;
pub(crate) use walk::{Program, read};
