//! The blocks of a KV cache: those that requests use, and those kept for prompts that begin alike.

use std::collections::{BTreeMap, HashMap};

/// A cache of limited size. Blocks that no request uses stay until room is needed; the one unused for longest goes first.
#[derive(Debug)]
pub(super) struct KvCache {
    capacity: usize,
    /// Blocks of prompts by the hash of everything up to their end.
    blocks: HashMap<u64, Block>,
    /// Hashes of unused blocks by the time at which they were given back.
    unused: BTreeMap<u64, u64>,
    /// Blocks that belong to one request, because they are not full or hold its answer.
    private: usize,
    clock: u64,
}

#[derive(Debug)]
struct Block {
    users: u32,
    /// When it was given back; meaningless while it has users.
    since: u64,
}

/// The blocks that a request uses, until [`KvCache::give_back`].
#[derive(Debug)]
pub(super) struct BlockLease {
    hashes: Vec<u64>,
    private: usize,
}

impl KvCache {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, blocks: HashMap::new(), unused: BTreeMap::new(), private: 0, clock: 0 }
    }

    /// How many blocks at the beginning of a prompt are cached.
    pub(super) fn cached(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.blocks.contains_key(hash)).count()
    }

    /// Blocks that requests use.
    pub(super) fn in_use(&self) -> usize {
        self.blocks.len() - self.unused.len() + self.private
    }

    /// Takes a prompt's blocks and this many private ones. `None`, without a change, when they do not fit now. Blocks beyond the
    /// capacity are left out.
    pub(super) fn take(&mut self, hashes: &[u64], private: usize) -> Option<BlockLease> {
        let private = private.min(self.capacity);
        let hashes = &hashes[..hashes.len().min(self.capacity - private)];
        let used = |hash: &&u64| self.blocks.get(hash).is_some_and(|block| block.users > 0);
        let more = hashes.len() - hashes.iter().filter(used).count() + private;
        if self.in_use() + more > self.capacity {
            return None;
        }
        for hash in hashes {
            let block = self.blocks.entry(*hash).or_insert(Block { users: 0, since: 0 });
            if block.users == 0 {
                self.unused.remove(&block.since);
            }
            block.users += 1;
        }
        self.private += private;
        while self.blocks.len() + self.private > self.capacity {
            let (_, oldest) = self.unused.pop_first().expect("the blocks in use fit");
            self.blocks.remove(&oldest);
        }
        Some(BlockLease { hashes: hashes.to_vec(), private })
    }

    /// Ends a request's use of its blocks. Its last blocks are evicted before its first ones.
    pub(super) fn give_back(&mut self, lease: BlockLease) {
        self.private -= lease.private;
        for hash in lease.hashes.into_iter().rev() {
            let block = self.blocks.get_mut(&hash).expect("a block in use is there");
            block.users -= 1;
            if block.users == 0 {
                self.clock += 1;
                block.since = self.clock;
                self.unused.insert(self.clock, hash);
            }
        }
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
        cache.give_back(lease);
        assert_eq!((cache.in_use(), cache.cached(&[1, 2, 3, 4])), (0, 3));
    }

    #[test]
    fn a_block_counts_only_behind_the_same_beginning() {
        let mut cache = KvCache::new(10);
        let lease = cache.take(&[1, 2], 0).unwrap();
        assert_eq!(cache.cached(&[9, 2]), 0);
        cache.give_back(lease);
    }

    #[test]
    fn the_blocks_unused_for_longest_are_evicted_the_last_one_first() {
        let mut cache = KvCache::new(4);
        for prompt in [[1, 2], [3, 4]] {
            let lease = cache.take(&prompt, 0).unwrap();
            cache.give_back(lease);
        }
        cache.take(&[5], 0).unwrap();
        assert_eq!((cache.cached(&[1, 2]), cache.cached(&[3, 4])), (1, 2));
    }

    #[test]
    fn requests_that_do_not_fit_wait_and_shared_blocks_count_once() {
        let mut cache = KvCache::new(4);
        let first = cache.take(&[1, 2, 3], 0).unwrap();
        assert!(cache.take(&[7, 8], 0).is_none());
        let second = cache.take(&[1, 2, 3], 1).unwrap();
        assert_eq!(cache.in_use(), 4);
        cache.give_back(first);
        assert!(cache.take(&[7, 8], 0).is_none());
        cache.give_back(second);
        assert!(cache.take(&[7, 8], 0).is_some());
    }

    #[test]
    fn a_prompt_longer_than_the_cache_is_cut() {
        let mut cache = KvCache::new(2);
        let lease = cache.take(&[1, 2, 3], 5).unwrap();
        assert_eq!(cache.in_use(), 2);
        cache.give_back(lease);
        assert_eq!(cache.in_use(), 0);
    }
}
