//! Continuous batching as vLLM schedules it: step by step, without a clock.
//!
//! In each step every running request gets one token, or a part of its prompt is read; requests that wait
//! join in the order of their coming as long as places, blocks and the step's budget of tokens allow. Simpler
//! than vLLM: a prompt is in the cache as soon as its first part is read, and with [`Allocation::AtOnce`]
//! nothing is ever put back into the queue.

use super::adapters::LoadedAdapters;
use super::kv_cache::{BlockLease, CacheChange, KvCache};
use crate::service_times::{Allocation, ServiceTimes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// Tokens in a cache block, vLLM's default.
pub const BLOCK_TOKENS: u32 = 16;
pub(super) const BLOCK: usize = BLOCK_TOKENS as usize;
/// Bytes of English text for each token, about.
pub const TOKEN_BYTES: usize = 4;

/// The properties of a request that take time.
#[derive(Clone, Debug)]
pub struct BatchRequest {
    /// The adapter it needs; `None` for the model itself.
    pub(super) adapter: Option<Arc<str>>,
    prompt_tokens: usize,
    /// Tokens of its response, at least 1.
    answer_tokens: u64,
    /// One for each full block of the prompt, over everything up to its end; those of its response may
    /// follow.
    blocks: Arc<[u64]>,
}

/// A server's requests; `T` is the client of one.
#[derive(Debug)]
pub struct Batch<T> {
    pub(super) times: ServiceTimes,
    pub(super) cache: KvCache,
    pub(super) adapters: LoadedAdapters,
    pub(super) waiting: VecDeque<WaitingRequest<T>>,
    pub(super) running: Vec<RunningRequest<T>>,
    prefix_cache: PrefixCacheCounts,
    preemptions: u64,
    adapter_loads: u64,
}

/// Prompt tokens of everything that has begun, and those among them that the prefix cache held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheCounts {
    /// Tokens looked up.
    pub queried: u64,
    /// Tokens found.
    pub hit: u64,
}

/// A running request after a step.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Tokens of its response so far.
    pub made: u64,
    /// Whether these are all.
    pub is_all: bool,
    /// Tokens of its prompt that were cached when it began.
    pub cached: usize,
}

/// A request in the queue.
#[derive(Debug)]
pub(super) struct WaitingRequest<T> {
    pub(super) request: BatchRequest,
    client: T,
    /// Tokens that it had made when it was put back.
    made: u64,
}

#[derive(Debug)]
pub(super) struct RunningRequest<T> {
    pub(super) request: BatchRequest,
    client: T,
    pub(super) lease: BlockLease,
    /// Tokens that were cached when it began.
    cached: usize,
    /// Tokens still to be read, and those of them that the step in flight reads.
    pub(super) unread: usize,
    pub(super) reading: usize,
    pub(super) made: u64,
}

impl<T> RunningRequest<T> {
    /// Tokens of its prompt and of its response so far.
    pub(super) fn tokens(&self) -> usize {
        self.request.prompt_tokens + usize::try_from(self.made).unwrap_or(usize::MAX)
    }
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
        let prompt_tokens = prompt.len().div_ceil(TOKEN_BYTES);
        Self::of_blocks(adapter.map(Into::into), prompt_tokens, blocks.collect(), answer_tokens)
    }

    /// A request whose blocks have these hashes, each of everything up to the end of the block, adapter
    /// included: first the prompt, which may be followed by those that the response fills.
    pub fn of_blocks(
        adapter: Option<Arc<str>>,
        prompt_tokens: usize,
        blocks: Arc<[u64]>,
        answer_tokens: u64,
    ) -> Self {
        Self { adapter, prompt_tokens: prompt_tokens.max(1), answer_tokens: answer_tokens.max(1), blocks }
    }

    /// Hashes of the full blocks in its first tokens.
    fn full_blocks(&self, tokens: usize) -> &[u64] {
        &self.blocks[..self.blocks.len().min(tokens / BLOCK)]
    }

    /// Blocks that it does not share: the prompt's last block, which is not full, and the blocks of its
    /// response.
    fn private_blocks(&self) -> usize {
        let answer = usize::try_from(self.answer_tokens).unwrap_or(usize::MAX);
        (self.prompt_tokens % BLOCK).saturating_add(answer).div_ceil(BLOCK)
    }

    /// Hashes of all its full blocks: of its prompt, and of its response if they were given.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Hashes of the full blocks of its prompt.
    pub fn prompt_blocks(&self) -> &[u64] {
        self.full_blocks(self.prompt_tokens)
    }

    /// Tokens of its prompt, at least 1.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// Tokens of its response.
    pub fn answer_tokens(&self) -> u64 {
        self.answer_tokens
    }
}

/// Tokens, of this many, that are read when this many of the first blocks are cached. The last token is
/// always read: its result is the next token of the response.
fn unread(tokens: usize, cached: usize) -> usize {
    tokens.saturating_sub(cached * BLOCK).max(1)
}

impl<T> Batch<T> {
    /// An idle server.
    pub fn new(times: ServiceTimes) -> Self {
        Self {
            cache: KvCache::new(times.kv_blocks as usize),
            adapters: LoadedAdapters::new(times.max_loras as usize),
            waiting: VecDeque::new(),
            running: Vec::new(),
            prefix_cache: PrefixCacheCounts::default(),
            preemptions: 0,
            adapter_loads: 0,
            times,
        }
    }

    /// Records the changes of its cache from now on.
    pub fn record_cache_changes(&mut self) {
        self.cache.record_changes();
    }

    /// The changes of its cache since the last call, if they are recorded.
    pub fn take_cache_changes(&mut self) -> Vec<CacheChange> {
        self.cache.take_changes()
    }

    /// Empties its cache but for the blocks that requests use, as vLLM does on `POST /reset_prefix_cache`.
    pub fn reset_cache(&mut self) {
        self.cache.reset();
    }

    /// Puts a request into the queue.
    pub fn add(&mut self, request: BatchRequest, client: T) {
        self.waiting.push_back(WaitingRequest { request, client, made: 0 });
    }

    /// Tokens of the prompt that are cached.
    pub fn cached_tokens(&self, request: &BatchRequest) -> usize {
        self.cache.cached(request.prompt_blocks()) * BLOCK
    }

    /// How long this request would keep the server busy if it were read now: its unread tokens and its
    /// adapter.
    pub fn time_to_read(&self, request: &BatchRequest) -> Duration {
        let unread = unread(request.prompt_tokens, self.cached_tokens(request) / BLOCK);
        self.times.reading(request.prompt_tokens - unread, unread) + self.time_to_load(request)
    }

    /// How long loading its adapter takes, if it is not loaded.
    pub(super) fn time_to_load(&self, request: &BatchRequest) -> Duration {
        let must_load = request.adapter.as_ref().is_some_and(|name| !self.adapters.is_loaded(name));
        if must_load { self.times.lora_load } else { Duration::ZERO }
    }

    /// Begins a step and returns how long it takes; `None` when there is nothing to do.
    pub fn begin_step(&mut self) -> Option<Duration> {
        let mut budget = self.times.max_batched_tokens as usize;
        if self.times.allocation == Allocation::AsNeeded {
            budget = budget.saturating_sub(self.take_blocks_for_tokens());
        }
        let times = self.times;
        let decoding = self.running.iter().filter(|sequence| sequence.unread == 0);
        let step = times.decoding(decoding.map(RunningRequest::tokens));
        let mut reading = Duration::ZERO;
        let mut read = |sequence: &mut RunningRequest<T>| {
            let context = sequence.tokens() - sequence.unread;
            if times.reads_apart {
                sequence.reading = sequence.unread.min(times.read_within(context, step));
                return;
            }
            sequence.reading = sequence.unread.min(budget);
            budget -= sequence.reading;
            if sequence.reading > 0 {
                reading += times.reading(context, sequence.reading);
            }
        };
        self.running.iter_mut().filter(|sequence| sequence.unread > 0).for_each(&mut read);
        let mut loads = 0;
        let mut passed_over = VecDeque::new();
        while self.running.len() < self.times.max_running.max(1) {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let request = &waiting.request;
            if request.adapter.as_ref().is_some_and(|name| !self.adapters.has_room(name)) {
                // Others that need no place, or have one, may pass.
                passed_over.push_back(waiting);
                continue;
            }
            let tokens = request.prompt_tokens + usize::try_from(waiting.made).unwrap_or(usize::MAX);
            let full = request.full_blocks(tokens);
            let private = match self.times.allocation {
                Allocation::AtOnce => request.private_blocks(),
                Allocation::AsNeeded => tokens.div_ceil(BLOCK) - full.len(),
            };
            let cached = self.cache.cached(full);
            let Some(lease) = self.cache.take(full, private) else {
                self.waiting.push_front(waiting);
                break;
            };
            let WaitingRequest { request, client, made } = waiting;
            loads += request.adapter.as_ref().map_or(0, |name| usize::from(self.adapters.begin(name)));
            self.prefix_cache.queried += tokens as u64;
            self.prefix_cache.hit += (cached * BLOCK) as u64;
            let unread = unread(tokens, cached);
            let cached = (tokens - unread).min(request.prompt_tokens);
            let mut sequence = RunningRequest { request, client, lease, cached, unread, reading: 0, made };
            read(&mut sequence);
            self.running.push(sequence);
        }
        self.adapter_loads += loads as u64;
        if !passed_over.is_empty() {
            passed_over.append(&mut self.waiting);
            self.waiting = passed_over;
        }
        (!self.running.is_empty()).then(|| step + reading + multiplied(self.times.lora_load, loads))
    }

    /// Gives a block to each running request that needs one for its next token. Where none is left, the
    /// request that began last is put back. Returns the number of requests that get a token.
    fn take_blocks_for_tokens(&mut self) -> usize {
        let (mut decoding, mut at) = (0, 0);
        while let Some(sequence) = self.running.get_mut(at) {
            let needs_block =
                sequence.unread == 0 && sequence.lease.blocks() < sequence.tokens().div_ceil(BLOCK);
            if needs_block && !self.cache.grow(&mut sequence.lease) && self.running.len() > 1 {
                self.preempt();
                continue;
            }
            // A request that is alone and does not fit continues without a block, so that it ends.
            decoding += usize::from(self.running[at].unread == 0);
            at += 1;
        }
        decoding
    }

    /// Puts the request that began last back to the beginning of the queue.
    fn preempt(&mut self) {
        let Some(sequence) = self.running.pop() else { return };
        self.preemptions += 1;
        let WaitingRequest { request, client, made } = self.release(sequence);
        self.waiting.push_front(WaitingRequest { request, client, made });
    }

    /// Gives back what a request uses.
    fn release(&mut self, sequence: RunningRequest<T>) -> WaitingRequest<T> {
        let read = sequence.tokens() - sequence.unread;
        // The last token that was made has not been read.
        let read = if sequence.unread == 0 { read.saturating_sub(1) } else { read };
        let RunningRequest { request, client, lease, made, .. } = sequence;
        let named = match self.times.allocation {
            Allocation::AtOnce => &[],
            Allocation::AsNeeded => request.full_blocks(read),
        };
        self.cache.give_back(lease, named);
        if let Some(name) = &request.adapter {
            self.adapters.end(name);
        }
        WaitingRequest { request, client, made }
    }

    /// Ends the step. `report` gets every request; one ends when it has all its tokens, or when `report`
    /// returns false because its client has gone.
    pub fn end_step(&mut self, mut report: impl FnMut(&mut T, Progress) -> bool) {
        let mut ended = Vec::new();
        self.running = {
            let mut running = core::mem::take(&mut self.running);
            let is_over = |sequence: &mut RunningRequest<T>| {
                sequence.unread -= sequence.reading;
                sequence.reading = 0;
                sequence.made += u64::from(sequence.unread == 0);
                let is_all = sequence.made == sequence.request.answer_tokens;
                let progress = Progress { made: sequence.made, is_all, cached: sequence.cached };
                !report(&mut sequence.client, progress) || is_all
            };
            ended.extend(running.extract_if(.., is_over));
            running
        };
        for sequence in ended {
            self.release(sequence);
        }
    }

    /// Removes queued requests whose client has gone.
    pub fn retain_waiting(&mut self, is_connected: impl Fn(&T) -> bool) {
        self.waiting.retain(|waiting| is_connected(&waiting.client));
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

    /// How often a request was put back into the queue.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Adapters loaded so far.
    pub fn adapter_loads(&self) -> u64 {
        self.adapter_loads
    }

    /// Adapters of running requests, and of those that wait.
    pub fn adapters(&self) -> [Vec<String>; 2] {
        let adapters = self.waiting.iter().filter_map(|waiting| waiting.request.adapter.as_ref());
        let mut waiting: Vec<String> = adapters.map(ToString::to_string).collect();
        waiting.sort_unstable();
        waiting.dedup();
        [self.adapters.running(), waiting]
    }
}

impl ServiceTimes {
    /// The time of a step in which requests with these contexts get a token, and nothing else happens.
    pub(super) fn decoding(&self, contexts: impl Iterator<Item = usize>) -> Duration {
        let (requests, context) = contexts.fold((0, 0), |(requests, all), one| (requests + 1, all + one));
        self.step
            + multiplied(self.step_per_sequence, requests)
            + multiplied(self.step_per_context_token, context)
    }

    /// The number of tokens behind a context that are read in this time, at least 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a prompt has fewer tokens than an integer holds"
    )]
    fn read_within(&self, context: usize, time: Duration) -> usize {
        (time.as_secs_f64() / self.reading(context, 1).as_secs_f64()).max(1.0) as usize
    }

    /// The time to read this many tokens behind a context.
    pub(super) fn reading(&self, context: usize, tokens: usize) -> Duration {
        let plain = multiplied(self.prefill_per_token, tokens);
        let Some(doubling) = self.doubling_context.filter(|&doubling| doubling > 0) else { return plain };
        let mean_context = context as f64 + tokens as f64 / 2.0;
        plain.mul_f64(1.0 + mean_context / f64::from(doubling))
    }
}

pub(super) fn multiplied(each: Duration, count: usize) -> Duration {
    each.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}
