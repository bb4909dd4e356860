//! An earlier state of a workspace as nodes, for a guest that puts it back.

use std::io;

use ringfence_guest::far::{Node, OtherKind, What};
use ringfence_guest::nodes::FileNodes;

use crate::workspace::change::{self, Place};
use crate::workspace::merged::Step;
use crate::workspace::objects::Objects;

/// The nodes that make every place what its step says. `steps` are sorted by place and say all that differs, so that a folder
/// which goes is empty by then. What has to go comes first, innermost first. What cannot be made is found before anything is.
pub fn put_nodes<'a>(
    steps: &'a [Step<'a>],
    contents: &'a Objects,
) -> io::Result<impl Iterator<Item = io::Result<Node>> + Send + use<'a>> {
    for (_, node) in steps {
        match node {
            Some(change::Node::File { content, .. }) => drop(contents.open(*content)?),
            Some(change::Node::Other(change::OtherKind::Device)) => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "it was a device"));
            }
            Some(change::Node::Folder { .. } | change::Node::Link { .. } | change::Node::Other(_)) | None => {}
        }
    }
    // A folder that stays one is not taken away; the guest takes away what is in its place.
    let goes = |(_, node): &&Step<'_>| !matches!(node, Some(change::Node::Folder { .. }));
    let gone = steps.iter().rev().filter(goes).map(|(place, _)| Ok(at(place, What::Gone)));
    let made = steps.iter().filter_map(|(place, node)| Some((*place, (*node)?)));
    Ok(gone.chain(made.flat_map(move |(place, node)| make(place, node, contents))))
}

fn at(place: &Place, what: What) -> Node {
    Node { path: place.as_path().as_os_str().to_owned(), what }
}

/// One place.
fn make(place: &Place, node: &change::Node, contents: &Objects) -> Made {
    let one = |what| Made::One(Some(Ok(at(place, what))));
    match node {
        change::Node::Folder { mode } => one(What::Folder { mode: *mode }),
        change::Node::Link { target } => one(What::Link { target: target.clone() }),
        change::Node::File { content, size, mode, modified } => match contents.open(*content) {
            Ok(file) => {
                let path = place.as_path().as_os_str().to_owned();
                Made::File(FileNodes::new(path, file, *size, *mode, (modified.seconds, modified.nanoseconds)))
            }
            Err(error) => Made::One(Some(Err(error))),
        },
        change::Node::Other(kind) => match kind {
            change::OtherKind::Pipe => one(What::Other { kind: OtherKind::Pipe }),
            change::OtherKind::Socket => one(What::Other { kind: OtherKind::Socket }),
            change::OtherKind::Device => {
                Made::One(Some(Err(io::Error::new(io::ErrorKind::Unsupported, "it was a device"))))
            }
        },
    }
}

/// The nodes of one place.
enum Made {
    One(Option<io::Result<Node>>),
    File(FileNodes),
}

impl Iterator for Made {
    type Item = io::Result<Node>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::One(node) => node.take(),
            Self::File(nodes) => match nodes.next_node().transpose() {
                Some(Err(error)) => {
                    *self = Self::One(None);
                    Some(Err(error))
                }
                next => next,
            },
        }
    }
}
