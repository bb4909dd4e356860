//! What a guest that has proven its wall is asked, and what its workspace is filled with.

use std::ffi::OsString;
use std::io;

use futures_util::{Stream as Nodes, StreamExt};
use ringfence_guest::far::{FarOrder, MOST_NODES, Node, PIECE};
use tokio::sync::oneshot;

use super::bring::{self, Bringing, Collector};
use super::turn::Fill;
use super::{ANSWERS, COLLECTS, FarLink, gone};
use crate::workspace::layer::PrivateLayer;

impl FarLink {
    /// Asks which of `files` are there, in their order.
    pub(in crate::backend) async fn find(&self, files: Vec<OsString>) -> io::Result<Vec<bool>> {
        let (sender, found) = oneshot::channel();
        {
            // The order goes out under the lock: answers come in the order in which they were asked for.
            let mut turns = self.shared.proven()?;
            turns.finds.push_back((files.len(), sender));
            self.shared.order(&FarOrder::Find(files))?;
        }
        self.shared.answer(ANSWERS, found).await
    }

    /// Fills the workspace with `nodes`, of which only a few are held at once, and waits until they are there.
    pub(in crate::backend) async fn fill(&self, nodes: impl Nodes<Item = io::Result<Node>> + Send) -> io::Result<()> {
        let (sender, mut filled) = oneshot::channel();
        {
            let mut turns = self.shared.proven()?;
            if !matches!(turns.fill, Fill::Nobody) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            turns.fill = Fill::Sending(sender);
        }
        tokio::select! {
            biased;
            // It may fail before it has everything.
            failed = &mut filled => return failed.map_err(|_| gone()).and_then(|failed| failed),
            sent = self.send(nodes) => if let Err(error) = sent {
                // What is there is no workspace.
                self.kill();
                return Err(error);
            },
        }
        {
            let mut turns = self.shared.turns();
            turns.fill = match std::mem::replace(&mut turns.fill, Fill::Nobody) {
                Fill::Sending(sender) => Fill::Sent(sender),
                other => other,
            };
        }
        self.shared.voice.say(&FarOrder::Made).await;
        self.shared.answer(ANSWERS, filled).await?
    }

    async fn send(&self, nodes: impl Nodes<Item = io::Result<Node>>) -> io::Result<()> {
        let mut nodes = std::pin::pin!(nodes);
        let (mut batch, mut size) = (Vec::new(), 0);
        while let Some(node) = nodes.next().await {
            let node = node?;
            let weight = bring::weight(&node);
            if !batch.is_empty() && (batch.len() >= MOST_NODES || size + weight > 2 * PIECE) {
                self.shared.voice.say(&FarOrder::Make(std::mem::take(&mut batch))).await;
                size = 0;
            }
            size += weight;
            batch.push(node);
        }
        if !batch.is_empty() {
            self.shared.voice.say(&FarOrder::Make(batch)).await;
        }
        Ok(())
    }

    /// Asks what differs now, and has a layer made of it. Programs go on meanwhile.
    pub(in crate::backend) async fn collect(&self, bringing: Box<dyn Bringing>) -> io::Result<PrivateLayer> {
        let mut collector = Collector::begin(bringing)?;
        let layer = collector.layer.take().ok_or_else(gone)?;
        {
            let mut turns = self.shared.proven()?;
            turns.collectors.push_back(collector);
            turns.was_looked_at = true;
            self.shared.order(&FarOrder::Collect)?;
        }
        self.shared.answer(COLLECTS, layer).await?
    }
}
