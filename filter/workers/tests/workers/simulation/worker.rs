//! A worker of a simulated proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker::state::prefix::PrefixIndex;
use endpoint_picker::state::{ChangedReadings, StateChange};
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger, LedgerStore, ResponseCounts, changes_of};
use endpoint_picker_workers::{Lease, Replica, next_worker_number, words};

use super::turn::{Order, Turn};
use crate::fixture::{AVOID, POOL};
use crate::memory::{Gated, Memory, Refused};

/// Different prompts that clients send.
const PROMPTS: usize = 12;

/// Everything that the workers of a proxy share.
pub(crate) struct World {
    pub(crate) memory: Memory,
    /// The pool as snapshots list it: the same endpoints in different orders.
    pub(crate) pools: [Arc<Endpoints>; 2],
    /// Whether snapshots change the order.
    pub(crate) reorders: bool,
    pub(crate) pipeline: Pipeline,
    pub(crate) clock: Mutex<Clock>,
    /// Whether two workers must never hold the lease.
    pub(crate) checks_lease: bool,
    /// The marks of the requests that were routed.
    pub(crate) routed: Mutex<Vec<u64>>,
}

/// Real time, and the wall clock that workers read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) real: Duration,
    pub(crate) wall: Duration,
    /// When the wall clock was set last.
    pub(crate) set_at: Option<Duration>,
}

/// The report of an idle worker.
#[derive(Debug)]
pub(crate) struct Report {
    /// The load in flight at each endpoint, by its ledger.
    pub(crate) loads: Vec<Load>,
    /// The load of its own requests.
    pub(crate) own: Vec<Load>,
    pub(crate) avoided: Vec<Period>,
    pub(crate) history: History,
}

/// State that depends on all changes since the first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) routed: u64,
    pub(crate) picks: Vec<u64>,
    pub(crate) responses: Vec<ResponseCounts>,
    /// Blocks of each prompt that each endpoint has.
    pub(crate) matched: Vec<Vec<u32>>,
}

/// A request in flight with its remaining reservations.
struct InFlight {
    reservations: Vec<Reserved>,
}

/// A reservation at the endpoint of a key.
struct Reserved {
    endpoint: u64,
    prefill: Load,
    response: Load,
}

struct Worker<'a> {
    world: &'a World,
    turn: &'a Turn<Report>,
    number: u64,
    replica: Replica<Gated<&'a Turn<Report>>>,
    lease: Lease,
    rng: SplitMix64,
    requests: Vec<InFlight>,
    sent: u64,
    restarts: u64,
}

/// Runs a worker until it traps or the scheduler ends. Returns early when it cannot start.
pub(crate) fn run(world: &World, turn: &Turn<Report>, seed: u64) -> Result<(), Refused> {
    let data = world.memory.behind(turn);
    let number = next_worker_number(&data)?;
    let lease = Lease::new(&data, POOL, number)?;
    let mut replica = Replica::new(data, POOL, number)?;
    replica.adopt(Arc::clone(&world.pools[0]), [&world.pipeline], AVOID);
    let rng = SplitMix64::new(seed ^ number.rotate_left(32));
    let (requests, sent, restarts) = (Vec::new(), 0, 0);
    Worker { world, turn, number, replica, lease, rng, requests, sent, restarts }.follow_orders()
}

impl Worker<'_> {
    fn follow_orders(mut self) -> ! {
        let mut report = None;
        loop {
            match self.turn.idle(report.take()) {
                Order::GoOn => {}
                Order::Act { pads } => self.act(pads),
                Order::Tick => self.tick(),
                Order::EndRequests => {
                    while !self.requests.is_empty() {
                        self.end_request();
                    }
                }
                Order::Report => report = Some(Box::new(self.report())),
            }
        }
    }

    fn now(&self) -> Duration {
        self.world.clock.lock().unwrap().wall
    }

    fn act(&mut self, pads: bool) {
        match self.rng.below(12) {
            0..5 if self.requests.len() < 8 => self.route(pads),
            5..7 => self.begin_answer(),
            7..9 => self.end_request(),
            9 => self.learn(),
            10 if self.world.reorders => {
                let pool = Arc::clone(&self.world.pools[self.rng.below(2)]);
                self.replica.adopt(pool, [&self.world.pipeline], AVOID);
            }
            _ => self.tick(),
        }
    }

    /// The work of every tick.
    fn tick(&mut self) {
        // A later tick tries again.
        let _ = self.replica.keep_up(self.now());
        let _ = self.lease.keep(self.replica.data(), self.now());
        self.check_lease();
    }

    /// A worker that believes to hold the lease is its holder, except for a short time after the clock was
    /// set, and where workers are held up between reading the clock and reading the lease.
    fn check_lease(&self) {
        if !self.world.checks_lease {
            return;
        }
        let clock = *self.world.clock.lock().unwrap();
        let is_settled =
            clock.set_at.is_none_or(|set_at| clock.real.saturating_sub(set_at) > Duration::from_secs(3));
        if is_settled && self.lease.is_held(clock.wall) {
            let lease = self.world.memory.value("/lease").unwrap_or_default();
            assert_eq!(words(&lease).next(), Some(self.number), "two workers hold the lease");
        }
    }

    fn route(&mut self, pads: bool) {
        let now = self.now();
        let Self { world, replica, rng, number, sent, .. } = self;
        *sent += 1;
        let mark = (*number << 32) | *sent;
        let body = prompt(rng.below(PROMPTS));
        let options = world.pipeline.body_options(Headers::default());
        let body = Body::read(&body, Api::Completions, &options).unwrap();
        let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
        let readings = vec![Reading { ready: true, updated: Some(now), ..Reading::default() }; 4];
        let reservations = replica.transact(|ledger: &Ledger| {
            let mut decision = world.pipeline.decide(&request, &ledger.input(&readings, now), now, rng);
            let mut changes = changes_of(&mut decision, ledger.pool());
            let endpoint = ledger.pool().as_slice()[decision.destination().unwrap()].key();
            // No plugin has this key, so these change no ledger.
            let state = |words: Vec<u64>| {
                Change::State(StateChange { plugin: 0, endpoint, at: now, words: words.into() })
            };
            changes.push(state(vec![mark]));
            if pads {
                changes.push(state(vec![mark; 2_000]));
            }
            let reserved = |&Reservation { endpoint, prefill, response }: &Reservation| {
                let endpoint = ledger.pool().as_slice()[endpoint].key();
                Reserved { endpoint, prefill, response }
            };
            (decision.reservations.iter().map(reserved).collect(), changes)
        });
        self.requests.push(InFlight { reservations });
        world.routed.lock().unwrap().push(mark);
    }

    fn key(&self, endpoint: usize) -> u64 {
        self.world.pools[0].as_slice()[endpoint].key()
    }

    fn any_request(&mut self) -> Option<usize> {
        (!self.requests.is_empty()).then(|| self.rng.below(self.requests.len()))
    }

    /// A request's prompt is computed, maybe by another endpoint than the first.
    fn begin_answer(&mut self) {
        let Some(request) = self.any_request() else { return };
        let to = self.rng.below(8);
        let to = (to < 4).then(|| self.key(to));
        let mut changes = Vec::new();
        for reserved in &mut self.requests[request].reservations {
            let Reserved { endpoint, response, .. } = *reserved;
            changes.extend(Change::ended(endpoint, core::mem::take(&mut reserved.prefill)));
            if let Some(to) = to.filter(|to| *to != endpoint) {
                changes.push(Change::Endpoint { endpoint, kind: ChangeKind::Moved { to, load: response } });
                reserved.endpoint = to;
            }
        }
        self.replica.apply(changes.into());
    }

    fn end_request(&mut self) {
        let Some(request) = self.any_request() else { return };
        let InFlight { reservations } = self.requests.swap_remove(request);
        let changes = reservations.into_iter().filter_map(|Reserved { endpoint, prefill, mut response }| {
            response += prefill;
            Change::ended(endpoint, response)
        });
        self.replica.apply(changes.collect());
    }

    /// An endpoint fails, works again, sends a body, or restarts.
    fn learn(&mut self) {
        let now = self.now();
        let endpoint = self.rng.below(4);
        let kind = match self.rng.below(4) {
            0 => ChangeKind::Failed { at: now },
            1 => ChangeKind::Recovered { at: now },
            2 => ChangeKind::Served { first_byte: Duration::from_millis(30), is_streamed: true },
            _ => {
                self.restarts += 1;
                let since = Duration::from_secs(100 * self.restarts);
                let reading = Reading { updated: Some(now), cached_since: Some(since), ..Reading::default() };
                self.replica.observe(&vec![reading; endpoint], ChangedReadings::All);
                return;
            }
        };
        self.replica.apply(vec![Change::Endpoint { endpoint: self.key(endpoint), kind }].into());
    }

    fn report(&self) -> Report {
        let ledger = self.replica.ledger();
        let mut own = vec![Load::default(); 4];
        for reserved in self.requests.iter().flat_map(|request| &request.reservations) {
            let endpoint = self.world.pools[0].index_of(reserved.endpoint).unwrap();
            own[endpoint] += reserved.prefill;
            own[endpoint] += reserved.response;
        }
        let matched = matched(&self.world.pipeline, ledger);
        let history = History {
            routed: ledger.routed(),
            picks: self.in_order(ledger.picks()),
            responses: self.in_order(ledger.responses()),
            matched: matched.iter().map(|counts| self.in_order(counts)).collect(),
        };
        Report {
            loads: self.in_order(ledger.loads()),
            own,
            avoided: self.in_order(ledger.avoided()),
            history,
        }
    }

    /// A list by endpoint of the ledger, in the first pool's order; nothing for endpoints that the list does
    /// not reach.
    fn in_order<T: Clone + Default>(&self, list: &[T]) -> Vec<T> {
        let pool = self.replica.ledger().pool();
        let endpoints = self.world.pools[0].as_slice().iter();
        let index = |endpoint: &Endpoint| pool.index_of(endpoint.key()).unwrap();
        endpoints.map(|endpoint| list.get(index(endpoint)).cloned().unwrap_or_default()).collect()
    }
}

/// The body of a request; every third prompt begins like the one before.
fn prompt(number: usize) -> String {
    let common = format!("the beginning of conversation {} ", number / 3).repeat(30);
    let own = format!("turn {number} ").repeat(60);
    format!(r#"{{"model": "llama", "prompt": "{common}{own}"}}"#)
}

/// Blocks of each prompt that each endpoint has.
fn matched(pipeline: &Pipeline, ledger: &Ledger) -> Vec<Vec<u32>> {
    let keys = pipeline.plugins().iter().map(Instance::key);
    let indices: Vec<&PrefixIndex> = keys.filter_map(|key| ledger.states().of(key)).collect();
    assert!(!indices.is_empty(), "the default pipeline has a prefix index");
    let chains: Vec<_> = (0..PROMPTS).map(|number| chain(pipeline, number)).collect();
    let mut matched = Vec::new();
    for (index, chain) in indices.iter().flat_map(|index| chains.iter().map(move |chain| (index, chain))) {
        let mut counts = vec![0; 4];
        index.count_matches(chain, &mut counts);
        matched.push(counts);
    }
    matched
}

/// The block hashes of a prompt, as a decision over an empty ledger records them.
fn chain(pipeline: &Pipeline, number: usize) -> Vec<u64> {
    let mut ledger = Ledger::default();
    ledger.adopt(crate::fixture::pool(&[1]), [pipeline], AVOID);
    let body = prompt(number);
    let options = pipeline.body_options(Headers::default());
    let body = Body::read(&body, Api::Completions, &options).unwrap();
    let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
    let readings = [Reading { ready: true, updated: Some(AVOID), ..Reading::default() }];
    let view = ledger.input(&readings, AVOID);
    let mut decision = pipeline.decide(&request, &view, AVOID, &mut SplitMix64::new(1));
    let changes = changes_of(&mut decision, ledger.pool());
    let prompt = changes.into_iter().find_map(|change| match change {
        Change::State(prompt) => Some(prompt),
        Change::Endpoint { .. } => None,
    });
    // The first word is the endpoint's capacity.
    prompt.map(|prompt| prompt.words[1..].to_vec()).unwrap_or_default()
}
