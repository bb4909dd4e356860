//! JavaScript's expressions, as the tree of all languages has them.

use oxc_ast::ast::{
    self, Argument, ArrayExpressionElement, BinaryOperator, Expression, JSXAttributeItem, JSXAttributeValue, JSXChild,
    MemberExpression, ObjectPropertyKind, PropertyKey, PropertyKind, UnaryOperator,
};
use oxc_span::GetSpan;

use super::statement::{Lower, span};
use crate::code::COUNTED;
use crate::code::tree::{Arg, Arithmetic, Call, Expr, How, Kind, Pattern, Statement, Truth, Written};

impl Lower<'_> {
    pub(super) fn expr(&mut self, expr: &Expression<'_>) -> Expr {
        let place = span(expr.span());
        self.deeper(|lower| Expr::new(place, lower.kind(expr)))
    }

    fn boxed(&mut self, expr: &Expression<'_>) -> Box<Expr> {
        Box::new(self.expr(expr))
    }

    fn mix<'a, 'b: 'a>(&mut self, parts: impl IntoIterator<Item = &'a Expression<'b>>) -> Kind {
        Kind::Mix(parts.into_iter().map(|part| self.expr(part)).collect())
    }

    fn kind(&mut self, expr: &Expression<'_>) -> Kind {
        match expr {
            Expression::BooleanLiteral(truth) => Kind::Truth(if truth.value { Truth::True } else { Truth::False }),
            Expression::ThisExpression(_) => Kind::This,
            Expression::NullLiteral(_) | Expression::Super(_) | Expression::NewTarget(_) => Kind::Nothing,
            Expression::NumericLiteral(number) => whole(number.value),
            Expression::BigIntLiteral(_) | Expression::RegExpLiteral(_) => Kind::Mix(Vec::new()),
            Expression::StringLiteral(text) => self.text(text),
            Expression::TemplateLiteral(template) => self.template(template),
            Expression::Identifier(name) => {
                self.check_name(name.name.as_str(), span(name.span));
                if name.name == "undefined" { Kind::Nothing } else { Kind::Name(name.name.as_str().to_owned()) }
            }
            Expression::ArrayExpression(array) => {
                let mut items = Vec::new();
                for element in &array.elements {
                    match element {
                        ArrayExpressionElement::SpreadElement(spread) => {
                            let inner = self.boxed(&spread.argument);
                            items.push(Expr::new(span(spread.span), Kind::Spread(inner)));
                        }
                        ArrayExpressionElement::Elision(_) => {}
                        other => items.extend(other.as_expression().map(|item| self.expr(item))),
                    }
                }
                Kind::List(items)
            }
            Expression::ArrowFunctionExpression(function) => self.arrow(function),
            Expression::FunctionExpression(function) => self.function(function),
            Expression::ClassExpression(class) => self.class(class),
            Expression::AssignmentExpression(assign) => match self.assignment(assign) {
                Statement::Assign { pattern, value, how: How::Here | How::Around } => {
                    Kind::Assign(Box::new(pattern), Box::new(value))
                }
                Statement::Assign { pattern, value, how: How::Add } => {
                    let place = value.span;
                    let before = match assign.left.as_simple_assignment_target() {
                        Some(target) => self.simple_target(target),
                        None => Expr::new(place, Kind::Nothing),
                    };
                    let sum = Expr::new(place, Kind::Join(vec![before, value]));
                    Kind::Assign(Box::new(pattern), Box::new(sum))
                }
                _ => Kind::Nothing,
            },
            Expression::AwaitExpression(awaited) => self.kind_of(&awaited.argument),
            Expression::BinaryExpression(binary) => self.binary(binary),
            Expression::PrivateInExpression(inside) => self.mix([&inside.right]),
            Expression::CallExpression(call) => self.call(&call.callee, &call.arguments),
            Expression::NewExpression(call) => self.call(&call.callee, &call.arguments),
            Expression::ChainExpression(chain) => match &chain.expression {
                ast::ChainElement::CallExpression(call) => self.call(&call.callee, &call.arguments),
                ast::ChainElement::TSNonNullExpression(inner) => self.kind_of(&inner.expression),
                other => match other.as_member_expression() {
                    Some(member) => self.member(member).kind,
                    None => Kind::Nothing,
                },
            },
            Expression::ConditionalExpression(branch) => {
                let test = self.expr(&branch.test);
                let test = Expr::new(test.span, Kind::Ignored(Box::new(test)));
                Kind::Either(vec![test, self.expr(&branch.consequent), self.expr(&branch.alternate)])
            }
            Expression::ImportExpression(import) => Kind::Import(self.boxed(&import.source)),
            Expression::LogicalExpression(either) => {
                Kind::Either(vec![self.expr(&either.left), self.expr(&either.right)])
            }
            Expression::ObjectExpression(object) => {
                let mut fields = Vec::new();
                for property in &object.properties {
                    match property {
                        ObjectPropertyKind::ObjectProperty(property) => {
                            let key = self.key(&property.key);
                            let mut value = self.expr(&property.value);
                            if property.kind == PropertyKind::Get {
                                // Reading it is calling it.
                                value = Expr::call(value.span, value, Vec::new());
                            }
                            fields.push((Some(key), value));
                        }
                        ObjectPropertyKind::SpreadProperty(spread) => fields.push((None, self.expr(&spread.argument))),
                    }
                }
                Kind::Fields(fields)
            }
            Expression::ParenthesizedExpression(inner) => self.kind_of(&inner.expression),
            Expression::SequenceExpression(sequence) => {
                let mut parts: Vec<Expr> = sequence.expressions.iter().map(|part| self.expr(part)).collect();
                let last = parts.pop();
                let mut all: Vec<Expr> =
                    parts.into_iter().map(|part| Expr::new(part.span, Kind::Ignored(Box::new(part)))).collect();
                all.extend(last);
                Kind::Either(all)
            }
            Expression::TaggedTemplateExpression(tagged) => {
                let callee = self.expr(&tagged.tag);
                let place = span(tagged.quasi.span);
                let text = Expr::new(place, self.template(&tagged.quasi));
                // A function of the program is given the parts; others make one text of them.
                let part = |part: &ast::TemplateElement<'_>| {
                    Expr::word(span(part.span), part.value.cooked.as_ref().map_or("", |text| text.as_str()))
                };
                let parts = Expr::new(place, Kind::List(tagged.quasi.quasis.iter().map(part).collect()));
                let mut args = vec![Arg { name: None, value: Expr::new(place, Kind::Either(vec![text, parts])) }];
                for value in &tagged.quasi.expressions {
                    args.push(Arg { name: None, value: self.expr(value) });
                }
                Kind::Call(Box::new(Call { callee, args }))
            }
            Expression::UnaryExpression(unary) => {
                let inner = self.expr(&unary.argument);
                match (unary.operator, &inner.kind) {
                    (UnaryOperator::UnaryNegation, Kind::Number(number)) => Kind::Number(number.saturating_neg()),
                    (UnaryOperator::LogicalNot, Kind::Number(number)) => {
                        Kind::Truth(if *number == 0 { Truth::True } else { Truth::False })
                    }
                    (UnaryOperator::Void | UnaryOperator::Typeof | UnaryOperator::Delete, _) => {
                        Kind::Ignored(Box::new(inner))
                    }
                    _ => Kind::Mix(vec![inner]),
                }
            }
            Expression::UpdateExpression(update) => {
                let place = span(update.span);
                match &update.argument {
                    // What counts is another number each time.
                    ast::SimpleAssignmentTarget::AssignmentTargetIdentifier(name) => {
                        let next = Expr::name(place, COUNTED);
                        Kind::Assign(Box::new(Pattern::Name(name.name.to_string())), Box::new(next))
                    }
                    _ => Kind::Mix(vec![self.simple_target(&update.argument)]),
                }
            }
            Expression::YieldExpression(given) => match &given.argument {
                Some(value) => Kind::Yield(self.boxed(value)),
                None => Kind::Yield(Box::default()),
            },
            Expression::ImportMeta(_) => Kind::Name("import.meta".to_owned()),
            Expression::JSXElement(element) => self.element(element),
            Expression::JSXFragment(fragment) => {
                let mut parts = Vec::new();
                self.children(&fragment.children, &mut parts);
                Kind::Ignored(Box::new(Expr::new(span(fragment.span), Kind::Mix(parts))))
            }
            Expression::TSAsExpression(inner) => self.kind_of(&inner.expression),
            Expression::TSSatisfiesExpression(inner) => self.kind_of(&inner.expression),
            Expression::TSTypeAssertion(inner) => self.kind_of(&inner.expression),
            Expression::TSNonNullExpression(inner) => self.kind_of(&inner.expression),
            Expression::TSInstantiationExpression(inner) => self.kind_of(&inner.expression),
            Expression::V8IntrinsicExpression(_) => Kind::Nothing,
            other => match other.as_member_expression() {
                Some(member) => self.member(member).kind,
                None => Kind::Nothing,
            },
        }
    }

    /// The same as what is inside, one deeper.
    fn kind_of(&mut self, expr: &Expression<'_>) -> Kind {
        self.expr(expr).kind
    }

    pub(super) fn member(&mut self, member: &MemberExpression<'_>) -> Expr {
        let place = span(member.span());
        let kind = match member {
            MemberExpression::ComputedMemberExpression(item) => {
                Kind::Index(self.boxed(&item.object), self.boxed(&item.expression))
            }
            MemberExpression::StaticMemberExpression(attribute) => {
                Kind::Member(self.boxed(&attribute.object), attribute.property.name.as_str().to_owned())
            }
            MemberExpression::PrivateFieldExpression(attribute) => {
                Kind::Member(self.boxed(&attribute.object), attribute.field.name.as_str().to_owned())
            }
        };
        Expr::new(place, kind)
    }

    fn call(&mut self, callee: &Expression<'_>, arguments: &[Argument<'_>]) -> Kind {
        let callee = self.expr(callee);
        let mut args = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let value = match argument {
                Argument::SpreadElement(spread) => {
                    let inner = self.boxed(&spread.argument);
                    Expr::new(span(spread.span), Kind::Spread(inner))
                }
                other => match other.as_expression() {
                    Some(value) => self.expr(value),
                    None => continue,
                },
            };
            args.push(Arg { name: None, value });
        }
        Kind::Call(Box::new(Call { callee, args }))
    }

    /// A long sum is one text of many parts: going down into its left side would go as deep as it is long.
    fn binary(&mut self, binary: &ast::BinaryExpression<'_>) -> Kind {
        match binary.operator {
            BinaryOperator::Addition => {
                let mut parts = vec![&binary.right];
                let mut left = &binary.left;
                while let Expression::BinaryExpression(more) = left
                    && more.operator == BinaryOperator::Addition
                {
                    parts.push(&more.right);
                    left = &more.left;
                }
                parts.push(left);
                Kind::Join(parts.into_iter().rev().map(|part| self.expr(part)).collect())
            }
            BinaryOperator::Subtraction => {
                Kind::Arithmetic(Arithmetic::Minus, self.boxed(&binary.left), self.boxed(&binary.right))
            }
            BinaryOperator::BitwiseXOR => {
                Kind::Arithmetic(Arithmetic::Xor, self.boxed(&binary.left), self.boxed(&binary.right))
            }
            BinaryOperator::Multiplication => Kind::Times(self.boxed(&binary.left), self.boxed(&binary.right)),
            BinaryOperator::Exponential => Kind::Power(self.boxed(&binary.left), self.boxed(&binary.right)),
            BinaryOperator::Equality
            | BinaryOperator::Inequality
            | BinaryOperator::StrictEquality
            | BinaryOperator::StrictInequality
            | BinaryOperator::LessThan
            | BinaryOperator::LessEqualThan
            | BinaryOperator::GreaterThan
            | BinaryOperator::GreaterEqualThan
            | BinaryOperator::In
            | BinaryOperator::Instanceof => {
                let parts = self.mix([&binary.left, &binary.right]);
                Kind::Ignored(Box::new(Expr::new(span(binary.span), parts)))
            }
            // Flags: each of them counts.
            BinaryOperator::BitwiseOR => Kind::Either(vec![self.expr(&binary.left), self.expr(&binary.right)]),
            BinaryOperator::Division
            | BinaryOperator::Remainder
            | BinaryOperator::ShiftLeft
            | BinaryOperator::ShiftRight
            | BinaryOperator::ShiftRightZeroFill
            | BinaryOperator::BitwiseAnd => self.mix([&binary.left, &binary.right]),
        }
    }

    fn text(&mut self, text: &ast::StringLiteral<'_>) -> Kind {
        let place = span(text.span);
        let value = text.value.as_str();
        let source = self.text.get(place.start..place.end).unwrap_or_default();
        let written = if crate::code::is_obscured(source) {
            Written::Obscured
        } else if !value.is_empty() && source.get(1..source.len().saturating_sub(1)) == Some(value) {
            Written::At(place.start + 1)
        } else {
            Written::Changed
        };
        Kind::text(value, written)
    }

    fn template(&mut self, template: &ast::TemplateLiteral<'_>) -> Kind {
        let mut parts = Vec::new();
        let mut fields = template.expressions.iter();
        for quasi in &template.quasis {
            let place = span(quasi.span);
            let value = quasi.value.cooked.as_ref().unwrap_or(&quasi.value.raw).as_str();
            if !value.is_empty() {
                let written = if crate::code::is_obscured(quasi.value.raw.as_str()) {
                    Written::Obscured
                } else {
                    Written::Changed
                };
                parts.push(Expr::new(place, Kind::text(value, written)));
            }
            parts.extend(fields.next().map(|field| self.expr(field)));
        }
        match parts.pop() {
            Some(Expr { kind: only @ Kind::Text(_), .. }) if parts.is_empty() => only,
            Some(last) => {
                parts.push(last);
                Kind::Join(parts)
            }
            None => Kind::text("", Written::Changed),
        }
    }

    /// The key of a property: a name, or what is computed.
    pub(super) fn key(&mut self, key: &PropertyKey<'_>) -> Expr {
        let place = span(key.span());
        match key {
            PropertyKey::StaticIdentifier(name) => Expr::word(place, name.name.as_str().to_owned()),
            PropertyKey::PrivateIdentifier(name) => Expr::word(place, name.name.as_str().to_owned()),
            other => match other.as_expression() {
                Some(value) => self.expr(value),
                None => Expr::new(place, Kind::Nothing),
            },
        }
    }

    fn element(&mut self, element: &ast::JSXElement<'_>) -> Kind {
        let mut parts = Vec::new();
        for attribute in &element.opening_element.attributes {
            match attribute {
                JSXAttributeItem::Attribute(attribute) => match &attribute.value {
                    Some(JSXAttributeValue::ExpressionContainer(container)) => {
                        parts.extend(container.expression.as_expression().map(|value| self.expr(value)));
                    }
                    Some(JSXAttributeValue::Element(inner)) => {
                        let inner = self.deeper(|lower| Expr::new(span(inner.span), lower.element(inner)));
                        parts.push(inner);
                    }
                    Some(JSXAttributeValue::StringLiteral(_) | JSXAttributeValue::Fragment(_)) | None => {}
                },
                JSXAttributeItem::SpreadAttribute(spread) => parts.push(self.expr(&spread.argument)),
            }
        }
        self.children(&element.children, &mut parts);
        Kind::Ignored(Box::new(Expr::new(span(element.span), Kind::Mix(parts))))
    }

    fn children(&mut self, children: &[JSXChild<'_>], parts: &mut Vec<Expr>) {
        for child in children {
            match child {
                JSXChild::Text(_) => {}
                JSXChild::Element(element) => {
                    let inner = self.deeper(|lower| Expr::new(span(element.span), lower.element(element)));
                    parts.push(inner);
                }
                JSXChild::Fragment(fragment) => {
                    let inner = self.deeper(|lower| {
                        let mut inner = Vec::new();
                        lower.children(&fragment.children, &mut inner);
                        inner
                    });
                    parts.extend(inner);
                }
                JSXChild::ExpressionContainer(container) => {
                    parts.extend(container.expression.as_expression().map(|value| self.expr(value)));
                }
                JSXChild::Spread(spread) => parts.push(self.expr(&spread.expression)),
            }
        }
    }
}

/// A number without a fraction, or one that is not followed.
fn whole(value: f64) -> Kind {
    // Beyond 2^53 a double is no longer exact; such numbers disguise no letters.
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        Kind::Number(value as i64)
    } else {
        Kind::Mix(Vec::new())
    }
}
