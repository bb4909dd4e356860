//! Where JavaScript puts values: bindings, and targets of assignments.

use oxc_ast::ast::{
    self, AssignmentOperator, AssignmentTarget, AssignmentTargetMaybeDefault, AssignmentTargetProperty, BindingPattern,
};
use oxc_span::GetSpan;

use super::statement::{Lower, span};
use crate::code::tree::{Expr, How, Kind, Param, Pattern, Statement, Takes};

impl Lower<'_> {
    pub(super) fn binding(&mut self, pattern: &BindingPattern<'_>) -> Pattern {
        match pattern {
            BindingPattern::BindingIdentifier(name) => {
                self.check_name(name.name.as_str(), span(name.span));
                Pattern::Name(name.name.as_str().to_owned())
            }
            BindingPattern::ObjectPattern(object) => {
                let mut fields = Vec::new();
                for property in &object.properties {
                    let key = self.key(&property.key);
                    fields.push((key, self.binding(&property.value)));
                }
                if let Some(rest) = &object.rest {
                    let key = Expr::new(span(rest.span), Kind::Nothing);
                    fields.push((key, Pattern::Rest(Box::new(self.binding(&rest.argument)))));
                }
                Pattern::Fields(fields)
            }
            BindingPattern::ArrayPattern(array) => {
                let mut items: Vec<Pattern> = Vec::new();
                for element in &array.elements {
                    items.push(match element {
                        Some(element) => self.binding(element),
                        None => Pattern::List(Vec::new()),
                    });
                }
                if let Some(rest) = &array.rest {
                    items.push(Pattern::Rest(Box::new(self.binding(&rest.argument))));
                }
                Pattern::List(items)
            }
            BindingPattern::AssignmentPattern(assign) => {
                let default = self.expr(&assign.right);
                Pattern::Default(Box::new(self.binding(&assign.left)), default)
            }
        }
    }

    pub(super) fn target(&mut self, target: &AssignmentTarget<'_>) -> Pattern {
        match target {
            AssignmentTarget::AssignmentTargetIdentifier(name) => Pattern::Name(name.name.as_str().to_owned()),
            AssignmentTarget::ArrayAssignmentTarget(array) => {
                let mut items: Vec<Pattern> = Vec::new();
                for element in &array.elements {
                    items.push(match element {
                        Some(element) => self.maybe_default(element),
                        None => Pattern::List(Vec::new()),
                    });
                }
                if let Some(rest) = &array.rest {
                    items.push(Pattern::Rest(Box::new(self.target(&rest.target))));
                }
                Pattern::List(items)
            }
            AssignmentTarget::ObjectAssignmentTarget(object) => {
                let mut fields = Vec::new();
                for property in &object.properties {
                    match property {
                        AssignmentTargetProperty::AssignmentTargetPropertyIdentifier(one) => {
                            let name = one.binding.name.to_string();
                            let key = Expr::word(span(one.span), name.clone());
                            let pattern = match &one.init {
                                Some(default) => Pattern::Default(Box::new(Pattern::Name(name)), self.expr(default)),
                                None => Pattern::Name(name),
                            };
                            fields.push((key, pattern));
                        }
                        AssignmentTargetProperty::AssignmentTargetPropertyProperty(one) => {
                            let key = self.key(&one.name);
                            fields.push((key, self.maybe_default(&one.binding)));
                        }
                    }
                }
                if let Some(rest) = &object.rest {
                    let key = Expr::new(span(rest.span), Kind::Nothing);
                    fields.push((key, Pattern::Rest(Box::new(self.target(&rest.target)))));
                }
                Pattern::Fields(fields)
            }
            other => match other.as_simple_assignment_target() {
                Some(simple) => Pattern::Place(self.simple_target(simple)),
                None => Pattern::List(Vec::new()),
            },
        }
    }

    pub(super) fn simple_target(&mut self, target: &ast::SimpleAssignmentTarget<'_>) -> Expr {
        let place = span(target.span());
        match target {
            ast::SimpleAssignmentTarget::AssignmentTargetIdentifier(name) => {
                Expr::name(place, name.name.as_str().to_owned())
            }
            ast::SimpleAssignmentTarget::TSAsExpression(inner) => self.expr(&inner.expression),
            ast::SimpleAssignmentTarget::TSSatisfiesExpression(inner) => self.expr(&inner.expression),
            ast::SimpleAssignmentTarget::TSNonNullExpression(inner) => self.expr(&inner.expression),
            ast::SimpleAssignmentTarget::TSTypeAssertion(inner) => self.expr(&inner.expression),
            other => match other.as_member_expression() {
                Some(member) => self.member(member),
                None => Expr::new(place, Kind::Nothing),
            },
        }
    }

    fn maybe_default(&mut self, target: &AssignmentTargetMaybeDefault<'_>) -> Pattern {
        match target {
            AssignmentTargetMaybeDefault::AssignmentTargetWithDefault(with) => {
                let default = self.expr(&with.init);
                Pattern::Default(Box::new(self.target(&with.binding)), default)
            }
            other => match other.as_assignment_target() {
                Some(target) => self.target(target),
                None => Pattern::List(Vec::new()),
            },
        }
    }

    /// An assignment as a statement.
    pub(super) fn assignment(&mut self, assign: &ast::AssignmentExpression<'_>) -> Statement {
        let value = self.expr(&assign.right);
        let pattern = self.target(&assign.left);
        match assign.operator {
            AssignmentOperator::Addition => Statement::Assign { pattern, value, how: How::Add },
            AssignmentOperator::Assign
            | AssignmentOperator::LogicalAnd
            | AssignmentOperator::LogicalOr
            | AssignmentOperator::LogicalNullish => Statement::Assign { pattern, value, how: How::Around },
            _ => {
                let value = Expr::new(value.span, Kind::Mix(vec![value]));
                Statement::Assign { pattern, value, how: How::Around }
            }
        }
    }

    pub(super) fn params(&mut self, params: &ast::FormalParameters<'_>) -> Vec<Param> {
        let mut all = Vec::with_capacity(params.items.len());
        for param in &params.items {
            let default = param.initializer.as_ref().map(|default| self.expr(default));
            all.push(Param { pattern: self.binding(&param.pattern), default, takes: Takes::One });
        }
        if let Some(rest) = &params.rest {
            all.push(Param { pattern: self.binding(&rest.rest.argument), default: None, takes: Takes::Rest });
        }
        all
    }
}
