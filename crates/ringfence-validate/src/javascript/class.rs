//! JavaScript's functions and classes, as the tree of all languages has them.

use std::rc::Rc;

use oxc_ast::ast::{self, ArrowFunctionBody, ClassElement, MethodDefinitionKind, PropertyKey};

use super::statement::{Lower, span};
use crate::code::ANY_KEY;
use crate::code::tree::{Class, Expr, Function, How, Kind, Pattern, Statement};

impl Lower<'_> {
    pub(super) fn function_declaration(&mut self, function: &ast::Function<'_>, out: &mut Vec<Statement>) {
        let value = Expr::new(span(function.span), self.function(function));
        match &function.id {
            Some(name) => out.push(Statement::Assign {
                pattern: Pattern::Name(name.name.as_str().to_owned()),
                value,
                how: How::Here,
            }),
            None => out.push(Statement::Value(value)),
        }
    }

    pub(super) fn class_declaration(&mut self, class: &ast::Class<'_>, out: &mut Vec<Statement>) {
        let value = Expr::new(span(class.span), self.class(class));
        match &class.id {
            Some(name) => out.push(Statement::Assign {
                pattern: Pattern::Name(name.name.as_str().to_owned()),
                value,
                how: How::Here,
            }),
            None => out.push(Statement::Value(value)),
        }
        for decorator in &class.decorators {
            out.push(Statement::Value(self.expr(&decorator.expression)));
        }
    }

    pub(super) fn function(&mut self, function: &ast::Function<'_>) -> Kind {
        let params = self.params(&function.params);
        let mut body = function.body.as_ref().map(|body| self.body(&body.statements)).unwrap_or_default();
        let kept: Vec<Statement> = function.params.items.iter().filter_map(kept).collect();
        body.splice(0..0, kept);
        let itself = function.id.as_ref().filter(|_| function.is_expression()).map(|name| name.name.to_string());
        self.functions += 1;
        Kind::Function(Rc::new(Function { number: self.functions, itself, params, body }))
    }

    pub(super) fn arrow(&mut self, function: &ast::ArrowFunctionExpression<'_>) -> Kind {
        let params = self.params(&function.params);
        let body = match &function.body {
            ArrowFunctionBody::FunctionBody(body) => self.body(&body.statements),
            other => match other.as_expression() {
                Some(value) => vec![Statement::Return(self.expr(value))],
                None => Vec::new(),
            },
        };
        self.functions += 1;
        Kind::Function(Rc::new(Function { number: self.functions, itself: None, params, body }))
    }

    pub(super) fn class(&mut self, class: &ast::Class<'_>) -> Kind {
        let bases = class.heritage.iter().map(|heritage| self.expr(&heritage.expression)).collect();
        let mut body = Vec::new();
        for element in &class.body.body {
            match element {
                ClassElement::StaticBlock(block) => {
                    let block = self.body(&block.body);
                    body.push(Statement::Block(block));
                }
                ClassElement::MethodDefinition(method) => {
                    let mut value = Expr::new(span(method.span), self.function(&method.value));
                    if method.kind == MethodDefinitionKind::Get {
                        // Reading it is calling it.
                        value = Expr::call(value.span, value, Vec::new());
                    }
                    self.define(&method.key, value, &mut body);
                    for decorator in &method.decorators {
                        let call = self.member_decorator(&decorator.expression, &method.key);
                        body.push(Statement::Value(call));
                    }
                }
                ClassElement::PropertyDefinition(property) => {
                    for decorator in &property.decorators {
                        let call = self.member_decorator(&decorator.expression, &property.key);
                        body.push(Statement::Value(call));
                    }
                    if let Some(value) = &property.value {
                        let value = self.expr(value);
                        self.define(&property.key, value, &mut body);
                    }
                }
                ClassElement::AccessorProperty(property) => {
                    if let Some(value) = &property.value {
                        let value = self.expr(value);
                        self.define(&property.key, value, &mut body);
                    }
                }
                ClassElement::TSIndexSignature(_) => {}
            }
        }
        Kind::Class(Box::new(Class { bases, keywords: Vec::new(), body }))
    }

    /// A decorator is told of the class, the name and what stands there; what it puts there instead is called by that name.
    fn member_decorator(&mut self, decorator: &ast::Expression<'_>, key: &PropertyKey<'_>) -> Expr {
        let callee = self.expr(decorator);
        let place = callee.span;
        let name = key
            .static_name()
            .map_or_else(|| Expr::new(place, Kind::Nothing), |name| Expr::word(place, name.to_string()));
        let described = Expr::new(place, Kind::Fields(Vec::new()));
        Expr::call(place, callee, vec![Expr::new(place, Kind::Nothing), name, described])
    }

    /// `enum A { B = 'x' }`: an object of its values.
    pub(super) fn enumeration(&mut self, members: &ast::TSEnumDeclaration<'_>, out: &mut Vec<Statement>) {
        let mut fields = Vec::new();
        for member in &members.body.members {
            let place = span(member.span);
            let value = match &member.initializer {
                Some(value) => self.expr(value),
                None => Expr::new(place, Kind::Mix(Vec::new())),
            };
            let name = match &member.id {
                ast::TSEnumMemberName::Identifier(name) => name.name.to_string(),
                ast::TSEnumMemberName::String(name) | ast::TSEnumMemberName::ComputedString(name) => {
                    name.value.to_string()
                }
                ast::TSEnumMemberName::ComputedTemplateString(_) => ANY_KEY.to_owned(),
            };
            fields.push((Some(Expr::word(place, name)), value));
        }
        let value = Expr::new(span(members.span), Kind::Fields(fields));
        let pattern = Pattern::Name(members.id.name.to_string());
        out.push(Statement::Assign { pattern, value, how: How::Here });
    }

    /// `namespace A { export const b = … }`: what stands in it, and an object of what it shows.
    pub(super) fn namespace(&mut self, namespace: &ast::TSNamespaceDeclaration<'_>, out: &mut Vec<Statement>) {
        let place = span(namespace.span);
        let ast::TSNamespaceDeclarationBody::TSModuleBlock(block) = &namespace.body else { return };
        let body = self.body(&block.body);
        let names: Vec<String> = body
            .iter()
            .filter_map(|statement| match statement {
                Statement::Assign { pattern: Pattern::Name(name), .. } => Some(name.clone()),
                _ => None,
            })
            .collect();
        out.extend(body);
        let shown =
            names.into_iter().map(|name| (Some(Expr::word(place, name.clone())), Expr::name(place, name))).collect();
        let pattern = Pattern::Name(namespace.id.name.to_string());
        out.push(Statement::Assign { pattern, value: Expr::new(place, Kind::Fields(shown)), how: How::Here });
    }

    fn define(&mut self, key: &PropertyKey<'_>, value: Expr, body: &mut Vec<Statement>) {
        let name = match key {
            PropertyKey::PrivateIdentifier(name) => Some(name.name.as_str().to_owned()),
            other => other.static_name().map(|name| name.to_string()),
        };
        match name {
            Some(name) => body.push(Statement::Assign { pattern: Pattern::Name(name), value, how: How::Here }),
            None => {
                let key = self.key(key);
                body.push(Statement::Value(key));
                body.push(Statement::Assign { pattern: Pattern::Name(ANY_KEY.to_owned()), value, how: How::Here });
            }
        }
    }
}

/// `constructor(private readonly path: string)`: what the parameter is given is kept under its name.
fn kept(param: &ast::FormalParameter<'_>) -> Option<Statement> {
    if param.accessibility.is_none() && !param.readonly && !param.r#override {
        return None;
    }
    let ast::BindingPattern::BindingIdentifier(name) = &param.pattern else { return None };
    let place = span(param.span);
    let itself = Box::new(Expr::new(place, Kind::This));
    let kept = Expr::new(place, Kind::Member(itself, name.name.as_str().to_owned()));
    let value = Expr::name(place, name.name.as_str());
    Some(Statement::Assign { pattern: Pattern::Place(kept), value, how: How::Here })
}
