//! JavaScript's statements, as the tree of all languages has them.

use oxc_ast::ast::{
    self, Declaration, ExportDefaultDeclarationKind, Expression, ForStatementInit, ImportDeclarationSpecifier,
    Statement as Js, VariableDeclarationKind,
};
use oxc_span::GetSpan;

use crate::analysis::Trick;
use crate::code::Program;
use crate::code::tree::{Bind, Expr, How, Import, Kind, LoopEnd, Pattern, Statement};
use crate::code::{RAISED, looks_alike};
use crate::language::Language;
use crate::limits::Limits;
use crate::span::Span;

/// How deep the tree may go, beyond what the scan of the text has bounded already.
const DEPTH: usize = 5;

/// A program's text, and what is found on the way through it.
pub(super) struct Lower<'t> {
    pub(super) text: &'t str,
    pub(super) functions: usize,
    pub(super) seen: Vec<(Trick, Span)>,
    depth: usize,
    deepest: usize,
}

/// The program of a parsed text, whose functions are numbered from `first` on; nothing if it goes too deep.
pub(super) fn program(
    text: &str,
    language: Language,
    program: &ast::Program<'_>,
    first: usize,
    limits: &Limits,
) -> Option<Program> {
    let mut lower = Lower { text, functions: first, seen: Vec::new(), depth: 0, deepest: 0 };
    let statements = lower.body(&program.body);
    (lower.deepest <= limits.nesting * DEPTH).then_some(Program {
        language,
        statements,
        seen: lower.seen,
        length: text.len(),
        arguments: text.contains("arguments"),
    })
}

pub(super) fn span(span: oxc_span::Span) -> Span {
    Span::new(span.start as usize, span.end as usize)
}

/// The name that a module is known by: `node:fs` is `fs`.
pub(super) fn module_name(source: &str) -> String {
    source.strip_prefix("node:").unwrap_or(source).to_owned()
}

impl Lower<'_> {
    /// Goes one down, unless that is too far: then there is nothing.
    pub(super) fn deeper<T: Default>(&mut self, lower: impl FnOnce(&mut Self) -> T) -> T {
        if self.depth > 64 * DEPTH {
            self.deepest = usize::MAX;
            return T::default();
        }
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        let lowered = lower(self);
        self.depth -= 1;
        lowered
    }

    pub(super) fn check_name(&mut self, name: &str, place: Span) {
        if looks_alike(name) {
            self.seen.push((Trick::Lookalikes, place));
        }
    }

    /// Functions first: they can be called above the place where they stand.
    pub(super) fn body(&mut self, body: &[Js<'_>]) -> Vec<Statement> {
        let mut statements = Vec::with_capacity(body.len());
        let (first, then): (Vec<_>, Vec<_>) =
            body.iter().partition(|statement| matches!(statement, Js::FunctionDeclaration(_)));
        for statement in first.into_iter().chain(then) {
            self.deeper(|lower| lower.statement(statement, &mut statements));
        }
        statements
    }

    fn inner(&mut self, statement: &Js<'_>) -> Vec<Statement> {
        self.body(std::slice::from_ref(statement))
    }

    fn statement(&mut self, statement: &Js<'_>, out: &mut Vec<Statement>) {
        let place = span(statement.span());
        match statement {
            Js::BlockStatement(block) => {
                let body = self.body(&block.body);
                out.push(Statement::Block(body));
            }
            Js::BreakStatement(_) | Js::ContinueStatement(_) | Js::DebuggerStatement(_) | Js::EmptyStatement(_) => {}
            Js::DoWhileStatement(each) => {
                let end = if is_true(&each.test) && !leaves(&each.body) { LoopEnd::Never } else { LoopEnd::Ends };
                self.value(&each.test, out);
                let body = self.unblocked(&each.body);
                out.push(Statement::Loop { each: None, end, body, span: place });
            }
            Js::WhileStatement(each) => {
                let end = if is_true(&each.test) && !leaves(&each.body) { LoopEnd::Never } else { LoopEnd::Ends };
                self.value(&each.test, out);
                let body = self.unblocked(&each.body);
                out.push(Statement::Loop { each: None, end, body, span: place });
            }
            Js::ForStatement(each) => {
                let mut body = Vec::new();
                match &each.init {
                    Some(ForStatementInit::VariableDeclaration(declaration)) => self.variables(declaration, out),
                    Some(other) => {
                        if let Some(value) = other.as_expression() {
                            self.value(value, out);
                        }
                    }
                    None => {}
                }
                let endless = each.test.as_ref().is_none_or(is_true) && !leaves(&each.body);
                if let Some(count @ Expression::UpdateExpression(_)) = &each.update {
                    // In all turns but the first it is another number.
                    let mut counts = Vec::new();
                    self.value(count, &mut counts);
                    out.push(Statement::Branches(vec![counts]));
                }
                for value in each.test.iter().chain(&each.update) {
                    self.value(value, &mut body);
                }
                let tests = body.len();
                body.extend(self.unblocked(&each.body));
                if tests > 0 {
                    body.rotate_left(tests);
                }
                let end = if endless { LoopEnd::Never } else { LoopEnd::Ends };
                out.push(Statement::Loop { each: None, end, body, span: place });
            }
            Js::ForInStatement(each) => {
                let over = self.expr(&each.right);
                // A key of something, not an item of it.
                let keys = Expr::new(over.span, Kind::List(vec![Expr::new(over.span, Kind::Mix(vec![over]))]));
                let pattern = self.for_left(&each.left);
                let body = self.inner(&each.body);
                let each = Some(Box::new((pattern, keys)));
                out.push(Statement::Loop { each, end: LoopEnd::Ends, body, span: place });
            }
            Js::ForOfStatement(each) => {
                let over = self.expr(&each.right);
                let pattern = self.for_left(&each.left);
                let body = self.inner(&each.body);
                let each = Some(Box::new((pattern, over)));
                out.push(Statement::Loop { each, end: LoopEnd::Ends, body, span: place });
            }
            Js::ExpressionStatement(value) => self.expression_statement(&value.expression, out),
            Js::IfStatement(branch) => {
                self.value(&branch.test, out);
                let mut branches = vec![self.inner(&branch.consequent)];
                if let Some(other) = &branch.alternate {
                    branches.push(self.inner(other));
                }
                out.push(Statement::Branches(branches));
            }
            Js::LabeledStatement(labeled) => out.extend(self.inner(&labeled.body)),
            Js::ReturnStatement(given) => {
                let value = match &given.argument {
                    Some(value) => self.expr(value),
                    None => Expr::new(place, Kind::Nothing),
                };
                out.push(Statement::Return(value));
            }
            Js::SwitchStatement(switch) => {
                self.value(&switch.discriminant, out);
                let mut branches = Vec::new();
                for case in &switch.cases {
                    let mut body = Vec::new();
                    if let Some(test) = &case.test {
                        self.value(test, &mut body);
                    }
                    body.extend(self.body(&case.consequent));
                    branches.push(body);
                }
                out.push(Statement::Branches(branches));
            }
            Js::ThrowStatement(thrown) => {
                let value = self.expr(&thrown.argument);
                out.push(Statement::Assign { pattern: Pattern::Name(RAISED.to_owned()), value, how: How::Around });
            }
            Js::TryStatement(attempt) => {
                let block = self.body(&attempt.block.body);
                out.push(Statement::Block(block));
                if let Some(handler) = &attempt.handler {
                    let mut body = Vec::new();
                    if let Some(param) = &handler.param {
                        let pattern = self.binding(&param.pattern);
                        body.push(Statement::Assign { pattern, value: Expr::name(place, RAISED), how: How::Here });
                    }
                    body.extend(self.body(&handler.body.body));
                    out.push(Statement::Branches(vec![vec![Statement::Block(body)]]));
                }
                if let Some(last) = &attempt.finalizer {
                    let block = self.body(&last.body);
                    out.push(Statement::Block(block));
                }
            }
            Js::WithStatement(with) => {
                out.push(Statement::Strange(Trick::InnerParts, place));
                self.value(&with.object, out);
                out.extend(self.inner(&with.body));
            }
            Js::ImportDeclaration(import) => self.import(import, out),
            Js::ExportAllDeclaration(export) => {
                let module = module_name(export.source.value.as_str());
                out.push(Statement::Import(Import { span: span(export.source.span), module, binds: Vec::new() }));
            }
            Js::ExportFromDeclaration(export) => {
                let module = module_name(export.source.value.as_str());
                out.push(Statement::Import(Import { span: span(export.source.span), module, binds: Vec::new() }));
            }
            Js::ExportDefaultDeclaration(export) => match &export.declaration {
                ExportDefaultDeclarationKind::FunctionDeclaration(function) => self.function_declaration(function, out),
                ExportDefaultDeclarationKind::ClassDeclaration(class) => self.class_declaration(class, out),
                ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => {}
                other => {
                    if let Some(value) = other.as_expression() {
                        self.value(value, out);
                    }
                }
            },
            Js::ExportDeclaration(export) => self.declaration(&export.declaration, out),
            Js::ExportNamedDeclaration(_) | Js::TSNamespaceExportDeclaration(_) => {}
            Js::TSExportAssignment(export) => self.value(&export.expression, out),
            other => {
                if let Some(declaration) = other.as_declaration() {
                    self.declaration(declaration, out);
                }
            }
        }
    }

    fn value(&mut self, value: &Expression<'_>, out: &mut Vec<Statement>) {
        out.push(Statement::Value(self.expr(value)));
    }

    /// An assignment that stands alone is a statement of its own, so that `+=` adds.
    fn expression_statement(&mut self, value: &Expression<'_>, out: &mut Vec<Statement>) {
        if let Expression::AssignmentExpression(assign) = value {
            let statement = self.assignment(assign);
            out.push(statement);
            return;
        }
        self.value(value, out);
    }

    /// The body of a loop, without the block around it.
    fn unblocked(&mut self, body: &Js<'_>) -> Vec<Statement> {
        match body {
            Js::BlockStatement(block) => self.body(&block.body),
            other => self.inner(other),
        }
    }

    fn declaration(&mut self, declaration: &Declaration<'_>, out: &mut Vec<Statement>) {
        match declaration {
            Declaration::VariableDeclaration(variables) => self.variables(variables, out),
            Declaration::FunctionDeclaration(function) => self.function_declaration(function, out),
            Declaration::ClassDeclaration(class) => self.class_declaration(class, out),
            Declaration::TSEnumDeclaration(members) => self.enumeration(members, out),
            Declaration::TSNamespaceDeclaration(namespace) => self.namespace(namespace, out),
            Declaration::TSImportEqualsDeclaration(import) => {
                if let ast::TSModuleReference::ExternalModuleReference(reference) = &import.module_reference {
                    let module = module_name(reference.expression.value.as_str());
                    let binds = vec![Bind::Module { name: import.id.name.to_string() }];
                    out.push(Statement::Import(Import { span: span(import.span), module, binds }));
                }
            }
            Declaration::TSExternalModuleDeclaration(_)
            | Declaration::TSTypeAliasDeclaration(_)
            | Declaration::TSInterfaceDeclaration(_)
            | Declaration::TSGlobalDeclaration(_) => {}
        }
    }

    fn variables(&mut self, declaration: &ast::VariableDeclaration<'_>, out: &mut Vec<Statement>) {
        let how = if declaration.kind == VariableDeclarationKind::Var { How::Around } else { How::Here };
        for variable in &declaration.declarations {
            let value = match &variable.init {
                Some(value) => self.expr(value),
                None => Expr::new(span(variable.span), Kind::Nothing),
            };
            let pattern = self.binding(&variable.id);
            out.push(Statement::Assign { pattern, value, how });
        }
    }

    fn for_left(&mut self, left: &ast::ForStatementLeft<'_>) -> Pattern {
        match left {
            ast::ForStatementLeft::VariableDeclaration(declaration) => match declaration.declarations.first() {
                Some(variable) => self.binding(&variable.id),
                None => Pattern::List(Vec::new()),
            },
            other => match other.as_assignment_target() {
                Some(target) => self.target(target),
                None => Pattern::List(Vec::new()),
            },
        }
    }

    fn import(&mut self, import: &ast::ImportDeclaration<'_>, out: &mut Vec<Statement>) {
        if import.import_kind.is_type() {
            return;
        }
        let module = module_name(import.source.value.as_str());
        let mut binds = Vec::new();
        for specifier in import.specifiers.iter().flatten() {
            binds.push(match specifier {
                ImportDeclarationSpecifier::ImportSpecifier(one) if one.imported.name() == "default" => {
                    Bind::Module { name: one.local.name.to_string() }
                }
                ImportDeclarationSpecifier::ImportSpecifier(one) => {
                    Bind::Member { member: one.imported.name().to_string(), name: one.local.name.to_string() }
                }
                ImportDeclarationSpecifier::ImportDefaultSpecifier(one) => {
                    Bind::Module { name: one.local.name.to_string() }
                }
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(one) => {
                    Bind::Module { name: one.local.name.to_string() }
                }
            });
        }
        if ["http:", "https:", "data:"].iter().any(|scheme| module.starts_with(scheme)) {
            // Code from elsewhere: the same as `import(…)` of it.
            let source = Expr::word(span(import.source.span), module);
            out.push(Statement::Value(Expr::new(span(import.span), Kind::Import(Box::new(source)))));
            return;
        }
        out.push(Statement::Import(Import { span: span(import.source.span), module, binds }));
    }
}

fn is_true(test: &Expression<'_>) -> bool {
    match test {
        Expression::BooleanLiteral(truth) => truth.value,
        Expression::NumericLiteral(number) => number.value != 0.0,
        Expression::ParenthesizedExpression(inner) => is_true(&inner.expression),
        _ => false,
    }
}

/// Whether something in a loop's own body leaves it.
fn leaves(body: &Js<'_>) -> bool {
    match body {
        Js::BreakStatement(_) | Js::ReturnStatement(_) | Js::ThrowStatement(_) | Js::SwitchStatement(_) => true,
        // What goes wrong is swallowed, and it goes on.
        Js::TryStatement(tried) => {
            let swallows = tried.handler.as_ref().is_some_and(|handler| handler.body.body.is_empty());
            !swallows || tried.block.body.len() > 2 || tried.block.body.iter().any(leaves)
        }
        Js::BlockStatement(block) => block.body.iter().any(leaves),
        Js::IfStatement(branch) => leaves(&branch.consequent) || branch.alternate.as_ref().is_some_and(leaves),
        _ => false,
    }
}
