//! The hosts of a cluster, which follow the endpoints of its pools.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};

use crate::abi::{ClusterHandle, Host};

/// Duration of each stage of a removal. In the first the host is still chosen for requests that find no
/// other; in the second it is not, but a worker may be about to hand it to Envoy.
const STAGE: Duration = Duration::from_secs(1);

/// All addresses that are hosts, or that Envoy refuses.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<SocketAddr, AddressState>);

/// The state of an address.
#[derive(Clone, Copy, Debug)]
enum AddressState {
    /// Envoy has it as a host.
    Host(Host, RemovalStage),
    /// Envoy does not take it. It is not tried again while an endpoint has it.
    Refused,
}

/// How far a host is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalStage {
    /// An endpoint has its address.
    Current,
    /// No endpoint has had its address since this time.
    Left(Duration),
    /// Balancers have not chosen it since this time.
    Unlisted(Duration),
}

impl RemovalStage {
    fn at(self, is_current: bool, now: Duration) -> Self {
        match self {
            _ if is_current => Self::Current,
            Self::Current => Self::Left(now),
            Self::Left(since) if since + STAGE <= now => Self::Unlisted(now),
            Self::Left(_) | Self::Unlisted(_) => self,
        }
    }

    /// When the next stage is due.
    fn ends(self) -> Option<Duration> {
        match self {
            Self::Current => None,
            Self::Left(since) | Self::Unlisted(since) => Some(since + STAGE),
        }
    }
}

impl Hosts {
    /// Adds hosts for new endpoints, and notes which endpoints have left. Returns the addresses that Envoy
    /// refuses and did not refuse before.
    pub(super) fn follow(
        &mut self,
        handle: &mut ClusterHandle<'_>,
        endpoints: impl Iterator<Item = SocketAddr>,
        now: Duration,
    ) -> Vec<SocketAddr> {
        // Sorted, with IPv6 after IPv4: on a system without IPv6 Envoy refuses all of its addresses, and
        // `add` finds them in few halves.
        let current: BTreeSet<SocketAddr> = endpoints.collect();
        let new: Vec<SocketAddr> =
            current.iter().copied().filter(|address| !self.0.contains_key(address)).collect();
        self.0.retain(|address, state| match state {
            AddressState::Host(_, stage) => {
                *stage = stage.at(current.contains(address), now);
                true
            }
            AddressState::Refused => current.contains(address),
        });
        let mut refused = Vec::new();
        self.add(handle, &new, &mut refused);
        refused
    }

    /// Adds hosts. Envoy refuses a list as a whole when it refuses one address, so each half is tried then.
    fn add(&mut self, handle: &mut ClusterHandle<'_>, new: &[SocketAddr], refused: &mut Vec<SocketAddr>) {
        if new.is_empty() {
            return;
        }
        match (handle.add_hosts(new), new) {
            (Some(hosts), _) => {
                let states = hosts.into_iter().map(|host| AddressState::Host(host, RemovalStage::Current));
                self.0.extend(new.iter().copied().zip(states));
            }
            (None, &[address]) => {
                refused.push(address);
                self.0.insert(address, AddressState::Refused);
            }
            (None, _) => {
                let (first, second) = new.split_at(new.len() / 2);
                self.add(handle, first, refused);
                self.add(handle, second, refused);
            }
        }
    }

    /// The hosts that balancers may choose.
    pub(super) fn listed(&self) -> HashMap<SocketAddr, Host> {
        let listed = self.0.iter().filter_map(|(&address, &state)| match state {
            AddressState::Host(host, RemovalStage::Current | RemovalStage::Left(_)) => Some((address, host)),
            AddressState::Host(_, RemovalStage::Unlisted(_)) | AddressState::Refused => None,
        });
        listed.collect()
    }

    /// Removes the hosts that no balancer has chosen for a while.
    pub(super) fn remove_left(&mut self, handle: &mut ClusterHandle<'_>, now: Duration) {
        let is_over = |_: &SocketAddr, state: &mut AddressState| match state {
            AddressState::Host(_, RemovalStage::Unlisted(since)) => *since + STAGE <= now,
            AddressState::Host(_, RemovalStage::Current | RemovalStage::Left(_)) | AddressState::Refused => {
                false
            }
        };
        let removed = self.0.extract_if(is_over).filter_map(|(_, state)| match state {
            AddressState::Host(host, _) => Some(host),
            AddressState::Refused => None,
        });
        let removed: Vec<Host> = removed.collect();
        if !removed.is_empty() {
            handle.remove_hosts(&removed);
        }
    }

    /// When a host reaches its next stage.
    pub(super) fn due(&self) -> Option<Duration> {
        let ends = self.0.values().filter_map(|state| match state {
            AddressState::Host(_, stage) => stage.ends(),
            AddressState::Refused => None,
        });
        ends.min()
    }
}
