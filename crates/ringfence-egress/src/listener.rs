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

/// Connections of `listener` will send little things at once. They inherit it, which saves asking for it at each.
pub(crate) fn send_at_once(listener: &TcpListener) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_nodelay(listener, true)?)
}

impl Listener {
    /// Called once before connections are accepted.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => send_at_once(listener),
            Self::Unix(_) | Self::Relayed(_) => Ok(()),
        }
    }

    pub(crate) async fn accept(&mut self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| stream.into()),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| stream.into()),
            // Who relays is gone, and with it every connection.
            Self::Relayed(relayed) => relayed.recv().await.ok_or_else(|| io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn accepted_connections_send_little_things_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let check = async |expected| {
            let _client = TcpStream::connect(at).await.unwrap();
            assert_eq!(listener.accept().await.unwrap().0.nodelay().unwrap(), expected);
        };
        check(false).await;
        send_at_once(&listener).unwrap();
        check(true).await;
    }
}
