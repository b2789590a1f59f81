//! The prefixes of prompts that servers have cached, by their text and by their token ids, and the log of
//! their changes.
//!
//! A prefix is one or more blocks of a cache; [`super::index`] decides when a cache has all of them. A server
//! has a prefix if one of its caches has it, in the fastest tier in which one has it.

mod log;
pub mod readers;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use endpoint_picker_wire::prefixes::Blocks;
use log::{IndexChange, PrefixLog};

use super::event::StorageTier;

/// Some blocks behind another prefix, by their text or by their token ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// A hash of the bytes, with `parent` as its seed.
    pub key: u64,
    /// The prefix before, or a root.
    pub parent: u64,
    /// Bytes of the text, or of the token ids.
    pub length: u32,
    /// Tokens of the blocks.
    pub tokens: u32,
}

/// Maximum number of pairs of a message. A pair takes at most 32 bytes, in most messages 21.
const MAX_PAIRS: usize = 80_000;

/// Number of ranks of a server that proxies can distinguish.
const MAX_RANKS: u16 = 8;

/// The prefixes that servers have.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// The prefixes that at least one server has, by their keys.
    known: HashMap<u64, KnownPrefix>,
    numbers: HashMap<SocketAddr, u32>,
    servers: HashMap<u32, CachingServer>,
    next_number: u32,
    log: PrefixLog,
}

/// A prefix, and the number of servers that have it.
#[derive(Clone, Copy, Debug)]
struct KnownPrefix {
    prefix: Prefix,
    servers: u32,
}

/// A server while it has caches, or changes in the log.
#[derive(Debug)]
struct CachingServer {
    address: SocketAddr,
    held: HashMap<u64, HeldPrefix>,
    /// The bits of its ranks.
    ranks: u8,
    /// Its caches, and its changes in the log.
    references: usize,
    /// The version of its first change.
    first_change: Option<u64>,
}

/// The caches of a server that have a prefix.
#[derive(Clone, Copy, Debug, Default)]
struct HeldPrefix {
    /// The number of them by tier.
    caches: [u32; 3],
    /// The bits of their ranks.
    ranks: u8,
}

/// The number of a server, with the bit of the rank of one of its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerNumber {
    number: u32,
    /// 0 for a rank that proxies cannot distinguish.
    rank: u8,
}

/// Changes of a pool's endpoints, and the version behind them.
#[derive(Clone, Debug, Default, PartialEq)]
struct PoolDelta {
    stored: Blocks,
    removed: Blocks,
    version: u64,
    /// Something else has changed.
    has_other: bool,
}

impl PoolDelta {
    fn is_empty(&self) -> bool {
        self.stored.keys.is_empty() && self.removed.keys.is_empty() && !self.has_other
    }
}

impl Prefixes {
    /// Adds the cache of a server without ranks.
    pub fn add_cache(&mut self, address: SocketAddr) -> ServerNumber {
        self.add_rank(address, 0)
    }

    /// Adds the cache of a rank of a server.
    pub fn add_rank(&mut self, address: SocketAddr, rank: u16) -> ServerNumber {
        let number = *self.numbers.entry(address).or_insert_with(|| {
            self.next_number += 1;
            self.next_number
        });
        let server = self.servers.entry(number).or_insert_with(|| CachingServer {
            address,
            held: HashMap::new(),
            ranks: 0,
            references: 0,
            first_change: None,
        });
        let rank = if rank < MAX_RANKS { 1 << rank } else { 0 };
        server.references += 1;
        server.ranks |= rank;
        ServerNumber { number, rank }
    }

    /// Removes a cache of a server. The cache must have no prefix.
    pub fn remove_cache(&mut self, number: ServerNumber) {
        self.release(number.number);
    }

    /// Forgets a server without caches and changes.
    fn release(&mut self, number: u32) {
        let Entry::Occupied(mut server) = self.servers.entry(number) else { return };
        server.get_mut().references -= 1;
        if server.get().references == 0 {
            self.numbers.remove(&server.get().address);
            server.remove();
        }
    }

    /// Number of different prefixes.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// The version, which each change increases.
    pub fn version(&self) -> u64 {
        self.log.version()
    }

    /// Makes a new version because of something else that readers get.
    pub fn advance(&mut self) {
        self.log_change(None);
    }

    /// A cache of a server has a prefix in another tier; `None`: it does not have it.
    pub fn change(
        &mut self,
        number: ServerNumber,
        prefix: &Prefix,
        from: Option<StorageTier>,
        to: Option<StorageTier>,
    ) {
        let ServerNumber { number, rank } = number;
        let Some(server) = self.servers.get_mut(&number) else { return };
        let held = server.held.entry(prefix.key).or_default();
        let (before, ranks_before) = (held.tier(), held.ranks);
        if let Some(from) = from {
            held.caches[from as usize] -= 1;
            held.ranks &= !rank;
        }
        if let Some(to) = to {
            held.caches[to as usize] += 1;
            held.ranks |= rank;
        }
        let after = held.tier();
        let ranks = held.ranks;
        let have_ranks_changed = server.has_ranks() && ranks != ranks_before;
        if after.is_none() {
            server.held.remove(&prefix.key);
        }
        if before == after && !have_ranks_changed {
            return;
        }
        if before.is_none() && after.is_some() {
            self.known.entry(prefix.key).or_insert(KnownPrefix { prefix: *prefix, servers: 0 }).servers += 1;
        } else if before.is_some()
            && after.is_none()
            && let Entry::Occupied(mut known) = self.known.entry(prefix.key)
        {
            known.get_mut().servers -= 1;
            if known.get().servers == 0 {
                known.remove();
            }
        }
        self.log_change(Some(IndexChange { server: number, key: prefix.key, from: before, to: after }));
    }

    fn log_change(&mut self, change: Option<IndexChange>) {
        let version = self.log.version();
        if let Some(server) = change.and_then(|change| self.servers.get_mut(&change.server)) {
            server.references += 1;
            server.first_change.get_or_insert(version);
        }
        if let Some(oldest) = self.log.push(change) {
            self.release(oldest.server);
        }
    }

    /// Whether a server had no change up to this version.
    fn is_new_since(&self, address: SocketAddr, version: u64) -> bool {
        let server = self.numbers.get(&address).and_then(|number| self.servers.get(number));
        server.and_then(|server| server.first_change).is_none_or(|first| first >= version)
    }

    /// Whether the log has all changes behind a version.
    fn has_changes_since(&self, version: u64) -> bool {
        self.log.since(version).is_some()
    }

    /// The changes behind a version, of endpoints with these addresses, whose indexes the result has; `None`:
    /// the log no longer has all.
    fn delta(&self, version: u64, endpoints: &HashMap<SocketAddr, u32>) -> Option<PoolDelta> {
        let mut delta = PoolDelta { version, ..PoolDelta::default() };
        let number = |address| self.numbers.get(address).copied();
        let endpoints: HashMap<_, _> =
            endpoints.iter().filter_map(|(address, endpoint)| Some((number(address)?, *endpoint))).collect();
        // The tier of each pair at the reader, and its newest tier.
        let mut net: HashMap<(u32, u64), (Option<StorageTier>, Option<StorageTier>)> = HashMap::new();
        let mut pairs = Vec::new();
        for change in self.log.since(version)? {
            if pairs.len() == MAX_PAIRS {
                break;
            }
            delta.version += 1;
            delta.has_other |= change.is_none();
            let Some(IndexChange { server, key, from, to }) = change else { continue };
            let Some(endpoint) = endpoints.get(&server) else { continue };
            let tiers = net.entry((server, key)).or_insert_with(|| {
                pairs.push((server, key, *endpoint));
                (from, to)
            });
            tiers.1 = to;
        }
        for (server, key, endpoint) in pairs {
            let Some((from, to)) = net.get(&(server, key)) else { continue };
            let (ranks, has_ranks) = self
                .servers
                .get(&server)
                .map_or((0, false), |server| (server.ranks_of(key), server.has_ranks()));
            if from == to && !has_ranks {
                continue;
            }
            if let Some(from) = from.filter(|_| from != to) {
                delta.removed.keys.push(key);
                delta.removed.endpoints.push(endpoint);
                delta.removed.tiers.push(from as u32);
            }
            // A later change removes a prefix that is not known.
            if let Some((to, known)) = to.zip(self.known.get(&key)) {
                push(&mut delta.stored, &known.prefix, endpoint, to, ranks);
            }
        }
        leave_out_unknown_ranks(&mut delta.stored);
        Some(delta)
    }

    /// All prefixes of endpoints with these addresses, divided into messages; at least one.
    fn whole(&self, endpoints: &HashMap<SocketAddr, u32>) -> Vec<Blocks> {
        let (mut full, mut blocks) = (Vec::new(), Blocks::default());
        for server in self.servers.values() {
            let Some(endpoint) = endpoints.get(&server.address) else { continue };
            for (key, held) in &server.held {
                let Some((tier, known)) = held.tier().zip(self.known.get(key)) else { continue };
                if blocks.keys.len() >= MAX_PAIRS {
                    full.push(core::mem::take(&mut blocks));
                }
                push(&mut blocks, &known.prefix, *endpoint, tier, server.ranks_of(*key));
            }
        }
        full.push(blocks);
        full.iter_mut().for_each(leave_out_unknown_ranks);
        full
    }
}

impl CachingServer {
    /// Whether its caches are those of several ranks.
    fn has_ranks(&self) -> bool {
        self.ranks.count_ones() > 1
    }

    /// The bits of the ranks that have a prefix, if it has several ranks.
    fn ranks_of(&self, key: u64) -> u8 {
        self.held.get(&key).filter(|_| self.has_ranks()).map_or(0, |held| held.ranks)
    }
}

impl HeldPrefix {
    /// The fastest tier in which a cache has the prefix.
    fn tier(&self) -> Option<StorageTier> {
        StorageTier::ALL.into_iter().find(|tier| self.caches[*tier as usize] > 0)
    }
}

fn push(blocks: &mut Blocks, prefix: &Prefix, endpoint: u32, tier: StorageTier, ranks: u8) {
    blocks.parents.push(prefix.parent);
    blocks.keys.push(prefix.key);
    blocks.lengths.push(prefix.length);
    blocks.tokens.push(prefix.tokens);
    blocks.endpoints.push(endpoint);
    blocks.tiers.push(tier as u32);
    blocks.ranks.push(ranks.into());
}

/// Leaves out the column of ranks if no server has any.
fn leave_out_unknown_ranks(blocks: &mut Blocks) {
    if blocks.ranks.iter().all(|ranks| *ranks == 0) {
        blocks.ranks = Vec::new();
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl Prefixes {
    /// The prefixes of each server with their tiers, by brute force.
    pub(super) fn check(&self, expected: &HashMap<(SocketAddr, Prefix), StorageTier>) {
        let mut own = HashMap::new();
        for server in self.servers.values() {
            for (key, held) in &server.held {
                own.insert((server.address, self.known[key].prefix), held.tier().unwrap());
            }
        }
        assert_eq!(own, *expected);
        let mut servers: HashMap<u64, u32> = HashMap::new();
        for (_, prefix) in own.keys() {
            *servers.entry(prefix.key).or_default() += 1;
        }
        let known: HashMap<_, _> = self.known.iter().map(|(key, known)| (*key, known.servers)).collect();
        assert_eq!(known, servers);
    }
}
