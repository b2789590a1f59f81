//! The limits on connections.

use std::collections::HashMap;
use std::net::IpAddr;

use tokio::task::Id;

/// The limits on connections: of all peers, and of each. Warns once when all are in use, and again only after half of them were free;
/// and once for each peer that reaches its own limit.
pub(super) struct ConnectionLimit {
    max: usize,
    max_per_peer: usize,
    is_reached: bool,
    /// The peers of the open connections.
    open: HashMap<Id, IpAddr>,
    peers: HashMap<IpAddr, PeerConnections>,
}

#[derive(Default)]
struct PeerConnections {
    open: usize,
    is_reported: bool,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize, max_per_peer: usize) -> Self {
        Self { max, max_per_peer, is_reached: false, open: HashMap::new(), peers: HashMap::new() }
    }

    /// Whether there may be one more connection.
    pub(super) fn allows_more(&self) -> bool {
        self.open.len() < self.max
    }

    /// Whether this peer may have one more connection.
    pub(super) fn allows(&mut self, peer: IpAddr) -> bool {
        let Some(connections) = self.peers.get_mut(&peer) else { return true };
        if connections.open < self.max_per_peer {
            return true;
        }
        if !connections.is_reported {
            connections.is_reported = true;
            let max = self.max_per_peer;
            tracing::warn!(%peer, "the peer has {max} connections (--max-connections-per-peer); more are closed");
        }
        false
    }

    /// A connection of this peer is open, under the number of its task.
    pub(super) fn opened(&mut self, id: Id, peer: IpAddr) {
        self.open.insert(id, peer);
        self.peers.entry(peer).or_default().open += 1;
        if !self.allows_more() && !self.is_reached {
            self.is_reached = true;
            tracing::warn!("all {} connections are in use (--max-connections); new ones wait", self.max);
        }
    }

    /// The connection of this task has ended.
    pub(super) fn closed(&mut self, id: Id) {
        let Some(peer) = self.open.remove(&id) else { return };
        if let Some(connections) = self.peers.get_mut(&peer) {
            connections.open -= 1;
            if connections.open == 0 {
                self.peers.remove(&peer);
            }
        }
        if self.open.len() <= self.max / 2 {
            self.is_reached = false;
        }
    }
}
