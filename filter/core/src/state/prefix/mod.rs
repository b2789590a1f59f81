//! The prompt prefixes that endpoints were sent, and so probably have in their caches: block hash →
//! endpoints, with a least-recently-added bound per endpoint.
//!
//! The EPP keeps a map from hash to a set of endpoints and an LRU of hashes per endpoint. Here each endpoint
//! has a log of its hashes in order of use, and one table finds where the runs of the logs begin; the blocks
//! of a run are compared in place. Matching a prompt therefore costs one table lookup for each block that any
//! endpoint has; adding a prompt costs one lookup for each of its runs and one for the first new block.
//! Memory per (block, endpoint): 8.2 bytes in the log, up to a quarter more for places vacated since the last
//! rewrite, and, for each run, 4.6 to 9.2 bytes in the table.
#![expect(
    clippy::indexing_slicing,
    reason = "an endpoint's log is made before it is used, a chain is cut where it matched, and only `log` makes slots"
)]

mod capacity;
pub mod key;
#[expect(clippy::expect_used, reason = "an arena's pages stay")]
mod log;
mod matches;
mod prediction;
mod recent;
mod sent;
mod usage;

pub use capacity::Capacity;
pub use matches::PrefixMatch;
pub use prediction::{CachedTokens, ERROR_BOUNDS, PredictionErrors, PredictionSource, UsagePrediction};
pub use sent::SentPrompt;
pub use usage::TokenScale;
pub(crate) use usage::model_key;

use core::fmt;
use core::iter::once;
use core::time::Duration;

use hashbrown::HashTable;

use self::log::{Arena, Log, Slot, stored};
use self::recent::Additions;
use self::sent::{RETRACTION, Retraction};
use self::usage::{ModelTokens, SAMPLE, Share, UsageSample};
use super::{PluginState, Words};

/// The highest capacity of an endpoint, in blocks, whatever its server reports.
pub const MAX_BLOCKS_PER_ENDPOINT: usize = 1 << 18;

/// Slack, as a fraction of an endpoint's capacity: the newest 1/16 of blocks are not moved when added again
/// ([`PrefixIndex::fresh`]), and eviction runs in batches at 1/16 over capacity.
const SLACK_SHARE: usize = 16;

/// The prompts that the endpoints of one pool were sent. Endpoints are given by their index in the pool.
#[derive(Default)]
pub struct PrefixIndex {
    /// Where the runs begin, by the hash of their first block.
    heads: HashTable<Slot>,
    arena: Arena,
    logs: Vec<EndpointLog>,
    models: ModelTokens,
    /// The time for which additions count as [recent](Self::count_sent_since).
    recent: Duration,
}

#[derive(Default)]
struct EndpointLog {
    /// Set by the endpoint's first addition, as in the EPP, and by later ones whose capacity is
    /// [current](Capacity::is_current). 0: not added yet.
    capacity: usize,
    /// The part of it that counts since the last addition.
    limit: usize,
    share: Share,
    log: Log,
    /// Places at the log's end that may be [fresh](PrefixIndex::fresh).
    fresh: usize,
    /// The places that were written within [`PrefixIndex::recent`].
    additions: Additions,
}

impl PrefixIndex {
    /// An index that knows what endpoints were sent in the last `recent`.
    pub fn with_recent(recent: Duration) -> Self {
        Self { recent, ..Self::default() }
    }

    /// The words of a change: an endpoint of this capacity was sent a prompt with these block hashes.
    pub fn words(capacity: Capacity, chain: &[u64]) -> Words {
        once(capacity.word()).chain(chain.iter().copied()).collect()
    }

    /// The tokens of a model, as its responses have shown them.
    pub fn token_scale(&self, model: &str) -> TokenScale {
        self.models.scale(model)
    }

    /// Remembers that `endpoint` was sent a prompt with these block hashes.
    ///
    /// `chain` has the blocks of one list of tokens in order, each hash standing for the list up to there.
    /// `capacity` bounds the blocks remembered for the endpoint (at most [`MAX_BLOCKS_PER_ENDPOINT`], at
    /// least 1), but for up to a sixteenth more; the value of the endpoint's first addition stays in force.
    /// The blocks added longest ago are forgotten first; looking up does not count as use.
    pub fn add(&mut self, endpoint: usize, chain: &[u64], capacity: usize) {
        self.add_to(endpoint, Duration::ZERO, chain, Capacity::first(capacity));
    }

    /// As [`Self::add`], at this time.
    fn add_to(&mut self, endpoint: usize, at: Duration, chain: &[u64], capacity: Capacity) {
        // Pages have 16 bits for their endpoint; no pool is so large.
        let Ok(index) = u16::try_from(endpoint) else { return };
        self.make_log(endpoint);
        let entry = &mut self.logs[endpoint];
        if entry.capacity == 0 || capacity.is_current {
            entry.capacity = capacity.blocks.clamp(1, MAX_BLOCKS_PER_ENDPOINT);
        }
        entry.limit = if capacity.is_learnt { entry.share.of(entry.capacity) } else { entry.capacity };
        // Each block lies in the log once, at its newest place.
        self.take_out(endpoint, chain);
        let head = self.logs[endpoint].log.push(&mut self.arena, index, chain);
        self.note(head);
        // A block further from the log's end than the slack is not fresh: it moves when it is added again.
        let EndpointLog { limit, fresh, additions, .. } = &mut self.logs[endpoint];
        *fresh = (*fresh + chain.len()).min(*limit / SLACK_SHARE);
        additions.note(at, chain.len(), self.recent);
        self.evict(endpoint);
        if self.logs[endpoint].log.is_sparse() {
            self.rewrite(index);
        }
    }

    fn make_log(&mut self, endpoint: usize) {
        if self.logs.len() <= endpoint {
            self.logs.resize_with(endpoint + 1, EndpointLog::default);
        }
    }

    /// Learns from the usage in a response of the endpoint.
    fn learn(&mut self, endpoint: usize, at: Duration, sample: &UsageSample) {
        self.models.learn(sample, at);
        if let Some(cached) = sample.cached
            && u16::try_from(endpoint).is_ok()
        {
            self.make_log(endpoint);
            self.logs[endpoint].share.learn(cached);
        }
    }

    /// How many of a prompt's first blocks `endpoint` was sent so short a time ago that adding them again can
    /// be left out.
    ///
    /// They are among the newest 1/16 of the blocks remembered for it. Left where they are, they are
    /// forgotten earlier by at most that much; and replicas need no entry about them.
    pub fn fresh(&self, endpoint: usize, chain: &[u64]) -> usize {
        self.logs.get(endpoint).map_or(0, |entry| self.newest(endpoint, chain, entry.fresh))
    }

    /// The same, of the blocks that `endpoint` was sent since `since` only.
    pub fn fresh_since(&self, endpoint: usize, chain: &[u64], since: Duration) -> usize {
        let Some(EndpointLog { fresh, additions, .. }) = self.logs.get(endpoint) else { return 0 };
        self.newest(endpoint, chain, additions.since(since).min(*fresh))
    }

    /// How many of a prompt's first blocks `endpoint` was sent.
    fn known(&self, endpoint: usize, chain: &[u64]) -> usize {
        self.newest(endpoint, chain, usize::MAX)
    }

    /// The number of a prompt's first blocks that are in the last `places` of an endpoint's log.
    fn newest(&self, endpoint: usize, chain: &[u64], places: usize) -> usize {
        let Self { heads, arena, logs, .. } = self;
        let Some(EndpointLog { log, .. }) = logs.get(endpoint) else { return 0 };
        let mut known = 0;
        while let Some(&hash) = chain.get(known) {
            match heads.find(stored(hash), begins(arena, endpoint, hash)) {
                // The other blocks of the run are nearer to the log's end than its head.
                Some(&head) if log.behind(arena, head) <= places => {
                    known += arena.matched(head, &chain[known..]);
                }
                _ => break,
            }
        }
        known
    }

    /// Takes the blocks of a prompt out of an endpoint's log, up to the first that is not there.
    ///
    /// A block is added with all that come before it in its prompt, so those behind a missing one are missing
    /// too, unless the missing one was just forgotten, or left out as [fresh](Self::fresh) for a replica that
    /// had missed it. Then those behind are stored twice until the older copy is forgotten, which in the
    /// first case is soon.
    fn take_out(&mut self, endpoint: usize, chain: &[u64]) {
        let mut rest = chain;
        while let Some(&hash) = rest.first() {
            let Self { heads, arena, logs, .. } = self;
            let Ok(entry) = heads.find_entry(stored(hash), begins(arena, endpoint, hash)) else { return };
            // The table reads hashes from the log, so an entry is removed before its place becomes vacant.
            let (head, _) = entry.remove();
            let matched = arena.matched(head, rest);
            let left = logs[endpoint].log.remove(arena, head, matched);
            self.note(left);
            rest = &rest[matched..];
        }
    }

    /// Takes back the new blocks of an addition. They are in the run of that addition, or in one that begins
    /// with them if the blocks before were added again. Where another prompt has cut them elsewhere, they
    /// stay until they are evicted.
    fn retract(&mut self, endpoint: usize, Retraction { first, known, new }: Retraction) {
        let Some(known) = usize::try_from(known).ok().filter(|_| endpoint < self.logs.len()) else { return };
        for (head, kept) in [(new, 0), (first, known)] {
            let Self { heads, arena, logs, .. } = self;
            let Ok(entry) = heads.find_entry(stored(head), begins(arena, endpoint, head)) else { continue };
            let run: Vec<u64> = arena.run(*entry.get()).collect();
            if run.get(kept) != Some(&stored(new)) {
                continue;
            }
            let (head, _) = entry.remove();
            let log = &mut logs[endpoint].log;
            log.remove(arena, head, run.len());
            let left = u16::try_from(endpoint).ok().and_then(|index| log.push(arena, index, &run[..kept]));
            self.note(left);
            return;
        }
    }

    /// Forgets the oldest blocks of an endpoint, down to its capacity, when they have become too many.
    ///
    /// Evicting many at once makes additions a third cheaper than evicting some with each: the oldest blocks
    /// are in cold memory, and a run that is cut needs a new entry in the table.
    fn evict(&mut self, endpoint: usize) {
        let EndpointLog { limit, log, .. } = &self.logs[endpoint];
        if log.len() <= limit + limit / SLACK_SHARE {
            return;
        }
        // The oldest run may have fewer blocks than are to be evicted.
        while self.logs[endpoint].log.len() > self.logs[endpoint].limit {
            let Self { heads, arena, logs, .. } = self;
            let EndpointLog { limit, log, .. } = &mut logs[endpoint];
            let Some(head) = log.oldest(arena) else { return };
            forget(heads, arena, head);
            let left = log.remove(arena, head, log.len() - *limit);
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

    /// Counts, for each endpoint, the blocks of one prompt that it was sent before: `matched[endpoint]` grows
    /// by one for each. Stops at the first block that no endpoint has, so a count need not be contiguous for
    /// an endpoint whose early blocks were forgotten (the EPP's rule).
    pub fn count_matches(&self, chain: &[u64], matched: &mut [u32]) {
        self.add_matches(chain, matched, &mut Vec::new());
    }

    /// The same with memory for the count.
    pub fn add_matches(&self, chain: &[u64], matched: &mut [u32], counted: &mut Vec<usize>) {
        // How far each endpoint has matched; with this, a block stored twice counts once.
        counted.clear();
        counted.resize(matched.len(), 0);
        self.each_match(chain, |position, end, slot| {
            let endpoint = self.arena.endpoint(slot);
            if let (Some(count), Some(counted)) = (matched.get_mut(endpoint), counted.get_mut(endpoint)) {
                let blocks = end.saturating_sub(position.max(*counted));
                *count += u32::try_from(blocks).unwrap_or(u32::MAX);
                *counted = end.max(*counted);
            }
        });
    }

    /// Counts, for each endpoint, the blocks of one prompt that it was sent since `since`, with those before
    /// them in the prompt. An addition counts up to 1/16 of the [time](Self::with_recent) for less than that.
    pub fn count_sent_since(&self, chain: &[u64], since: Duration, sent: &mut [u32]) {
        let places: Vec<usize> = self.logs.iter().map(|entry| entry.additions.since(since)).collect();
        let mut ends = vec![0; sent.len()];
        self.each_match(chain, |_, end, slot| {
            let endpoint = self.arena.endpoint(slot);
            // The blocks of a run were added together.
            let is_recent = self.logs[endpoint].log.behind(&self.arena, slot) <= places[endpoint];
            if let Some(longest) = ends.get_mut(endpoint).filter(|_| is_recent) {
                *longest = end.max(*longest);
            }
        });
        for (sent, end) in sent.iter_mut().zip(ends) {
            *sent += u32::try_from(end).unwrap_or(u32::MAX);
        }
    }

    /// Calls `matched` with every run that begins with a block of one prompt: the block's position in it, the
    /// end of their common blocks, and the run's place. Stops at the first block that no endpoint has.
    fn each_match(&self, chain: &[u64], mut matched: impl FnMut(usize, usize, Slot)) {
        // How far any endpoint has matched.
        let mut known = 0;
        for position in 0..chain.len() {
            let rest = &chain[position..];
            // The table has an entry for each endpoint whose run begins with this block. `iter_hash` also
            // returns entries of other hashes, because it compares only some bits.
            let hash = stored(rest[0]);
            for &slot in self.heads.iter_hash(hash).filter(|slot| self.arena.hash(**slot) == hash) {
                let end = position + self.arena.matched(slot, rest);
                known = known.max(end);
                matched(position, end, slot);
            }
            // No run has this block: none begins with it, and none that began before reaches it.
            if known <= position {
                break;
            }
        }
    }

    /// Rewrites an endpoint's log without vacant places.
    fn rewrite(&mut self, endpoint: u16) {
        let Self { heads, arena, logs, .. } = self;
        let EndpointLog { log: old, fresh, additions, .. } = &mut logs[usize::from(endpoint)];
        let mut new = Log::default();
        let mut run = Vec::new();
        let mut compacted = additions.compacting();
        while let Some(head) = old.oldest(arena) {
            run.clear();
            run.extend(arena.run(head));
            compacted.keep(old.behind(arena, head), run.len());
            old.remove(arena, head, run.len());
            let moved = new.push(arena, endpoint, &run);
            // The entry stays under the hash and gets the new place. It is found by its slot, because the old
            // place is vacant.
            if let Some(place) = heads.find_mut(stored(run[0]), |place| *place == head)
                && let Some(moved) = moved
            {
                *place = moved;
            }
        }
        *old = new;
        *additions = compacted.finish();
        // Without vacant places, older blocks are nearer to the log's end and would count as fresh.
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

impl PluginState for PrefixIndex {
    fn can_read(&self, words: &[u64]) -> bool {
        match words {
            [] => false,
            [SAMPLE, sample @ ..] => UsageSample::read(sample).is_some(),
            [RETRACTION, range @ ..] => Retraction::read(range).is_some(),
            _ => true,
        }
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        match words {
            [] => {}
            [SAMPLE, sample @ ..] => {
                if let Some(sample) = UsageSample::read(sample) {
                    self.learn(endpoint, at, &sample);
                }
            }
            [RETRACTION, range @ ..] => {
                if let Some(range) = Retraction::read(range) {
                    self.retract(endpoint, range);
                }
            }
            [capacity, chain @ ..] => self.add_to(endpoint, at, chain, Capacity::read(*capacity)),
        }
    }

    /// The blocks of a prompt are a set: adding them late or twice only makes them more recent. A sample that
    /// arrives twice is learnt from twice, which later ones outweigh.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        self.apply(endpoint, at, words);
    }

    /// Makes no block fresh until it is added again.
    fn resend(&mut self) {
        self.logs.iter_mut().for_each(|entry| entry.fresh = 0);
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
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
                // Run by run, because the table is searched by the hashes of their heads.
                while let Some(head) = entry.log.oldest(&mut self.arena) {
                    forget(&mut self.heads, &self.arena, head);
                    entry.log.remove(&mut self.arena, head, usize::MAX);
                }
            }
        }
        self.logs = remapped;
    }
}

/// Whether a place is where a run of `endpoint` begins with this hash.
fn begins(arena: &Arena, endpoint: usize, hash: u64) -> impl Fn(&Slot) -> bool {
    move |&slot| arena.hash(slot) == stored(hash) && arena.endpoint(slot) == endpoint
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
mod tests;
