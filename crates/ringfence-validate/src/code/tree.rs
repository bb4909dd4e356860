//! The form in which every language is walked over: what is assigned, called, imported, and nothing of its grammar beyond that.

use std::cell::OnceCell;
use std::rc::Rc;

use super::value::{Held, Making, Value};
use crate::analysis::Trick;
use crate::span::Span;

/// The field of a class that says which fields an object of it is made of, in order.
pub(crate) const ORDER: &str = "(order)";

/// An expression and where it stands in its text.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

/// What an expression is.
#[derive(Debug)]
pub(crate) enum Kind {
    Text(Literal),
    Number(i64),
    Truth(Truth),
    /// `None`, `null`, `undefined`: a value of which nothing comes.
    Nothing,
    Name(String),
    /// What a method is called on.
    This,
    Member(Box<Expr>, String),
    Index(Box<Expr>, Box<Expr>),
    /// `a[1:5:-1]`, with nothing where nothing is written.
    Slice(Box<Expr>, [Option<Box<Expr>>; 3]),
    Call(Box<Call>),
    /// Texts one after the other: `+`, f-strings, template literals.
    Join(Vec<Expr>),
    /// `text % values`.
    Percent(Box<Expr>, Box<Expr>),
    /// `a / b`, which joins paths in Python.
    Divide(Box<Expr>, Box<Expr>),
    Times(Box<Expr>, Box<Expr>),
    Power(Box<Expr>, Box<Expr>),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// Looked at, and no part of the value.
    Ignored(Box<Expr>),
    List(Vec<Expr>),
    /// `*list`, `...list`.
    Spread(Box<Expr>),
    /// Without a key: everything of another one.
    Fields(Vec<(Option<Expr>, Expr)>),
    /// One of these.
    Either(Vec<Expr>),
    Function(Rc<Function>),
    Class(Box<Class>),
    /// What a decorator makes of the name below it.
    Decorated(Box<Expr>, String),
    /// Given to whoever goes through what the function gives back.
    Yield(Box<Expr>),
    Assign(Box<Pattern>, Box<Expr>),
    Comprehension {
        loops: Vec<(Pattern, Expr)>,
        values: Vec<Expr>,
    },
    /// `import(…)`.
    Import(Box<Expr>),
    /// Something made of these, of which only is known where it comes from.
    Mix(Vec<Expr>),
}

/// Characters or bytes, as the program sees them.
#[derive(Debug)]
pub(crate) struct Literal {
    pub(crate) value: String,
    pub(crate) written: Written,
    /// Made once: a program is gone over several times.
    held: OnceCell<Held>,
}

impl Literal {
    /// What it holds.
    pub(crate) fn held(&self) -> Held {
        let made = || {
            let making = if self.written == Written::Obscured { Making::Decoded } else { Making::Plain };
            Rc::new(Value { making, ..Value::known(self.value.as_str()) })
        };
        Rc::clone(self.held.get_or_init(made))
    }
}

impl Kind {
    pub(crate) fn text(value: impl Into<String>, written: Written) -> Self {
        Self::Text(Literal { value: value.into(), written, held: OnceCell::new() })
    }
}

/// Arithmetic that disguises letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Minus,
    Xor,
}

/// How a text stands in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// As it is, from this byte on.
    At(usize),
    /// With escapes, or in parts.
    Changed,
    /// With escapes for plain letters.
    Obscured,
}

/// A truth value of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    True,
    False,
}

/// A call, also by `new`.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) callee: Expr,
    pub(crate) args: Vec<Arg>,
}

/// An argument.
#[derive(Debug)]
pub(crate) struct Arg {
    /// Of a keyword argument. `**` is a keyword argument with an empty name.
    pub(crate) name: Option<String>,
    pub(crate) value: Expr,
}

/// A function of the program.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its number in the text, from 0.
    pub(crate) number: usize,
    /// What it is called within itself, where nobody else calls it so.
    pub(crate) itself: Option<String>,
    pub(crate) params: Vec<Param>,
    pub(crate) body: Vec<Statement>,
}

/// A parameter.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) pattern: Pattern,
    pub(crate) default: Option<Expr>,
    pub(crate) takes: Takes,
}

/// How much a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    One,
    /// `*args`, `...rest`.
    Rest,
    /// `**kwargs`.
    Named,
}

/// A class of the program.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) bases: Vec<Expr>,
    /// `metaclass=M`, and what else whoever it belongs to is told of it.
    pub(crate) keywords: Vec<(String, Expr)>,
    pub(crate) body: Vec<Statement>,
}

/// Where a value goes.
#[derive(Debug)]
pub(crate) enum Pattern {
    Name(String),
    List(Vec<Self>),
    Rest(Box<Self>),
    /// `{key: pattern}`.
    Fields(Vec<(Expr, Self)>),
    Default(Box<Self>, Expr),
    /// An attribute or an item of something.
    Place(Expr),
}

/// How a name is given a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A name of this function is made, or set (Python's assignment).
    Here,
    /// A name that was made somewhere around is set (JavaScript's assignment).
    Around,
    /// It is added to what is there.
    Add,
}

/// A statement.
#[derive(Debug)]
pub(crate) enum Statement {
    Value(Expr),
    Assign {
        pattern: Pattern,
        value: Expr,
        how: How,
    },
    /// Any of these may happen, or none.
    Branches(Vec<Vec<Self>>),
    Loop {
        /// What takes each item of what.
        each: Option<Box<(Pattern, Expr)>>,
        end: LoopEnd,
        body: Vec<Self>,
        span: Span,
    },
    /// A block with names of its own.
    Block(Vec<Self>),
    Return(Expr),
    Import(Import),
    /// Names of the file, or of a function around, that are assigned to here.
    Outer(Vec<String>),
    /// Items or attributes that are taken away.
    Remove(Vec<Expr>),
    /// A statement that is a trick by itself.
    Strange(Trick, Span),
}

/// Whether a loop comes to an end that the text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    Ends,
    /// Its condition is always true and nothing leaves it.
    Never,
}

/// An import.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) span: Span,
    pub(crate) module: String,
    pub(crate) binds: Vec<Bind>,
}

/// A name that an import makes.
#[derive(Debug)]
pub(crate) enum Bind {
    /// The module as a whole.
    Module { name: String },
    /// The module's first part alone (`import os.path` binds `os`).
    Root { name: String },
    /// One thing of the module.
    Member { member: String, name: String },
    /// Everything of it.
    All,
}

impl Default for Expr {
    fn default() -> Self {
        Self::new(Span::default(), Kind::Nothing)
    }
}

impl Expr {
    pub(crate) fn new(span: Span, kind: Kind) -> Self {
        Self { span, kind }
    }

    pub(crate) fn name(span: Span, name: impl Into<String>) -> Self {
        Self::new(span, Kind::Name(name.into()))
    }

    /// A text whose place in the source is that of something else, such as the name of a property.
    pub(crate) fn word(span: Span, word: impl Into<String>) -> Self {
        Self::new(span, Kind::text(word, Written::Changed))
    }

    pub(crate) fn call(span: Span, callee: Self, args: Vec<Self>) -> Self {
        let args = args.into_iter().map(|value| Arg { name: None, value }).collect();
        Self::new(span, Kind::Call(Box::new(Call { callee, args })))
    }
}
