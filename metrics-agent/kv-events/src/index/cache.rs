//! One KV cache: its blocks by the server's names, and their copies in each tier.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Contents;
use super::keyed::KeyedModel;
use super::nodes::NodeKey;
use super::runs::Runs;
use crate::event::{BlockHash, StorageTier};
use crate::prefixes::ServerNumber;

/// Maximum number of groups of KV caches in a hybrid model; events of others are ignored.
pub(super) const MAX_GROUPS: usize = 64;

/// The contents of one cache, and the server that has it.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) server: SocketAddr,
    /// `None`: its blocks have no keys.
    pub(super) model: Option<Arc<KeyedModel>>,
    pub(super) blocks: HashMap<BlockHash, CachedBlock>,
    /// The blocks among them that have a node with keys.
    pub(super) runs: Runs,
    /// The groups that were announced, and whether their blocks count.
    pub(super) groups: Vec<(u32, bool)>,
    pub(super) contents: Contents,
}

/// A block of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedBlock {
    /// `None`: an orphan.
    pub(super) node: Option<NodeKey>,
    pub(super) tokens: u32,
    /// Seconds on the index's clock.
    pub(super) stored: u32,
    /// How often it is stored, in the order of [`StorageTier::ALL`].
    pub(super) copies: [u8; 3],
}

impl CachedBlock {
    /// An orphan without a copy.
    pub(super) fn new(tokens: u32, stored: u32) -> Self {
        Self { node: None, tokens, stored, copies: [0; 3] }
    }
}

impl Cache {
    pub(super) fn new(
        server: SocketAddr,
        server_number: ServerNumber,
        model: Option<Arc<KeyedModel>>,
    ) -> Self {
        Self {
            server,
            model,
            blocks: HashMap::new(),
            runs: Runs::new(server_number),
            groups: Vec::new(),
            contents: Contents::default(),
        }
    }

    /// The scope of its nodes and names.
    pub(super) fn scope(&self) -> u64 {
        self.model.as_ref().map_or(0, |model| model.scope())
    }

    /// Whether blocks of this group count, which stores announce.
    pub(super) fn announce(&mut self, group: u32, is_full_attention: bool) -> bool {
        let is_known = self.groups.iter().any(|(known, _)| *known == group);
        if !is_known && self.groups.len() < MAX_GROUPS {
            // Several groups of full attention name the same blocks; the first one counts.
            let is_first = !self.groups.iter().any(|(_, counts)| *counts);
            self.groups.push((group, is_full_attention && is_first));
        }
        self.counts(group)
    }

    /// Whether blocks of this group count.
    pub(super) fn counts(&self, group: u32) -> bool {
        self.groups.contains(&(group, true))
    }

    pub(super) fn has(&self, hash: BlockHash, tier: StorageTier) -> bool {
        self.blocks.get(&hash).is_some_and(|held| held.copies[tier as usize] > 0)
    }

    pub(super) fn insert(&mut self, hash: BlockHash, held: CachedBlock, tier: StorageTier) {
        self.contents.blocks += 1;
        self.contents.orphans += u64::from(held.node.is_none());
        self.blocks.insert(hash, held);
        self.copy(hash, tier);
    }

    /// Counts a copy of a block that the cache has. Returns its node if it is the first copy in the tier.
    pub(super) fn copy(&mut self, hash: BlockHash, tier: StorageTier) -> Option<NodeKey> {
        let held = self.blocks.get_mut(&hash)?;
        let copies = &mut held.copies[tier as usize];
        let is_first = *copies == 0;
        if is_first {
            self.contents.tokens[tier as usize] += u64::from(held.tokens);
        }
        *copies = copies.saturating_add(1);
        held.node.filter(|_| is_first)
    }

    /// Removes a copy. Returns the block without it, and whether it was the last copy in all tiers, which
    /// removes the block.
    pub(super) fn remove_copy(&mut self, hash: BlockHash, tier: StorageTier) -> Option<(CachedBlock, bool)> {
        let Entry::Occupied(mut entry) = self.blocks.entry(hash) else { return None };
        let held = entry.get_mut();
        let copies = &mut held.copies[tier as usize];
        *copies = copies.checked_sub(1)?;
        if *copies == 0 {
            self.contents.tokens[tier as usize] -= u64::from(held.tokens);
        }
        if held.copies != [0; 3] {
            return Some((*held, false));
        }
        self.contents.blocks -= 1;
        self.contents.orphans -= u64::from(held.node.is_none());
        Some((entry.remove(), true))
    }

    /// Removes all copies of a block.
    pub(super) fn forget(&mut self, hash: BlockHash) -> Option<CachedBlock> {
        let held = self.blocks.remove(&hash)?;
        self.contents.blocks -= 1;
        self.contents.orphans -= u64::from(held.node.is_none());
        for (tokens, copies) in self.contents.tokens.iter_mut().zip(held.copies) {
            *tokens -= if copies > 0 { u64::from(held.tokens) } else { 0 };
        }
        Some(held)
    }
}
