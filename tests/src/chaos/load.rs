//! Requests at a steady rate, however long their answers take.

use super::request::{Shot, Trouble, clients};
use crate::stack::Stack;
use endpoint_picker::rng::SplitMix64;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// Requests under way at once; above it the load waits, which the report shows.
const MOST_AT_ONCE: usize = 2000;

/// What happened while one kind of fault was there, its recovery included.
#[derive(Debug, Default)]
pub(super) struct Phase {
    pub(super) sent: usize,
    pub(super) served: usize,
    pub(super) failures: Vec<Failure>,
}

/// A request that was not served.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) id: u64,
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    pub(super) trouble: Trouble,
}

/// All phases by the fault's name.
pub(super) type Tally = BTreeMap<&'static str, Phase>;

#[derive(Debug, Default)]
struct Ledger {
    phase: &'static str,
    tally: Tally,
}

/// The load, until it is stopped.
pub(super) struct Load {
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
    sender: tokio::task::JoinHandle<()>,
}

impl Load {
    pub(super) fn start(stack: &Stack, rate: u32, seed: u64) -> Self {
        let ledger = Arc::new(Mutex::new(Ledger { phase: "calm", tally: Tally::new() }));
        let stop = CancellationToken::new();
        let url = stack.url("");
        let sender = tokio::spawn(send(url, rate, seed, Arc::clone(&ledger), stop.clone()));
        Self { ledger, stop, sender }
    }

    /// What is sent from now on belongs to this fault.
    pub(super) fn enter(&self, phase: &'static str) {
        lock(&self.ledger).phase = phase;
    }

    /// Sends no more, and waits for what is under way.
    pub(super) async fn stop(self) -> Tally {
        self.stop.cancel();
        self.sender.await.expect("the sender does not panic");
        core::mem::take(&mut lock(&self.ledger).tally)
    }
}

async fn send(url: String, rate: u32, seed: u64, ledger: Arc<Mutex<Ledger>>, stop: CancellationToken) {
    let clients = clients();
    let mut rng = SplitMix64::new(!seed);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    for id in 0.. {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            break;
        }
        while under_way.try_join_next().is_some() {}
        if under_way.len() >= MOST_AT_ONCE {
            under_way.join_next().await;
        }
        let shot = Shot::random(id, &url, &clients, &mut rng);
        let phase = {
            let mut ledger = lock(&ledger);
            let phase = ledger.phase;
            ledger.tally.entry(phase).or_default().sent += 1;
            phase
        };
        let ledger = Arc::clone(&ledger);
        under_way.spawn(async move {
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
    under_way.join_all().await;
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().expect("no holder of this lock panics")
}
