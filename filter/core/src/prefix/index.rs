//! The prefix index: block hash → endpoints, with a least-recently-added bound per endpoint.
//!
//! The reference keeps a map from hash to a set of endpoints and an LRU of hashes per endpoint. Here each endpoint
//! has a log of its hashes in order of use and one table finds the places of a hash in the logs. Memory per (block,
//! endpoint): 8 bytes in the log, up to a quarter more for places vacated since the last rewrite, and 5 bytes in the
//! table at a load between 7/16 and 7/8: 13.7 to 21.4 bytes.

use core::fmt;

use hashbrown::HashTable;

use super::log::{Arena, Log, Slot, stored};

/// Most blocks remembered for one endpoint, whatever capacity the server reports.
pub const MAX_BLOCKS_PER_ENDPOINT: usize = 1 << 18;

/// What the endpoints of one pool have been sent. Endpoints are given by their index in the pool.
#[derive(Default)]
pub struct PrefixIndex {
    places: HashTable<Slot>,
    arena: Arena,
    logs: Vec<EndpointLog>,
}

#[derive(Default)]
struct EndpointLog {
    /// Fixed when the endpoint is first added, as in the reference. 0: not added yet.
    capacity: usize,
    log: Log,
}

impl PrefixIndex {
    /// Remembers that `endpoint` was sent a prompt with these block hashes, in the prompt's order.
    ///
    /// `capacity` bounds the blocks remembered for the endpoint (at most [`MAX_BLOCKS_PER_ENDPOINT`], at least 1);
    /// the value of the endpoint's first addition stays in force. The blocks added longest ago are forgotten first;
    /// looking up does not count as use.
    pub fn add(&mut self, endpoint: usize, hashes: &[u64], capacity: usize) {
        let Ok(index) = u16::try_from(endpoint) else { return };
        if self.logs.len() <= endpoint {
            self.logs.resize_with(endpoint + 1, EndpointLog::default);
        }
        if self.logs[endpoint].capacity == 0 {
            self.logs[endpoint].capacity = capacity.clamp(1, MAX_BLOCKS_PER_ENDPOINT);
        }
        for &hash in hashes {
            self.add_block(index, stored(hash));
        }
        if self.logs[endpoint].log.is_sparse() {
            self.rewrite(index);
        }
    }

    fn add_block(&mut self, endpoint: u16, hash: u64) {
        let Self { places, arena, logs } = self;
        let EndpointLog { capacity, log } = &mut logs[usize::from(endpoint)];
        let same = |slot: &Slot| arena.hash(*slot) == hash && arena.endpoint(*slot) == usize::from(endpoint);
        if let Some(place) = places.find_mut(hash, same) {
            log.remove(arena, *place);
            *place = log.push(arena, endpoint, hash);
            return;
        }
        if log.len() >= *capacity
            && let Some((slot, oldest)) = log.pop_oldest(arena)
        {
            forget(places, oldest, slot);
        }
        let slot = log.push(arena, endpoint, hash);
        places.insert_unique(hash, slot, |slot| arena.hash(*slot));
    }

    /// Counts, for each endpoint, the blocks of one prompt that it was sent before: `matched[endpoint]` grows by one
    /// for each. Stops at the first block that no endpoint has, so a count need not be contiguous for an endpoint
    /// whose early blocks were forgotten (the reference's rule).
    pub fn count_matches(&self, hashes: &[u64], matched: &mut [u32]) {
        for hash in hashes.iter().map(|&hash| stored(hash)) {
            let mut known = false;
            for &slot in self.places.iter_hash(hash).filter(|slot| self.arena.hash(**slot) == hash) {
                known = true;
                if let Some(count) = matched.get_mut(self.arena.endpoint(slot)) {
                    *count += 1;
                }
            }
            if !known {
                break;
            }
        }
    }

    /// Follows a change of the pool: `moves[old index]` is the endpoint's new index, or `None` if it left and is to
    /// be forgotten.
    pub fn remap(&mut self, moves: &[Option<usize>]) {
        let mut remapped: Vec<EndpointLog> = Vec::new();
        for (old, mut entry) in core::mem::take(&mut self.logs).into_iter().enumerate() {
            let new = moves.get(old).copied().flatten().and_then(|new| u16::try_from(new).ok());
            if let Some(new) = new {
                entry.log.rename(&mut self.arena, new);
                let new = usize::from(new);
                if remapped.len() <= new {
                    remapped.resize_with(new + 1, EndpointLog::default);
                }
                remapped[new] = entry;
            } else {
                while let Some((slot, hash)) = entry.log.pop_oldest(&mut self.arena) {
                    forget(&mut self.places, hash, slot);
                }
            }
        }
        self.logs = remapped;
    }

    /// Writes an endpoint's log anew without vacant places.
    fn rewrite(&mut self, endpoint: u16) {
        let Self { places, arena, logs } = self;
        let old = &mut logs[usize::from(endpoint)].log;
        let mut new = Log::default();
        while let Some((slot, hash)) = old.pop_oldest(arena) {
            let place = places.find_mut(hash, |place| *place == slot);
            let moved = new.push(arena, endpoint, hash);
            if let Some(place) = place {
                *place = moved;
            }
        }
        *old = new;
    }

    /// (block, endpoint) pairs remembered.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Heap bytes held.
    pub fn bytes(&self) -> usize {
        self.places.allocation_size() + self.arena.bytes()
    }
}

fn forget(places: &mut HashTable<Slot>, hash: u64, slot: Slot) {
    if let Ok(entry) = places.find_entry(hash, |place| *place == slot) {
        entry.remove();
    }
}

impl fmt::Debug for PrefixIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixIndex")
            .field("len", &self.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, SplitMix64};
    use crate::test;
    use std::collections::{BTreeSet, VecDeque};

    fn matches(index: &PrefixIndex, hashes: &[u64], endpoints: usize) -> Vec<u32> {
        let mut matched = vec![0; endpoints];
        index.count_matches(hashes, &mut matched);
        matched
    }

    #[test]
    fn a_prompt_matches_where_it_was_sent() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1, 2], 100);
        index.add(2, &[1, 2], 100);
        assert_eq!(matches(&index, &[1, 3], 3), [1, 0, 1]);
        assert_eq!(matches(&index, &[1, 2, 3], 3), [2, 0, 2]);
        assert_eq!(matches(&index, &[3, 1, 2], 3), [0, 0, 0], "matching stops at the first unknown block");
    }

    #[test]
    fn the_block_added_longest_ago_is_forgotten_first() {
        let mut index = PrefixIndex::default();
        for hash in [1, 2, 3] {
            index.add(0, &[hash], 2);
        }
        assert_eq!([1, 2, 3].map(|hash| matches(&index, &[hash], 1)[0]), [0, 1, 1]);
        index.add(0, &[2], 2);
        index.add(0, &[4], 2);
        assert_eq!([2, 3, 4].map(|hash| matches(&index, &[hash], 1)[0]), [1, 0, 1], "adding again is use");
    }

    #[test]
    fn looking_up_is_not_use() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1, 2], 2);
        matches(&index, &[1], 1);
        index.add(0, &[3], 2);
        assert_eq!(matches(&index, &[1], 1), [0]);
    }

    #[test]
    fn a_count_need_not_be_contiguous() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1, 2, 3], 2);
        index.add(1, &[1], 2);
        assert_eq!(matches(&index, &[1, 2, 3], 2), [2, 1]);
    }

    #[test]
    fn endpoints_that_stay_keep_their_blocks_when_the_pool_changes() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1], 9);
        index.add(1, &[1, 2], 9);
        index.add(2, &[1, 2, 3], 9);
        index.remap(&[None, Some(1), Some(0)]);
        assert_eq!(matches(&index, &[1, 2, 3], 2), [3, 2]);
        assert_eq!(index.len(), 5);
    }

    #[test]
    fn the_hash_that_marks_vacancy_is_usable() {
        let mut index = PrefixIndex::default();
        index.add(0, &[0], 9);
        assert_eq!(matches(&index, &[0], 1), [1]);
    }

    #[test]
    fn a_capacity_of_nothing_or_everything_is_bounded() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1, 2], 0);
        assert_eq!(index.len(), 1);
        index.add(1, &(0..MAX_BLOCKS_PER_ENDPOINT as u64 + 10).collect::<Vec<_>>(), usize::MAX);
        assert_eq!(index.len(), 1 + MAX_BLOCKS_PER_ENDPOINT);
    }

    #[test]
    fn memory_stays_within_24_bytes_per_block_however_often_blocks_are_used_again() {
        let mut index = PrefixIndex::default();
        let mut rng = SplitMix64::new(3);
        let blocks: Vec<u64> = (0..20_000).map(|_| rng.next_u64()).collect();
        for endpoint in 0..4 {
            index.add(endpoint, &blocks, 31_250);
        }
        for _ in 0..200 {
            let start = rng.below(blocks.len() - 500);
            index.add(rng.below(4), &blocks[start..start + 500], 31_250);
        }
        assert_eq!(index.len(), 80_000);
        let each = index.bytes() as f64 / index.len() as f64;
        assert!(each <= 24.0, "{each} bytes per block and endpoint");
    }

    /// The same rules, obvious and slow.
    struct Obvious {
        logs: Vec<VecDeque<u64>>,
    }

    impl Obvious {
        fn add(&mut self, endpoint: usize, hashes: &[u64], capacity: usize) {
            let log = &mut self.logs[endpoint];
            for &hash in hashes {
                log.retain(|&known| known != hash);
                log.push_back(hash);
                if log.len() > capacity {
                    log.pop_front();
                }
            }
        }

        fn matches(&self, hashes: &[u64]) -> Vec<u32> {
            let known: BTreeSet<u64> = self.logs.iter().flatten().copied().collect();
            let walked: Vec<u64> = hashes.iter().copied().take_while(|hash| known.contains(hash)).collect();
            let count = |log: &VecDeque<u64>| walked.iter().filter(|hash| log.contains(hash)).count();
            self.logs.iter().map(|log| u32::try_from(count(log)).unwrap()).collect()
        }
    }

    #[test]
    fn the_index_agrees_with_the_obvious_one() {
        for seed in 0..6 {
            let mut rng = SplitMix64::new(seed);
            let mut index = PrefixIndex::default();
            let mut obvious = Obvious { logs: vec![VecDeque::new(); 4] };
            for step in 0..400 {
                let start = rng.below(400) as u64;
                let prompt: Vec<u64> =
                    (start..start + 1 + rng.below(40) as u64).map(|n| n * 0x1_0001).collect();
                assert_eq!(matches(&index, &prompt, 4), obvious.matches(&prompt), "seed {seed}, step {step}");
                let endpoint = rng.below(4);
                index.add(endpoint, &prompt, 60);
                obvious.add(endpoint, &prompt, 60);
            }
            assert_eq!(index.len(), obvious.logs.iter().map(VecDeque::len).sum::<usize>(), "seed {seed}");
        }
    }
}
