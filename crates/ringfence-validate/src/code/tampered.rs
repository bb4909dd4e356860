//! What a program makes of itself: objects that run something when they are put together again, templates that reach inside,
//! processes that start themselves again, and files of other people's modules.

use std::rc::Rc;

use super::act;
use super::call::{Given, Place};
use super::quick::{Listed, listed};
use super::tree::{Call, Expr, Kind};
use super::value::{Field, Held, Value};
use super::walk::Walk;
use crate::analysis::{Fact, SystemAct, Trick};
use crate::span::Span;
use crate::text::{Hole, Text};

/// Methods that say how an object is put together again.
const REDUCES: &[&str] = &["__reduce__", "__reduce_ex__"];

/// Parts of the language that no template needs.
const INSIDE: &[&str] = &[
    "__globals__",
    "__subclasses__",
    "__builtins__",
    "__mro__",
    "__import__",
    "__bases__",
    "constructor.constructor",
    ".constructor(",
    "process.mainModule",
    "child_process",
    "getBuiltinModule",
    "os.popen",
    "os.system",
];

/// Functions that make something of the text of a template.
static TEMPLATES: Listed = Listed::new(|| {
    listed(&[
        "jinja2.Template",
        "jinja2.Environment().from_string",
        "jinja2.sandbox.SandboxedEnvironment().from_string",
        "jinja2.sandbox.ImmutableSandboxedEnvironment().from_string",
        "flask.render_template_string",
        "mako.template.Template",
        "tornado.template.Template",
        "django.template.Template",
        "ejs.render",
        "ejs.compile",
        "pug.render",
        "pug.compile",
        "nunjucks.renderString",
        "nunjucks.compile",
        "handlebars.compile",
        "Handlebars.compile",
        "lodash.template",
        "_.template",
        "underscore.template",
        "doT.template",
        "dot.template",
        "eta.renderString",
        "swig.render",
        "mustache.render",
        "velocityjs.render",
        "art-template.render",
    ])
});

impl Walk<'_, '_> {
    /// An object says that something is called where it is put together again.
    pub(super) fn reduced(&mut self, fields: &[Field]) {
        for (_, method) in fields.iter().filter(|(name, _)| REDUCES.contains(&&**name)) {
            for number in method.functions.iter().copied().collect::<Vec<_>>() {
                let Some(gives) = self.enter_function(number, &[]) else { continue };
                let Some(function) = gives.items.as_ref().and_then(|items| items.first().cloned()) else { continue };
                let book = self.book;
                // To look something up is how many objects are put together again.
                let runs = |name: &Rc<str>| &**name != "getattr" && book.roles(name).is_some_and(act::acts);
                if !function.names.iter().any(runs) {
                    continue;
                }
                let args =
                    gives.items.as_ref().and_then(|items| items.get(1)?.items.as_ref().map(|args| (**args).clone()));
                let args = args.unwrap_or_default();
                let place = Place::default();
                let places = vec![place; args.len()];
                self.trick(Trick::Deserialises, place.span);
                self.called(&function, None, &Given { args, places, ..Given::default() });
            }
        }
    }

    /// The text of a template reaches for the inner parts of the language.
    pub(super) fn template(&mut self, name: &str, given: &Given) {
        if !TEMPLATES.contains(name) {
            return;
        }
        let reaches = |text: &Text| {
            let text = text.to_string();
            text.len() < 64 * 1024 && INSIDE.iter().any(|part| text.contains(part))
        };
        if given.args.first().is_some_and(|template| template.texts.iter().any(reaches)) {
            self.trick(Trick::InnerParts, given.span);
        }
    }

    /// A template with what it is given: what is not known stays open, and so does all that the template computes.
    pub(super) fn filled(&self, template: &str, given: &Given) -> Value {
        let known = |name: &str| {
            let name = name.trim().trim_end_matches("| safe").trim_start_matches(['=', '-', '&']).trim();
            let named = given.named.iter().find(|(known, _, _)| known == name).map(|(_, held, _)| Rc::clone(held));
            named.or_else(|| given.args.iter().find_map(|arg| arg.field(name)))
        };
        let mut parts: Vec<Held> = Vec::new();
        let mut rest = template;
        let open = [("{{", "}}"), ("{%", "%}"), ("<%", "%>"), ("${", "}")];
        while let Some((at, end)) =
            open.iter().filter_map(|(start, end)| Some((rest.find(start)?, *end))).min_by_key(|(at, _)| *at)
        {
            let (before, inside) = rest.split_at(at);
            parts.push(Rc::new(Value::known(before)));
            let inside = inside.get(2..).unwrap_or_default();
            let is_statement = rest.get(at..).is_some_and(|from| from.starts_with("{%"));
            let (field, after) = inside.split_once(end).unwrap_or((inside, ""));
            if !is_statement {
                parts.push(known(field).unwrap_or_else(|| Rc::new(Value::text(Text::hole(Hole::Value)))));
            }
            rest = after;
            if parts.len() > 64 {
                break;
            }
        }
        parts.push(Rc::new(Value::known(rest)));
        super::value::join(&parts, "")
    }

    /// Whether a loop goes over something that has no end: `iter(int, 1)`, `itertools.count()`.
    pub(super) fn is_endless(&mut self, over: &Expr) -> bool {
        let Kind::Call(call) = &over.kind else { return false };
        if call.args.len() > 2 || matches!(call.callee.kind, Kind::Call(_)) {
            return false;
        }
        let callee = self.value(&call.callee);
        match call.args.as_slice() {
            [first, _] if callee.has("iter") => {
                let first = self.value(&first.value);
                ["int", "float", "str", "list", "dict", "bool", "bytes"].iter().any(|name| first.has(name))
            }
            [_] if callee.has("itertools.repeat") || callee.has("itertools.cycle") => true,
            _ => callee.has("itertools.count"),
        }
    }

    /// A program that starts itself again and again.
    pub(super) fn starts_itself(&mut self, program: &Value, words: Option<&[Held]>, span: Span) {
        let is_own = |word: &Held| {
            word.has("__filename") || word.has("__file__") || word.has("sys.argv") || word.has("process.argv")
        };
        let runs = |text: &Text| {
            text.as_known().is_some_and(|name| matches!(name, "node" | "python3" | "python" | "bun" | "deno"))
        };
        if self.loops > 0
            && program.texts.iter().any(runs)
            && words.is_some_and(|words| words.iter().take(4).any(is_own))
        {
            self.tell(span, Fact::System { act: SystemAct::Exhaustion, about: Text::known("processes in a loop") });
        }
    }

    /// Where a module of somebody else lies.
    pub(super) fn resolved(&self, module: &Value) -> Option<Value> {
        let name = module.as_known()?;
        let bare = name.strip_prefix("node:").unwrap_or(name);
        if bare.starts_with(['.', '/']) {
            return None;
        }
        if self.book.is_guarded(bare) || self.book.ability(bare).is_some() {
            return Some(Value::known(name));
        }
        Some(Value::known(format!("node_modules/{bare}/index.js")))
    }

    /// `FunctionType(f.__code__, f.__globals__)`: another copy of what the program has already.
    pub(super) fn copies_a_function(callee: &Value, call: &Call) -> bool {
        let part = |at: usize, wanted: &str| match call.args.get(at).map(|arg| &arg.value.kind) {
            Some(Kind::Member(base, part)) if part == wanted => match &base.kind {
                Kind::Name(name) => Some(name.clone()),
                _ => None,
            },
            _ => None,
        };
        let whole = part(0, "__code__").filter(|_| callee.has("types.FunctionType"));
        let rest = |at: usize| {
            call.args.get(at).is_none_or(|arg| match &arg.value.kind {
                Kind::Member(base, part) => {
                    let own = matches!(&base.kind, Kind::Name(name) if Some(name) == whole.as_ref());
                    own && matches!(part.as_str(), "__name__" | "__defaults__" | "__closure__" | "__qualname__")
                }
                Kind::Name(_) | Kind::Text(_) | Kind::Nothing => true,
                _ => false,
            })
        };
        whole.is_some() && part(1, "__globals__") == whole && (2..call.args.len()).all(rest)
    }

    /// What a list of the processes of the machine holds.
    pub(super) fn processes() -> Value {
        let mut one = Value::default();
        one.flows.add(&crate::analysis::Flow::File { path: "/proc".to_owned() });
        Value::list(vec![Rc::new(one)])
    }
}

/// Whether a call only says what is expected of a function that a test replaced.
pub(super) fn is_expectation(method: Option<&str>, receiver: Option<&Held>) -> bool {
    let expects = |name: &Rc<str>| name.starts_with("expect()") || name.ends_with(".expect()");
    method.is_some_and(|method| method.starts_with("toHaveBeen") || method.starts_with("toBeCalled"))
        && receiver.is_some_and(|receiver| receiver.names.iter().any(expects))
}
