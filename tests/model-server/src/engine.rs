//! A server at work: the steps of its batch, each as long as the model of servers computes.

use crate::metrics::{CacheConfig, Lora, Metrics};
use crate::protocol::MODEL;
use metrics_agent_server_model::{
    BLOCK_TOKENS, Batch, BatchRequest, Outlook, PrefixCacheCounts, Progress, ServiceTimes,
};
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

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_agent_server_model::Allocation;

    const MS: Duration = Duration::from_millis(1);

    /// A step takes 10 ms, 1 ms more for each request that decodes, and each token that is read 1 ms.
    const TIMES: ServiceTimes = ServiceTimes {
        max_running: 2,
        step: Duration::from_millis(10),
        step_per_sequence: MS,
        step_per_context_token: Duration::ZERO,
        prefill_per_token: MS,
        doubling_context: None,
        reads_apart: false,
        max_batched_tokens: 100,
        kv_blocks: 100,
        allocation: Allocation::AtOnce,
        max_loras: 1,
        lora_load: Duration::from_millis(500),
        stream_interval: 1,
    };

    #[tokio::test(start_paused = true)]
    async fn tokens_come_at_their_time_and_an_abandoned_request_makes_room() {
        let engine = Engine::new(ServiceTimes { max_running: 1, ..TIMES });
        let mut first = engine.submit(MODEL, b"1234", 100);
        let mut second = engine.submit(MODEL, b"5678", 2);
        let begin = Instant::now();
        assert_eq!(first.tokens().await, Some(1));
        assert_eq!(begin.elapsed(), 11 * MS);
        assert_eq!((engine.metrics().running, engine.metrics().waiting), (1, 1));
        drop(first);
        assert_eq!(
            (second.tokens().await, second.tokens().await, second.tokens().await),
            (Some(1), Some(1), None)
        );
        // It was noticed at the end of the step that was in flight.
        assert_eq!(begin.elapsed(), 3 * 11 * MS + 11 * MS);
        assert_eq!((engine.metrics().running, engine.metrics().waiting), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_token_comes_at_once_and_others_by_the_interval() {
        let engine = Engine::new(ServiceTimes { stream_interval: 4, ..TIMES });
        let mut work = engine.submit(MODEL, b"1234", 10);
        let mut portions = Vec::new();
        while let Some(tokens) = work.tokens().await {
            portions.push(tokens);
        }
        assert_eq!(portions, [1, 4, 4, 1]);
    }
}
