//! The blocks of a KV cache: those that requests use, and those kept for prompts that begin alike.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A cache of limited size. Blocks that no request uses stay until room is needed; the one unused for longest
/// goes first.
///
/// A request uses all blocks before those that it uses, and gives its last ones back first. So a cached block
/// has all blocks before it in the cache, and the end of a cached prefix is found by bisection.
#[derive(Debug)]
pub(super) struct KvCache {
    capacity: usize,
    /// Places of the blocks of prompts, by the hash of everything up to their end.
    places: HashMap<u64, Place, BuildHasherDefault<IdentityHasher>>,
    blocks: Vec<Block>,
    /// Places without a block.
    vacant: Vec<Place>,
    /// Ends of the list of unused blocks.
    oldest: Place,
    newest: Place,
    unused: usize,
    /// Blocks that belong to one request, because they are not full or hold its response.
    private: usize,
    /// Its changes since they were taken; `None`: they are not recorded.
    changes: Option<Vec<CacheChange>>,
}

/// A change of the blocks of prompts in a cache, as servers publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Blocks that follow one another in a prompt were stored.
    Stored {
        /// Number of blocks before them in their prompt.
        place: usize,
        /// Their hashes, at least one.
        blocks: Vec<u64>,
    },
    /// The block of this hash was evicted.
    Removed(u64),
}

/// Index of a block, or [`NOWHERE`].
type Place = u32;
const NOWHERE: Place = Place::MAX;

#[derive(Debug)]
struct Block {
    hash: u64,
    users: u32,
    /// Neighbours in the list of unused blocks; meaningless while it has users.
    older: Place,
    newer: Place,
}

/// The blocks that a request uses, until [`KvCache::give_back`].
#[derive(Debug)]
pub(super) struct BlockLease {
    places: Vec<Place>,
    private: usize,
}

impl BlockLease {
    /// Number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.places.len() + self.private
    }
}

impl KvCache {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: HashMap::default(),
            blocks: Vec::new(),
            vacant: Vec::new(),
            oldest: NOWHERE,
            newest: NOWHERE,
            unused: 0,
            private: 0,
            changes: None,
        }
    }

    /// Records changes from now on.
    pub(super) fn record_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// The changes since the last call, if they are recorded.
    pub(super) fn take_changes(&mut self) -> Vec<CacheChange> {
        self.changes.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// How many blocks at the beginning of a prompt are cached.
    pub(super) fn cached(&self, hashes: &[u64]) -> usize {
        hashes.partition_point(|hash| self.places.contains_key(hash))
    }

    /// Blocks that requests use.
    pub(super) fn in_use(&self) -> usize {
        self.places.len() - self.unused + self.private
    }

    /// Takes a prompt's blocks and this many private ones. `None`, without a change, when they do not fit
    /// now. Blocks beyond the capacity are left out.
    pub(super) fn take(&mut self, hashes: &[u64], private: usize) -> Option<BlockLease> {
        let private = private.min(self.capacity);
        let hashes = &hashes[..hashes.len().min(self.capacity - private)];
        let cached = self.cached(hashes);
        let known: Vec<Place> = hashes[..cached].iter().map(|hash| self.places[hash]).collect();
        let used = known.iter().filter(|&&place| self.block(place).users > 0).count();
        if self.in_use() + hashes.len() - used + private > self.capacity {
            return None;
        }
        let mut places = known;
        for &place in &places {
            self.use_again(place);
        }
        for &hash in &hashes[cached..] {
            places.push(self.insert(hash));
        }
        self.record_stored(cached, &hashes[cached..]);
        self.private += private;
        self.evict();
        Some(BlockLease { places, private })
    }

    /// Takes one more private block; false, without a change, when all blocks are in use.
    pub(super) fn grow(&mut self, lease: &mut BlockLease) -> bool {
        if self.in_use() >= self.capacity {
            return false;
        }
        self.private += 1;
        lease.private += 1;
        self.evict();
        true
    }

    /// Ends a request's use of its blocks. Its last blocks are evicted before its first ones. `hashes` are
    /// those of its first blocks; where they are more than it took from the cache, they name private ones,
    /// which stay in the cache.
    pub(super) fn give_back(&mut self, lease: BlockLease, hashes: &[u64]) {
        let BlockLease { mut places, private } = lease;
        self.private -= private;
        let named = hashes.get(places.len()..).unwrap_or_default();
        for &hash in &named[..named.len().min(private)] {
            let place = if let Some(&place) = self.places.get(&hash) {
                self.use_again(place);
                place
            } else {
                self.record_stored(places.len(), &[hash]);
                self.insert(hash)
            };
            places.push(place);
        }
        for place in places.into_iter().rev() {
            let block = self.block_mut(place);
            block.users -= 1;
            if block.users == 0 {
                self.append_unused(place);
            }
        }
    }

    fn block(&self, place: Place) -> &Block {
        &self.blocks[place as usize]
    }

    fn block_mut(&mut self, place: Place) -> &mut Block {
        &mut self.blocks[place as usize]
    }

    fn record_stored(&mut self, place: usize, blocks: &[u64]) {
        if let Some(changes) = self.changes.as_mut().filter(|_| !blocks.is_empty()) {
            changes.push(CacheChange::Stored { place, blocks: blocks.to_vec() });
        }
    }

    /// Adds a block with one user.
    fn insert(&mut self, hash: u64) -> Place {
        let block = Block { hash, users: 1, older: NOWHERE, newer: NOWHERE };
        let place = if let Some(place) = self.vacant.pop() {
            *self.block_mut(place) = block;
            place
        } else {
            self.blocks.push(block);
            Place::try_from(self.blocks.len() - 1).expect("a cache has fewer blocks")
        };
        self.places.insert(hash, place);
        place
    }

    /// Adds a user to a cached block.
    fn use_again(&mut self, place: Place) {
        if self.block(place).users == 0 {
            self.remove_unused(place);
        }
        self.block_mut(place).users += 1;
    }

    fn evict(&mut self) {
        while self.places.len() + self.private > self.capacity {
            assert_ne!(self.oldest, NOWHERE, "the blocks in use fit");
            self.evict_oldest();
        }
    }

    /// Evicts all blocks that no request uses.
    pub(super) fn reset(&mut self) {
        while self.oldest != NOWHERE {
            self.evict_oldest();
        }
    }

    fn evict_oldest(&mut self) {
        let oldest = self.oldest;
        self.remove_unused(oldest);
        let hash = self.block(oldest).hash;
        self.places.remove(&hash);
        self.vacant.push(oldest);
        if let Some(changes) = &mut self.changes {
            changes.push(CacheChange::Removed(hash));
        }
    }

    fn append_unused(&mut self, place: Place) {
        let older = core::mem::replace(&mut self.newest, place);
        let block = self.block_mut(place);
        (block.older, block.newer) = (older, NOWHERE);
        if older == NOWHERE {
            self.oldest = place;
        } else {
            self.block_mut(older).newer = place;
        }
        self.unused += 1;
    }

    fn remove_unused(&mut self, place: Place) {
        let Block { older, newer, .. } = *self.block(place);
        if older == NOWHERE {
            self.oldest = newer;
        } else {
            self.block_mut(older).newer = newer;
        }
        if newer == NOWHERE {
            self.newest = older;
        } else {
            self.block_mut(newer).older = older;
        }
        self.unused -= 1;
    }
}

/// The hashes of blocks are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers of 64 bits");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_stays_when_its_request_has_ended() {
        let mut cache = KvCache::new(10);
        let lease = cache.take(&[1, 2, 3], 1).unwrap();
        assert_eq!((cache.in_use(), cache.cached(&[1, 2, 3, 4])), (4, 3));
        cache.give_back(lease, &[1, 2, 3]);
        assert_eq!((cache.in_use(), cache.cached(&[1, 2, 3, 4])), (0, 3));
    }

    #[test]
    fn the_blocks_unused_for_longest_are_evicted_the_last_one_first() {
        let mut cache = KvCache::new(4);
        for prompt in [[1, 2], [3, 4]] {
            let lease = cache.take(&prompt, 0).unwrap();
            cache.give_back(lease, &prompt);
        }
        cache.take(&[5], 0).unwrap();
        assert_eq!((cache.cached(&[1, 2]), cache.cached(&[3, 4])), (1, 2));
    }

    #[test]
    fn recorded_changes_make_a_copy_of_the_cache() {
        let mut cache = KvCache::new(6);
        let lease = cache.take(&[9], 0).unwrap();
        cache.give_back(lease, &[9]);
        assert_eq!(cache.take_changes(), [], "not recorded");
        cache.record_changes();
        let stored = |place, blocks: &[u64]| CacheChange::Stored { place, blocks: blocks.to_vec() };
        let first = cache.take(&[1, 2], 2).unwrap();
        let second = cache.take(&[1, 3], 0).unwrap();
        assert_eq!(cache.take_changes(), [stored(0, &[1, 2]), stored(1, &[3])]);
        cache.give_back(first, &[1, 2, 4, 5]);
        cache.give_back(second, &[1, 3]);
        assert_eq!(cache.take_changes(), [stored(2, &[4]), stored(3, &[5])]);
        cache.take(&[1, 6], 1).unwrap();
        let removed = [9, 5].map(CacheChange::Removed);
        assert_eq!(cache.take_changes(), [&[stored(1, &[6])], &removed[..]].concat());
    }

    #[test]
    fn a_block_that_is_used_again_becomes_the_newest() {
        let mut cache = KvCache::new(3);
        for prompt in [[1], [2], [3], [1]] {
            let lease = cache.take(&prompt, 0).unwrap();
            cache.give_back(lease, &prompt);
        }
        for (prompt, evicted) in [(4, 2), (5, 3)] {
            let lease = cache.take(&[prompt], 0).unwrap();
            assert_eq!((cache.cached(&[evicted]), cache.cached(&[1])), (0, 1));
            cache.give_back(lease, &[prompt]);
        }
    }

    #[test]
    fn requests_that_do_not_fit_wait_and_shared_blocks_count_once() {
        let mut cache = KvCache::new(4);
        let first = cache.take(&[1, 2, 3], 0).unwrap();
        assert!(cache.take(&[7, 8], 0).is_none());
        let second = cache.take(&[1, 2, 3], 1).unwrap();
        assert_eq!(cache.in_use(), 4);
        cache.give_back(first, &[1, 2, 3]);
        assert!(cache.take(&[7, 8], 0).is_none());
        cache.give_back(second, &[1, 2, 3]);
        assert!(cache.take(&[7, 8], 0).is_some());
    }

    #[test]
    fn a_prompt_longer_than_the_cache_is_cut() {
        let mut cache = KvCache::new(2);
        let lease = cache.take(&[1, 2, 3], 5).unwrap();
        assert_eq!(cache.in_use(), 2);
        cache.give_back(lease, &[]);
        assert_eq!(cache.in_use(), 0);
    }

    #[test]
    fn private_blocks_with_a_hash_stay_and_those_that_are_there_already_do_not_count_twice() {
        let mut cache = KvCache::new(4);
        let mut first = cache.take(&[1], 1).unwrap();
        assert!(cache.grow(&mut first));
        let mut second = cache.take(&[1], 1).unwrap();
        assert!(!cache.grow(&mut second), "all are in use");
        assert_eq!((first.blocks(), second.blocks(), cache.in_use()), (3, 2, 4));
        for lease in [first, second] {
            cache.give_back(lease, &[1, 2]);
        }
        assert_eq!((cache.in_use(), cache.cached(&[1, 2, 3]), cache.blocks.len()), (0, 2, 2));
    }
}
