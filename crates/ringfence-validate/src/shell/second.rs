//! The second opinion on a shell text: rable's parser. Its tree is only compared, never walked.

use std::rc::Rc;

use rable::{ListOperator, NodeKind};

use super::tree::{Arm, Node, Place, Redirect, RedirectKind, Simple, Sum, Target, Then, Turns, Word};
use crate::span::Span;

/// Parses `text`, or says why not.
pub(super) fn parse(text: &str) -> Result<Node, String> {
    let nodes = rable::parse(text, true).map_err(|error| error.to_string())?;
    let mut items = Vec::new();
    for node in &nodes {
        push_list(node, Then::Next, &mut items).ok_or("a form that is not known")?;
    }
    Ok(Node::List(items))
}

fn word(node: &rable::Node) -> Option<Word> {
    match &node.kind {
        NodeKind::Word { value, .. } | NodeKind::CondTerm { value, .. } | NodeKind::WordLiteral { value } => {
            Some(Word { raw: value.clone(), at: 0 })
        }
        _ => None,
    }
}

fn words(nodes: &[rable::Node]) -> Option<Vec<Word>> {
    nodes.iter().map(word).collect()
}

fn redirects(nodes: &[rable::Node]) -> Option<Vec<Redirect>> {
    nodes.iter().map(redirect).collect()
}

fn redirect(node: &rable::Node) -> Option<Redirect> {
    match &node.kind {
        NodeKind::Redirect { op, target, fd, varfd } => {
            let (kind, closes) = match op.as_str() {
                "<" => (RedirectKind::Read, false),
                ">" | ">|" => (RedirectKind::Write, false),
                ">>" => (RedirectKind::Append, false),
                "<>" => (RedirectKind::ReadWrite, false),
                "<&" => (RedirectKind::DuplicateInput, false),
                ">&" => (RedirectKind::DuplicateOutput, false),
                "<&-" => (RedirectKind::DuplicateInput, true),
                ">&-" => (RedirectKind::DuplicateOutput, true),
                "<<<" => (RedirectKind::HereString, false),
                "&>" | "&>>" => (RedirectKind::Both, false),
                _ => return None,
            };
            let target = if closes { Word { raw: "-".to_owned(), at: 0 } } else { word(target)? };
            Some(Redirect {
                descriptor: (*fd >= 0).then_some(*fd),
                variable: varfd.as_ref().map(ToString::to_string),
                kind,
                target: Target::Word(target),
            })
        }
        NodeKind::HereDoc { content, quoted, fd, .. } => Some(Redirect {
            descriptor: (*fd >= 0).then_some(*fd),
            variable: None,
            kind: RedirectKind::HereDocument,
            target: Target::Document { body: content.clone(), expands: !quoted, at: Place::default() },
        }),
        _ => None,
    }
}

fn list(node: &rable::Node) -> Option<Node> {
    let mut items = Vec::new();
    push_list(node, Then::Next, &mut items)?;
    Some(Node::List(items))
}

fn boxed(node: &rable::Node) -> Option<Box<Node>> {
    list(node).map(Box::new)
}

/// Lists within lists are one list: the parser nests them to the left.
fn push_list(node: &rable::Node, then: Then, items: &mut Vec<(Node, Then)>) -> Option<()> {
    match &node.kind {
        NodeKind::List { items: inner } => {
            let last = inner.len().checked_sub(1)?;
            for (index, item) in inner.iter().enumerate() {
                let joined = match item.operator {
                    Some(ListOperator::And) => Then::And,
                    Some(ListOperator::Or) => Then::Or,
                    Some(ListOperator::Background) => Then::Background,
                    Some(ListOperator::Semi) => Then::Next,
                    None if index == last => then,
                    None => Then::Next,
                };
                push_list(&item.command, joined, items)?;
            }
            Some(())
        }
        NodeKind::Empty | NodeKind::Comment { .. } => Some(()),
        _ => {
            items.push((command(node)?, then));
            Some(())
        }
    }
}

fn command(node: &rable::Node) -> Option<Node> {
    let place = Place::default();
    Some(match &node.kind {
        NodeKind::Command { assignments, words: all, redirects: targets } => Node::Simple(Simple {
            assignments: words(assignments)?,
            words: words(all)?,
            redirects: redirects(targets)?,
            place,
        }),
        NodeKind::Pipeline { commands, .. } => {
            Node::Pipeline(commands.iter().map(command).collect::<Option<_>>()?, place)
        }
        NodeKind::Negation { pipeline } | NodeKind::Time { pipeline, .. } => command(pipeline)?,
        NodeKind::If { condition, then_body, else_body, redirects: targets } => {
            let mut arms = vec![(list(condition)?, list(then_body)?)];
            let mut rest = else_body.as_deref();
            let mut otherwise = None;
            while let Some(node) = rest.take() {
                match &node.kind {
                    // `elif` is an `if` in the place of the `else`; an `if` of its own within `else` ends with its own `fi`, and both
                    // walk alike.
                    NodeKind::If { condition, then_body, else_body, redirects } if redirects.is_empty() => {
                        arms.push((list(condition)?, list(then_body)?));
                        rest = else_body.as_deref();
                    }
                    _ => otherwise = Some(boxed(node)?),
                }
            }
            Node::If { arms, otherwise, redirects: redirects(targets)?, place }
        }
        NodeKind::While { condition, body, redirects: targets }
        | NodeKind::Until { condition, body, redirects: targets } => {
            Node::While { condition: boxed(condition)?, body: boxed(body)?, redirects: redirects(targets)?, place }
        }
        NodeKind::For { var, words: all, body, redirects: targets } => Node::For {
            turns: Turns::InOrder,
            variable: var.clone(),
            // The other parser does not tell `for x in;` from `for x`: both are walked as the one that runs.
            words: chosen_from(words(all.as_deref().unwrap_or_default())?),
            body: boxed(body)?,
            redirects: redirects(targets)?,
            place,
        },
        NodeKind::Select { var, words: all, body, redirects: targets } => Node::For {
            turns: Turns::Chosen,
            variable: var.clone(),
            words: chosen_from(words(all.as_deref().unwrap_or_default())?),
            body: boxed(body)?,
            redirects: redirects(targets)?,
            // The only place that is kept: the other parser has to be told of it.
            place: Place(Span::new(node.span.start, node.span.start)),
        },
        NodeKind::ForArith { init, cond, incr, body, redirects: targets } => Node::ForArithmetic {
            parts: [init, cond, incr].map(|part| Sum(part.clone())).to_vec(),
            body: boxed(body)?,
            redirects: redirects(targets)?,
            place,
        },
        NodeKind::Case { word: subject, patterns, redirects: targets } => Node::Case {
            word: word(subject)?,
            arms: patterns
                .iter()
                .map(|arm| {
                    Some((
                        words(&arm.patterns)?,
                        arm.body.as_ref().map(list).map_or(Some(None), |body| body.map(Some))?,
                        if matches!(arm.terminator.as_str(), ";&" | ";;&") { Arm::GoesOn } else { Arm::Ends },
                    ))
                })
                .collect::<Option<_>>()?,
            redirects: redirects(targets)?,
            place,
        },
        NodeKind::Function { name, body } => {
            Node::Function { name: name.clone(), body: Rc::new(command(body)?), place }
        }
        NodeKind::Subshell { body, redirects: targets } => {
            Node::Group { subshell: true, body: boxed(body)?, redirects: redirects(targets)?, place }
        }
        NodeKind::BraceGroup { body, redirects: targets } => {
            Node::Group { subshell: false, body: boxed(body)?, redirects: redirects(targets)?, place }
        }
        NodeKind::Coproc { name, command: body } => {
            Node::Coprocess { name: name.clone().unwrap_or_else(|| "COPROC".to_owned()), body: Rc::new(command(body)?) }
        }
        NodeKind::ArithmeticCommand { redirects: targets, raw_content, .. } => {
            Node::Arithmetic { text: Sum(raw_content.clone()), redirects: redirects(targets)?, place }
        }
        NodeKind::ConditionalExpr { body, redirects: targets } => {
            let mut all = Vec::new();
            test_words(body, &mut all)?;
            Node::Test { words: all, redirects: redirects(targets)?, place }
        }
        NodeKind::Empty => Node::Nothing,
        _ => return None,
    })
}

/// The words that a loop goes over: without any it goes over the arguments, which the parser may write out.
pub(super) fn chosen_from(words: Vec<Word>) -> Option<Vec<Word>> {
    match words.as_slice() {
        [] => None,
        [only] if only.raw == "\"$@\"" => None,
        _ => Some(words),
    }
}

/// Where each `select` stands, counted in characters.
pub(super) fn selects(node: &Node, all: &mut Vec<usize>) {
    match node {
        Node::For { turns, body, place, .. } => {
            if *turns == Turns::Chosen {
                all.push(place.0.start);
            }
            selects(body, all);
        }
        Node::List(items) => items.iter().for_each(|(node, _)| selects(node, all)),
        Node::Pipeline(nodes, _) => nodes.iter().for_each(|node| selects(node, all)),
        Node::Group { body, .. } | Node::ForArithmetic { body, .. } => selects(body, all),
        Node::Coprocess { body, .. } => selects(body, all),
        Node::Function { body, .. } => selects(body, all),
        Node::While { condition, body, .. } => {
            selects(condition, all);
            selects(body, all);
        }
        Node::If { arms, otherwise, .. } => {
            for (condition, body) in arms {
                selects(condition, all);
                selects(body, all);
            }
            if let Some(body) = otherwise {
                selects(body, all);
            }
        }
        Node::Case { arms, .. } => {
            arms.iter().filter_map(|(_, body, _)| body.as_ref()).for_each(|body| selects(body, all));
        }
        Node::Simple(_) | Node::Test { .. } | Node::Arithmetic { .. } | Node::Nothing => {}
    }
}

/// The operands of a test, in order.
fn test_words(node: &rable::Node, all: &mut Vec<Word>) -> Option<()> {
    match &node.kind {
        NodeKind::UnaryTest { operand, .. } => all.push(word(operand)?),
        NodeKind::BinaryTest { left, right, .. } => all.extend([word(left)?, word(right)?]),
        NodeKind::CondAnd { left, right } | NodeKind::CondOr { left, right } => {
            test_words(left, all)?;
            test_words(right, all)?;
        }
        NodeKind::CondNot { operand } => test_words(operand, all)?,
        NodeKind::CondParen { inner } => test_words(inner, all)?,
        _ => all.push(word(node)?),
    }
    Some(())
}
