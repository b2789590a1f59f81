//! How long a simulated server takes.

use std::time::Duration;

/// The service times of one server.
///
/// A step takes `step + decoding requests · step_per_sequence + tokens read · prefill_per_token + adapters loaded · lora_load`.
#[derive(Clone, Copy, Debug)]
pub struct ServiceTimes {
    /// Requests in a batch (vLLM's `max-num-seqs`), at least 1; the others wait.
    pub max_running: usize,
    /// Time of a step, whatever is in it.
    pub step: Duration,
    /// Time of a step for each request that gets a token.
    pub step_per_sequence: Duration,
    /// Time for each prompt token that the prefix cache does not hold.
    pub prefill_per_token: Duration,
    /// Prompt tokens read in one step (vLLM's `max-num-batched-tokens`).
    pub max_batched_tokens: u32,
    /// Blocks of 16 tokens in the KV cache.
    pub kv_blocks: u32,
    /// Adapters in a batch (vLLM's `max-loras`); 0 for a server without any.
    pub max_loras: u32,
    /// Time to load an adapter, during which the batch stands still.
    pub lora_load: Duration,
    /// Tokens in a piece of a streamed answer after the first one (vLLM's `stream-interval`), at least 1.
    pub stream_interval: u64,
}

impl Default for ServiceTimes {
    /// Slow enough to watch: a 4 kB prompt takes 80 ms, or next to nothing when cached; a token takes 15 ms or a little more.
    fn default() -> Self {
        Self {
            max_running: 4,
            step: Duration::from_millis(14),
            step_per_sequence: Duration::from_millis(1),
            prefill_per_token: Duration::from_micros(80),
            max_batched_tokens: 2048,
            kv_blocks: 2048,
            max_loras: 0,
            lora_load: Duration::ZERO,
            stream_interval: 1,
        }
    }
}
