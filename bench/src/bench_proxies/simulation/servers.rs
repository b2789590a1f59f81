//! Servers in simulated time.

use endpoint_picker::pool::reading::Reading;
use endpoint_picker_model_server::{BLOCK_TOKENS, Batch, BatchRequest, PrefixCacheCounts, ServiceTimes};
use std::time::Duration;

/// One of the servers of the comparisons. `T` is the client of a request.
#[derive(Debug)]
pub(super) struct Server<T> {
    batch: Batch<T>,
    times: ServiceTimes,
    is_working: bool,
}

impl<T> Server<T> {
    pub(super) fn new(times: ServiceTimes) -> Self {
        Self { batch: Batch::new(times), times, is_working: false }
    }

    /// Takes a request. Returns the time of the step that begins with it, if the server was idle.
    pub(super) fn add(&mut self, request: BatchRequest, client: T) -> Option<Duration> {
        self.batch.add(request, client);
        if self.is_working { None } else { self.begin_step() }
    }

    fn begin_step(&mut self) -> Option<Duration> {
        let step = self.batch.begin_step();
        self.is_working = step.is_some();
        step
    }

    /// Ends a step. `report` gets each client, the number of tokens that its answer has now, and whether these are all. Returns the time of the next
    /// step, if there is one.
    pub(super) fn end_step(&mut self, mut report: impl FnMut(&mut T, u64, bool)) -> Option<Duration> {
        self.batch.end_step(|client, made, is_all| {
            report(client, made, is_all);
            true
        });
        self.begin_step()
    }

    pub(super) fn prefix_cache(&self) -> PrefixCacheCounts {
        self.batch.prefix_cache()
    }

    /// What a scrape reads.
    pub(super) fn reading(&self, now: Duration) -> Reading {
        Reading {
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
