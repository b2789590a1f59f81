//! The mix of requests at a steady rate, until it is stopped.

use super::generator::{Arrivals, send_all};
use super::mix::RequestMix;
use super::request::{FailureKind, RequestSpec, ResponseKind};
use endpoint_picker::rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// The requests of one phase, such as a fault with the recovery from it.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    pub(crate) sent: usize,
    pub(crate) served: usize,
    pub(crate) failures: Vec<Failure>,
}

/// A request that was not served.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) id: u64,
    pub(crate) sent: Instant,
    pub(crate) ended: Instant,
    /// The response that it should have got.
    pub(crate) response: ResponseKind,
    pub(crate) kind: FailureKind,
}

/// All phases by their names.
pub(crate) type Phases = BTreeMap<&'static str, Phase>;

/// The phase that runs, and the record of all.
#[derive(Debug)]
struct Record {
    current: &'static str,
    phases: Phases,
}

/// The running load.
pub(crate) struct MixedLoad {
    record: Arc<Mutex<Record>>,
    stop: CancellationToken,
    sender: tokio::task::JoinHandle<()>,
}

/// A request that was sent.
struct SentRequest {
    id: u64,
    phase: &'static str,
    at: Instant,
    response: ResponseKind,
}

/// The mix at its rate.
struct Ticks {
    ticks: Interval,
    stop: CancellationToken,
    mix: RequestMix,
    rng: SplitMix64,
    next_id: u64,
    record: Arc<Mutex<Record>>,
}

impl MixedLoad {
    /// Starts this many requests each second, in the phase `calm`.
    pub(crate) fn start(mix: RequestMix, rate: u32, seed: u64) -> Self {
        let record = Arc::new(Mutex::new(Record { current: "calm", phases: Phases::new() }));
        let stop = CancellationToken::new();
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let arrivals = Ticks {
            ticks,
            stop: stop.clone(),
            mix,
            rng: SplitMix64::new(!seed),
            next_id: 0,
            record: Arc::clone(&record),
        };
        let results = Arc::clone(&record);
        let sender = tokio::spawn(send_all(arrivals, move |request, result| {
            let SentRequest { id, phase, at: sent, response } = request;
            let mut record = lock(&results);
            let phase = record.phases.entry(phase).or_default();
            match result {
                Ok(_) => phase.served += 1,
                Err(kind) => {
                    phase.failures.push(Failure { id, sent, ended: Instant::now(), response, kind });
                }
            }
        }));
        Self { record, stop, sender }
    }

    /// Counts further requests to this phase.
    pub(crate) fn enter(&self, phase: &'static str) {
        lock(&self.record).current = phase;
    }

    /// The number of requests sent so far.
    pub(crate) fn sent(&self) -> usize {
        lock(&self.record).phases.values().map(|phase| phase.sent).sum()
    }

    /// Sends no more, and waits for what is in flight.
    pub(crate) async fn stop(self) -> Phases {
        self.stop.cancel();
        self.sender.await.expect("the sender does not panic");
        core::mem::take(&mut lock(&self.record).phases)
    }
}

impl Arrivals for Ticks {
    type Tag = SentRequest;

    async fn next(&mut self) -> Option<(SentRequest, RequestSpec)> {
        self.stop.run_until_cancelled(self.ticks.tick()).await?;
        let id = self.next_id;
        self.next_id += 1;
        let request = self.mix.draw(id, &mut self.rng);
        let mut record = lock(&self.record);
        let phase = record.current;
        record.phases.entry(phase).or_default().sent += 1;
        Some((SentRequest { id, phase, at: Instant::now(), response: request.response }, request))
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().expect("no holder of this lock panics")
}
