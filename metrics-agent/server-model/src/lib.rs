//! How long a model server takes: a model of vLLM's continuous batching, without a clock, for the replay of
//! recorded requests, for the demo and for the comparison of pickers.
//!
//! It is a model, not a measurement: it claims only that waiting, prefill, decoding, KV cache, prefix cache
//! and adapters act on each other as they do in a real server.

mod adapters;
mod batch;
#[cfg(test)]
mod batch_tests;
mod forecast;
mod kv_cache;
mod service_times;

pub use batch::{BLOCK_TOKENS, Batch, BatchRequest, PrefixCacheCounts, Progress, TOKEN_BYTES};
pub use forecast::{Forecast, Outlook};
pub use kv_cache::CacheChange;
pub use service_times::{Allocation, ServiceTimes};
