//! The hosts of a cluster, which follow the endpoints of its pools.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::members::Addressed;
use crate::abi::{ClusterHandle, Host};

/// The time in which a host that left its pool is still there for requests that find no other, and after that the time in which a worker
/// that has just chosen it hands it to Envoy.
const STAGE: Duration = Duration::from_secs(1);

/// Hosts by their `ip:port`.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<Arc<str>, Known>);

/// The state of an address.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// Envoy has it as a host.
    Host(Host, Stage),
    /// Envoy does not take it. It is not tried again while an endpoint has it.
    Refused,
}

/// How far a host is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// An endpoint has its address.
    Current,
    /// No endpoint has its address since then.
    Left(Duration),
    /// Balancers do not choose it since then.
    Unlisted(Duration),
}

impl Stage {
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
    /// Adds hosts for new endpoints, each an `ip:port`, and notes which endpoints have left. Returns the addresses that Envoy refuses
    /// and did not refuse before.
    pub(super) fn follow<'a>(
        &mut self,
        handle: &mut ClusterHandle<'_>,
        endpoints: impl Iterator<Item = &'a str>,
        now: Duration,
    ) -> Vec<Arc<str>> {
        let mut current = HashSet::new();
        let mut new: Vec<&str> =
            endpoints.filter(|address| current.insert(*address) && !self.0.contains_key(*address)).collect();
        self.0.retain(|address, known| match known {
            Known::Host(_, stage) => {
                *stage = stage.at(current.contains(&**address), now);
                true
            }
            Known::Refused => current.contains(&**address),
        });
        // A system without IPv6 refuses all of them: they are found in one half.
        new.sort_by_key(|address| address.starts_with('['));
        let mut refused = Vec::new();
        self.add(handle, &new, &mut refused);
        refused
    }

    /// Adds hosts. Envoy refuses a list as a whole when it refuses one address, so each half is tried then.
    fn add(&mut self, handle: &mut ClusterHandle<'_>, new: &[&str], refused: &mut Vec<Arc<str>>) {
        if new.is_empty() {
            return;
        }
        let addresses = new.iter().copied().map(Arc::<str>::from);
        match (handle.add_hosts(new), new) {
            (Some(hosts), _) => {
                let added = addresses.zip(hosts);
                self.0.extend(added.map(|(address, host)| (address, Known::Host(host, Stage::Current))));
            }
            (None, [_]) => {
                for address in addresses {
                    refused.push(Arc::clone(&address));
                    self.0.insert(address, Known::Refused);
                }
            }
            (None, _) => {
                let (first, second) = new.split_at(new.len() / 2);
                self.add(handle, first, refused);
                self.add(handle, second, refused);
            }
        }
    }

    /// The hosts that balancers may choose.
    pub(super) fn listed(&self) -> Vec<Addressed> {
        let listed = self.0.iter().filter_map(|(address, known)| match known {
            Known::Host(host, Stage::Current | Stage::Left(_)) => Some((Arc::clone(address), *host)),
            Known::Host(_, Stage::Unlisted(_)) | Known::Refused => None,
        });
        listed.collect()
    }

    /// Removes the hosts that no balancer has chosen for a while.
    pub(super) fn remove_left(&mut self, handle: &mut ClusterHandle<'_>, now: Duration) {
        let is_over = |_: &Arc<str>, known: &mut Known| match known {
            Known::Host(_, Stage::Unlisted(since)) => *since + STAGE <= now,
            Known::Host(_, Stage::Current | Stage::Left(_)) | Known::Refused => false,
        };
        let removed = self.0.extract_if(is_over).filter_map(|(_, known)| match known {
            Known::Host(host, _) => Some(host),
            Known::Refused => None,
        });
        let removed: Vec<Host> = removed.collect();
        if !removed.is_empty() {
            handle.remove_hosts(&removed);
        }
    }

    /// When a host reaches its next stage.
    pub(super) fn due(&self) -> Option<Duration> {
        let ends = self.0.values().filter_map(|known| match known {
            Known::Host(_, stage) => stage.ends(),
            Known::Refused => None,
        });
        ends.min()
    }
}
