//! The stack that chaos and soak share.

use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{CacheConfig, ModelServer};

/// Model servers of every stack; chaos never breaks the first.
pub(crate) const SERVERS: usize = 4;

/// Two million tokens at each server, so that the index is bounded by its own default of 31 250 blocks, not
/// by the servers.
const LARGE_CACHE: CacheConfig = CacheConfig { block_size: 16, num_gpu_blocks: 125_000 };

/// A stack of four model servers and this many Envoy workers.
pub(crate) fn builder(workers: u32) -> Builder {
    Stack::builder().servers(SERVERS).workers(workers)
}

/// A stack whose prefix index fills up to its own bound.
pub(crate) async fn with_large_caches(workers: u32) -> Stack {
    let stack = builder(workers).without_access_log().start().await;
    set_large_caches(stack.servers());
    stack
}

/// Lets servers report caches with which the prefix index fills up to its own bound.
pub(crate) fn set_large_caches(servers: &[ModelServer]) {
    for server in servers {
        server.update_metrics(|metrics| metrics.cache = Some(LARGE_CACHE));
    }
}
