//! Python's statements, as the tree of all languages has them.

use std::rc::Rc;

use ruff_python_ast::{self as ast, ExceptHandler, ModModule, Stmt};
use ruff_text_size::{Ranged, TextRange};

use crate::analysis::Trick;
use crate::code::Program;
use crate::code::tree::{
    Bind, Class, Expr, Function, How, Import, Kind, LoopEnd, ORDER, Param, Pattern, Statement, Takes,
};
use crate::code::{RAISED, looks_alike};
use crate::language::Language;
use crate::span::Span;

/// A module's text, and what is found on the way through it.
pub(super) struct Lower<'t> {
    pub(super) text: &'t str,
    pub(super) functions: usize,
    pub(super) seen: Vec<(Trick, Span)>,
    /// Whether the program says itself what it is to enter something.
    enters: bool,
}

/// The program of a module, whose functions are numbered from `first` on.
pub(super) fn program(text: &str, module: &ModModule, first: usize) -> Program {
    let mut lower = Lower {
        text,
        functions: first,
        seen: Vec::new(),
        enters: text.contains("__enter__") || text.contains("__aenter__"),
    };
    let statements = lower.body(&module.body, Around::Function);
    Program { language: Language::Python, statements, seen: lower.seen, length: text.len(), arguments: false }
}

/// What statements stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Class,
    Function,
}

pub(super) fn span(range: TextRange) -> Span {
    Span::new(range.start().to_usize(), range.end().to_usize())
}

impl Lower<'_> {
    fn body(&mut self, body: &[Stmt], around: Around) -> Vec<Statement> {
        let mut statements = Vec::with_capacity(body.len());
        for statement in body {
            self.statement(statement, around, &mut statements);
        }
        statements
    }

    /// A name that Python reads as another than it looks, or that looks like another.
    pub(super) fn check_name(&mut self, name: &str, range: TextRange) {
        let place = span(range);
        if self.text.get(place.start..place.end).is_some_and(|written| {
            !written.is_ascii() && (looks_alike(written) || (written != name && name.is_ascii()))
        }) {
            self.seen.push((Trick::Lookalikes, place));
        }
    }

    fn statement(&mut self, statement: &Stmt, around: Around, out: &mut Vec<Statement>) {
        let place = span(statement.range());
        match statement {
            Stmt::FunctionDef(function) => self.function(function, around, out),
            Stmt::ClassDef(class) => self.class(class, out),
            Stmt::Return(value) => {
                let value = match &value.value {
                    Some(value) => self.expr(value),
                    None => Expr::new(place, Kind::Nothing),
                };
                out.push(Statement::Return(value));
            }
            Stmt::Delete(delete) => {
                let places = delete.targets.iter().map(|target| self.expr(target)).collect();
                out.push(Statement::Remove(places));
            }
            Stmt::TypeAlias(_) | Stmt::Pass(_) | Stmt::Break(_) | Stmt::Continue(_) => {}
            Stmt::Assign(assign) => {
                let value = self.expr(&assign.value);
                let mut targets = assign.targets.iter();
                let Some(first) = targets.next() else { return };
                let first_pattern = self.pattern(first);
                // `a = b = value` gives the value to both; the others take it from the first.
                let others: Vec<Pattern> = targets.map(|target| self.pattern(target)).collect();
                if others.is_empty() {
                    out.push(Statement::Assign { pattern: first_pattern, value, how: How::Here });
                    return;
                }
                let held = "(assigned)".to_owned();
                out.push(Statement::Assign { pattern: Pattern::Name(held.clone()), value, how: How::Here });
                for pattern in std::iter::once(first_pattern).chain(others) {
                    out.push(Statement::Assign { pattern, value: Expr::name(place, held.clone()), how: How::Here });
                }
            }
            Stmt::AugAssign(assign) => {
                let value = self.expr(&assign.value);
                let pattern = self.pattern(&assign.target);
                if assign.op == ast::Operator::Add {
                    out.push(Statement::Assign { pattern, value, how: How::Add });
                    return;
                }
                if assign.op == ast::Operator::BitOr && !matches!(&*assign.value, ast::Expr::Attribute(_)) {
                    // Of a dictionary or a set it is a change, for everybody who holds it.
                    let update =
                        Expr::new(place, Kind::Member(Box::new(self.expr(&assign.target)), "update".to_owned()));
                    let more = self.expr(&assign.value);
                    out.push(Statement::Value(Expr::call(place, update, vec![more])));
                }
                let before = self.expr(&assign.target);
                let kind = super::expression::operation(assign.op, before, value);
                out.push(Statement::Assign { pattern, value: Expr::new(place, kind), how: How::Here });
            }
            Stmt::AnnAssign(assign) => {
                out.push(Statement::Value(self.expr(&assign.annotation)));
                if let Some(value) = &assign.value {
                    let value = self.expr(value);
                    out.push(Statement::Assign { pattern: self.pattern(&assign.target), value, how: How::Here });
                }
            }
            Stmt::For(each) => {
                let over = self.expr(&each.iter);
                let pattern = self.pattern(&each.target);
                let body = self.body(&each.body, around);
                let after = self.body(&each.orelse, around);
                let each = Some(Box::new((pattern, over)));
                out.push(Statement::Loop { each, end: LoopEnd::Ends, body, span: place });
                out.push(Statement::Branches(vec![after]));
            }
            Stmt::While(each) => {
                let end = if is_true(&each.test) && !leaves(&each.body) { LoopEnd::Never } else { LoopEnd::Ends };
                out.push(Statement::Value(self.expr(&each.test)));
                let body = self.body(&each.body, around);
                let after = self.body(&each.orelse, around);
                out.push(Statement::Loop { each: None, end, body, span: place });
                out.push(Statement::Branches(vec![after]));
            }
            Stmt::If(branch) => {
                out.push(Statement::Value(self.expr(&branch.test)));
                let mut branches = vec![self.body(&branch.body, around)];
                for clause in &branch.elif_else_clauses {
                    let mut body = Vec::new();
                    if let Some(test) = &clause.test {
                        body.push(Statement::Value(self.expr(test)));
                    }
                    body.extend(self.body(&clause.body, around));
                    branches.push(body);
                }
                if branches.len() == 1 && self.is_main(&branch.test) {
                    out.append(&mut branches.swap_remove(0));
                } else {
                    out.push(Statement::Branches(branches));
                }
            }
            Stmt::With(with) => {
                for item in &with.items {
                    let value = self.expr(&item.context_expr);
                    let Some(target) = &item.optional_vars else {
                        out.push(Statement::Value(value));
                        continue;
                    };
                    if !self.enters {
                        out.push(Statement::Assign { pattern: self.pattern(target), value, how: How::Here });
                        continue;
                    }
                    // What is entered is the thing itself, or what it says is entered.
                    let held = "(entered)".to_owned();
                    out.push(Statement::Assign { pattern: Pattern::Name(held.clone()), value, how: How::Here });
                    let name = || Expr::name(place, held.clone());
                    let how = if with.is_async { "__aenter__" } else { "__enter__" };
                    let enter = Expr::new(place, Kind::Member(Box::new(name()), how.to_owned()));
                    let entered = Expr::new(place, Kind::Either(vec![name(), Expr::call(place, enter, Vec::new())]));
                    out.push(Statement::Assign { pattern: self.pattern(target), value: entered, how: How::Here });
                }
                out.extend(self.body(&with.body, around));
            }
            Stmt::Match(matched) => {
                let subject = self.expr(&matched.subject);
                out.push(Statement::Assign {
                    pattern: Pattern::Name("(matched)".to_owned()),
                    value: subject,
                    how: How::Here,
                });
                let mut branches = Vec::new();
                for case in &matched.cases {
                    let mut body = Vec::new();
                    let mut names = Vec::new();
                    self.matched_names(&case.pattern, &mut names);
                    for name in names {
                        let whole = || Expr::name(place, "(matched)");
                        let unknown = Box::new(Expr::new(place, Kind::Mix(Vec::new())));
                        let part = Expr::new(place, Kind::Index(Box::new(whole()), unknown));
                        let value = Expr::new(place, Kind::Either(vec![whole(), part]));
                        body.push(Statement::Assign { pattern: Pattern::Name(name), value, how: How::Here });
                    }
                    if let Some(guard) = &case.guard {
                        body.push(Statement::Value(self.expr(guard)));
                    }
                    body.extend(self.body(&case.body, around));
                    branches.push(body);
                }
                out.push(Statement::Branches(branches));
            }
            Stmt::Raise(raise) => {
                for value in raise.cause.iter() {
                    out.push(Statement::Value(self.expr(value)));
                }
                if let Some(value) = &raise.exc {
                    let value = self.expr(value);
                    out.push(Statement::Assign { pattern: Pattern::Name(RAISED.to_owned()), value, how: How::Here });
                }
            }
            Stmt::Try(attempt) => {
                out.extend(self.body(&attempt.body, around));
                let mut branches = vec![self.body(&attempt.orelse, around)];
                for handler in &attempt.handlers {
                    let ExceptHandler::ExceptHandler(handler) = handler;
                    let mut body = Vec::new();
                    if let Some(kind) = &handler.type_ {
                        body.push(Statement::Value(self.expr(kind)));
                    }
                    if let Some(name) = &handler.name {
                        body.push(Statement::Assign {
                            pattern: Pattern::Name(name.to_string()),
                            value: Expr::name(place, RAISED),
                            how: How::Here,
                        });
                    }
                    body.extend(self.body(&handler.body, around));
                    branches.push(body);
                }
                out.push(Statement::Branches(branches));
                out.extend(self.body(&attempt.finalbody, around));
            }
            Stmt::Assert(assert) => {
                for value in std::iter::once(&assert.test).chain(&assert.msg) {
                    out.push(Statement::Value(self.expr(value)));
                }
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let module = alias.name.to_string();
                    self.check_name(&module, alias.name.range());
                    let bind = match &alias.asname {
                        Some(name) => Bind::Module { name: name.to_string() },
                        None => Bind::Root { name: module.split('.').next().unwrap_or_default().to_owned() },
                    };
                    out.push(Statement::Import(Import { span: span(alias.range()), module, binds: vec![bind] }));
                }
            }
            Stmt::ImportFrom(import) => {
                let dots = ".".repeat(usize::try_from(import.level).unwrap_or_default().min(64));
                let module = format!("{dots}{}", import.module.as_ref().map(ToString::to_string).unwrap_or_default());
                if let Some(name) = &import.module {
                    self.check_name(name.as_str(), name.range());
                }
                let mut binds = Vec::new();
                for alias in &import.names {
                    self.check_name(alias.name.as_str(), alias.name.range());
                    let member = alias.name.to_string();
                    if member == "*" {
                        binds.push(Bind::All);
                        continue;
                    }
                    let name = alias.asname.as_ref().map_or_else(|| member.clone(), ToString::to_string);
                    binds.push(Bind::Member { member, name });
                }
                out.push(Statement::Import(Import { span: place, module, binds }));
            }
            Stmt::Global(names) => out.push(Statement::Outer(names.names.iter().map(ToString::to_string).collect())),
            Stmt::Nonlocal(names) => out.push(Statement::Outer(names.names.iter().map(ToString::to_string).collect())),
            Stmt::Expr(value) => out.push(Statement::Value(self.expr(&value.value))),
            Stmt::IpyEscapeCommand(_) => {}
        }
    }

    fn function(&mut self, function: &ast::StmtFunctionDef, around: Around, out: &mut Vec<Statement>) {
        let place = span(function.name.range());
        self.check_name(function.name.as_str(), function.name.range());
        let is_static = function.decorator_list.iter().any(
            |decorator| matches!(&decorator.expression, ast::Expr::Name(name) if name.id.as_str() == "staticmethod"),
        );
        // Annotations are expressions like any other, and run when the function is made.
        let annotations = function.parameters.iter().filter_map(|param| param.annotation());
        for annotation in annotations.chain(function.returns.as_deref()) {
            out.push(Statement::Value(self.expr(annotation)));
        }
        let mut params = self.params(&function.parameters);
        let mut body = Vec::new();
        if around == Around::Class && !is_static && !params.is_empty() {
            // The object itself is no argument of the call.
            let own = params.remove(0);
            // What it is by default is computed all the same.
            out.extend(own.default.map(Statement::Value));
            body.push(Statement::Assign {
                pattern: own.pattern,
                value: Expr::new(place, Kind::Nothing),
                how: How::Here,
            });
        }
        body.extend(self.body(&function.body, Around::Function));
        let name = function.name.to_string();
        self.functions += 1;
        let value = Kind::Function(Rc::new(Function { number: self.functions, itself: None, params, body }));
        out.push(Statement::Assign {
            pattern: Pattern::Name(name.clone()),
            value: Expr::new(place, value),
            how: How::Here,
        });
        self.decorated(&function.decorator_list, &name, out);
    }

    fn class(&mut self, class: &ast::StmtClassDef, out: &mut Vec<Statement>) {
        let place = span(class.name.range());
        let (mut bases, mut keywords) = (Vec::new(), Vec::new());
        if let Some(arguments) = &class.arguments {
            bases.extend(arguments.args.iter().map(|base| self.expr(base)));
            for keyword in &arguments.keywords {
                let name = keyword.arg.as_ref().map(ToString::to_string).unwrap_or_default();
                keywords.push((name, self.expr(&keyword.value)));
            }
        }
        let mut body = self.body(&class.body, Around::Class);
        let fields: Vec<Expr> = class.body.iter().filter_map(declared).map(|name| Expr::word(place, name)).collect();
        if !fields.is_empty() {
            let value = Expr::new(place, Kind::List(fields));
            body.push(Statement::Assign { pattern: Pattern::Name(ORDER.to_owned()), value, how: How::Here });
        }
        let name = class.name.to_string();
        let value = Expr::new(place, Kind::Class(Box::new(Class { bases, keywords, body })));
        out.push(Statement::Assign { pattern: Pattern::Name(name.clone()), value, how: How::Here });
        self.decorated(&class.decorator_list, &name, out);
    }

    /// A decorator is a function that is called with what stands below it, and gives what the name means from then on.
    fn decorated(&mut self, decorators: &[ast::Decorator], name: &str, out: &mut Vec<Statement>) {
        for decorator in decorators.iter().rev() {
            let place = span(decorator.range());
            let called = self.expr(&decorator.expression);
            let made = Expr::new(place, Kind::Decorated(Box::new(called), name.to_owned()));
            out.push(Statement::Assign { pattern: Pattern::Name(name.to_owned()), value: made, how: How::Here });
        }
    }

    pub(super) fn params(&mut self, parameters: &ast::Parameters) -> Vec<Param> {
        let mut params = Vec::with_capacity(parameters.len());
        for param in parameters.posonlyargs.iter().chain(parameters.args.iter()) {
            params.push(self.param(param));
        }
        let mut more = |param: &Option<Box<ast::Parameter>>, takes| {
            if let Some(param) = param {
                params.push(Param { pattern: Pattern::Name(param.name.as_str().to_owned()), default: None, takes });
            }
        };
        more(&parameters.vararg, Takes::Rest);
        more(&parameters.kwarg, Takes::Named);
        for param in parameters.kwonlyargs.iter() {
            params.push(self.param(param));
        }
        params
    }

    fn param(&mut self, param: &ast::ParameterWithDefault) -> Param {
        let default = param.default.as_ref().map(|default| self.expr(default));
        Param { pattern: Pattern::Name(param.parameter.name.as_str().to_owned()), default, takes: Takes::One }
    }

    fn matched_names(&mut self, pattern: &ast::Pattern, names: &mut Vec<String>) {
        let mut all = |patterns: &[ast::Pattern], names: &mut Vec<String>| {
            for pattern in patterns {
                self.matched_names(pattern, names);
            }
        };
        match pattern {
            ast::Pattern::MatchValue(_) | ast::Pattern::MatchSingleton(_) => {}
            ast::Pattern::MatchSequence(list) => all(&list.patterns, names),
            ast::Pattern::MatchMapping(mapping) => {
                all(&mapping.patterns, names);
                names.extend(mapping.rest.as_ref().map(ToString::to_string));
            }
            ast::Pattern::MatchClass(class) => {
                all(&class.arguments.patterns, names);
                for keyword in &class.arguments.keywords {
                    self.matched_names(&keyword.pattern, names);
                }
            }
            ast::Pattern::MatchStar(star) => names.extend(star.name.as_ref().map(ToString::to_string)),
            ast::Pattern::MatchAs(named) => {
                if let Some(pattern) = &named.pattern {
                    self.matched_names(pattern, names);
                }
                names.extend(named.name.as_ref().map(ToString::to_string));
            }
            ast::Pattern::MatchOr(either) => all(&either.patterns, names),
        }
    }

    /// `if __name__ == "__main__"`: what is below happens.
    fn is_main(&self, test: &ast::Expr) -> bool {
        matches!(test, ast::Expr::Compare(compare) if matches!(&*compare.left, ast::Expr::Name(name) if name.id.as_str() == "__name__"))
    }
}

/// The field of a class that a line declares with its type.
fn declared(statement: &Stmt) -> Option<String> {
    match statement {
        Stmt::AnnAssign(assign) => assign.target.as_name_expr().map(|name| name.id.as_str().to_owned()),
        _ => None,
    }
}

fn is_true(test: &ast::Expr) -> bool {
    match test {
        ast::Expr::BooleanLiteral(truth) => truth.value,
        ast::Expr::NumberLiteral(number) => {
            !matches!(&number.value, ast::Number::Int(number) if number.as_u8() == Some(0))
        }
        _ => false,
    }
}

/// Whether something in a loop's own body leaves it.
fn leaves(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Break(_) | Stmt::Return(_) | Stmt::Raise(_) => true,
        Stmt::If(branch) => leaves(&branch.body) || branch.elif_else_clauses.iter().any(|clause| leaves(&clause.body)),
        Stmt::With(with) => leaves(&with.body),
        // What goes wrong is swallowed, and it goes on.
        Stmt::Try(tried) => {
            let passes = |handler: &ExceptHandler| {
                let ExceptHandler::ExceptHandler(handler) = handler;
                handler.body.iter().all(|statement| matches!(statement, Stmt::Pass(_) | Stmt::Continue(_)))
            };
            let swallows = !tried.handlers.is_empty() && tried.handlers.iter().all(passes);
            !swallows || tried.body.len() > 2 || leaves(&tried.body)
        }
        Stmt::Match(_) => true,
        _ => false,
    })
}
