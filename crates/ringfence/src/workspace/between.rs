//! What differs between two states of one workspace, each of which is known as a set of changes against the host's. Pure, but
//! for one question: what the host's own workspace has where one of the sets says nothing.

use std::cmp::Ordering;

use super::change::{Before, Change, Node, Place, Stamp, Was, WasKind};

/// The host's workspace below both states.
pub trait Beneath {
    /// Why it could not be told.
    type Error;
    /// What a program sees at `place` while it has not changed it; nothing where it sees nothing.
    fn node(&mut self, place: &Place) -> Result<Option<Node>, Self::Error>;
}

/// The changes that lead from the state `from` to the state `to`, both sorted by place, as is what comes out.
pub fn between<B: Beneath>(from: &[Change], to: &[Change], beneath: &mut B) -> Result<Vec<Change>, B::Error> {
    let (mut from, mut to) = (from.iter().peekable(), to.iter().peekable());
    let mut changes = Vec::new();
    loop {
        let order = match (from.peek(), to.peek()) {
            (None, None) => return Ok(changes),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.place.cmp(&other.place),
        };
        let old = if order == Ordering::Greater { None } else { from.next() };
        let new = if order == Ordering::Less { None } else { to.next() };
        let Some(place) = old.or(new).map(|change| &change.place) else { return Ok(changes) };
        let before = match old {
            Some(old) => old.after.clone(),
            None => beneath.node(place)?,
        };
        let after = match new {
            Some(new) => new.after.clone(),
            None => beneath.node(place)?,
        };
        if !is_same(before.as_ref(), after.as_ref()) {
            changes.push(Change { place: place.clone(), before: before.map_or(Before::Nothing, was), after });
        }
    }
}

/// Whether nobody could tell the two apart but by their times, which alone are no change.
fn is_same(one: Option<&Node>, other: Option<&Node>) -> bool {
    match (one, other) {
        (Some(Node::File { content, mode, .. }), Some(Node::File { content: other, mode: other_mode, .. })) => {
            (content, mode) == (other, other_mode)
        }
        (one, other) => one == other,
    }
}

/// A node as what was there before. It is no node of the host: its stamp is nobody's.
fn was(node: Node) -> Before {
    let moment = super::change::Moment { seconds: 0, nanoseconds: 0 };
    let mut stamp = Stamp { device: 0, inode: 0, size: 0, modified: moment, changed: moment };
    let (kind, mode) = match node {
        Node::File { content, size, mode, modified } => {
            stamp.size = size;
            stamp.modified = modified;
            (WasKind::File(Some(content)), mode)
        }
        Node::Link { target } => (WasKind::Link(target), 0o777),
        Node::Folder { mode } => (WasKind::Folder, mode),
        Node::Other(kind) => (WasKind::Other(kind), 0),
    };
    Before::Was(Was { kind, mode, stamp })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::workspace::change::Moment;
    use crate::workspace::objects::ObjectId;

    type State = BTreeMap<Place, Node>;

    struct Host<'a>(&'a State);

    impl Beneath for Host<'_> {
        type Error = Infallible;

        fn node(&mut self, place: &Place) -> Result<Option<Node>, Infallible> {
            Ok(self.0.get(place).cloned())
        }
    }

    fn file(text: &str, mode: u32, seconds: i64) -> Node {
        let modified = Moment { seconds, nanoseconds: 0 };
        Node::File { content: ObjectId::of(text.as_bytes()), size: text.len() as u64, mode, modified }
    }

    fn place(path: &str) -> Place {
        Place::new(path).unwrap()
    }

    fn change(path: &str, after: Option<Node>) -> Change {
        Change { place: place(path), before: Before::Unknown, after }
    }

    /// `path: before -> after`, where each is a word.
    fn check(host: &[(&str, Node)], from: &[Change], to: &[Change], expected: &[&str]) {
        let host: State = host.iter().map(|(path, node)| (place(path), node.clone())).collect();
        let Ok(changes) = between(from, to, &mut Host(&host));
        let describe = |change: &Change| {
            let before = match &change.before {
                Before::Nothing => "nothing",
                Before::Unknown => "unknown",
                Before::Was(was) => match was.kind {
                    WasKind::File(Some(_)) => "file",
                    WasKind::File(None) => "lost",
                    WasKind::Link(_) => "link",
                    WasKind::Folder => "folder",
                    WasKind::Other(_) => "other",
                },
            };
            let after = match &change.after {
                None => "nothing",
                Some(Node::File { .. }) => "file",
                Some(Node::Link { .. }) => "link",
                Some(Node::Folder { .. }) => "folder",
                Some(Node::Other(_)) => "other",
            };
            format!("{}: {before} -> {after}", change.place.as_path().display())
        };
        assert_eq!(changes.iter().map(describe).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_one_set_does_not_name_is_as_the_host_has_it() {
        let host = [("a", file("a", 0o644, 1)), ("b", file("b", 0o644, 1)), ("tree", Node::Folder { mode: 0o755 })];
        let link = || Some(Node::Link { target: "x".into() });
        let from = [change("a", Some(file("other", 0o644, 2))), change("new", link()), change("tree", None)];
        let to = [change("b", None), change("new", Some(Node::Folder { mode: 0o700 }))];
        let forth = ["a: file -> file", "b: file -> nothing", "new: link -> folder", "tree: nothing -> folder"];
        check(&host, &from, &to, &forth);
        let back = ["a: file -> file", "b: nothing -> file", "new: folder -> link", "tree: folder -> nothing"];
        check(&host, &to, &from, &back);
        check(&host, &from, &from, &[]);
        check(&host, &from, &[], &["a: file -> file", "new: link -> nothing", "tree: nothing -> folder"]);
    }

    #[test]
    fn times_alone_are_no_difference_and_permissions_are_one() {
        let from = [change("a", Some(file("a", 0o644, 1))), change("b", Some(file("b", 0o644, 1)))];
        let to = [change("a", Some(file("a", 0o644, 2))), change("b", Some(file("b", 0o755, 1)))];
        check(&[], &from, &to, &["b: file -> file"]);
        // A set may say what the host has come to have meanwhile.
        check(&[("a", file("a", 0o644, 9)), ("b", file("b", 0o644, 9))], &from, &[], &[]);
    }

    fn states() -> impl Strategy<Value = State> {
        let node = prop_oneof![
            (0u8..3, 0u8..2).prop_map(|(text, mode)| file(&text.to_string(), 0o644 | u32::from(mode), 1)),
            (0u8..2).prop_map(|target| Node::Link { target: target.to_string().into() }),
        ];
        proptest::collection::btree_map("[a-f]".prop_map(|name| place(&name)), node, 0..6)
    }

    fn against(host: &State, state: &State) -> Vec<Change> {
        let places: std::collections::BTreeSet<&Place> = host.keys().chain(state.keys()).collect();
        let differ = places.into_iter().filter(|place| host.get(*place) != state.get(*place));
        let change =
            |place: &Place| Change { place: place.clone(), before: Before::Unknown, after: state.get(place).cloned() };
        differ.map(change).collect()
    }

    proptest! {
        #[test]
        fn the_changes_lead_from_one_state_to_the_other(host in states(), one in states(), other in states()) {
            let Ok(changes) = between(&against(&host, &one), &against(&host, &other), &mut Host(&host));
            let mut state = one;
            for change in changes {
                match change.after {
                    Some(node) => state.insert(change.place, node),
                    None => state.remove(&change.place),
                };
            }
            prop_assert_eq!(state, other);
        }
    }
}
