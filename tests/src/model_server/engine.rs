//! How long a model server takes: a model of vLLM's continuous batching, for the demo and for the comparison of pickers.
//!
//! It is a model, not a measurement: what it claims is that waiting, prefill, decoding, KV cache, prefix cache and adapters act
//! on each other as they do in a real server, and that the metrics move with them.

mod adapters;
mod batch;
#[cfg(test)]
mod batch_tests;
mod kv_cache;

use batch::BLOCK_TOKENS;
pub use batch::Tally;
pub(crate) use batch::{Asked, Batch, TOKEN_BYTES};

use super::MODEL;
use super::metrics::{CacheConfig, Lora, Metrics};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

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

/// One server at work; it ends when dropped.
#[derive(Debug)]
pub(super) struct Engine {
    times: ServiceTimes,
    shared: Arc<Shared>,
    _steps: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    batch: Mutex<Batch<Client>>,
    /// There may be something to do.
    work: Notify,
}

/// Who waits for tokens.
#[derive(Debug)]
struct Client {
    pieces: mpsc::UnboundedSender<u64>,
    sent: u64,
}

/// A request at the server; dropping it, when the client has gone, makes room for the next.
pub(super) struct Work(mpsc::UnboundedReceiver<u64>);

impl Engine {
    /// Starts it, in the runtime it is called in.
    pub(super) fn new(times: ServiceTimes) -> Self {
        let shared = Arc::new(Shared { batch: Mutex::new(Batch::new(times)), work: Notify::new() });
        let steps = tokio::spawn(run(Arc::clone(&shared), times.stream_interval.max(1)));
        Self { times, shared, _steps: AbortOnDropHandle::new(steps) }
    }

    /// Puts a request into the queue.
    pub(super) fn submit(&self, model: &str, prompt: &[u8], answer_tokens: u64) -> Work {
        let adapter = Some(model).filter(|model| self.times.max_loras > 0 && *model != MODEL);
        let (pieces, work) = mpsc::unbounded_channel();
        let asked = Asked::new(adapter, prompt, answer_tokens);
        self.shared.batch().add(asked, Client { pieces, sent: 0 });
        self.shared.work.notify_one();
        Work(work)
    }

    pub(super) fn metrics(&self) -> Metrics {
        let mut batch = self.shared.batch();
        batch.retain_waiting(Client::is_there);
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

    pub(super) fn tally(&self) -> Tally {
        self.shared.batch().tally()
    }
}

impl Shared {
    fn batch(&self) -> MutexGuard<'_, Batch<Client>> {
        self.batch.lock().expect("no holder of this lock panics")
    }
}

/// One step after another. Steps follow each other without a gap, however late the timer is: what it loses in one it does not
/// lose in the next.
async fn run(shared: Arc<Shared>, interval: u64) {
    let mut end = Instant::now();
    loop {
        let step = {
            let mut batch = shared.batch();
            batch.retain_waiting(Client::is_there);
            batch.begin_step()
        };
        let Some(step) = step else {
            shared.work.notified().await;
            end = Instant::now();
            continue;
        };
        end += step;
        sleep_until(end).await;
        shared.batch().end_step(|client, made, is_all| client.tell(made, is_all, interval));
    }
}

impl Client {
    fn is_there(&self) -> bool {
        !self.pieces.is_closed()
    }

    /// Hands tokens on, the first at once and then a piece at a time; false when nobody wants them.
    fn tell(&mut self, made: u64, is_all: bool, interval: u64) -> bool {
        let new = made - self.sent;
        if new == 0 || (self.sent > 0 && new < interval && !is_all) {
            return self.is_there();
        }
        self.sent = made;
        self.pieces.send(new).is_ok()
    }
}

impl Work {
    /// How many more tokens have come; `None` when that was all.
    pub(super) async fn tokens(&mut self) -> Option<u64> {
        self.0.recv().await
    }
}
