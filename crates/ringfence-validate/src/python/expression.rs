//! Python's expressions, as the tree of all languages has them.

use std::rc::Rc;

use ruff_python_ast::{self as ast, FStringPart, InterpolatedStringElement, Number, Operator};
use ruff_text_size::{Ranged, TextRange};

use super::statement::{Lower, span};
use crate::code::tree::{Arg, Arithmetic, Call, Expr, Function, Kind, Pattern, Statement, Truth, Written};

/// What an operator makes of two values.
pub(super) fn operation(operator: Operator, left: Expr, right: Expr) -> Kind {
    match operator {
        Operator::Add => Kind::Join(vec![left, right]),
        Operator::Mod => Kind::Percent(Box::new(left), Box::new(right)),
        Operator::Div => Kind::Divide(Box::new(left), Box::new(right)),
        Operator::Mult => Kind::Times(Box::new(left), Box::new(right)),
        Operator::Pow => Kind::Power(Box::new(left), Box::new(right)),
        Operator::BitOr => Kind::Either(vec![left, right]),
        Operator::BitXor => Kind::Arithmetic(Arithmetic::Xor, Box::new(left), Box::new(right)),
        Operator::Sub => Kind::Arithmetic(Arithmetic::Minus, Box::new(left), Box::new(right)),
        Operator::MatMult | Operator::LShift | Operator::RShift | Operator::BitAnd | Operator::FloorDiv => {
            Kind::Mix(vec![left, right])
        }
    }
}

impl Lower<'_> {
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> Expr {
        let place = span(expr.range());
        Expr::new(place, self.kind(expr))
    }

    fn boxed(&mut self, expr: &ast::Expr) -> Box<Expr> {
        Box::new(self.expr(expr))
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e ast::Expr>) -> Vec<Expr> {
        exprs.into_iter().map(|expr| self.expr(expr)).collect()
    }

    fn kind(&mut self, expr: &ast::Expr) -> Kind {
        match expr {
            ast::Expr::BoolOp(operation) => Kind::Either(self.exprs(&operation.values)),
            ast::Expr::Named(named) => {
                let value = self.boxed(&named.value);
                Kind::Assign(Box::new(self.pattern(&named.target)), value)
            }
            ast::Expr::BinOp(binary) => self.binary(binary),
            ast::Expr::UnaryOp(unary) => {
                let operand = self.expr(&unary.operand);
                match (unary.op, &operand.kind) {
                    (ast::UnaryOp::USub, Kind::Number(number)) => Kind::Number(number.saturating_neg()),
                    _ => Kind::Mix(vec![operand]),
                }
            }
            ast::Expr::Lambda(lambda) => {
                let params = lambda.parameters.as_ref().map(|parameters| self.params(parameters)).unwrap_or_default();
                let body = vec![Statement::Return(self.expr(&lambda.body))];
                self.functions += 1;
                Kind::Function(Rc::new(Function { number: self.functions, itself: None, params, body }))
            }
            ast::Expr::If(branch) => {
                let test = self.expr(&branch.test);
                let tested = Expr::new(test.span, Kind::Mix(vec![test]));
                // The condition is looked at, and is not the value.
                let test = Expr::new(tested.span, Kind::Ignored(Box::new(tested)));
                Kind::Either(vec![test, self.expr(&branch.body), self.expr(&branch.orelse)])
            }
            ast::Expr::Dict(dict) => {
                let mut fields = Vec::new();
                for item in &dict.items {
                    let key = item.key.as_ref().map(|key| self.expr(key));
                    fields.push((key, self.expr(&item.value)));
                }
                Kind::Fields(fields)
            }
            ast::Expr::Set(set) => Kind::List(self.exprs(&set.elts)),
            ast::Expr::ListComp(comprehension) => self.comprehension(&comprehension.generators, [&*comprehension.elt]),
            ast::Expr::SetComp(comprehension) => self.comprehension(&comprehension.generators, [&*comprehension.elt]),
            ast::Expr::Generator(comprehension) => self.comprehension(&comprehension.generators, [&*comprehension.elt]),
            ast::Expr::DictComp(comprehension) => self.comprehension(
                &comprehension.generators,
                comprehension.key.iter().map(|key| &**key).chain([&*comprehension.value]),
            ),
            ast::Expr::Await(awaited) => self.kind(&awaited.value),
            ast::Expr::Yield(given) => match &given.value {
                Some(value) => Kind::Yield(self.boxed(value)),
                None => Kind::Yield(Box::default()),
            },
            ast::Expr::YieldFrom(given) => {
                let all = self.boxed(&given.value);
                let any = Expr::new(all.span, Kind::Mix(Vec::new()));
                let one = Expr::new(all.span, Kind::Index(all, Box::new(any)));
                Kind::Yield(Box::new(one))
            }
            ast::Expr::Compare(compare) => {
                let mut parts = self.exprs([&*compare.left]);
                parts.extend(self.exprs(compare.comparators.iter()));
                Kind::Ignored(Box::new(Expr::new(span(compare.range), Kind::Mix(parts))))
            }
            ast::Expr::Call(call) => self.call(call),
            ast::Expr::FString(text) => {
                let mut parts = Vec::new();
                for part in text.value.iter() {
                    match part {
                        FStringPart::Literal(literal) => parts.push(self.text(literal.as_str(), literal.range())),
                        FStringPart::FString(string) => self.elements(string.elements.iter(), &mut parts),
                    }
                }
                Kind::Join(parts)
            }
            ast::Expr::TString(text) => {
                let mut parts = Vec::new();
                for string in text.value.iter() {
                    self.elements(string.elements.iter(), &mut parts);
                }
                Kind::Join(parts)
            }
            ast::Expr::StringLiteral(text) => {
                let parts = text.value.as_slice().len();
                let value = text.value.to_str();
                Kind::text(value, self.written(value, text.range(), parts))
            }
            ast::Expr::BytesLiteral(bytes) => {
                let all: Vec<u8> = bytes.value.iter().flat_map(|part| part.as_slice().iter().copied()).collect();
                let value = String::from_utf8(all)
                    .unwrap_or_else(|error| error.into_bytes().iter().map(|byte| char::from(*byte)).collect());
                let written = self.written(&value, bytes.range(), bytes.value.as_slice().len());
                Kind::text(value, written)
            }
            ast::Expr::NumberLiteral(number) => match &number.value {
                Number::Int(number) => number.as_i64().map_or(Kind::Mix(Vec::new()), Kind::Number),
                Number::Float(_) | Number::Complex { .. } => Kind::Mix(Vec::new()),
            },
            ast::Expr::BooleanLiteral(truth) => Kind::Truth(if truth.value { Truth::True } else { Truth::False }),
            ast::Expr::NoneLiteral(_) | ast::Expr::EllipsisLiteral(_) | ast::Expr::IpyEscapeCommand(_) => Kind::Nothing,
            ast::Expr::Attribute(attribute) => {
                self.check_name(attribute.attr.as_str(), attribute.attr.range());
                Kind::Member(self.boxed(&attribute.value), attribute.attr.as_str().to_owned())
            }
            ast::Expr::Subscript(item) => match &*item.slice {
                ast::Expr::Slice(slice) => {
                    let base = self.boxed(&item.value);
                    let mut end = |end: &Option<Box<ast::Expr>>| end.as_ref().map(|end| self.boxed(end));
                    Kind::Slice(base, [end(&slice.lower), end(&slice.upper), end(&slice.step)])
                }
                key => Kind::Index(self.boxed(&item.value), self.boxed(key)),
            },
            ast::Expr::Starred(starred) => Kind::Spread(self.boxed(&starred.value)),
            ast::Expr::Name(name) => {
                self.check_name(name.id.as_str(), name.range());
                Kind::Name(name.id.as_str().to_owned())
            }
            ast::Expr::List(list) => Kind::List(self.exprs(&list.elts)),
            ast::Expr::Tuple(list) => Kind::List(self.exprs(&list.elts)),
            ast::Expr::Slice(slice) => {
                Kind::Mix(self.exprs([&slice.lower, &slice.upper, &slice.step].into_iter().flatten().map(|end| &**end)))
            }
        }
    }

    /// A long sum is one text of many parts: going down into its left side would go as deep as it is long.
    fn binary(&mut self, binary: &ast::ExprBinOp) -> Kind {
        if binary.op != Operator::Add {
            let (left, right) = (self.expr(&binary.left), self.expr(&binary.right));
            return operation(binary.op, left, right);
        }
        let mut parts = vec![&*binary.right];
        let mut left = &*binary.left;
        while let ast::Expr::BinOp(more) = left
            && more.op == Operator::Add
        {
            parts.push(&more.right);
            left = &more.left;
        }
        parts.push(left);
        Kind::Join(self.exprs(parts.into_iter().rev()))
    }

    fn call(&mut self, call: &ast::ExprCall) -> Kind {
        let callee = self.expr(&call.func);
        let mut args = Vec::with_capacity(call.arguments.args.len() + call.arguments.keywords.len());
        for arg in &call.arguments.args {
            args.push(Arg { name: None, value: self.expr(arg) });
        }
        for keyword in call.arguments.keywords.iter() {
            let name = keyword.arg.as_ref().map(ToString::to_string).unwrap_or_default();
            args.push(Arg { name: Some(name), value: self.expr(&keyword.value) });
        }
        Kind::Call(Box::new(Call { callee, args }))
    }

    fn comprehension<'e>(
        &mut self,
        generators: &[ast::Comprehension],
        values: impl IntoIterator<Item = &'e ast::Expr>,
    ) -> Kind {
        let mut loops = Vec::new();
        let mut tests = Vec::new();
        for generator in generators {
            let over = self.expr(&generator.iter);
            loops.push((self.pattern(&generator.target), over));
            for test in &generator.ifs {
                let test = self.expr(test);
                tests.push(Expr::new(test.span, Kind::Ignored(Box::new(test))));
            }
        }
        let mut values = self.exprs(values);
        values.extend(tests);
        Kind::Comprehension { loops, values }
    }

    fn elements<'e>(&mut self, elements: impl Iterator<Item = &'e InterpolatedStringElement>, parts: &mut Vec<Expr>) {
        for element in elements {
            match element {
                InterpolatedStringElement::Literal(literal) => parts.push(self.text(&literal.value, literal.range())),
                InterpolatedStringElement::Interpolation(field) => {
                    parts.push(self.expr(&field.expression));
                    if let Some(form) = &field.format_spec {
                        let mut inner = Vec::new();
                        self.elements(form.elements.iter(), &mut inner);
                        let place = span(field.range);
                        let form = Expr::new(place, Kind::Mix(inner));
                        // How it is formatted is looked at, and adds nothing to the text.
                        parts.push(Expr::call(place, Expr::name(place, "(format)"), vec![form]));
                    }
                }
            }
        }
    }

    fn text(&mut self, value: &str, range: TextRange) -> Expr {
        let written = match self.written(value, range, 2) {
            Written::At(_) => Written::Changed,
            other => other,
        };
        Expr::new(span(range), Kind::text(value, written))
    }

    fn written(&self, value: &str, range: TextRange, parts: usize) -> Written {
        let place = span(range);
        let Some(source) = self.text.get(place.start..place.end) else { return Written::Changed };
        if crate::code::is_obscured(source) {
            return Written::Obscured;
        }
        match source.find(value) {
            Some(at) if parts == 1 && !value.is_empty() => Written::At(place.start + at),
            _ => Written::Changed,
        }
    }

    pub(super) fn pattern(&mut self, target: &ast::Expr) -> Pattern {
        match target {
            ast::Expr::Name(name) => {
                self.check_name(name.id.as_str(), name.range());
                Pattern::Name(name.id.as_str().to_owned())
            }
            ast::Expr::List(list) => Pattern::List(list.elts.iter().map(|item| self.pattern(item)).collect()),
            ast::Expr::Tuple(list) => Pattern::List(list.elts.iter().map(|item| self.pattern(item)).collect()),
            ast::Expr::Starred(rest) => Pattern::Rest(Box::new(self.pattern(&rest.value))),
            other => Pattern::Place(self.expr(other)),
        }
    }
}
