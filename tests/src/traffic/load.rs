//! Requests at a steady rate, however long their answers take.

use super::shot::{Range, Trouble};
use endpoint_picker::rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Requests in flight at once; above it the load waits, which the report shows.
const MOST_AT_ONCE: usize = 2000;

/// What was sent in one phase, such as a fault with the recovery from it.
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
    pub(crate) trouble: Trouble,
}

/// All phases by their names.
pub(crate) type Tally = BTreeMap<&'static str, Phase>;

#[derive(Debug, Default)]
struct Ledger {
    phase: &'static str,
    tally: Tally,
}

/// The load, until it is stopped.
pub(crate) struct Load {
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
    sender: tokio::task::JoinHandle<()>,
}

impl Load {
    /// So many requests each second.
    pub(crate) fn start(range: Range, rate: u32, seed: u64) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger { phase: "calm", tally: Tally::new() }));
        let stop = CancellationToken::new();
        let sender = tokio::spawn(send(range, rate, seed, Arc::clone(&ledger), stop.clone()));
        Self { ledger, stop, sender }
    }

    /// What is sent from now on belongs to this phase.
    pub(crate) fn enter(&self, phase: &'static str) {
        lock(&self.ledger).phase = phase;
    }

    /// How many requests were sent so far.
    pub(crate) fn sent(&self) -> usize {
        lock(&self.ledger).tally.values().map(|phase| phase.sent).sum()
    }

    /// Sends no more, and waits for what is in flight.
    pub(crate) async fn stop(self) -> Tally {
        self.stop.cancel();
        self.sender.await.expect("the sender does not panic");
        core::mem::take(&mut lock(&self.ledger).tally)
    }
}

async fn send(range: Range, rate: u32, seed: u64, ledger: Arc<Mutex<Ledger>>, stop: CancellationToken) {
    let mut rng = SplitMix64::new(!seed);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut in_flight = JoinSet::new();
    for id in 0.. {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            break;
        }
        while in_flight.try_join_next().is_some() {}
        if in_flight.len() >= MOST_AT_ONCE {
            in_flight.join_next().await;
        }
        let shot = range.shot(id, &mut rng);
        let phase = {
            let mut ledger = lock(&ledger);
            let phase = ledger.phase;
            ledger.tally.entry(phase).or_default().sent += 1;
            phase
        };
        let ledger = Arc::clone(&ledger);
        in_flight.spawn(async move {
            let sent = Instant::now();
            let result = shot.fire().await;
            let mut ledger = lock(&ledger);
            let phase = ledger.tally.entry(phase).or_default();
            match result {
                Ok(()) => phase.served += 1,
                Err(trouble) => phase.failures.push(Failure { id, sent, ended: Instant::now(), trouble }),
            }
        });
    }
    in_flight.join_all().await;
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("no holder of this lock panics")
}
