//! Where a symbolic link would lead, told from the set alone: nothing on the host is looked up.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use crate::workspace::change::{Change, Node, Place};

/// A way with more steps is not followed; no honest link has as many.
const MOST_STEPS: usize = 64;

/// What is at each place after the changes.
pub(super) type Nodes<'a> = HashMap<&'a Path, &'a Node>;

pub(super) fn nodes(changes: &[Change]) -> Nodes<'_> {
    changes.iter().filter_map(|change| Some((change.place.as_path(), change.after.as_ref()?))).collect()
}

/// Where a link leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// To this path below the workspace; empty is the workspace itself.
    Inside(PathBuf),
    /// Out of the workspace.
    Out,
    /// It cannot be told without looking at the host, or never ends.
    Unclear,
}

/// Where the link at `place` with this target leads, by way of other links of the set.
pub(super) fn leads(place: &Place, target: &OsStr, nodes: &Nodes<'_>) -> Leads {
    let mut at: PathBuf = place.folder().map_or_else(PathBuf::new, |folder| folder.as_path().to_owned());
    // Folders above the link are folders, or it could not be there. What comes later may be a link of the host, and `..`
    // after a link leads elsewhere than it seems.
    let mut certain = at.iter().count();
    let mut left: VecDeque<Component<'_>> = Path::new(target).components().collect();
    if left.len() > MOST_STEPS {
        return Leads::Unclear;
    }
    let mut steps = 0;
    while let Some(step) = left.pop_front() {
        steps += 1;
        if steps > MOST_STEPS {
            return Leads::Unclear;
        }
        match step {
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return Leads::Out,
            Component::ParentDir => {
                let depth = at.iter().count();
                if depth == 0 {
                    return Leads::Out;
                }
                if depth > certain {
                    return Leads::Unclear;
                }
                at.pop();
                certain = certain.min(depth - 1);
            }
            Component::Normal(name) => {
                at.push(name);
                let depth = at.iter().count();
                match nodes.get(at.as_path()) {
                    Some(Node::Link { target }) => {
                        at.pop();
                        // What has a place of its own lies in folders.
                        certain = certain.max(depth - 1);
                        let further: Vec<Component<'_>> = Path::new(target).components().take(MOST_STEPS + 1).collect();
                        for step in further.into_iter().rev() {
                            left.push_front(step);
                        }
                    }
                    Some(Node::Folder { .. }) => certain = certain.max(depth),
                    Some(Node::File { .. } | Node::Other(_)) => certain = certain.max(depth - 1),
                    None => {}
                }
            }
        }
    }
    Leads::Inside(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::change::Before;

    fn check(links: &[(&str, &str)], place: &str, target: &str, expected: &Leads) {
        let changes: Vec<Change> = links
            .iter()
            .map(|(place, target)| Change {
                place: Place::new(*place).unwrap(),
                before: Before::Nothing,
                after: Some(match *target {
                    "/folder" => Node::Folder { mode: 0o755 },
                    target => Node::Link { target: target.into() },
                }),
            })
            .collect();
        let found = leads(&Place::new(place).unwrap(), OsStr::new(target), &nodes(&changes));
        assert_eq!(found, *expected, "{place} -> {target}");
    }

    #[test]
    fn f01_links_that_leave_the_workspace_are_told_from_those_that_stay() {
        let inside = |path: &str| Leads::Inside(path.into());
        check(&[], "a", "b", &inside("b"));
        check(&[], "a/b/c", "../x", &inside("a/x"));
        check(&[], "a/b/c", "../../x", &inside("x"));
        check(&[], "a/b", ".", &inside("a"));
        check(&[], "a", "..", &Leads::Out);
        check(&[], "a/b/c", "../../../x", &Leads::Out);
        check(&[], "a", "/etc/passwd", &Leads::Out);
        check(&[], "a", "./../x", &Leads::Out);
        check(&[], "a", "b/../../x", &Leads::Unclear);
        check(&[("b", "/folder")], "a", "b/../../x", &Leads::Out);
        check(&[("b", "/folder")], "a", "b/../x", &inside("x"));
    }

    #[test]
    fn f01_a_way_out_over_other_links_of_the_set_is_found() {
        check(&[("b", "/etc")], "a", "b/passwd", &Leads::Out);
        check(&[("d/up", "..")], "a", "d/up/up", &Leads::Inside("up".into()));
        check(&[("d/up", "../..")], "a", "d/up", &Leads::Out);
        check(&[("up", ".."), ("b", "c"), ("c", "up")], "a", "b/x", &Leads::Out);
        check(&[("x", "y"), ("y", "x")], "a", "x", &Leads::Unclear);
        check(&[], "a", &"b/".repeat(2000), &Leads::Unclear);
    }
}
