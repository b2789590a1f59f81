//! How long a simulated server takes.

use std::time::Duration;

/// The service times of one server.
///
/// A step takes `step` + decoding requests · `step_per_sequence` + their tokens of context ·
/// `step_per_context_token` + tokens read · `prefill_per_token` + adapters loaded · `lora_load`.
/// Prompts that are [read apart](Self::reads_apart) from the steps make none longer.
#[derive(Clone, Copy, Debug)]
pub struct ServiceTimes {
    /// Requests in a batch (vLLM's `max-num-seqs`), at least 1; the others wait.
    pub max_running: usize,
    /// Time of a step, whatever is in it.
    pub step: Duration,
    /// Time of a step for each request that gets a token.
    pub step_per_sequence: Duration,
    /// Time of a step for each token of context of the requests that get a token.
    pub step_per_context_token: Duration,
    /// Time for each prompt token that the prefix cache does not hold.
    pub prefill_per_token: Duration,
    /// Tokens of context behind which a prompt token takes twice this time, because it attends to all of
    /// them; the time grows linearly. `None`: the context has no effect.
    pub doubling_context: Option<u32>,
    /// Whether prompts are read apart from the steps, all at a time and each at this speed: another server
    /// reads them, or the server is a simulator whose requests do not act on each other.
    pub reads_apart: bool,
    /// Prompt tokens read in one step (vLLM's `max-num-batched-tokens`), unless they are read apart.
    pub max_batched_tokens: u32,
    /// Blocks of 16 tokens in the KV cache.
    pub kv_blocks: u32,
    /// How requests get blocks.
    pub allocation: Allocation,
    /// Adapters in a batch (vLLM's `max-loras`); 0 for a server without any.
    pub max_loras: u32,
    /// Time to load an adapter, during which the batch stands still.
    pub lora_load: Duration,
    /// Tokens in a chunk of a streamed response after the first one (vLLM's `stream-interval`), at least 1.
    pub stream_interval: u64,
}

/// How requests get the blocks of the KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// A request takes the blocks of its whole response when it begins, and its response is not cached. No
    /// request is ever put back, and decoding takes nothing of the step's budget of tokens.
    #[default]
    AtOnce,
    /// As vLLM: a request takes blocks when it needs them. When none is left, the request that began last is
    /// put back to the beginning of the queue, and is read again later. Answers stay in the cache. A token
    /// that is made takes one of the step's budget.
    AsNeeded,
}

impl Default for ServiceTimes {
    /// Slow enough to watch: a 4 kB prompt takes 80 ms, or next to nothing when cached; a token takes 15 ms
    /// or a little more.
    fn default() -> Self {
        Self {
            max_running: 4,
            step: Duration::from_millis(14),
            step_per_sequence: Duration::from_millis(1),
            step_per_context_token: Duration::ZERO,
            prefill_per_token: Duration::from_micros(80),
            doubling_context: None,
            reads_apart: false,
            max_batched_tokens: 2048,
            kv_blocks: 2048,
            allocation: Allocation::AtOnce,
            max_loras: 0,
            lora_load: Duration::ZERO,
            stream_interval: 1,
        }
    }
}
