//! Blocks whose parent is not known, until it is.

use std::collections::HashMap;

use super::CacheId;
use super::nodes::Content;
use crate::kv_events::event::BlockHash;

/// A stored block whose parent is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) cache: CacheId,
    pub(super) hash: BlockHash,
    pub(super) content: Content,
    /// Seconds on the index's clock.
    pub(super) stored: u32,
}

/// The orphans, by the names of their parents.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    by_parent: HashMap<BlockHash, Vec<Orphan>>,
    len: usize,
}

impl Orphans {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn add(&mut self, parent: BlockHash, orphan: Orphan) {
        self.by_parent.entry(parent).or_default().push(orphan);
        self.len += 1;
    }

    /// Takes the orphans of this parent.
    pub(super) fn take(&mut self, parent: BlockHash) -> Vec<Orphan> {
        let orphans = self.by_parent.remove(&parent).unwrap_or_default();
        self.len -= orphans.len();
        orphans
    }

    /// Removes the orphans that are not to be kept.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Orphan) -> bool) {
        self.by_parent.retain(|_, orphans| {
            orphans.retain(&mut keep);
            !orphans.is_empty()
        });
        self.len = self.by_parent.values().map(Vec::len).sum();
    }

    /// Takes the orphans that were stored up to this time.
    pub(super) fn drain_until(&mut self, limit: u32) -> Vec<Orphan> {
        let mut drained = Vec::new();
        self.retain(|orphan| {
            let is_old = orphan.stored <= limit;
            drained.extend(is_old.then_some(*orphan));
            !is_old
        });
        drained
    }

    /// The times at which they were stored.
    pub(super) fn times(&self) -> impl Iterator<Item = u32> {
        self.by_parent.values().flatten().map(|orphan| orphan.stored)
    }
}
