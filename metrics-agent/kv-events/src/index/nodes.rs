//! Stored blocks by their content, each with all blocks before it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use xxhash_rust::xxh64::Xxh64;

use super::keyed::KeyedPrompt;
use crate::event::BlockHash;

/// The content of a block and of all blocks before it, the same for every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// The beginning of the prompts of a model, an adapter and a salt. Models without keys have the scope 0.
    pub(super) fn root(scope: u64, adapter: Option<&[u8]>, salt: Option<&[u8]>) -> Self {
        let mut hasher = Xxh64::new(1);
        hasher.update(&scope.to_le_bytes());
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
#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: NodeKey,
    /// The name under which the first cache stored it.
    pub(super) hash: BlockHash,
    pub(super) tokens: u32,
    caches: u32,
    /// `None`: its model has no keys, or none for its tokens, or it has extra keys, or a block before it has
    /// none.
    pub(super) keyed: Option<KeyedBlock>,
}

/// A block with keys, and the prompt up to its end.
#[derive(Debug)]
pub(super) struct KeyedBlock {
    pub(super) prompt: KeyedPrompt,
    /// Whether it begins a prefix.
    pub(super) is_first: bool,
}

/// All blocks that at least one cache has.
#[derive(Debug, Default)]
pub(super) struct BlockNodes {
    by_key: HashMap<NodeKey, Node>,
    /// A server may name the block before a stored one that only another server has announced. By default,
    /// servers of one model give equal blocks equal names. The names of a scope are its own.
    by_hash: HashMap<(u64, BlockHash), NodeKey>,
    /// Pairs of the block before and a block that continues its prefix.
    continuations: BTreeSet<(NodeKey, NodeKey)>,
}

impl BlockNodes {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: NodeKey) -> Option<&Node> {
        self.by_key.get(&key)
    }

    /// The block that another cache of the scope has under this name.
    pub(super) fn named(&self, scope: u64, hash: BlockHash) -> Option<NodeKey> {
        self.by_hash.get(&(scope, hash)).copied()
    }

    /// A block with keys.
    pub(super) fn keyed(&self, key: NodeKey) -> Option<&KeyedBlock> {
        self.by_key.get(&key)?.keyed.as_ref()
    }

    /// The blocks that continue the prefix of a block.
    pub(super) fn continuations(&self, key: NodeKey) -> impl Iterator<Item = NodeKey> {
        let all = (key, NodeKey(u64::MIN))..=(key, NodeKey(u64::MAX));
        self.continuations.range(all).map(|(_, next)| *next)
    }

    /// Adds a cache to a block that at least one has. Returns false if none has it.
    pub(super) fn add_cache(&mut self, key: NodeKey) -> bool {
        self.by_key.get_mut(&key).map(|node| node.caches += 1).is_some()
    }

    /// Adds a block with one cache.
    pub(super) fn insert(
        &mut self,
        scope: u64,
        key: NodeKey,
        (parent, hash, tokens): (NodeKey, BlockHash, u32),
        keyed: Option<KeyedBlock>,
    ) {
        if keyed.as_ref().is_some_and(|keyed| !keyed.is_first) {
            self.continuations.insert((parent, key));
        }
        self.by_key.insert(key, Node { parent, hash, tokens, caches: 1, keyed });
        self.by_hash.entry((scope, hash)).or_insert(key);
    }

    /// Removes a cache from a block.
    pub(super) fn remove(&mut self, scope: u64, key: NodeKey) {
        let Entry::Occupied(mut node) = self.by_key.entry(key) else { return };
        node.get_mut().caches -= 1;
        if node.get().caches == 0 {
            let Node { parent, hash, .. } = node.remove();
            self.continuations.remove(&(parent, key));
            if self.by_hash.get(&(scope, hash)) == Some(&key) {
                self.by_hash.remove(&(scope, hash));
            }
        }
    }
}

#[cfg(test)]
impl BlockNodes {
    /// Compares the nodes with the number of caches of each.
    pub(super) fn check(&self, caches: &HashMap<NodeKey, u32>) {
        let own: HashMap<_, _> = self.by_key.iter().map(|(key, node)| (*key, node.caches)).collect();
        assert_eq!(own, *caches);
        assert!(self.by_hash.values().all(|key| self.by_key.contains_key(key)));
        let continues =
            |(_, node): &(&NodeKey, &Node)| node.keyed.as_ref().is_some_and(|keyed| !keyed.is_first);
        let continuations = self.by_key.iter().filter(continues).map(|(key, node)| (node.parent, *key));
        assert_eq!(self.continuations, continuations.collect());
    }
}
