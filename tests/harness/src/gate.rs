//! Connections to a server that can be cut.

use anyhow::Result;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Passes TCP connections on to a server. While it is cut nothing passes, and connections stay open, as when
/// packets are lost.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    is_open: watch::Sender<bool>,
    _passing: AbortOnDropHandle<()>,
}

impl Gate {
    /// Starts an open one.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let is_open = watch::Sender::new(true);
        let state = is_open.subscribe();
        let passing = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, server, state.clone()));
            }
        });
        Ok(Self { address, is_open, _passing: AbortOnDropHandle::new(passing) })
    }

    /// Where clients connect in place of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections, or lets new ones pass.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

/// Passes one connection on while the gate is open. What was cut is not resumed: the connection ends when the
/// gate opens again.
async fn pass(mut client: TcpStream, server: SocketAddr, mut is_open: watch::Receiver<bool>) {
    if *is_open.borrow()
        && let Ok(mut server) = TcpStream::connect(server).await
    {
        tokio::select! {
            // The ends see themselves how it ended.
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = is_open.wait_for(|is_open| !is_open) => {}
        }
    }
    // It fails only when the gate has been dropped, and the connection may end then.
    let _ = is_open.wait_for(|is_open| *is_open).await;
}
