//! The contents of the KV caches of all servers, by their events.
//!
//! A block is a node that is named by the hash of its content and of all blocks before it, so equal prompts are one node, whatever a server
//! calls it. For each cache the index has the server's names of its blocks, each with the node, and how often it is stored in which tier: a
//! server may store a block twice and then removes it twice. A block whose parent is not known waits for it as an orphan.
//!
//! The number of blocks of all caches together is limited. Beyond it the server with the most blocks loses the oldest eighth of its largest
//! cache. Of too many orphans the oldest eighth is forgotten.

mod nodes;
mod orphans;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use nodes::{Content, NodeKey, Nodes};
use orphans::{Orphan, Orphans};

use super::event::{BlockHash, Event, Removed, Stored, Tier};

/// The KV cache of a server, or of one of its data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheId(u64);

/// Maximum number of groups of KV caches in a hybrid model; events of others are ignored.
const MAX_GROUPS: usize = 64;

/// The part of the limit on blocks that orphans may have.
const ORPHANS: usize = 8;

/// The part that is evicted at once.
const EVICTED: usize = 8;

/// The contents of the KV caches of all servers.
#[derive(Debug)]
pub struct Index {
    caches: HashMap<CacheId, Cache>,
    nodes: Nodes,
    orphans: Orphans,
    next_cache: u64,
    /// Blocks of all caches.
    blocks: usize,
    max_blocks: usize,
    evicted: u64,
}

/// Numbers of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks of all caches; a block that several have counts once for each.
    pub blocks: usize,
    /// Different blocks.
    pub nodes: usize,
    /// Blocks that wait for their parent.
    pub orphans: usize,
    /// Blocks and orphans that were forgotten because there were too many, since the start.
    pub evicted: u64,
}

/// The contents of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Different blocks, in whatever tier.
    pub blocks: u64,
    /// Blocks among them whose beginning is not known.
    pub orphans: u64,
    /// Tokens by tier, in the order of [`Tier::ALL`].
    pub tokens: [u64; 3],
}

#[derive(Debug)]
struct Cache {
    server: SocketAddr,
    blocks: HashMap<BlockHash, Held>,
    /// The groups that were announced, and whether their blocks count.
    groups: Vec<(u32, bool)>,
    contents: Contents,
}

/// A block of a cache.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// `None`: an orphan.
    node: Option<NodeKey>,
    tokens: u32,
    /// Seconds on the index's clock.
    stored: u32,
    /// How often it is stored, in the order of [`Tier::ALL`].
    copies: [u8; 3],
}

impl Index {
    /// An index of no cache, with this limit on the blocks of all caches together.
    pub fn new(max_blocks: usize) -> Self {
        Self {
            caches: HashMap::new(),
            nodes: Nodes::default(),
            orphans: Orphans::default(),
            next_cache: 0,
            blocks: 0,
            max_blocks,
            evicted: 0,
        }
    }

    /// Adds an empty cache of this server.
    pub fn add_cache(&mut self, server: SocketAddr) -> CacheId {
        let id = CacheId(self.next_cache);
        self.next_cache += 1;
        self.caches.insert(id, Cache::new(server));
        id
    }

    /// Removes a cache.
    pub fn remove_cache(&mut self, id: CacheId) {
        self.clear(id);
        self.caches.remove(&id);
    }

    /// Removes all blocks of a cache.
    pub fn clear(&mut self, id: CacheId) {
        let Some(cache) = self.caches.get_mut(&id) else { return };
        let blocks = core::mem::take(&mut cache.blocks);
        let has_orphans = cache.contents.orphans > 0;
        // Another process may have other groups.
        *cache = Cache::new(cache.server);
        self.blocks -= blocks.len();
        for node in blocks.into_values().filter_map(|held| held.node) {
            self.nodes.remove(node);
        }
        if has_orphans {
            self.orphans.retain(|orphan| orphan.cache != id);
        }
    }

    /// Numbers of the index.
    pub fn totals(&self) -> Totals {
        Totals {
            blocks: self.blocks,
            nodes: self.nodes.len(),
            orphans: self.orphans.len(),
            evicted: self.evicted,
        }
    }

    /// The contents of a cache.
    pub fn contents(&self, id: CacheId) -> Contents {
        self.caches.get(&id).map_or_else(Contents::default, |cache| cache.contents)
    }

    /// Applies an event of a cache, at `now` in seconds since any fixed time.
    pub fn apply(&mut self, id: CacheId, event: &Event, now: u32) {
        match event {
            Event::Stored(stored) => self.store(id, stored, now),
            Event::Removed(removed) => self.remove(id, removed),
            Event::Cleared => self.clear(id),
        }
    }

    fn store(&mut self, id: CacheId, stored: &Stored, now: u32) {
        let Some(cache) = self.caches.get_mut(&id) else { return };
        if !cache.announce(stored.group, stored.is_full_attention) {
            return;
        }
        let tier = stored.tier;
        if stored.block_size == 0 {
            // A lower tier names blocks that it takes over, without their tokens.
            stored.blocks.iter().for_each(|block| cache.copy(block.hash, tier));
            return;
        }
        // On a request's wish vLLM announces blocks that it has stored before, from a prompt's beginning on. They are no further copies.
        let is_repeated =
            stored.parent.is_none() && stored.blocks.iter().all(|block| cache.has(block.hash, tier));
        let mut parent = match stored.parent {
            None => Some(NodeKey::root(stored.adapter.as_deref(), stored.salt.as_deref())),
            Some(hash) => self.parent(id, hash, tier, now),
        };
        let mut parent_hash = stored.parent;
        for (block, tokens) in stored.blocks.iter().zip(stored.tokens.chunks(stored.block_size)) {
            let Some(cache) = self.caches.get_mut(&id) else { return };
            let content = Content::of(tokens, &block.extra);
            let node = if let Some(held) = cache.blocks.get(&block.hash) {
                let node = held.node;
                if !is_repeated {
                    cache.copy(block.hash, tier);
                }
                node
            } else {
                let held = Held::new(u32::try_from(tokens.len()).unwrap_or(u32::MAX), now);
                cache.insert(block.hash, held, tier);
                self.blocks += 1;
                if let Some(parent) = parent_hash.filter(|_| parent.is_none()) {
                    self.orphans.add(parent, Orphan { cache: id, hash: block.hash, content, stored: now });
                }
                None
            };
            parent = node.or_else(|| {
                let node = parent?.child(content);
                self.attach(id, block.hash, node, parent?);
                self.adopt(block.hash, node);
                Some(node)
            });
            parent_hash = Some(block.hash);
            // After each block, because one event may have more blocks than the limit.
            self.evict();
        }
    }

    /// Gives a block of a cache its node.
    fn attach(&mut self, id: CacheId, hash: BlockHash, node: NodeKey, parent: NodeKey) {
        let Some(cache) = self.caches.get_mut(&id) else { return };
        let Some(held) = cache.blocks.get_mut(&hash) else { return };
        held.node = Some(node);
        cache.contents.orphans -= 1;
        self.nodes.add(node, parent, hash, held.tokens);
    }

    /// The node of a block that a cache names as the parent of a stored one. If only another cache has announced it, the cache has it and
    /// all blocks before it nevertheless.
    fn parent(&mut self, id: CacheId, hash: BlockHash, tier: Tier, now: u32) -> Option<NodeKey> {
        let cache = self.caches.get(&id)?;
        if let Some(held) = cache.blocks.get(&hash) {
            return held.node;
        }
        let key = self.nodes.named(hash)?;
        let mut next = Some(key);
        while let Some(node) = next.and_then(|key| self.nodes.get(key)).copied() {
            let Some(key) = next else { break };
            let Some(cache) = self.caches.get_mut(&id) else { break };
            if self.blocks >= self.max_blocks || cache.blocks.contains_key(&node.hash) {
                break;
            }
            cache.insert(node.hash, Held::new(node.tokens, now), tier);
            self.blocks += 1;
            self.attach(id, node.hash, key, node.parent);
            next = Some(node.parent);
        }
        Some(key)
    }

    /// Makes nodes of the orphans whose parent has this name, and of the orphans behind them.
    fn adopt(&mut self, hash: BlockHash, node: NodeKey) {
        if self.orphans.len() == 0 {
            return;
        }
        let mut parents = vec![(hash, node)];
        while let Some((hash, parent)) = parents.pop() {
            for orphan in self.orphans.take(hash) {
                if self.is_waiting(&orphan) {
                    let node = parent.child(orphan.content);
                    self.attach(orphan.cache, orphan.hash, node, parent);
                    parents.push((orphan.hash, node));
                }
            }
        }
    }

    /// Whether the block of an orphan is still there, and has no node.
    fn is_waiting(&self, orphan: &Orphan) -> bool {
        let held = self.caches.get(&orphan.cache).and_then(|cache| cache.blocks.get(&orphan.hash));
        held.is_some_and(|held| held.node.is_none())
    }

    fn remove(&mut self, id: CacheId, removed: &Removed) {
        let Some(cache) = self.caches.get_mut(&id) else { return };
        if !cache.counts(removed.group) {
            return;
        }
        for hash in &removed.blocks {
            if let Some(held) = cache.remove_copy(*hash, removed.tier) {
                self.blocks -= 1;
                held.node.into_iter().for_each(|node| self.nodes.remove(node));
            }
        }
    }

    /// Makes room: the oldest eighth is removed of all orphans, and of the largest cache of the server with the most blocks.
    fn evict(&mut self) {
        while self.orphans.len() > self.max_blocks / ORPHANS {
            let limit = oldest(self.orphans.times().collect());
            for orphan in self.orphans.drain_until(limit) {
                if self.is_waiting(&orphan) {
                    let cache = self.caches.get_mut(&orphan.cache);
                    cache.and_then(|cache| cache.forget(orphan.hash));
                    self.blocks -= 1;
                    self.evicted += 1;
                }
            }
        }
        while self.blocks > self.max_blocks {
            let mut of_servers: HashMap<SocketAddr, usize> = HashMap::new();
            for cache in self.caches.values() {
                *of_servers.entry(cache.server).or_default() += cache.blocks.len();
            }
            let caches = self.caches.values_mut();
            let largest =
                caches.max_by_key(|cache| (of_servers.get(&cache.server).copied(), cache.blocks.len()));
            let Some(cache) = largest else { return };
            let limit = oldest(cache.blocks.values().map(|held| held.stored).collect());
            let old = cache.blocks.iter().filter(|(_, held)| held.stored <= limit);
            let old: Vec<_> = old.map(|(hash, _)| *hash).collect();
            self.blocks -= old.len();
            self.evicted += old.len() as u64;
            for held in old.into_iter().filter_map(|hash| cache.forget(hash)) {
                held.node.into_iter().for_each(|node| self.nodes.remove(node));
            }
        }
    }
}

/// The time up to which the oldest eighth was stored.
fn oldest(mut times: Vec<u32>) -> u32 {
    let nth = times.len() / EVICTED;
    if times.is_empty() { 0 } else { *times.select_nth_unstable(nth).1 }
}

impl Held {
    /// An orphan without a copy.
    fn new(tokens: u32, stored: u32) -> Self {
        Self { node: None, tokens, stored, copies: [0; 3] }
    }
}

impl Cache {
    fn new(server: SocketAddr) -> Self {
        Self { server, blocks: HashMap::new(), groups: Vec::new(), contents: Contents::default() }
    }

    /// Whether blocks of this group count, which stores announce.
    fn announce(&mut self, group: u32, is_full_attention: bool) -> bool {
        let is_known = self.groups.iter().any(|(known, _)| *known == group);
        if !is_known && self.groups.len() < MAX_GROUPS {
            // Several groups of full attention name the same blocks; the first one counts.
            let is_first = !self.groups.iter().any(|(_, counts)| *counts);
            self.groups.push((group, is_full_attention && is_first));
        }
        self.counts(group)
    }

    /// Whether blocks of this group count.
    fn counts(&self, group: u32) -> bool {
        self.groups.contains(&(group, true))
    }

    fn has(&self, hash: BlockHash, tier: Tier) -> bool {
        self.blocks.get(&hash).is_some_and(|held| held.copies[tier as usize] > 0)
    }

    fn insert(&mut self, hash: BlockHash, held: Held, tier: Tier) {
        self.contents.blocks += 1;
        self.contents.orphans += u64::from(held.node.is_none());
        self.blocks.insert(hash, held);
        self.copy(hash, tier);
    }

    /// Counts a copy of a block that the cache has.
    fn copy(&mut self, hash: BlockHash, tier: Tier) {
        let Some(held) = self.blocks.get_mut(&hash) else { return };
        let copies = &mut held.copies[tier as usize];
        if *copies == 0 {
            self.contents.tokens[tier as usize] += u64::from(held.tokens);
        }
        *copies = copies.saturating_add(1);
    }

    /// Removes a copy. Returns the block if it was the last copy in all tiers.
    fn remove_copy(&mut self, hash: BlockHash, tier: Tier) -> Option<Held> {
        let Entry::Occupied(mut entry) = self.blocks.entry(hash) else { return None };
        let held = entry.get_mut();
        let copies = &mut held.copies[tier as usize];
        *copies = copies.checked_sub(1)?;
        if *copies == 0 {
            self.contents.tokens[tier as usize] -= u64::from(held.tokens);
        }
        if held.copies != [0; 3] {
            return None;
        }
        self.contents.blocks -= 1;
        self.contents.orphans -= u64::from(held.node.is_none());
        Some(entry.remove())
    }

    /// Removes all copies of a block.
    fn forget(&mut self, hash: BlockHash) -> Option<Held> {
        let held = self.blocks.remove(&hash)?;
        self.contents.blocks -= 1;
        self.contents.orphans -= u64::from(held.node.is_none());
        for (tokens, copies) in self.contents.tokens.iter_mut().zip(held.copies) {
            *tokens -= if copies > 0 { u64::from(held.tokens) } else { 0 };
        }
        Some(held)
    }
}

#[cfg(test)]
mod tests;
