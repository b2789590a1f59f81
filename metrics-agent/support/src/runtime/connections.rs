//! The connections of a listener. One that has shown that its client is trusted keeps its place; the others
//! make room for new ones, so that no number of silent connections keeps a client out.

use core::cmp::Reverse;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio_util::sync::CancellationToken;

/// Bits of an IPv6 address that count: a host may have all addresses of such a network.
const NETWORK: u128 = !(u64::MAX as u128);

/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The place of a connection. Clones are one place.
#[derive(Clone, Debug, Default)]
pub struct Place(Arc<AtomicBool>);

impl Place {
    /// The connection stays until it ends: its client is trusted.
    pub fn keep(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_kept(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The number of places of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// All places.
    pub max: usize,
    /// The places of one peer: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_per_peer: usize,
    /// The flags that set the numbers, for the log.
    pub flags: &'static str,
}

/// A connection that a listener has accepted.
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// The address of its client.
    pub peer: IpAddr,
    /// Its place.
    pub place: Place,
    /// Ends it, after the requests in flight, when the listener closes.
    pub watcher: Watcher,
}

impl Places {
    /// Serves the connections of a listener until `closing` is cancelled, and then until every request in
    /// flight is complete.
    pub async fn serve<S: Future<Output = ()> + Send + 'static>(
        self,
        listener: TcpListener,
        closing: CancellationToken,
        serve: impl Fn(Accepted) -> S,
    ) {
        let graceful = GracefulShutdown::new();
        let mut connections = Connections::new(self);
        loop {
            tokio::select! {
                () = closing.cancelled() => break,
                Some(()) = connections.next_ended() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "a connection keeps Nagle's delay");
                        }
                        let (peer, watcher) = (peer.ip().to_canonical(), graceful.watcher());
                        connections.open(peer, |place| serve(Accepted { stream, peer, place, watcher }));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

/// The open connections, each served by a task. Warns once when all places are taken, and again only after
/// half of them were free; and once for each peer that has all of its own.
struct Connections {
    places: Places,
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
    peers: HashMap<IpAddr, PeerConnections>,
    /// The number of connections so far.
    opened: u64,
    is_reached: bool,
}

struct OpenConnection {
    peer: IpAddr,
    /// Its number among all connections so far.
    number: u64,
    place: Place,
    task: AbortHandle,
}

#[derive(Default)]
struct PeerConnections {
    open: usize,
    is_reported: bool,
}

impl Connections {
    /// No connections yet.
    fn new(places: Places) -> Self {
        Self {
            places,
            tasks: JoinSet::new(),
            open: HashMap::new(),
            peers: HashMap::new(),
            opened: 0,
            is_reached: false,
        }
    }

    /// Waits until a connection ends, and frees its place; `None`: there is none.
    async fn next_ended(&mut self) -> Option<()> {
        let ended = self.tasks.join_next_with_id().await?;
        self.free(ended.map_or_else(|error| error.id(), |(id, ())| id));
        Some(())
    }

    /// Serves a connection of this peer. Without a free place, the oldest connection without a kept place is
    /// closed: one of the peer if the peer has all of its places, otherwise one of the peer that has most of
    /// them. If there is none, the new connection is closed.
    fn open<S: Future<Output = ()> + Send + 'static>(
        &mut self,
        peer: IpAddr,
        serve: impl FnOnce(Place) -> S,
    ) {
        let peer = network(peer);
        if !self.make_room(peer) {
            return;
        }
        let place = Place::default();
        let task = self.tasks.spawn(serve(place.clone()));
        self.opened += 1;
        self.open.insert(task.id(), OpenConnection { peer, number: self.opened, place, task });
        self.peers.entry(peer).or_default().open += 1;
        if self.open.len() >= self.places.max && !self.is_reached {
            self.is_reached = true;
            let Places { max, flags, .. } = self.places;
            tracing::warn!("all {max} connections are in use ({flags}); the oldest makes room for a new one");
        }
    }

    /// Whether there is a place for a new connection of this peer, after one is closed if need be.
    fn make_room(&mut self, peer: IpAddr) -> bool {
        let Places { max, max_per_peer, flags } = self.places;
        let of_peer = self.peers.get_mut(&peer).filter(|of_peer| of_peer.open >= max_per_peer);
        let closed = if let Some(of_peer) = of_peer {
            if !core::mem::replace(&mut of_peer.is_reported, true) {
                tracing::warn!(
                    %peer,
                    "the peer has {max_per_peer} connections ({flags}); its oldest makes room for a new one"
                );
            }
            self.oldest(|of| of == peer)
        } else if self.open.len() >= max {
            let busiest = self.busiest(peer);
            self.oldest(|of| of == busiest)
        } else {
            return true;
        };
        let Some(closed) = closed else { return false };
        if let Some(connection) = self.open.get(&closed) {
            connection.task.abort();
        }
        self.free(closed);
        true
    }

    /// The oldest connection of some peers without a kept place.
    fn oldest(&self, is_of: impl Fn(IpAddr) -> bool) -> Option<Id> {
        let displaceable = self.open.iter().filter(|(_, it)| is_of(it.peer) && !it.place.is_kept());
        displaceable.min_by_key(|(_, it)| it.number).map(|(id, _)| *id)
    }

    /// The peer with most connections without a kept place, the one of this newcomer included. Of several the
    /// one with the oldest.
    fn busiest(&self, newcomer: IpAddr) -> IpAddr {
        let mut peers = HashMap::from([(newcomer, (1_usize, Reverse(u64::MAX)))]);
        for connection in self.open.values().filter(|it| !it.place.is_kept()) {
            let (count, oldest) = peers.entry(connection.peer).or_insert((0, Reverse(u64::MAX)));
            *count += 1;
            *oldest = (*oldest).max(Reverse(connection.number));
        }
        peers.into_iter().max_by_key(|(_, rank)| *rank).map_or(newcomer, |(peer, _)| peer)
    }

    /// Frees the place of a connection.
    fn free(&mut self, id: Id) {
        let Some(OpenConnection { peer, .. }) = self.open.remove(&id) else { return };
        if let Some(of_peer) = self.peers.get_mut(&peer) {
            of_peer.open -= 1;
            if of_peer.open == 0 {
                self.peers.remove(&peer);
            }
        }
        if self.open.len() <= self.places.max / 2 {
            self.is_reached = false;
        }
    }
}

/// The peer to which the connections of an address count.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
    }
}

#[cfg(test)]
mod tests {
    use core::future::pending;

    use super::*;

    fn peer(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    struct Fixture(Connections, Vec<(u8, Place)>);

    impl Fixture {
        fn new(max: usize, max_per_peer: usize) -> Self {
            Self(Connections::new(Places { max, max_per_peer, flags: "--max" }), Vec::new())
        }

        /// Opens a connection that stays silent.
        fn open(&mut self, host: u8) -> &Place {
            let Self(connections, places) = self;
            let mut own = None;
            connections.open(peer(host), |place| {
                own = Some(place);
                pending()
            });
            let place = own.unwrap_or_default();
            places.push((host, place));
            &places[places.len() - 1].1
        }

        /// The hosts of the open connections, oldest first.
        fn hosts(&self) -> Vec<u8> {
            let mut open: Vec<_> = self.0.open.values().collect();
            open.sort_by_key(|connection| connection.number);
            let last = |connection: &&OpenConnection| match connection.peer {
                IpAddr::V4(address) => address.octets()[3],
                IpAddr::V6(_) => 0,
            };
            open.iter().map(last).collect()
        }
    }

    #[tokio::test]
    async fn silent_connections_of_the_busiest_peer_make_room_and_trusted_ones_stay() {
        let mut fixture = Fixture::new(4, 3);
        fixture.open(1).keep();
        for host in [2, 3, 3] {
            fixture.open(host);
        }
        assert_eq!(fixture.hosts(), [1, 2, 3, 3]);
        fixture.open(4);
        assert_eq!(fixture.hosts(), [1, 2, 3, 4], "the oldest of the busiest peer");
        fixture.open(5);
        assert_eq!(fixture.hosts(), [1, 3, 4, 5], "the oldest of all when none has more");
        fixture.open(3);
        assert_eq!(fixture.hosts(), [1, 4, 5, 3], "a peer's new connection takes the place of its own");
        fixture.1.iter().for_each(|(_, place)| place.keep());
        fixture.open(6);
        assert_eq!(fixture.hosts(), [1, 4, 5, 3], "all of them are trusted");
    }

    #[tokio::test]
    async fn a_peer_has_a_limit_of_its_own_within_which_its_trusted_connections_stay() {
        let mut fixture = Fixture::new(9, 2);
        fixture.open(1).keep();
        let second = fixture.open(1).clone();
        fixture.open(1);
        assert_eq!(fixture.hosts(), [1, 1]);
        assert!(!fixture.0.open.values().any(|it| Arc::ptr_eq(&it.place.0, &second.0)), "the silent one");
        fixture.1.iter().for_each(|(_, place)| place.keep());
        fixture.open(1);
        fixture.open(2);
        assert_eq!(fixture.hosts(), [1, 1, 2]);
    }

    #[tokio::test]
    async fn a_connection_that_ends_or_is_displaced_frees_one_place() {
        let mut fixture = Fixture::new(2, 2);
        fixture.open(1);
        fixture.open(1);
        fixture.open(2);
        // The task of the displaced connection ends later.
        assert_eq!(fixture.0.next_ended().await, Some(()));
        assert_eq!((fixture.hosts(), fixture.0.peers[&peer(1)].open), (vec![1, 2], 1));
        fixture.0.open(peer(2), |_| async {});
        assert_eq!(fixture.hosts(), [1, 2], "the newcomer's peer has more");
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_are_one_peer() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), peer(1));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
