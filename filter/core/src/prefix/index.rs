//! The prefix index: block hash → endpoints, with a least-recently-added bound per endpoint.
//!
//! The reference keeps a map from hash to a set of endpoints and an LRU of hashes per endpoint. Here each endpoint has a log
//! of its hashes in order of use, and one table finds where the runs of the logs begin; the blocks of a run are compared in
//! place. A prompt therefore costs a look into the table for each block and nothing more for a block that is known. Memory
//! per (block, endpoint): 8.2 bytes in the log, up to a quarter more for places vacated since the last rewrite, and, for
//! each run, 4.6 to 9.2 bytes in the table.

use core::fmt;

use hashbrown::HashTable;

use super::log::{Arena, Log, Slot, stored};

/// Most blocks remembered for one endpoint, whatever capacity the server reports.
pub const MAX_BLOCKS_PER_ENDPOINT: usize = 1 << 18;

/// This share of an endpoint's capacity, its newest blocks, is fresh; see [`PrefixIndex::fresh`].
const FRESH_SHARE: usize = 16;

/// What the endpoints of one pool have been sent. Endpoints are given by their index in the pool.
#[derive(Default)]
pub struct PrefixIndex {
    /// Where the runs begin, by the hash of their first block.
    heads: HashTable<Slot>,
    arena: Arena,
    logs: Vec<EndpointLog>,
}

#[derive(Default)]
struct EndpointLog {
    /// Fixed when the endpoint is first added, as in the reference. 0: not added yet.
    capacity: usize,
    log: Log,
    /// Places at the log's end that may be [fresh](PrefixIndex::fresh).
    fresh: usize,
}

impl PrefixIndex {
    /// Remembers that `endpoint` was sent a prompt with these block hashes.
    ///
    /// `chain` has the blocks of one list of tokens in order, each hash standing for the list up to there. `capacity` bounds
    /// the blocks remembered for the endpoint (at most [`MAX_BLOCKS_PER_ENDPOINT`], at least 1); the value of the endpoint's
    /// first addition stays in force. The blocks added longest ago are forgotten first; looking up does not count as use.
    pub fn add(&mut self, endpoint: usize, chain: &[u64], capacity: usize) {
        let Ok(index) = u16::try_from(endpoint) else { return };
        if self.logs.len() <= endpoint {
            self.logs.resize_with(endpoint + 1, EndpointLog::default);
        }
        if self.logs[endpoint].capacity == 0 {
            self.logs[endpoint].capacity = capacity.clamp(1, MAX_BLOCKS_PER_ENDPOINT);
        }
        self.take_out(endpoint, chain);
        let head = self.logs[endpoint].log.push(&mut self.arena, index, chain);
        self.note(head);
        let EndpointLog { capacity, fresh, .. } = &mut self.logs[endpoint];
        *fresh = (*fresh + chain.len()).min(*capacity / FRESH_SHARE);
        self.evict(endpoint);
        if self.logs[endpoint].log.is_sparse() {
            self.rewrite(index);
        }
    }

    /// How many of a prompt's first blocks `endpoint` was sent so short a time ago that adding them again can be left out.
    ///
    /// They are among the newest sixteenth of what is remembered of it. Left where they are, they are forgotten by at most
    /// that much earlier; and nobody has to be told of them.
    pub fn fresh(&self, endpoint: usize, chain: &[u64]) -> usize {
        let Self { heads, arena, logs } = self;
        let Some(EndpointLog { log, fresh, .. }) = logs.get(endpoint) else { return 0 };
        let mut known = 0;
        while let Some(&hash) = chain.get(known) {
            let hash = stored(hash);
            let is_here = |slot: &Slot| arena.hash(*slot) == hash && arena.endpoint(*slot) == endpoint;
            match heads.find(hash, is_here) {
                Some(&head) if log.behind(arena, head) <= *fresh => {
                    known += arena.matched(head, &chain[known..]);
                }
                _ => break,
            }
        }
        known
    }

    /// Nothing is fresh until it is added again: somebody who is told of additions has missed some.
    pub fn let_nothing_be_fresh(&mut self) {
        self.logs.iter_mut().for_each(|entry| entry.fresh = 0);
    }

    /// Takes the blocks of a prompt out of an endpoint's log.
    fn take_out(&mut self, endpoint: usize, chain: &[u64]) {
        let mut rest = chain;
        while let Some(&hash) = rest.first() {
            let Self { heads, arena, logs } = self;
            let hash = stored(hash);
            let is_here = |slot: &Slot| arena.hash(*slot) == hash && arena.endpoint(*slot) == endpoint;
            if let Ok(entry) = heads.find_entry(hash, is_here) {
                let (head, _) = entry.remove();
                let matched = arena.matched(head, rest);
                let left = logs[endpoint].log.remove(arena, head, matched);
                self.note(left);
                rest = &rest[matched..];
            } else {
                rest = &rest[1..];
            }
        }
    }

    /// Forgets the oldest blocks of an endpoint until it has no more than its capacity.
    fn evict(&mut self, endpoint: usize) {
        while self.logs[endpoint].log.len() > self.logs[endpoint].capacity {
            let Self { heads, arena, logs } = self;
            let EndpointLog { capacity, log, .. } = &mut logs[endpoint];
            let Some(head) = log.oldest(arena) else { return };
            forget(heads, arena, head);
            let left = log.remove(arena, head, log.len() - *capacity);
            self.note(left);
        }
    }

    /// Notes where a run begins.
    fn note(&mut self, head: Option<Slot>) {
        let Self { heads, arena, .. } = self;
        if let Some(head) = head {
            heads.insert_unique(arena.hash(head), head, |head| arena.hash(*head));
        }
    }

    /// Counts, for each endpoint, the blocks of one prompt that it was sent before: `matched[endpoint]` grows by one
    /// for each. Stops at the first block that no endpoint has, so a count need not be contiguous for an endpoint
    /// whose early blocks were forgotten (the reference's rule).
    pub fn count_matches(&self, chain: &[u64], matched: &mut [u32]) {
        // How far there is a block at any endpoint.
        let mut known = 0;
        for position in 0..chain.len() {
            let rest = &chain[position..];
            let hash = stored(rest[0]);
            for &slot in self.heads.iter_hash(hash).filter(|slot| self.arena.hash(**slot) == hash) {
                let blocks = self.arena.matched(slot, rest);
                known = known.max(position + blocks);
                if let Some(count) = matched.get_mut(self.arena.endpoint(slot)) {
                    *count += u32::try_from(blocks).unwrap_or(u32::MAX);
                }
            }
            if known <= position {
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
                while let Some(head) = entry.log.oldest(&mut self.arena) {
                    forget(&mut self.heads, &self.arena, head);
                    entry.log.remove(&mut self.arena, head, usize::MAX);
                }
            }
        }
        self.logs = remapped;
    }

    /// Writes an endpoint's log anew without vacant places.
    fn rewrite(&mut self, endpoint: u16) {
        let Self { heads, arena, logs } = self;
        let EndpointLog { log: old, fresh, .. } = &mut logs[usize::from(endpoint)];
        let mut new = Log::default();
        while let Some(head) = old.oldest(arena) {
            let run: Vec<u64> = arena.run(head).collect();
            old.remove(arena, head, run.len());
            let moved = new.push(arena, endpoint, &run);
            if let Some(place) = heads.find_mut(stored(run[0]), |place| *place == head)
                && let Some(moved) = moved
            {
                *place = moved;
            }
        }
        *old = new;
        // Without vacant places, older blocks are nearer to the end.
        *fresh = 0;
    }

    /// (block, endpoint) pairs remembered.
    pub fn len(&self) -> usize {
        self.logs.iter().map(|entry| entry.log.len()).sum()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap bytes held.
    pub fn bytes(&self) -> usize {
        self.heads.allocation_size() + self.arena.bytes()
    }
}

/// No run begins there any more.
fn forget(heads: &mut HashTable<Slot>, arena: &Arena, head: Slot) {
    if let Ok(entry) = heads.find_entry(arena.hash(head), |place| *place == head) {
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
    use xxhash_rust::xxh64::xxh64;

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

    /// The hashes of a list of tokens, each standing for all up to there.
    fn chain(tokens: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let link = |previous: &mut u64, token: u64| {
            *previous = xxh64(&token.to_le_bytes(), *previous);
            Some(*previous)
        };
        tokens.into_iter().scan(0, link).collect()
    }

    #[test]
    fn a_prompt_is_fresh_until_many_others_were_sent() {
        let mut index = PrefixIndex::default();
        let prompt = chain(0..12);
        assert_eq!(index.fresh(0, &prompt), 0, "unknown");
        index.add(0, &prompt[..5], 160);
        assert_eq!(index.fresh(0, &prompt), 5, "what is new is not");
        index.add(0, &prompt[5..10], 160);
        assert_eq!((index.fresh(0, &prompt), index.fresh(1, &prompt)), (10, 0), "in two parts");
        assert_eq!(matches(&index, &prompt, 1), [10]);
        index.add(0, &[1], 160);
        assert_eq!(index.fresh(0, &prompt), 0, "its beginning is older than the newest sixteenth");
        index.add(0, &[2, 3], 15);
        index.add(1, &[2, 3], 15);
        assert_eq!((index.fresh(0, &[2, 3]), index.fresh(1, &[2, 3])), (2, 0), "a sixteenth of 15 is none");
    }

    #[test]
    fn nothing_is_fresh_for_one_who_missed_it() {
        let mut index = PrefixIndex::default();
        index.add(0, &[1, 2], 160);
        index.let_nothing_be_fresh();
        assert_eq!(index.fresh(0, &[1, 2]), 0);
        index.add(0, &[3], 160);
        assert_eq!((index.fresh(0, &[1, 2]), index.fresh(0, &[3])), (0, 1));
        index.add(0, &[1, 2], 160);
        assert_eq!(index.fresh(0, &[1, 2]), 2);
    }

    #[test]
    fn leaving_out_what_is_fresh_loses_nothing_but_the_oldest_sixteenth() {
        for seed in 0..3 {
            let mut rng = SplitMix64::new(seed);
            let (mut index, capacity) = (PrefixIndex::default(), 480);
            let mut obvious = Obvious { logs: vec![VecDeque::new()] };
            let mut left_out = 0;
            for step in 0..600 {
                let length = 1 + rng.below(40);
                let prompt = chain((0..length).map(|_| u64::from(rng.below(8) == 0)));
                let fresh = index.fresh(0, &prompt);
                index.add(0, &prompt[fresh..], capacity);
                left_out += fresh;
                obvious.add(0, &prompt, capacity);
                let runs = index.heads.iter().flat_map(|&head| index.arena.run(head));
                let known: BTreeSet<u64> = runs.collect();
                let newest = obvious.logs[0].iter().rev().take(capacity - capacity / FRESH_SHARE);
                assert!(newest.copied().all(|hash| known.contains(&hash)), "seed {seed}, step {step}");
            }
            assert!(left_out > 600 && index.len() == capacity, "seed {seed}: {left_out} were left out");
        }
    }

    #[test]
    fn a_prompt_is_matched_across_the_ends_of_pages() {
        let mut index = PrefixIndex::default();
        let long = chain(0..1_000);
        index.add(0, &long[..700], 10_000);
        index.add(0, &chain([7, 8]), 10_000);
        index.add(1, &long, 10_000);
        assert_eq!(matches(&index, &long, 2), [700, 1_000]);
        index.add(0, &long[..300], 10_000);
        assert_eq!(matches(&index, &long, 2), [700, 1_000], "the part that was not sent again stays");
        assert_eq!(index.len(), 1_702);
    }

    #[test]
    fn memory_stays_within_24_bytes_per_block_however_often_blocks_are_used_again() {
        let seed = 3;
        let mut rng = SplitMix64::new(seed);
        // Prompts of one block are the worst there is.
        for blocks in [1, 2, 20, 500] {
            let mut index = PrefixIndex::default();
            let prompts = 20_000 / blocks;
            let prompt = |number: u64| chain([number].into_iter().chain(1..blocks));
            for endpoint in 0..4 {
                (0..prompts).for_each(|number| index.add(endpoint, &prompt(number), 31_250));
            }
            for _ in 0..2_000 {
                let length = 1 + rng.below(prompt(0).len());
                index.add(rng.below(4), &prompt(rng.next_u64() % prompts)[..length], 31_250);
            }
            assert_eq!(index.len(), 80_000);
            let each = index.bytes() as f64 / index.len() as f64;
            assert!(
                each <= 24.0,
                "{each} bytes per block and endpoint, {blocks} blocks a prompt, seed {seed}"
            );
        }
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
                // Prompts of a tree, so that many share their beginnings.
                let length = 1 + rng.below(40);
                let prompt = chain((0..length).map(|_| u64::from(rng.below(8) == 0)));
                assert_eq!(matches(&index, &prompt, 4), obvious.matches(&prompt), "seed {seed}, step {step}");
                let endpoint = rng.below(4);
                index.add(endpoint, &prompt, 60);
                obvious.add(endpoint, &prompt, 60);
            }
            assert_eq!(index.len(), obvious.logs.iter().map(VecDeque::len).sum::<usize>(), "seed {seed}");
        }
    }
}
