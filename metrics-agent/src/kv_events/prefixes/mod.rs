//! The prefixes of prompts that servers have cached, by their text, and the log of their changes.
//!
//! A prefix is one or more blocks of a cache; [`super::index`] decides when a cache has all of them. A server has a prefix if one of its
//! caches has it, in the fastest tier in which one has it.

mod log;
pub mod readers;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use endpoint_picker_wire::prefixes::Blocks;
use log::{Change, Log};

use super::event::Tier;

/// The text of some blocks behind another prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// A hash of the text, with `parent` as its seed.
    pub key: u64,
    /// The prefix before, or a root.
    pub parent: u64,
    /// Bytes of the text.
    pub length: u32,
    /// Tokens of the text.
    pub tokens: u32,
}

/// Maximum number of pairs of a message. A pair takes at most 32 bytes, in most messages 21.
const MAX_PAIRS: usize = 80_000;

/// The prefixes that servers have.
#[derive(Debug, Default)]
pub struct Prefixes {
    /// The prefixes that at least one server has, by their keys.
    known: HashMap<u64, KnownPrefix>,
    numbers: HashMap<SocketAddr, u32>,
    servers: HashMap<u32, Server>,
    next_number: u32,
    log: Log,
}

/// A prefix, and the number of servers that have it.
#[derive(Clone, Copy, Debug)]
struct KnownPrefix {
    prefix: Prefix,
    servers: u32,
}

/// A server while it has caches, or changes in the log.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// How often its caches have each prefix, by tier.
    held: HashMap<u64, [u32; 3]>,
    /// Its caches, and its changes in the log.
    references: usize,
    /// The version of its first change.
    first_change: Option<u64>,
}

/// The number of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerNumber(u32);

/// Changes of a pool's endpoints, and the version behind them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Delta {
    stored: Blocks,
    removed: Blocks,
    version: u64,
    /// Something else has changed.
    has_other: bool,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.stored.keys.is_empty() && self.removed.keys.is_empty() && !self.has_other
    }
}

impl Prefixes {
    /// Adds a cache of a server.
    pub fn add_cache(&mut self, address: SocketAddr) -> ServerNumber {
        let number = *self.numbers.entry(address).or_insert_with(|| {
            self.next_number += 1;
            self.next_number
        });
        let server = self.servers.entry(number).or_insert_with(|| Server {
            address,
            held: HashMap::new(),
            references: 0,
            first_change: None,
        });
        server.references += 1;
        ServerNumber(number)
    }

    /// Removes a cache of a server. The cache must have no prefix.
    pub fn remove_cache(&mut self, ServerNumber(number): ServerNumber) {
        self.release(number);
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
    pub fn change(&mut self, number: ServerNumber, prefix: &Prefix, from: Option<Tier>, to: Option<Tier>) {
        let ServerNumber(number) = number;
        let Some(server) = self.servers.get_mut(&number) else { return };
        let counts = server.held.entry(prefix.key).or_default();
        let before = fastest(counts);
        if let Some(from) = from {
            counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            counts[to as usize] += 1;
        }
        let after = fastest(counts);
        if after.is_none() {
            server.held.remove(&prefix.key);
        }
        if before == after {
            return;
        }
        if before.is_none() {
            self.known.entry(prefix.key).or_insert(KnownPrefix { prefix: *prefix, servers: 0 }).servers += 1;
        } else if after.is_none()
            && let Entry::Occupied(mut known) = self.known.entry(prefix.key)
        {
            known.get_mut().servers -= 1;
            if known.get().servers == 0 {
                known.remove();
            }
        }
        self.log_change(Some(Change { server: number, key: prefix.key, from: before, to: after }));
    }

    fn log_change(&mut self, change: Option<Change>) {
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

    /// The changes behind a version, of endpoints with these addresses, whose indexes the result has; `None`: the log no longer has all.
    fn delta(&self, version: u64, endpoints: &HashMap<SocketAddr, u32>) -> Option<Delta> {
        let mut delta = Delta { version, ..Delta::default() };
        let number = |address| self.numbers.get(address).copied();
        let endpoints: HashMap<_, _> =
            endpoints.iter().filter_map(|(address, endpoint)| Some((number(address)?, *endpoint))).collect();
        // The tier of each pair at the reader, and its newest tier.
        let mut net: HashMap<(u32, u64), (Option<Tier>, Option<Tier>)> = HashMap::new();
        let mut pairs = Vec::new();
        for change in self.log.since(version)? {
            if pairs.len() == MAX_PAIRS {
                break;
            }
            delta.version += 1;
            delta.has_other |= change.is_none();
            let Some(Change { server, key, from, to }) = change else { continue };
            let Some(endpoint) = endpoints.get(&server) else { continue };
            let tiers = net.entry((server, key)).or_insert_with(|| {
                pairs.push((server, key, *endpoint));
                (from, to)
            });
            tiers.1 = to;
        }
        for (server, key, endpoint) in pairs {
            let Some((from, to)) = net.get(&(server, key)).filter(|(from, to)| from != to) else { continue };
            if let Some(from) = from {
                delta.removed.keys.push(key);
                delta.removed.endpoints.push(endpoint);
                delta.removed.tiers.push(*from as u32);
            }
            // A later change removes a prefix that is not known.
            if let Some((to, known)) = to.zip(self.known.get(&key)) {
                push(&mut delta.stored, &known.prefix, endpoint, to);
            }
        }
        Some(delta)
    }

    /// All prefixes of endpoints with these addresses, divided into messages; at least one.
    fn whole(&self, endpoints: &HashMap<SocketAddr, u32>) -> Vec<Blocks> {
        let (mut full, mut blocks) = (Vec::new(), Blocks::default());
        for server in self.servers.values() {
            let Some(endpoint) = endpoints.get(&server.address) else { continue };
            for (key, counts) in &server.held {
                let Some((tier, known)) = fastest(counts).zip(self.known.get(key)) else { continue };
                if blocks.keys.len() >= MAX_PAIRS {
                    full.push(core::mem::take(&mut blocks));
                }
                push(&mut blocks, &known.prefix, *endpoint, tier);
            }
        }
        full.push(blocks);
        full
    }
}

fn push(blocks: &mut Blocks, prefix: &Prefix, endpoint: u32, tier: Tier) {
    blocks.parents.push(prefix.parent);
    blocks.keys.push(prefix.key);
    blocks.lengths.push(prefix.length);
    blocks.tokens.push(prefix.tokens);
    blocks.endpoints.push(endpoint);
    blocks.tiers.push(tier as u32);
}

fn fastest(counts: &[u32; 3]) -> Option<Tier> {
    Tier::ALL.into_iter().find(|tier| counts[*tier as usize] > 0)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
impl Prefixes {
    /// The prefixes of each server with their tiers, by brute force.
    pub(super) fn check(&self, expected: &HashMap<(SocketAddr, Prefix), Tier>) {
        let mut own = HashMap::new();
        for server in self.servers.values() {
            for (key, counts) in &server.held {
                own.insert((server.address, self.known[key].prefix), fastest(counts).unwrap());
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
