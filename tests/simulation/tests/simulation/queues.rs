//! Flow control in several proxies: the shares of the capacity that clients get.
//!
//! All servers together serve `CAPACITY` requests at the same time, by the `concurrency-detector`, and
//! clients ask for 150 % of that. Each proxy has a queue of its own, and learns of the loads of the others
//! every 20 ms, as they do of its.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use endpoint_picker::flow_control::Ticket;
use endpoint_picker::plugin::Arrival;
use endpoint_picker::pool::load::Load;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::{Result, Resume};
use endpoint_picker_engine::queue::{Entry, Queue, Verdict};
use endpoint_picker_engine::testing::{self, START, plugin, reading, snapshot};
use endpoint_picker_simulation::proxy::Proxy;
use endpoint_picker_simulation::world::World;
use endpoint_picker_wire::v1;

const STEP: Duration = Duration::from_millis(1);
const STEPS: u64 = 6_000;
/// Requests before the queues are full do not count.
const WARM_UP: u64 = 1_000;

const SERVERS: u16 = 4;
const AT_A_SERVER: u64 = 25;
const CAPACITY: f64 = SERVERS as f64 * AT_A_SERVER as f64;
/// Mean time of a request at a server, in milliseconds.
const SERVICE_MS: usize = 200;
const LOAD: Load = Load { requests: 1, tokens: 0 };

/// The clients of one tenant and priority: how much of the capacity they ask for, and which share of that
/// through each proxy.
#[derive(Clone, Copy)]
struct Clients {
    tenant: &'static str,
    priority: i32,
    asks: f64,
    through: &'static [f64],
}

struct Request {
    clients: usize,
    resumed: Arc<AtomicBool>,
}

/// The queue of a proxy.
#[derive(Default)]
struct ProxyQueue {
    queue: Queue,
    waiting: BTreeMap<Ticket, Request>,
}

/// Requests that were served.
#[derive(Debug)]
struct Shares {
    /// Dispatched requests of each of the clients, by proxy.
    started: Vec<Vec<u64>>,
    /// Maximum of requests in flight, as a part of the capacity.
    peak: f64,
}

/// The two parts of a step. Proxies share between them.
enum Event {
    Ends,
    Requests,
}

/// Proxies with queues, an agent and servers.
struct Simulation {
    clients: Vec<Clients>,
    view: Arc<PoolView>,
    world: World<Event>,
    /// The queue of each proxy.
    queues: Vec<ProxyQueue>,
    /// Ends of requests: the proxy, its ticket and the server.
    ends: BTreeMap<Duration, Vec<(usize, Ticket, u64)>>,
    in_flight: u64,
    step: u64,
    shares: Shares,
}

fn topology() -> Arc<Topology> {
    let fairness = "round-robin-fairness-policy";
    let detector = "concurrency-detector";
    let band = v1::PriorityBand { fairness_policy: fairness.to_owned(), ..v1::PriorityBand::default() };
    let picker_config = v1::PickerConfig {
        plugins: vec![
            plugin("queue-scorer", "{}"),
            plugin(fairness, "{}"),
            plugin(detector, &format!(r#"{{"maxConcurrency": {AT_A_SERVER}}}"#)),
        ],
        saturation_detector: Some(detector.to_owned()),
        flow_control: Some(v1::FlowControl {
            default_priority_band: Some(band),
            ..v1::FlowControl::default()
        }),
        ..v1::PickerConfig::default()
    };
    let objective = |priority: i32| v1::Objective { name: format!("of {priority}"), priority };
    let policy = v1::Policy {
        picker_config: Some(picker_config),
        objectives: [10, -10].map(objective).to_vec(),
        ..v1::Policy::default()
    };
    Arc::new(Topology::compile(testing::topology("p", 0..SERVERS, policy)).unwrap())
}

impl Simulation {
    fn new(clients: &[Clients], seed: u64) -> Self {
        let proxies = clients[0].through.len();
        let topology = topology();
        let snapshot = snapshot((0..SERVERS).map(|_| reading(0)));
        let proxy = |number| Proxy::new(number, &topology.pool, &topology.pipeline, SplitMix64::new(seed));
        let mut world = World::new((0..proxies).map(proxy).collect(), SplitMix64::new(seed));
        world.plan(STEP, Event::Ends);
        world.share_evenly(STEP / 4, 13 * STEP);
        Self {
            clients: clients.to_vec(),
            view: Arc::new(PoolView::new(topology, snapshot, START)),
            world,
            queues: (0..proxies).map(|_| ProxyQueue::default()).collect(),
            ends: BTreeMap::new(),
            in_flight: 0,
            step: 0,
            shares: Shares { started: vec![vec![0; proxies]; clients.len()], peak: 0.0 },
        }
    }

    fn run(mut self) -> Shares {
        while self.step < STEPS {
            match self.world.next_event().unwrap() {
                Event::Ends => {
                    self.step += 1;
                    self.world.plan(STEP, Event::Ends);
                    self.world.plan(STEP / 2, Event::Requests);
                    self.end_requests();
                }
                Event::Requests => {
                    self.send_requests();
                    // Each proxy is the first one at times.
                    let first = self.world.rng.below(self.queues.len());
                    for offset in 0..self.queues.len() {
                        self.tick((first + offset) % self.queues.len());
                    }
                    self.count_peak();
                }
            }
        }
        self.shares
    }

    /// Requests arrive at random times, at the same rate throughout.
    fn send_requests(&mut self) {
        for clients in 0..self.clients.len() {
            let Clients { asks, through, .. } = self.clients[clients];
            for (number, share) in through.iter().enumerate() {
                if self.world.rng.unit() < asks * share * CAPACITY / SERVICE_MS as f64 {
                    self.enter(number, clients);
                }
            }
        }
    }

    fn enter(&mut self, number: usize, clients: usize) {
        let now = self.world.now();
        let Clients { tenant, priority, .. } = self.clients[clients];
        let arrival = Arrival { fairness_id: tenant, priority, received: now, ..Arrival::default() };
        let resumed = Arc::new(AtomicBool::new(false));
        let request = Request { clients, resumed: Arc::clone(&resumed) };
        let queue = self.current(number);
        let resume = || -> Result<Resume> { Ok(Box::new(move || resumed.store(true, Ordering::Relaxed))) };
        match queue.queue.enter(&arrival, now, resume).unwrap() {
            Entry::Admitted(ticket) => self.start(number, ticket, clients),
            Entry::Waits(ticket) => {
                queue.waiting.insert(ticket, request);
            }
            // The queue is full.
            Entry::Refused(_) => {}
            Entry::Open => panic!("flow control is on"),
        }
        self.resume(number);
    }

    fn tick(&mut self, number: usize) {
        let now = self.world.now();
        self.current(number).queue.tick(now);
        self.resume(number);
    }

    /// The queue of a proxy with the current state of the pool.
    fn current(&mut self, number: usize) -> &mut ProxyQueue {
        let (now, queue) = (self.world.now(), &mut self.queues[number]);
        queue.queue.follow(&self.view, now);
        queue.queue.measure(self.world.proxies[number].ledger(), now);
        queue
    }

    fn resume(&mut self, number: usize) {
        let ProxyQueue { waiting, .. } = &mut self.queues[number];
        let is_resumed = |request: &Request| request.resumed.load(Ordering::Relaxed);
        let resumed: Vec<Ticket> =
            waiting.iter().filter(|(_, request)| is_resumed(request)).map(|(ticket, _)| *ticket).collect();
        for ticket in resumed {
            let ProxyQueue { queue, waiting } = &mut self.queues[number];
            let Request { clients, .. } = waiting.remove(&ticket).unwrap();
            // The others have waited too long.
            if queue.take_verdict(ticket) == Some(Verdict::Admitted) {
                self.start(number, ticket, clients);
            }
        }
    }

    /// A request goes to the server with the fewest requests in flight, and is served for half of the mean to
    /// one and a half of it.
    fn start(&mut self, number: usize, ticket: Ticket, clients: usize) {
        let served = Duration::from_millis((SERVICE_MS / 2 + self.world.rng.below(SERVICE_MS + 1)) as u64);
        let end = self.world.now() + served;
        let proxy = &mut self.world.proxies[number];
        let ledger = proxy.ledger();
        let servers = ledger.pool().as_slice().iter().zip(ledger.loads());
        let server = servers.min_by_key(|(_, load)| load.requests).unwrap().0.key();
        proxy.apply([Change::Endpoint { endpoint: server, kind: ChangeKind::Started(LOAD) }]);
        self.queues[number].queue.decided(ticket);
        self.in_flight += 1;
        self.ends.entry(end).or_default().push((number, ticket, server));
        if self.step > WARM_UP {
            self.shares.started[clients][number] += 1;
        }
    }

    fn end_requests(&mut self) {
        let now = self.world.now();
        while let Some(entry) = self.ends.first_entry().filter(|entry| *entry.key() <= now) {
            for (number, ticket, endpoint) in entry.remove() {
                let change = Change::Endpoint { endpoint, kind: ChangeKind::Ended(LOAD) };
                self.world.proxies[number].apply([change]);
                self.queues[number].queue.leave(ticket, None);
                self.in_flight -= 1;
            }
        }
    }

    fn count_peak(&mut self) {
        if self.step > WARM_UP {
            self.shares.peak = self.shares.peak.max(self.in_flight as f64 / CAPACITY);
        }
    }
}

impl Shares {
    fn of(counts: impl Iterator<Item = u64>) -> Vec<f64> {
        let counts: Vec<u64> = counts.collect();
        let all: u64 = counts.iter().sum();
        counts.iter().map(|count| 100.0 * *count as f64 / all as f64).collect()
    }

    fn of_clients(&self) -> Vec<f64> {
        Self::of(self.started.iter().map(|by_proxy| by_proxy.iter().sum()))
    }

    fn of_proxies(&self) -> Vec<f64> {
        let proxies = self.started.iter().map(Vec::len).max().unwrap_or(0);
        Self::of((0..proxies).map(|proxy| self.started.iter().map(|by_proxy| by_proxy[proxy]).sum()))
    }
}

/// Runs a simulation, prints the shares and returns them.
fn simulate(what: &str, clients: &[Clients]) -> Shares {
    const SEED: u64 = 1;
    let shares = Simulation::new(clients, SEED).run();
    let (of_clients, of_proxies) = (shares.of_clients(), shares.of_proxies());
    println!(
        "seed {SEED}, {what}: clients {of_clients:.1?}, proxies {of_proxies:.1?}, at most {:.2} of the capacity in flight",
        shares.peak
    );
    assert!((0.99..1.6).contains(&shares.peak), "the capacity is used, and kept: {:.2}", shares.peak);
    shares
}

#[track_caller]
fn assert_near(shares: &[f64], expected: &[f64]) {
    assert_eq!(shares.len(), expected.len());
    let is_near = |(share, expected): (&f64, &f64)| (share - expected).abs() <= 5.0;
    assert!(shares.iter().zip(expected).all(is_near), "{shares:.1?} is not {expected:.1?}");
}

/// Two tenants that together ask for 150 %.
fn tenants(a: &'static [f64], b: &'static [f64]) -> [Clients; 2] {
    [("a", a), ("b", b)].map(|(tenant, through)| Clients { tenant, priority: 0, asks: 0.75, through })
}

/// Three priorities that ask for 50 % each.
fn bands(high: &'static [f64], others: &'static [f64]) -> [Clients; 3] {
    [(10, high), (0, others), (-10, others)].map(|(priority, through)| Clients {
        tenant: "a",
        priority,
        asks: 0.5,
        through,
    })
}

#[test]
fn tenants_that_come_through_all_proxies_alike_get_the_same() {
    for through in [&[1.0][..], &[0.5; 2], &[0.25; 4]] {
        let shares = simulate("two tenants alike", &tenants(through, through));
        assert_near(&shares.of_clients(), &[50.0, 50.0]);
        assert_near(&shares.of_proxies(), &through.iter().map(|share| 100.0 * share).collect::<Vec<_>>());
    }
}

#[test]
fn a_proxy_with_three_times_the_requests_gets_less_than_three_times_the_capacity() {
    let through = &[0.75, 0.25];
    let shares = simulate("three times the requests", &tenants(through, through));
    assert_near(&shares.of_clients(), &[50.0, 50.0]);
    assert_near(&shares.of_proxies(), &[64.0, 36.0]);
    let through = &[0.5, 0.166, 0.167, 0.167];
    let shares = simulate("three times the requests", &tenants(through, through));
    assert_near(&shares.of_clients(), &[50.0, 50.0]);
    assert_near(&shares.of_proxies(), &[30.0, 23.3, 23.3, 23.3]);
}

#[test]
fn a_tenant_that_comes_through_one_proxy_gets_less_than_one_that_comes_through_all() {
    let shares = simulate("90 % of a through one proxy", &tenants(&[0.9, 0.1], &[0.5; 2]));
    assert_near(&shares.of_clients(), &[35.0, 65.0]);
    let shares = simulate("90 % of a through one proxy", &tenants(&[0.9, 0.04, 0.03, 0.03], &[0.25; 4]));
    assert_near(&shares.of_clients(), &[29.0, 71.0]);
}

#[test]
fn priority_holds_in_a_proxy_and_not_between_proxies() {
    let one = simulate("three bands", &bands(&[1.0], &[1.0]));
    assert_near(&one.of_clients(), &[50.0, 48.0, 2.0]);
    let alike = simulate("three bands", &bands(&[0.5; 2], &[0.5; 2]));
    assert_near(&alike.of_clients(), &[50.0, 49.0, 1.0]);
    let two = simulate("90 % of the first band through one proxy", &bands(&[0.9, 0.1], &[0.5; 2]));
    assert_near(&two.of_clients(), &[50.0, 36.0, 14.0]);
    let four =
        simulate("90 % of the first band through one proxy", &bands(&[0.9, 0.04, 0.03, 0.03], &[0.25; 4]));
    assert_near(&four.of_clients(), &[32.0, 34.0, 34.0]);
}
