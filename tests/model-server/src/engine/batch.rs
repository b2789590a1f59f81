//! Continuous batching as vLLM schedules it: step by step, without a clock.
//!
//! In each step every running request gets one token, or a part of its prompt is read; requests that wait join in the order of
//! their coming as long as places, blocks and the step's budget of tokens allow. Simpler than vLLM: blocks for the whole answer
//! are taken at once, so that nothing is ever put back into the queue.

use super::adapters::Adapters;
use super::kv_cache::{BlockLease, KvCache};
use crate::service_times::ServiceTimes;
use std::collections::VecDeque;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// Tokens in a cache block, vLLM's default.
pub const BLOCK_TOKENS: u32 = 16;
const BLOCK: usize = BLOCK_TOKENS as usize;
/// Bytes of English text for each token, about.
pub const TOKEN_BYTES: usize = 4;

/// The properties of a request that take time.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The adapter it needs; `None` for the model itself.
    adapter: Option<String>,
    prompt_tokens: usize,
    /// Tokens of its answer, at least 1.
    answer_tokens: u64,
    /// One for each full block of the prompt, over everything up to its end.
    blocks: Vec<u64>,
}

/// A server's requests; `T` is the client of one.
#[derive(Debug)]
pub struct Batch<T> {
    times: ServiceTimes,
    cache: KvCache,
    adapters: Adapters,
    waiting: VecDeque<(BatchRequest, T)>,
    running: Vec<Sequence<T>>,
    prefix_cache: PrefixCacheCounts,
}

/// Prompt tokens of everything that has begun, and those among them that the prefix cache held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheCounts {
    /// Tokens looked up.
    pub queried: u64,
    /// Tokens found.
    pub hit: u64,
}

#[derive(Debug)]
struct Sequence<T> {
    request: BatchRequest,
    client: T,
    lease: BlockLease,
    /// Prompt tokens still to be read, and those of them that the step in flight reads.
    unread: usize,
    reading: usize,
    made: u64,
}

impl BatchRequest {
    /// A request for this adapter, or for the model itself.
    pub fn new(adapter: Option<&str>, prompt: &[u8], answer_tokens: u64) -> Self {
        // Adapters change what a prompt's blocks hold.
        let mut parent = adapter.map_or(0, |name| xxh64(name.as_bytes(), 0));
        let blocks = prompt.chunks_exact(BLOCK * TOKEN_BYTES).map(|block| {
            parent = xxh64(block, parent);
            parent
        });
        Self {
            blocks: blocks.collect(),
            adapter: adapter.map(str::to_owned),
            prompt_tokens: prompt.len().div_ceil(TOKEN_BYTES).max(1),
            answer_tokens: answer_tokens.max(1),
        }
    }

    /// Blocks of its own: the prompt's last one, which is not full, and the answer's.
    fn private_blocks(&self) -> usize {
        let answer = usize::try_from(self.answer_tokens).unwrap_or(usize::MAX);
        (self.prompt_tokens % BLOCK).saturating_add(answer).div_ceil(BLOCK)
    }

    /// Prompt tokens to be read when this many of its first blocks are cached. The last token is always read: its result is the
    /// first token of the answer.
    fn unread(&self, cached: usize) -> usize {
        self.prompt_tokens.saturating_sub(cached * BLOCK).max(1)
    }

    /// Tokens of its answer.
    pub fn answer_tokens(&self) -> u64 {
        self.answer_tokens
    }
}

impl<T> Batch<T> {
    /// An idle server.
    pub fn new(times: ServiceTimes) -> Self {
        Self {
            cache: KvCache::new(times.kv_blocks as usize),
            adapters: Adapters::new(times.max_loras as usize),
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefix_cache: PrefixCacheCounts::default(),
            times,
        }
    }

    /// Puts a request into the queue.
    pub fn add(&mut self, request: BatchRequest, client: T) {
        self.waiting.push_back((request, client));
    }

    /// How long this request would keep the server busy if it were read now: its unread tokens and its adapter.
    pub fn time_to_read(&self, request: &BatchRequest) -> Duration {
        let unread = request.unread(self.cache.cached(&request.blocks));
        let must_load = request.adapter.as_ref().is_some_and(|name| !self.adapters.is_loaded(name));
        let load = if must_load { self.times.lora_load } else { Duration::ZERO };
        times(self.times.prefill_per_token, unread) + load
    }

    /// Begins a step and returns how long it takes; `None` when there is nothing to do.
    pub fn begin_step(&mut self) -> Option<Duration> {
        let mut budget = self.times.max_batched_tokens as usize;
        let mut read = |sequence: &mut Sequence<T>| {
            sequence.reading = sequence.unread.min(budget);
            budget -= sequence.reading;
            sequence.reading
        };
        let mut prefilled: usize = self.running.iter_mut().map(&mut read).sum();
        let decoding = self.running.iter().filter(|sequence| sequence.unread == 0).count();
        let mut loads = 0;
        let mut passed_over = VecDeque::new();
        while self.running.len() < self.times.max_running.max(1) {
            let Some((request, client)) = self.waiting.pop_front() else { break };
            if request.adapter.as_ref().is_some_and(|name| !self.adapters.has_room(name)) {
                // Others that need no place, or have one, may pass.
                passed_over.push_back((request, client));
                continue;
            }
            let cached = self.cache.cached(&request.blocks);
            let Some(lease) = self.cache.take(&request.blocks, request.private_blocks()) else {
                self.waiting.push_front((request, client));
                break;
            };
            loads += request.adapter.as_ref().map_or(0, |name| usize::from(self.adapters.begin(name)));
            self.prefix_cache.queried += request.prompt_tokens as u64;
            self.prefix_cache.hit += (cached * BLOCK) as u64;
            let unread = request.unread(cached);
            let mut sequence = Sequence { request, client, lease, unread, reading: 0, made: 0 };
            prefilled += read(&mut sequence);
            self.running.push(sequence);
        }
        passed_over.append(&mut self.waiting);
        self.waiting = passed_over;
        (!self.running.is_empty()).then(|| {
            self.times.step
                + times(self.times.step_per_sequence, decoding)
                + times(self.times.prefill_per_token, prefilled)
                + times(self.times.lora_load, loads)
        })
    }

    /// Ends the step. `report` gets, for every request, the number of tokens that its answer has now, and whether these are all;
    /// a request ends when it has all its tokens, or when `report` returns false because its client has gone.
    pub fn end_step(&mut self, mut report: impl FnMut(&mut T, u64, bool) -> bool) {
        for mut sequence in core::mem::take(&mut self.running) {
            sequence.unread -= sequence.reading;
            sequence.made += u64::from(sequence.unread == 0);
            let is_all = sequence.made == sequence.request.answer_tokens;
            let goes_on = report(&mut sequence.client, sequence.made, is_all) && !is_all;
            if goes_on {
                self.running.push(sequence);
            } else {
                self.cache.give_back(sequence.lease);
                if let Some(name) = &sequence.request.adapter {
                    self.adapters.end(name);
                }
            }
        }
    }

    /// Removes queued requests whose client has gone.
    pub fn retain_waiting(&mut self, is_connected: impl Fn(&T) -> bool) {
        self.waiting.retain(|(_, client)| is_connected(client));
    }

    /// Requests in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Part of the KV cache that requests use, 0 to 1.
    pub fn cache_usage(&self) -> f64 {
        self.cache.in_use() as f64 / f64::from(self.times.kv_blocks.max(1))
    }

    /// Lookups and hits of the prefix cache so far.
    pub fn prefix_cache(&self) -> PrefixCacheCounts {
        self.prefix_cache
    }

    /// Adapters of running requests, and of those that wait.
    pub(super) fn adapters(&self) -> [Vec<String>; 2] {
        let mut waiting: Vec<String> =
            self.waiting.iter().filter_map(|(request, _)| request.adapter.clone()).collect();
        waiting.sort_unstable();
        waiting.dedup();
        [self.adapters.running(), waiting]
    }
}

fn times(each: Duration, count: usize) -> Duration {
    each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}
