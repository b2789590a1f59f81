//! A way to a store that can be cut.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Passes connections on to a store. While it is cut nothing passes, and connections stay open, as when packets are lost.
pub(super) struct Gate {
    address: SocketAddr,
    is_open: Arc<watch::Sender<bool>>,
    _passing: AbortOnDropHandle<()>,
}

impl Gate {
    pub(super) async fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_open = Arc::new(watch::Sender::new(true));
        let state = Arc::clone(&is_open);
        let passing = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let state = state.subscribe();
                connections.spawn(async move { pass(client, store, state).await });
            }
        });
        Self { address, is_open, _passing: AbortOnDropHandle::new(passing) }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

/// Passes one connection on while the gate is open. What was cut is not resumed: the connection ends when the gate opens again.
async fn pass(mut client: TcpStream, store: SocketAddr, mut is_open: watch::Receiver<bool>) {
    if *is_open.borrow()
        && let Ok(mut server) = TcpStream::connect(store).await
    {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => return,
            _ = is_open.wait_for(|is_open| !is_open) => {}
        }
    }
    let _ = is_open.wait_for(|is_open| *is_open).await;
}
