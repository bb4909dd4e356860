//! Parts of inner parts that are nothing but words and numbers: `f.__code__.co_name`, `f.constructor.name`. What lies between is never held
//! by anybody, so it cannot be used for more.

use super::tree::{Expr, Kind};
use super::value::Held;
use super::walk::Walk;
use crate::language::Language;

/// Parts of code that are words, numbers, or lists of such.
const CODE_PARTS: &[&str] = &[
    "co_argcount",
    "co_cellvars",
    "co_code",
    "co_filename",
    "co_firstlineno",
    "co_flags",
    "co_freevars",
    "co_kwonlyargcount",
    "co_name",
    "co_names",
    "co_nlocals",
    "co_posonlyargcount",
    "co_qualname",
    "co_stacksize",
    "co_varnames",
];
/// How code is reached, and what it runs in.
const CODES: &[&str] = &["__code__", "f_code", "gi_code", "cr_code", "ag_code"];
const FRAMES: &[&str] = &["f_back", "tb_frame", "tb_next", "gi_frame", "cr_frame", "ag_frame"];
/// Functions that give what is being run.
const GIVE_FRAMES: &[&str] = &["sys._getframe", "inspect.currentframe"];

impl Walk<'_, '_> {
    /// What `base.attribute` holds, if that is nothing but words and numbers of an inner part.
    pub(super) fn plain_part(&mut self, base: &Expr, attribute: &str) -> Option<Held> {
        if self.language == Language::Python {
            self.part_of_code(base, attribute)
        } else {
            self.name_of_maker(base, attribute)
        }
    }

    fn part_of_code(&mut self, base: &Expr, attribute: &str) -> Option<Held> {
        if let (Kind::Index(list, _), "function" | "lineno" | "filename") = (&base.kind, attribute) {
            return self.gives_only(list, "inspect.stack").then(Held::default);
        }
        let of_code = CODE_PARTS.contains(&attribute);
        if !of_code && attribute != "f_lineno" {
            return None;
        }
        let mut inner = base;
        if of_code {
            let Kind::Member(below, part) = &base.kind else { return None };
            inner = below;
            if !CODES.contains(&part.as_str()) {
                return None;
            }
        }
        while let Kind::Member(below, part) = &inner.kind
            && FRAMES.contains(&part.as_str())
        {
            inner = below;
        }
        if GIVE_FRAMES.iter().any(|name| self.gives_only(inner, name)) {
            return Some(Held::default());
        }
        self.value(inner);
        Some(Held::default())
    }

    /// Whether it is a call of the function of this name and of no other; its arguments are walked over then.
    fn gives_only(&mut self, expr: &Expr, name: &str) -> bool {
        let Kind::Call(call) = &expr.kind else { return false };
        let callee = self.value(&call.callee);
        let only = callee.functions.is_empty()
            && !callee.names.is_empty()
            && callee.names.iter().all(|known| &**known == name);
        if only {
            call.args.iter().for_each(|arg| {
                self.value(&arg.value);
            });
        }
        only
    }

    fn name_of_maker(&mut self, base: &Expr, attribute: &str) -> Option<Held> {
        let Kind::Member(inner, part) = &base.kind else { return None };
        if part != "constructor" || !matches!(attribute, "name" | "length") {
            return None;
        }
        let held = self.value(inner);
        (self.is_a_function(&held) && held.fields.is_none()).then(Held::default)
    }
}
