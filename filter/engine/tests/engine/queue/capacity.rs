//! How saturated the queue takes the pool for.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::plugin::Arrival;
use endpoint_picker::pool::load::Load;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger, LedgerStore, LocalLedger};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::queue::{Entry, Queue};
use endpoint_picker_wire::v1;

use super::queueing_policy;
use crate::fixture::{START, address, snapshot, topology};

const ROLES: [&str; 4] = ["prefill", "decode", "both", "encode"];

/// A pool with a detector, and what is in flight in it.
struct Pool {
    topology: Arc<Topology>,
    ledger: LocalLedger,
}

impl Pool {
    /// A pool of endpoints with these roles.
    fn new(roles: &[&str], detector: &str, parameters: &str) -> Self {
        let mut policy = queueing_policy(v1::FlowControl::default());
        let picker = policy.picker_config.as_mut().unwrap();
        let (name, parameters) = (detector.to_owned(), parameters.to_owned());
        picker.plugins.push(v1::Plugin { name: name.clone(), r#type: name.clone(), parameters });
        picker.saturation_detector = Some(name);
        let numbers: Vec<u8> = (1..).take(roles.len()).collect();
        let mut message = topology(&numbers, policy);
        for (endpoint, role) in message.endpoints.iter_mut().zip(roles) {
            endpoint.labels = vec![v1::Label { key: "llm-d.ai/role".to_owned(), value: (*role).to_owned() }];
        }
        let topology = Arc::new(Topology::compile(message).unwrap());
        let mut ledger = LocalLedger::default();
        ledger.adopt(Arc::clone(&topology.pool), topology.pipelines(), Duration::ZERO);
        Self { topology, ledger }
    }

    fn view(&self, snapshot: v1::Snapshot, arrived: Duration) -> Arc<PoolView> {
        Arc::new(PoolView::new(Arc::clone(&self.topology), snapshot, arrived))
    }

    fn start(&mut self, number: u8, load: Load) {
        let index = self.topology.pool.index_at(address(number).parse().unwrap()).unwrap();
        let endpoint = self.topology.pool.as_slice()[index].key();
        self.ledger.apply(vec![Change::Endpoint { endpoint, kind: ChangeKind::Started(load) }].into());
    }

    /// Has the queue measure this view.
    fn measure(&self, queue: &mut Queue, view: &Arc<PoolView>, now: Duration) -> Measured {
        queue.follow(view, now);
        let report = self.ledger.read(|ledger: &Ledger| {
            queue.measure(ledger, now);
            queue.report(ledger, now).unwrap()
        });
        (report.prefill_saturation, report.decode_saturation, report.saturation)
    }
}

/// Saturation of the prefill stage, the decode stage, and the one that decides.
type Measured = (Option<f64>, Option<f64>, f64);

/// A snapshot with readings of random ages, up to 300 ms; some endpoints were never scraped, or are not
/// ready.
fn random_snapshot(endpoints: usize, rng: &mut impl Rng) -> v1::Snapshot {
    let waiting: Vec<u64> = (0..endpoints).map(|_| rng.below(9) as u64).collect();
    let mut snapshot = snapshot(&waiting);
    for reading in &mut snapshot.readings {
        reading.ready = rng.below(8) > 0;
        reading.age_ms = (rng.below(8) > 0).then(|| rng.below(300) as u64);
        reading.kv_usage = Some(rng.unit());
    }
    snapshot
}

#[test]
fn what_is_kept_of_the_last_measurement_is_what_a_new_one_gives() {
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let roles: Vec<&str> = (0..=rng.below(6)).map(|_| ROLES[rng.below(ROLES.len())]).collect();
        let pool = Pool::new(&roles, "utilization-detector", "{}");
        let mut queue = Queue::default();
        let mut now = START;
        for _ in 0..20 {
            let view = pool.view(random_snapshot(roles.len(), &mut rng), now);
            for _ in 0..30 {
                // Another thread may have read the clock earlier. Now and then, the agent is gone for long.
                let (forth, back) = if rng.below(50) == 0 { (11_000_000, 1) } else { (20_000, 4_000) };
                now += Duration::from_micros(rng.below(forth) as u64);
                now = now.saturating_sub(Duration::from_micros(rng.below(back) as u64));
                let expected = pool.measure(&mut Queue::default(), &view, now);
                assert_eq!(pool.measure(&mut queue, &view, now), expected, "seed {seed}, {roles:?}");
            }
        }
    }
}

#[test]
fn loads_count_at_once() {
    let mut pool = Pool::new(&["decode", "decode"], "concurrency-detector", r#"{"maxConcurrency": 4}"#);
    let view = pool.view(snapshot(&[0, 0]), START);
    let mut queue = Queue::default();
    for expected in [0.0, 0.125, 0.25] {
        assert_eq!(pool.measure(&mut queue, &view, START), (None, Some(expected), expected));
        pool.start(2, Load { requests: 1, tokens: 9 });
    }
}

#[test]
fn a_request_whose_endpoint_is_not_chosen_yet_counts_in_every_stage() {
    let pool =
        Pool::new(&["encode", "decode", "prefill"], "concurrency-detector", r#"{"maxConcurrency": 4}"#);
    let view = pool.view(snapshot(&[0, 0, 0]), START);
    let mut queue = Queue::default();
    pool.measure(&mut queue, &view, START);
    let entry = queue.enter(&Arrival::default(), START, || unreachable!("it does not wait"));
    let Ok(Entry::Admitted(ticket)) = entry else { panic!("{entry:?}") };
    assert_eq!(pool.measure(&mut queue, &view, START), (Some(0.25), Some(0.25), 0.25));
    queue.decided(ticket);
    assert_eq!(pool.measure(&mut queue, &view, START), (Some(0.0), Some(0.0), 0.0));
}
