//! Commands behind which nothing runs.

use super::tree::{Node, Then};

/// Commands behind which nothing runs.
pub(super) const LEAVE: [&str; 4] = ["exit", "return", "break", "continue"];

/// Whether nothing runs behind it.
pub(super) fn leaves(node: &Node) -> bool {
    match node {
        Node::Simple(simple) => simple.words.first().is_some_and(|word| LEAVE.contains(&word.raw.as_str())),
        Node::Group { subshell: false, body, .. } => leaves(body),
        Node::List(items) => match items.last() {
            Some((node, then)) => *then != Then::Background && leaves(node) && sure(items),
            None => false,
        },
        Node::Group { .. }
        | Node::Pipeline(..)
        | Node::If { .. }
        | Node::While { .. }
        | Node::For { .. }
        | Node::ForArithmetic { .. }
        | Node::Case { .. }
        | Node::Function { .. }
        | Node::Test { .. }
        | Node::Arithmetic { .. }
        | Node::Coprocess { .. }
        | Node::Nothing => false,
    }
}

/// Whether the last command runs whatever the others come to.
fn sure(items: &[(Node, Then)]) -> bool {
    items.iter().rev().nth(1).is_none_or(|(_, then)| matches!(then, Then::Next | Then::Background))
}
