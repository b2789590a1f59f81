//! A model server at work.

use endpoint_picker::pool::reading::{Lora, Reading};
use metrics_agent_server_model::{
    BLOCK_TOKENS, Batch, BatchRequest, CacheChange, PrefixCacheCounts, Progress, ServiceTimes,
};
use std::time::Duration;

/// Server with a batch and a prefix cache, as the model server has them. `T` is the client of a request.
#[derive(Debug)]
pub struct BatchServer<T> {
    batch: Batch<T>,
    times: ServiceTimes,
    is_working: bool,
    published: Vec<CacheChange>,
}

impl<T> BatchServer<T> {
    /// An idle server with an empty cache.
    pub fn new(times: ServiceTimes) -> Self {
        Self { batch: Batch::new(times), times, is_working: false, published: Vec::new() }
    }

    /// Publishes the changes of its cache from now on, those of a step at its end.
    pub fn publish_changes(&mut self) {
        self.batch.record_cache_changes();
    }

    /// The changes that were published since the last call.
    pub fn take_published(&mut self) -> Vec<CacheChange> {
        core::mem::take(&mut self.published)
    }

    /// Takes a request. Returns the time of the step that begins with it, if the server was idle.
    pub fn add(&mut self, request: BatchRequest, client: T) -> Option<Duration> {
        self.batch.add(request, client);
        if self.is_working { None } else { self.begin_step() }
    }

    fn begin_step(&mut self) -> Option<Duration> {
        let step = self.batch.begin_step();
        self.is_working = step.is_some();
        step
    }

    /// Ends a step. `report` gets each client. Returns the time of the next step, if there is one.
    pub fn end_step(&mut self, mut report: impl FnMut(&mut T, Progress)) -> Option<Duration> {
        self.batch.end_step(|client, progress| {
            report(client, progress);
            true
        });
        self.published.append(&mut self.batch.take_cache_changes());
        self.begin_step()
    }

    /// Empties its cache but for the blocks that requests use.
    pub fn reset_cache(&mut self) {
        self.batch.reset_cache();
    }

    /// Its requests and its cache.
    pub fn batch(&self) -> &Batch<T> {
        &self.batch
    }

    /// Prompt tokens that it has looked up and found.
    pub fn prefix_cache(&self) -> PrefixCacheCounts {
        self.batch.prefix_cache()
    }

    /// The reading of a scrape.
    pub fn reading(&self, now: Duration) -> Reading {
        let max = self.times.max_loras;
        let lora = (max > 0).then(|| {
            let [running, waiting] = self.batch.adapters();
            Lora { running, waiting, max }
        });
        Reading {
            lora,
            ready: true,
            updated: Some(now),
            waiting: Some(self.batch.waiting() as u64),
            running: Some(self.batch.running() as u64),
            kv_usage: Some(self.batch.cache_usage().min(1.0)),
            block_size: Some(BLOCK_TOKENS),
            num_blocks: Some(self.times.kv_blocks),
            ..Reading::default()
        }
    }
}
