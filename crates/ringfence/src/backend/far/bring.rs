//! What a far guest tells of its workspace, on its way to become a private layer.

use std::fmt;
use std::io;

use ringfence_guest::far::{MOST_NODES, Node, PIECE, What};
use tokio::sync::{mpsc, oneshot};

use super::turn::said_by_the_guest;
use super::{OutOfTurn, gone};
use crate::workspace::layer::PrivateLayer;

/// Parts of it that wait to be written down.
const WAITING: usize = 4;
/// Of a path or a link's target, as the kernel has it.
const MOST_PATH: usize = 4096;

/// Makes a private layer of what a far guest tells. All that it is handed was written by an untrusted program: of each node
/// only its size was looked at. It works on a thread of its own and may take its time.
pub(in crate::backend) trait Bringing: fmt::Debug + Send {
    /// The next nodes, in the order in which they were told. An error ends it, and becomes the layer's.
    fn bring(&mut self, nodes: Vec<Node>) -> io::Result<()>;
    /// That was all that differs.
    fn finish(self: Box<Self>) -> io::Result<PrivateLayer>;
}

enum Part {
    Nodes(Vec<Node>),
    All,
    /// It could not tell all of it, in its words.
    NotAll(String),
}

/// A layer that is being brought. Dropping it before all was told gives the layer up.
#[derive(Debug)]
pub(super) struct Collector {
    parts: mpsc::Sender<Part>,
    /// Until whoever asked for it took it.
    pub(super) layer: Option<oneshot::Receiver<io::Result<PrivateLayer>>>,
}

impl Collector {
    pub(super) fn begin(mut bringing: Box<dyn Bringing>) -> io::Result<Self> {
        let (parts, mut receiver) = mpsc::channel(WAITING);
        let (sender, layer) = oneshot::channel();
        let bring = move || loop {
            match receiver.blocking_recv() {
                Some(Part::Nodes(nodes)) => bringing.bring(nodes)?,
                Some(Part::All) => return bringing.finish(),
                Some(Part::NotAll(words)) => return Err(said_by_the_guest(&words)),
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the guest did not tell all that differs",
                    ));
                }
            }
        };
        std::thread::Builder::new().name("bring".to_owned()).spawn(move || {
            // Who does not wait any more does not need it.
            sender.send(bring()).ok();
        })?;
        Ok(Self { parts, layer: Some(layer) })
    }

    /// Where the next nodes go. Waits while there are too many; those that nobody wants any more are dropped.
    pub(super) async fn nodes(parts: Parts, nodes: Vec<Node>) {
        parts.0.send(Part::Nodes(nodes)).await.ok();
    }

    /// That was all, or it says why not.
    pub(super) async fn told(&self, all: Result<(), String>) {
        self.parts.send(all.map_or_else(Part::NotAll, |()| Part::All)).await.ok();
    }

    /// The layer, now that all was told.
    pub(super) async fn finished(mut self) -> io::Result<PrivateLayer> {
        self.told(Ok(())).await;
        match self.layer.take() {
            Some(layer) => layer.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }

    pub(super) fn parts(&self) -> Parts {
        Parts(self.parts.clone())
    }
}

/// Where nodes go.
#[derive(Debug, Clone)]
pub(super) struct Parts(mpsc::Sender<Part>);

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) => write!(formatter, "{} nodes", nodes.len()),
            Self::All => formatter.write_str("all"),
            Self::NotAll(words) => write!(formatter, "not all: {words}"),
        }
    }
}

/// No more and no larger nodes than may come at once.
pub(super) fn check(nodes: &[Node]) -> Result<(), OutOfTurn> {
    let fits = |node: &Node| {
        node.path.len() <= MOST_PATH
            && match &node.what {
                What::File { bytes, .. } | What::More { bytes } => bytes.len() <= PIECE,
                What::Link { target: path } | What::Name { of: path } => path.len() <= MOST_PATH,
                What::Folder { .. } | What::Hole { .. } | What::Other { .. } | What::Gone => true,
            }
    };
    if !nodes.is_empty() && nodes.len() <= MOST_NODES && nodes.iter().all(fits) { Ok(()) } else { Err(OutOfTurn) }
}

/// How much room a node takes in a message, about.
pub(super) fn weight(node: &Node) -> usize {
    let more = match &node.what {
        What::File { bytes, .. } | What::More { bytes } => bytes.len(),
        What::Link { target: path } | What::Name { of: path } => path.len(),
        What::Folder { .. } | What::Hole { .. } | What::Other { .. } | What::Gone => 0,
    };
    node.path.len() + more
}
