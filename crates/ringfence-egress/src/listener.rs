//! Where connections from inside arrive.

use std::io;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use crate::stream::Stream;

/// Where connections from inside arrive.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP, in the sandbox's own network namespace.
    Tcp(TcpListener),
    /// Over a unix socket.
    Unix(UnixListener),
    /// As somebody relays them, one by one.
    Relayed(mpsc::Receiver<Stream>),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl From<mpsc::Receiver<Stream>> for Listener {
    fn from(relayed: mpsc::Receiver<Stream>) -> Self {
        Self::Relayed(relayed)
    }
}

impl Listener {
    pub(crate) async fn accept(&mut self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| stream.into()),
            // Who relays is gone, and with it every connection.
            Self::Relayed(relayed) => relayed.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into()),
        }
    }
}
