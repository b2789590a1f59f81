//! How long a model server takes: a model of vLLM's continuous batching, for the demo and for the comparison
//! of pickers.
//!
//! It is a model, not a measurement: it claims only that waiting, prefill, decoding, KV cache, prefix cache
//! and adapters act on each other as they do in a real server, and that the metrics move with them.

mod adapters;
mod batch;
#[cfg(test)]
mod batch_tests;
mod forecast;
mod kv_cache;

pub use batch::{BLOCK_TOKENS, Batch, BatchRequest, PrefixCacheCounts, Progress, TOKEN_BYTES};
pub use forecast::{Forecast, Outlook};
pub use kv_cache::CacheChange;

use crate::metrics::{CacheConfig, Lora, Metrics};
use crate::protocol::MODEL;
use crate::service_times::ServiceTimes;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// One server at work; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    times: ServiceTimes,
    shared: Arc<EngineState>,
    _steps: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct EngineState {
    steps: Mutex<Steps>,
    /// Wakes the server when a request has come.
    work: Notify,
}

/// The batch, and the step in flight.
#[derive(Debug)]
struct Steps {
    batch: Batch<Client>,
    /// The end of the step in flight, if there is one.
    end: Option<Instant>,
}

/// The receiver of a request's tokens.
#[derive(Debug)]
struct Client {
    pieces: mpsc::UnboundedSender<u64>,
    sent: u64,
}

/// A request at the server; dropping it, when the client has gone, makes room for the next.
pub(crate) struct Work(mpsc::UnboundedReceiver<u64>);

impl Engine {
    /// Starts it, in the runtime it is called in.
    pub(crate) fn new(times: ServiceTimes) -> Self {
        let shared = Arc::new(EngineState {
            steps: Mutex::new(Steps { batch: Batch::new(times), end: None }),
            work: Notify::new(),
        });
        let steps = tokio::spawn(run(Arc::clone(&shared), times.stream_interval.max(1)));
        Self { times, shared, _steps: AbortOnDropHandle::new(steps) }
    }

    /// Puts a request into the queue.
    pub(crate) fn submit(&self, model: &str, prompt: &[u8], answer_tokens: u64) -> Work {
        let adapter = Some(model).filter(|model| self.times.max_loras > 0 && *model != MODEL);
        let (pieces, work) = mpsc::unbounded_channel();
        let request = BatchRequest::new(adapter, prompt, answer_tokens);
        self.shared.steps().batch.add(request, Client { pieces, sent: 0 });
        self.shared.work.notify_one();
        Work(work)
    }

    pub(crate) fn metrics(&self) -> Metrics {
        let batch = &mut self.shared.steps().batch;
        batch.retain_waiting(Client::is_connected);
        let [running, waiting] = batch.adapters();
        let max = self.times.max_loras;
        Metrics {
            waiting: batch.waiting() as u64,
            running: batch.running() as u64,
            kv_cache_usage: batch.cache_usage().min(1.0),
            lora: (max > 0).then_some(Lora { max, running, waiting }),
            start_time: None,
            cache: Some(CacheConfig { block_size: BLOCK_TOKENS, num_gpu_blocks: self.times.kv_blocks }),
        }
    }

    pub(crate) fn prefix_cache(&self) -> PrefixCacheCounts {
        self.shared.steps().batch.prefix_cache()
    }

    pub(crate) fn outlook(&self, request: &BatchRequest) -> Outlook {
        let steps = self.shared.steps();
        let mut forecast = steps.batch.forecast(request);
        forecast.first_token +=
            steps.end.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now()));
        Outlook { requests: steps.batch.waiting() + steps.batch.running(), forecast }
    }
}

impl EngineState {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().expect("no holder of this lock panics")
    }
}

/// One step after another. Steps follow each other without a gap, however late the timer is: what it loses in
/// one it does not lose in the next.
async fn run(shared: Arc<EngineState>, interval: u64) {
    let mut end = Instant::now();
    loop {
        let step_end = {
            let steps = &mut *shared.steps();
            steps.batch.retain_waiting(Client::is_connected);
            let step = steps.batch.begin_step();
            steps.end = step.map(|step| end + step);
            steps.end
        };
        let Some(step_end) = step_end else {
            shared.work.notified().await;
            end = Instant::now();
            continue;
        };
        end = step_end;
        sleep_until(end).await;
        shared.steps().batch.end_step(|client, progress| client.send(progress, interval));
    }
}

impl Client {
    fn is_connected(&self) -> bool {
        !self.pieces.is_closed()
    }

    /// Sends new tokens, the first at once and then a chunk at a time; false when the client has gone.
    fn send(&mut self, Progress { made, is_all, .. }: Progress, interval: u64) -> bool {
        let new = made - self.sent;
        if new == 0 || (self.sent > 0 && new < interval && !is_all) {
            return self.is_connected();
        }
        self.sent = made;
        self.pieces.send(new).is_ok()
    }
}

impl Work {
    /// The number of further tokens; `None` after the last one.
    pub(crate) async fn tokens(&mut self) -> Option<u64> {
        self.0.recv().await
    }
}
