//! How long a model server takes, for the demo: a queue, a batch of limited size, prefill that a prefix cache shortens, and a
//! steady time per token.
//!
//! It is a model, not a measurement: its only claim is that the three signals the picker reads move as a real server's do.

use super::metrics::{CacheConfig, Metrics};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use xxhash_rust::xxh64::xxh64;

/// Prompt bytes in a cache block: 16 tokens of 4 bytes, the size of vLLM's default block in English text.
const BLOCK_BYTES: usize = 64;
/// Tokens in a cache block.
const BLOCK_TOKENS: u32 = 16;

/// The service times of one server.
#[derive(Clone, Copy, Debug)]
pub struct ServiceTimes {
    /// Requests worked on at the same time, at least 1; the others wait.
    pub max_running: usize,
    /// Time for each prompt byte that the prefix cache does not hold.
    pub prefill_per_byte: Duration,
    /// Time for each token of the answer.
    pub decode_per_token: Duration,
    /// Blocks of 64 prompt bytes in the KV cache.
    pub kv_blocks: u32,
}

impl Default for ServiceTimes {
    /// Slow enough to watch: a 4 kB prompt takes 80 ms, or next to nothing when cached; a token takes 15 ms.
    fn default() -> Self {
        Self {
            max_running: 4,
            prefill_per_byte: Duration::from_micros(20),
            decode_per_token: Duration::from_millis(15),
            kv_blocks: 2048,
        }
    }
}

/// One server's state.
#[derive(Debug)]
pub(super) struct Engine {
    times: ServiceTimes,
    slots: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: u64,
    running: u64,
    blocks_in_use: u64,
    /// Cached blocks, each with the time it was last used, in a count that only grows.
    cached: HashMap<u64, u64>,
    clock: u64,
}

/// A request in the batch; dropping it, also when the client has gone, makes room for the next.
pub(super) struct Running<'a> {
    engine: &'a Engine,
    blocks: u64,
    _slot: SemaphorePermit<'a>,
}

/// A request in the queue.
struct Waiting<'a>(&'a Engine);

impl Engine {
    pub(super) fn new(times: ServiceTimes) -> Self {
        Self { times, slots: Semaphore::new(times.max_running.max(1)), state: Mutex::default() }
    }

    /// Waits for a place in the batch, then for the prefill of what is not cached.
    pub(super) async fn begin(&self, prompt: &[u8], max_tokens: u64) -> Running<'_> {
        let slot = {
            let _waiting = Waiting::new(self);
            self.slots.acquire().await.expect("the semaphore is never closed")
        };
        let blocks = prompt.len().div_ceil(BLOCK_BYTES) as u64 + max_tokens.div_ceil(u64::from(BLOCK_TOKENS));
        let uncached = {
            let mut state = self.state();
            state.running += 1;
            state.blocks_in_use += blocks;
            state.prefill(prompt, self.times.kv_blocks as usize)
        };
        let running = Running { engine: self, blocks, _slot: slot };
        tokio::time::sleep(
            self.times.prefill_per_byte.saturating_mul(u32::try_from(uncached).unwrap_or(u32::MAX)),
        )
        .await;
        running
    }

    pub(super) async fn decode_token(&self) {
        tokio::time::sleep(self.times.decode_per_token).await;
    }

    pub(super) fn metrics(&self) -> Metrics {
        let state = self.state();
        let blocks = self.times.kv_blocks;
        Metrics {
            waiting: state.waiting,
            running: state.running,
            kv_cache_usage: (state.blocks_in_use as f64 / f64::from(blocks)).min(1.0),
            lora: None,
            cache: Some(CacheConfig { block_size: BLOCK_TOKENS, num_gpu_blocks: blocks }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    /// Prompt bytes behind the longest cached prefix; the prompt is cached afterwards, the oldest blocks make room.
    fn prefill(&mut self, prompt: &[u8], capacity: usize) -> usize {
        let mut parent = 0;
        let mut hits = 0;
        let mut prefix_cached = true;
        for block in prompt.chunks_exact(BLOCK_BYTES) {
            parent = xxh64(block, parent);
            self.clock += 1;
            let was_cached = self.cached.insert(parent, self.clock).is_some();
            prefix_cached &= was_cached;
            hits += usize::from(prefix_cached);
        }
        while self.cached.len() > capacity {
            let oldest = self.cached.iter().min_by_key(|(_, used)| **used).map(|(hash, _)| *hash);
            self.cached.remove(&oldest.expect("a cache above its capacity has a block"));
        }
        prompt.len() - hits * BLOCK_BYTES
    }
}

impl<'a> Waiting<'a> {
    fn new(engine: &'a Engine) -> Self {
        engine.state().waiting += 1;
        Self(engine)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.state();
        state.running -= 1;
        state.blocks_in_use -= self.blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_prompt_twice_leaves_only_its_last_partial_block_to_prefill() {
        let mut state = State::default();
        let prompt = [7; 3 * BLOCK_BYTES + 5];
        assert_eq!(state.prefill(&prompt, 100), prompt.len());
        assert_eq!(state.prefill(&prompt, 100), 5);
    }

    #[test]
    fn a_block_is_cached_only_behind_the_same_beginning() {
        let mut state = State::default();
        state.prefill(&[vec![1; BLOCK_BYTES], vec![2; BLOCK_BYTES]].concat(), 100);
        assert_eq!(
            state.prefill(&[vec![3; BLOCK_BYTES], vec![2; BLOCK_BYTES]].concat(), 100),
            2 * BLOCK_BYTES
        );
    }

    #[test]
    fn the_oldest_blocks_make_room() {
        let mut state = State::default();
        state.prefill(&[1; BLOCK_BYTES], 1);
        state.prefill(&[2; BLOCK_BYTES], 1);
        assert_eq!(state.cached.len(), 1);
        assert_eq!(state.prefill(&[1; BLOCK_BYTES], 1), BLOCK_BYTES);
    }

    #[tokio::test]
    async fn one_over_the_batch_waits_and_an_abandoned_request_makes_room() {
        let engine = Engine::new(ServiceTimes { max_running: 1, ..ServiceTimes::default() });
        let first = engine.begin(b"", 16).await;
        let mut second = Box::pin(engine.begin(b"", 16));
        assert!(futures_util::poll!(&mut second).is_pending());
        assert_eq!((engine.metrics().running, engine.metrics().waiting), (1, 1));
        drop(first);
        let second = second.await;
        assert_eq!((engine.metrics().running, engine.metrics().waiting), (1, 0));
        drop(second);
        assert_eq!(engine.metrics(), Metrics { cache: engine.metrics().cache, ..Metrics::default() });
    }
}
