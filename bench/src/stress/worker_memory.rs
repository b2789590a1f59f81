//! Memory of one more Envoy worker.

use super::stack::with_large_caches;
use crate::load::{MixedLoad, RequestMix};
use anyhow::Result;
use endpoint_picker_harness::program::process_tree::taken;
use std::time::Duration;

/// Workers beyond the first.
const MORE: u32 = 4;
const RATE: u32 = 100;
/// Small ones, so that the index stays nearly empty; and large ones, 400 blocks each, that fill it.
const PROMPT_BYTES: [usize; 2] = [100, 100_000];
/// A thousand requests: every worker gets some, and the large ones fill the index of four servers, 31 250
/// blocks each.
const LASTING: Duration = Duration::from_secs(10);

/// Bytes that each of four further workers adds: with the prefix index nearly empty, and full.
pub(crate) async fn bytes_per_worker() -> Result<[f64; 2]> {
    let (one, more) = (with_workers(1).await?, with_workers(1 + MORE).await?);
    eprintln!("memory with 1 worker {one:?} bytes, with {} {more:?}: index nearly empty, full", 1 + MORE);
    Ok([0, 1].map(|fill| (more[fill] as f64 - one[fill] as f64) / f64::from(MORE)))
}

async fn with_workers(workers: u32) -> Result<[u64; 2]> {
    let stack = with_large_caches(workers).await;
    let mut bytes = [0; 2];
    for (bytes, prompt_bytes) in bytes.iter_mut().zip(PROMPT_BYTES) {
        let load = MixedLoad::start(RequestMix::to(&stack, prompt_bytes), RATE, 1);
        tokio::time::sleep(LASTING).await;
        load.stop().await;
        for server in stack.servers() {
            server.take_requests();
        }
        *bytes = taken(stack.envoy().process_id())?;
    }
    Ok(bytes)
}
