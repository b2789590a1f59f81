//! Blocks whose parent is not known, until it is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::CacheId;
use super::keyed::BlockBytes;
use super::nodes::Content;
use crate::event::BlockHash;

/// A stored block whose parent is not known.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) cache: CacheId,
    pub(super) hash: BlockHash,
    pub(super) content: Content,
    /// The bytes that its keys are made of; `None`: it has no keys.
    pub(super) bytes: Option<BlockBytes>,
    /// Seconds on the index's clock.
    pub(super) stored: u32,
}

/// The orphans, by the scopes and names of their parents.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    by_parent: HashMap<(u64, BlockHash), Vec<Orphan>>,
    sizes: HashMap<CacheId, Size>,
    total: Size,
}

/// The size of some orphans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) count: usize,
    /// Bytes that keys are made of.
    pub(super) bytes: usize,
}

impl Size {
    fn of(orphan: &Orphan) -> Self {
        Self { count: 1, bytes: orphan.bytes.as_ref().map_or(0, BlockBytes::length) }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.count += more.count;
        self.bytes += more.bytes;
    }

    fn remove(&mut self, less: Self) {
        self.count -= less.count;
        self.bytes -= less.bytes;
    }
}

impl Orphans {
    /// The size of all.
    pub(super) fn total(&self) -> Size {
        self.total
    }

    /// The size of each cache's orphans.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (CacheId, Size)> {
        self.sizes.iter().map(|(cache, size)| (*cache, *size))
    }

    pub(super) fn add(&mut self, scope: u64, parent: BlockHash, orphan: Orphan) {
        let size = Size::of(&orphan);
        self.total.add(size);
        self.sizes.entry(orphan.cache).or_default().add(size);
        self.by_parent.entry((scope, parent)).or_default().push(orphan);
    }

    /// Takes the orphans of this parent.
    pub(super) fn take(&mut self, scope: u64, parent: BlockHash) -> Vec<Orphan> {
        let orphans = self.by_parent.remove(&(scope, parent)).unwrap_or_default();
        self.subtract(&orphans);
        orphans
    }

    /// Takes all orphans that are not to be kept.
    pub(super) fn drain(&mut self, mut keep: impl FnMut(&Orphan) -> bool) -> Vec<Orphan> {
        let mut drained = Vec::new();
        self.by_parent.retain(|_, orphans| {
            drained.extend(orphans.extract_if(.., |orphan| !keep(orphan)));
            !orphans.is_empty()
        });
        self.subtract(&drained);
        drained
    }

    fn subtract(&mut self, orphans: &[Orphan]) {
        for orphan in orphans {
            let size = Size::of(orphan);
            self.total.remove(size);
            if let Entry::Occupied(mut of_cache) = self.sizes.entry(orphan.cache) {
                of_cache.get_mut().remove(size);
                if of_cache.get().count == 0 {
                    of_cache.remove();
                }
            }
        }
    }

    /// The times at which the orphans of some caches were stored.
    pub(super) fn times(&self, of: impl Fn(CacheId) -> bool) -> Vec<u32> {
        let orphans = self.by_parent.values().flatten().filter(|orphan| of(orphan.cache));
        orphans.map(|orphan| orphan.stored).collect()
    }
}
