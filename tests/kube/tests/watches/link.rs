//! A way to the API server whose connections can break without notice.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Passes connections on, until dropped.
pub(crate) struct Link {
    address: SocketAddr,
    /// Connections that were made before the last change of this number are broken.
    breaks: watch::Sender<u64>,
    _connections: AbortOnDropHandle<()>,
}

impl Link {
    /// Listens on a free port of loopback for connections to `target`.
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let breaks = watch::Sender::new(0);
        let number = breaks.clone();
        let connections = async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, target, number.subscribe()));
            }
        };
        Self { address, breaks, _connections: AbortOnDropHandle::new(tokio::spawn(connections)) }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on no byte passes through the present connections, and none of them is closed, as when a
    /// router loses its state. New connections work.
    pub(crate) fn break_silently(&self) {
        self.breaks.send_modify(|number| *number += 1);
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, mut breaks: watch::Receiver<u64>) {
    breaks.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        Ok(()) = breaks.changed() => {
            // Both sides stay open until the test ends.
            core::future::pending::<()>().await;
        }
    }
}
