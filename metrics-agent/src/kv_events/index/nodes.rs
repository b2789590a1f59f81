//! Stored blocks by their content, each with all blocks before it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use xxhash_rust::xxh64::Xxh64;

use crate::kv_events::event::BlockHash;

/// The content of a block and of all blocks before it, the same for every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeKey(u64);

/// The content of a block alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content(u64);

impl Content {
    pub(super) fn of(tokens: &[u32], extra: &[u8]) -> Self {
        let mut hasher = Xxh64::new(0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        hasher.update(extra);
        Self(hasher.digest())
    }
}

impl NodeKey {
    /// The beginning of the prompts of an adapter and a salt.
    pub(super) fn root(adapter: Option<&[u8]>, salt: Option<&[u8]>) -> Self {
        let mut hasher = Xxh64::new(1);
        for name in [adapter, salt] {
            let length = name.map_or(u64::MAX, |name| name.len() as u64);
            hasher.update(&length.to_le_bytes());
            hasher.update(name.unwrap_or_default());
        }
        Self(hasher.digest())
    }

    /// The block of this content after the key's own.
    pub(super) fn child(self, Content(content): Content) -> Self {
        let mut hasher = Xxh64::new(2);
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&content.to_le_bytes());
        Self(hasher.digest())
    }
}

/// A block that at least one cache has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) parent: NodeKey,
    /// The name under which the first cache stored it.
    pub(super) hash: BlockHash,
    pub(super) tokens: u32,
    caches: u32,
}

/// All blocks that at least one cache has.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    by_key: HashMap<NodeKey, Node>,
    /// A server may name the block before a stored one that only another server has announced. By default, servers of one model give
    /// equal blocks equal names.
    by_hash: HashMap<BlockHash, NodeKey>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: NodeKey) -> Option<&Node> {
        self.by_key.get(&key)
    }

    /// The block that another cache has under this name.
    pub(super) fn named(&self, hash: BlockHash) -> Option<NodeKey> {
        self.by_hash.get(&hash).copied()
    }

    /// Adds a cache to a block.
    pub(super) fn add(&mut self, key: NodeKey, parent: NodeKey, hash: BlockHash, tokens: u32) {
        match self.by_key.entry(key) {
            Entry::Occupied(mut node) => node.get_mut().caches += 1,
            Entry::Vacant(entry) => {
                entry.insert(Node { parent, hash, tokens, caches: 1 });
                self.by_hash.entry(hash).or_insert(key);
            }
        }
    }

    /// Removes a cache from a block.
    pub(super) fn remove(&mut self, key: NodeKey) {
        let Entry::Occupied(mut node) = self.by_key.entry(key) else { return };
        node.get_mut().caches -= 1;
        if node.get().caches == 0 {
            let hash = node.remove().hash;
            if self.by_hash.get(&hash) == Some(&key) {
                self.by_hash.remove(&hash);
            }
        }
    }
}

#[cfg(test)]
impl Nodes {
    /// Compares the nodes with the number of caches of each.
    pub(super) fn check(&self, caches: &HashMap<NodeKey, u32>) {
        let own: HashMap<_, _> = self.by_key.iter().map(|(key, node)| (*key, node.caches)).collect();
        assert_eq!(own, *caches);
        assert!(self.by_hash.values().all(|key| self.by_key.contains_key(key)));
    }
}
