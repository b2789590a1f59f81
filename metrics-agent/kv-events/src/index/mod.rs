//! The contents of the KV caches of all servers, by their events.
//!
//! A block is a node that is named by the hash of its content and of all blocks before it, so equal prompts
//! are one node, whatever a server calls it. For each cache the index has the server's names of its blocks,
//! each with the node, and how often it is stored in which tier: a server may store a block twice and then
//! removes it twice. A block whose parent is not known waits for it as an orphan.
//!
//! The number of blocks of all caches together is limited. Beyond it the server with the most blocks loses
//! the oldest eighth of its largest cache. If there are too many orphans, the server with the most orphans
//! loses the oldest eighth of them.
//!
//! If the prefixes of a cache's model have keys (`keyed`), by their text or their token ids, the blocks are
//! joined to [`Prefixes`], which proxies follow: a cache has a prefix if it has all its blocks (`runs`).

mod cache;
mod keyed;
mod nodes;
mod orphans;
mod runs;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use cache::{Cache, CachedBlock};
pub use keyed::KeyedModel;
use keyed::{BlockBytes, KeyedPrompt};
use nodes::{BlockNodes, Content, KeyedBlock, NodeKey};
use orphans::{Orphan, Orphans, Size};

use super::event::{BlockHash, KvEvent, Removed, StorageTier, Stored};
use super::prefixes::Prefixes;

/// The KV cache of a server, or of one of its data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheId(u64);

/// The part of the limit on blocks that orphans may have.
const ORPHANS: usize = 8;

/// Bytes of text and token ids that an orphan may have, on average. A block of 16 tokens has some 70 and 64.
const ORPHAN_BYTES: usize = 256;

/// Maximum number of blocks that a cache gets before the parent of a stored block, if only other caches have
/// announced them: those of 131 072 tokens in blocks of 16.
const MAX_ANCESTORS: usize = 8192;

/// The part that is evicted at once.
const EVICTED: usize = 8;

/// The contents of the KV caches of all servers.
#[derive(Debug)]
pub struct Index {
    caches: HashMap<CacheId, Cache>,
    nodes: BlockNodes,
    orphans: Orphans,
    prefixes: Prefixes,
    next_cache: u64,
    /// Blocks of all caches.
    blocks: usize,
    limits: Limits,
    evicted: u64,
}

/// Limits of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of blocks of all caches together.
    pub blocks: usize,
    /// Tokens of a prefix; one of larger blocks has more.
    pub prefix_tokens: u32,
}

/// Numbers of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexTotals {
    /// Blocks of all caches; a block that several have counts once for each.
    pub blocks: usize,
    /// Different blocks.
    pub nodes: usize,
    /// Blocks that wait for their parent.
    pub orphans: usize,
    /// Different prefixes.
    pub prefixes: usize,
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
    /// Tokens by tier, in the order of [`StorageTier::ALL`].
    pub tokens: [u64; 3],
}

/// The block before another one, or a root.
#[derive(Clone, Debug)]
struct ParentBlock {
    key: NodeKey,
    /// A root, if it has keys.
    root: Option<KeyedPrompt>,
}

impl ParentBlock {
    fn block(key: NodeKey) -> Self {
        Self { key, root: None }
    }
}

impl Index {
    /// An index of no cache.
    pub fn new(limits: Limits) -> Self {
        Self {
            caches: HashMap::new(),
            nodes: BlockNodes::default(),
            orphans: Orphans::default(),
            prefixes: Prefixes::default(),
            next_cache: 0,
            blocks: 0,
            limits,
            evicted: 0,
        }
    }

    /// Adds the empty cache of a server without ranks, and of this model; `None`: its blocks have no keys.
    pub fn add_cache(&mut self, server: SocketAddr, model: Option<Arc<KeyedModel>>) -> CacheId {
        self.add_rank(server, 0, model)
    }

    /// The same for a rank of a server.
    pub fn add_rank(&mut self, server: SocketAddr, rank: u16, model: Option<Arc<KeyedModel>>) -> CacheId {
        let id = CacheId(self.next_cache);
        self.next_cache += 1;
        let server_number = self.prefixes.add_rank(server, rank);
        self.caches.insert(id, Cache::new(server, server_number, model));
        id
    }

    /// Removes a cache.
    pub fn remove_cache(&mut self, id: CacheId) {
        self.clear(id);
        if let Some(cache) = self.caches.remove(&id) {
            self.prefixes.remove_cache(cache.runs.server());
        }
    }

    /// Removes all blocks of a cache.
    pub fn clear(&mut self, id: CacheId) {
        let Some(cache) = self.caches.get_mut(&id) else { return };
        cache.runs.release_all(&self.nodes, &mut self.prefixes);
        let blocks = core::mem::take(&mut cache.blocks);
        let has_orphans = cache.contents.orphans > 0;
        let scope = cache.scope();
        // Another process may have other groups.
        *cache = Cache::new(cache.server, cache.runs.server(), cache.model.take());
        self.blocks -= blocks.len();
        for node in blocks.into_values().filter_map(|held| held.node) {
            self.nodes.remove(scope, node);
        }
        if has_orphans {
            self.orphans.drain(|orphan| orphan.cache != id);
        }
    }

    /// The prefixes of all servers.
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// The prefixes of all servers, for their readers.
    pub fn prefixes_mut(&mut self) -> &mut Prefixes {
        &mut self.prefixes
    }

    /// Numbers of the index.
    pub fn totals(&self) -> IndexTotals {
        IndexTotals {
            blocks: self.blocks,
            nodes: self.nodes.len(),
            orphans: self.orphans.total().count,
            prefixes: self.prefixes.count(),
            evicted: self.evicted,
        }
    }

    /// The contents of a cache.
    pub fn contents(&self, id: CacheId) -> Contents {
        self.caches.get(&id).map_or_else(Contents::default, |cache| cache.contents)
    }

    /// Applies an event of a cache, at `now` in seconds since any fixed time.
    pub fn apply(&mut self, id: CacheId, event: &KvEvent, now: u32) {
        match event {
            KvEvent::Stored(stored) => self.store(id, stored, now),
            KvEvent::Removed(removed) => self.remove(id, removed),
            KvEvent::Cleared => self.clear(id),
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
            stored.blocks.iter().for_each(|block| self.copy(id, block.hash, tier));
            return;
        }
        // On a request's wish vLLM announces blocks that it has stored before, from a prompt's beginning on.
        // They are no further copies.
        let is_repeated =
            stored.parent.is_none() && stored.blocks.iter().all(|block| cache.has(block.hash, tier));
        let (scope, model) = (cache.scope(), cache.model.clone());
        let mut parent = match stored.parent {
            None => {
                let (adapter, salt) = (stored.adapter.as_deref(), stored.salt.as_deref());
                let root = model.as_ref().and_then(|model| model.root(adapter, salt));
                Some(ParentBlock { key: NodeKey::root(scope, adapter, salt), root })
            }
            Some(hash) => self.parent(id, hash, tier, now).map(ParentBlock::block),
        };
        let mut parent_hash = stored.parent;
        for (block, tokens) in stored.blocks.iter().zip(stored.tokens.chunks(stored.block_size)) {
            let Some(cache) = self.caches.get_mut(&id) else { return };
            let content = Content::of(tokens, &block.extra);
            // The tokens of images and the like do not show their content.
            let bytes = || {
                let model = model.as_ref().filter(|_| block.extra.is_empty())?;
                model.bytes(tokens, parent_hash.is_none())
            };
            let node = if let Some(held) = cache.blocks.get(&block.hash) {
                let node = held.node;
                if !is_repeated {
                    self.copy(id, block.hash, tier);
                }
                node
            } else {
                let held = CachedBlock::new(u32::try_from(tokens.len()).unwrap_or(u32::MAX), now);
                cache.insert(block.hash, held, tier);
                self.blocks += 1;
                if let Some(before) = parent_hash.filter(|_| parent.is_none()) {
                    let orphan = Orphan { cache: id, hash: block.hash, content, bytes: bytes(), stored: now };
                    self.orphans.add(scope, before, orphan);
                }
                None
            };
            let node = node.or_else(|| {
                let parent = parent.as_ref()?;
                let node = parent.key.child(content);
                self.attach(id, block.hash, node, parent, bytes);
                self.adopt(scope, block.hash, node);
                Some(node)
            });
            parent = node.map(ParentBlock::block);
            parent_hash = Some(block.hash);
            // After each block, because one event may have more blocks than the limit.
            self.evict();
            // Without the block before it, the next one would have no keys.
            parent = parent.filter(|parent| self.nodes.get(parent.key).is_some());
        }
    }

    /// Counts a copy of a block that a cache has.
    fn copy(&mut self, id: CacheId, hash: BlockHash, tier: StorageTier) {
        let Self { caches, nodes, prefixes, .. } = self;
        let Some(cache) = caches.get_mut(&id) else { return };
        if let Some(node) = cache.copy(hash, tier) {
            cache.runs.hold(node, tier, nodes, prefixes);
        }
    }

    /// Gives a block of a cache its node.
    fn attach(
        &mut self,
        id: CacheId,
        hash: BlockHash,
        key: NodeKey,
        parent: &ParentBlock,
        bytes: impl FnOnce() -> Option<BlockBytes>,
    ) {
        let Self { caches, nodes, prefixes, .. } = self;
        let Some(cache) = caches.get_mut(&id) else { return };
        let Some(held) = cache.blocks.get_mut(&hash) else { return };
        held.node = Some(key);
        cache.contents.orphans -= 1;
        let CachedBlock { tokens, copies, .. } = *held;
        if !nodes.add_cache(key) {
            let before = parent.root.as_ref().or_else(|| nodes.keyed(parent.key).map(|keyed| &keyed.prompt));
            let keyed = before.and_then(|before| {
                let prompt = before.followed_by(&bytes()?, tokens, self.limits.prefix_tokens)?;
                Some(KeyedBlock { prompt, is_first: before.is_end() })
            });
            nodes.insert(cache.scope(), key, (parent.key, hash, tokens), keyed);
        }
        for tier in StorageTier::ALL.into_iter().filter(|tier| copies[*tier as usize] > 0) {
            cache.runs.hold(key, tier, nodes, prefixes);
        }
    }

    /// The node of a block that a cache names as the parent of a stored one. If only another cache has
    /// announced it, the cache has it and all blocks before it nevertheless, of which it gets the last
    /// [`MAX_ANCESTORS`].
    fn parent(&mut self, id: CacheId, hash: BlockHash, tier: StorageTier, now: u32) -> Option<NodeKey> {
        let cache = self.caches.get(&id)?;
        if let Some(held) = cache.blocks.get(&hash) {
            return held.node;
        }
        let key = self.nodes.named(cache.scope(), hash)?;
        let mut next = Some(key);
        for _ in 0..MAX_ANCESTORS {
            let Some(key) = next else { break };
            let Some(node) = self.nodes.get(key) else { break };
            let (parent, hash, tokens) = (node.parent, node.hash, node.tokens);
            let Some(cache) = self.caches.get_mut(&id) else { break };
            if self.blocks >= self.limits.blocks || cache.blocks.contains_key(&hash) {
                break;
            }
            cache.insert(hash, CachedBlock::new(tokens, now), tier);
            self.blocks += 1;
            self.attach(id, hash, key, &ParentBlock::block(parent), || None);
            next = Some(parent);
        }
        Some(key)
    }

    /// Makes nodes of the orphans whose parent has this name, and of the orphans behind them.
    fn adopt(&mut self, scope: u64, hash: BlockHash, node: NodeKey) {
        if self.orphans.total().count == 0 {
            return;
        }
        let mut parents = vec![(hash, node)];
        while let Some((hash, parent)) = parents.pop() {
            for orphan in self.orphans.take(scope, hash) {
                if self.is_waiting(&orphan) {
                    let node = parent.child(orphan.content);
                    self.attach(orphan.cache, orphan.hash, node, &ParentBlock::block(parent), || {
                        orphan.bytes
                    });
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
        let Self { caches, nodes, prefixes, .. } = self;
        let Some(cache) = caches.get_mut(&id) else { return };
        if !cache.counts(removed.group) {
            return;
        }
        for hash in &removed.blocks {
            let Some((held, is_last)) = cache.remove_copy(*hash, removed.tier) else { continue };
            if let Some(node) = held.node.filter(|_| held.copies[removed.tier as usize] == 0) {
                cache.runs.release(node, removed.tier, nodes, prefixes);
            }
            if is_last {
                self.blocks -= 1;
                held.node.into_iter().for_each(|node| nodes.remove(cache.scope(), node));
            }
        }
    }

    /// Makes room: the server with the most orphans loses the oldest eighth of them, and the server with the
    /// most blocks the oldest eighth of its largest cache.
    fn evict(&mut self) {
        let max = self.limits.blocks / ORPHANS;
        let max = Size { count: max, bytes: max * ORPHAN_BYTES };
        loop {
            let Size { count, bytes } = self.orphans.total();
            let relevant = |size: Size| if count > max.count { size.count } else { size.bytes };
            if count <= max.count && bytes <= max.bytes {
                break;
            }
            let server = |cache: CacheId| self.caches.get(&cache).map(|cache| cache.server);
            let mut of_servers: HashMap<_, Size> = HashMap::new();
            self.orphans
                .sizes()
                .for_each(|(cache, size)| of_servers.entry(server(cache)).or_default().add(size));
            let largest = of_servers.into_iter().max_by_key(|(_, size)| relevant(*size));
            let Some((largest, _)) = largest else { break };
            let limit = oldest(self.orphans.times(|cache| server(cache) == largest));
            let drained =
                self.orphans.drain(|orphan| orphan.stored > limit || server(orphan.cache) != largest);
            for orphan in drained {
                if self.is_waiting(&orphan) {
                    self.forget(orphan.cache, orphan.hash);
                }
            }
        }
        while self.blocks > self.limits.blocks {
            let mut of_servers: HashMap<SocketAddr, usize> = HashMap::new();
            for cache in self.caches.values() {
                *of_servers.entry(cache.server).or_default() += cache.blocks.len();
            }
            let largest = self
                .caches
                .iter()
                .max_by_key(|(_, cache)| (of_servers.get(&cache.server).copied(), cache.blocks.len()));
            let Some((id, cache)) = largest else { return };
            let limit = oldest(cache.blocks.values().map(|held| held.stored).collect());
            let old = cache.blocks.iter().filter(|(_, held)| held.stored <= limit);
            let (id, old): (_, Vec<_>) = (*id, old.map(|(hash, _)| *hash).collect());
            for hash in old {
                self.forget(id, hash);
            }
        }
    }

    /// Removes all copies of a block because there are too many blocks.
    fn forget(&mut self, id: CacheId, hash: BlockHash) {
        let Self { caches, nodes, prefixes, .. } = self;
        let Some(cache) = caches.get_mut(&id) else { return };
        let Some(held) = cache.forget(hash) else { return };
        self.blocks -= 1;
        self.evicted += 1;
        let Some(node) = held.node else { return };
        for tier in StorageTier::ALL.into_iter().filter(|tier| held.copies[*tier as usize] > 0) {
            cache.runs.release(node, tier, nodes, prefixes);
        }
        nodes.remove(cache.scope(), node);
    }
}

/// The time up to which the oldest eighth was stored.
fn oldest(mut times: Vec<u32>) -> u32 {
    let nth = times.len() / EVICTED;
    if times.is_empty() { 0 } else { *times.select_nth_unstable(nth).1 }
}

#[cfg(test)]
mod tests;
