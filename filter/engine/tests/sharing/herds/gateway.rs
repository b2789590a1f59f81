//! Proxies in front of servers.

use core::fmt;
use core::ops::Range;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::Request;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::sharing::{LocalPeer, SharingClient};
use endpoint_picker_wire::changes::Feed;
use endpoint_picker_wire::{pipeline_into_core, v1};

use super::rule::{Memory, Rule};
use super::servers::Servers;
use crate::fixture::{Agent, START, TICK, answer_of, client, decoded};

/// Until then the proxies begin to share. Requests are not counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// When the first server stops answering, and when it goes on.
const STOPS: Range<Duration> = Duration::from_secs(3)..Duration::from_secs(5);

const BETWEEN_BURSTS: Duration = Duration::from_millis(500);

const ONE: Load = Load { requests: 1, tokens: 100 };

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) proxies: usize,
    pub(super) rule: Rule,
    pub(super) servers: u8,
    /// Requests of all proxies, at random times.
    pub(super) per_second: u32,
    pub(super) answers_ms: Range<u32>,
    /// How many times longer every second server takes.
    pub(super) slowness: u32,
    /// From the agent's answer until a proxy has it.
    pub(super) delay: Duration,
    /// Whether the first server stops answering for a while.
    pub(super) stops: bool,
    /// Requests that one proxy sends to one server at once, beside the others.
    pub(super) burst: usize,
    pub(super) seconds: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    requests: usize,
    herded: usize,
    /// Requests sent to the first server while it did not answer.
    pub(super) to_stopped: usize,
}

impl Count {
    /// The percentage of requests that met a busy server while another was idle.
    pub(super) fn herded(&self) -> f64 {
        100.0 * self.herded as f64 / self.requests as f64
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} % of {} requests met a busy server while another was idle",
            self.herded(),
            self.requests
        )
    }
}

struct Proxy {
    peer: LocalPeer,
    client: SharingClient,
    memory: Memory,
    rng: SplitMix64,
}

enum Event {
    Request,
    Burst,
    /// A server has answered a request of a proxy.
    Answer {
        server: usize,
        proxy: usize,
    },
    /// A proxy exchanges with the agent.
    Exchange {
        proxy: usize,
    },
    /// The agent's answer has arrived.
    Feed {
        proxy: usize,
        feed: Feed,
    },
}

pub(super) struct Gateway {
    setup: Setup,
    pool: Arc<Pool>,
    pipeline: Pipeline,
    readings: Vec<Reading>,
    proxies: Vec<Proxy>,
    /// With the proxy of each request.
    servers: Servers<usize>,
    agent: Agent,
    /// By their time, and in the order in which they were planned.
    events: BTreeMap<(Duration, u64), Event>,
    planned: u64,
    now: Duration,
    rng: SplitMix64,
    count: Count,
}

impl Gateway {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        let endpoint = |n| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), vec![]);
        let pool = Arc::new(Pool::new("p".to_owned(), (0..setup.servers).map(endpoint).collect()).unwrap());
        let pipeline = pipeline();
        let servers = usize::from(setup.servers);
        let proxy = |number: usize| Proxy {
            peer: LocalPeer::new(Arc::clone(&pool), &pipeline, Duration::ZERO),
            client: client(number as u64 + 1, 1),
            memory: Memory::new(setup.rule, setup.proxies, servers),
            rng: SplitMix64::new(seed ^ number as u64),
        };
        let mut gateway = Self {
            proxies: (0..setup.proxies).map(proxy).collect(),
            readings: vec![Reading { ready: true, updated: Some(START), ..Reading::default() }; servers],
            servers: Servers::new(servers),
            agent: Agent::new(9),
            events: BTreeMap::new(),
            planned: 0,
            now: START,
            rng: SplitMix64::new(!seed),
            count: Count::default(),
            pool,
            pipeline,
            setup,
        };
        gateway.plan(Duration::ZERO, Event::Request);
        if gateway.setup.burst > 0 {
            gateway.plan(BETWEEN_BURSTS, Event::Burst);
        }
        if gateway.setup.rule != Rule::Apart {
            for proxy in 0..gateway.proxies.len() {
                let phase = TICK.mul_f64(gateway.rng.unit());
                gateway.plan(phase, Event::Exchange { proxy });
            }
        }
        gateway
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.planned += 1;
        self.events.insert((self.now + after, self.planned), event);
    }

    fn since_start(&self) -> Duration {
        self.now - START
    }

    pub(super) fn run(mut self) -> Count {
        while let Some(((now, _), event)) = self.events.pop_first() {
            self.now = now;
            if self.since_start() > Duration::from_secs(self.setup.seconds) {
                break;
            }
            match event {
                Event::Request => {
                    let gap = -(1.0 - self.rng.unit()).ln() / f64::from(self.setup.per_second);
                    self.plan(Duration::from_secs_f64(gap), Event::Request);
                    self.request();
                }
                Event::Burst => {
                    self.plan(BETWEEN_BURSTS, Event::Burst);
                    self.burst();
                }
                Event::Answer { server, proxy } => self.answered(server, proxy),
                Event::Exchange { proxy } => self.exchange(proxy),
                Event::Feed { proxy, feed } => self.read(proxy, &feed),
            }
        }
        self.count
    }

    fn request(&mut self) {
        let number = self.rng.below(self.proxies.len());
        let Proxy { peer, memory, rng, .. } = &mut self.proxies[number];
        let ledger = peer.ledger();
        let deferred = memory.deferred(ledger, self.now);
        let view = DecisionInput { deferred: &deferred, ..ledger.input(&self.readings, self.now) };
        let request = Request { model: "llama", ..Request::default() };
        let server = self.pipeline.decide(&request, &view, self.now, rng).destination().unwrap();
        memory.picked(server, self.now);
        if self.since_start() > WARM_UP {
            self.count.requests += 1;
            self.count.herded += usize::from(self.servers.would_be_herded(server));
            let has_stopped = self.setup.stops && server == 0 && STOPS.contains(&self.since_start());
            self.count.to_stopped += usize::from(has_stopped);
        }
        self.send(number, server);
    }

    /// A proxy has other reasons than load to send many requests to one server.
    fn burst(&mut self) {
        let (proxy, server) = (self.rng.below(self.proxies.len()), self.rng.below(self.readings.len()));
        (0..self.setup.burst).for_each(|_| self.send(proxy, server));
    }

    fn send(&mut self, proxy: usize, server: usize) {
        self.apply(proxy, server, ChangeKind::Started(ONE));
        if let Some(proxy) = self.servers.arrive(server, proxy) {
            self.begin(server, proxy);
        }
    }

    fn apply(&mut self, proxy: usize, server: usize, kind: ChangeKind) {
        let endpoint = self.pool.endpoints()[server].key();
        self.proxies[proxy].peer.apply([Change::Endpoint { endpoint, kind }]);
    }

    fn begin(&mut self, server: usize, proxy: usize) {
        let Range { start, end } = self.setup.answers_ms;
        let slowness = if server.is_multiple_of(2) { self.setup.slowness } else { 1 };
        let mut time = Duration::from_millis(start.into()).mul_f64(f64::from(slowness));
        time += Duration::from_millis((end - start).into()).mul_f64(f64::from(slowness) * self.rng.unit());
        if self.setup.stops && server == 0 {
            let (begin, stopped) = (self.since_start(), &STOPS);
            if begin < stopped.end && begin + time > stopped.start {
                time += stopped.end - begin.max(stopped.start);
            }
        }
        self.plan(time, Event::Answer { server, proxy });
    }

    fn answered(&mut self, server: usize, proxy: usize) {
        self.apply(proxy, server, ChangeKind::Ended(ONE));
        if let Some(next) = self.servers.answer(server) {
            self.begin(server, next);
        }
    }

    fn exchange(&mut self, number: usize) {
        let jitter = Duration::from_millis(1).mul_f64(self.rng.unit());
        self.plan(TICK + jitter, Event::Exchange { proxy: number });
        let Proxy { peer, client, .. } = &mut self.proxies[number];
        if let Some(request) = client.next_exchange(peer, self.now) {
            client.sent(1);
            let feed = self.agent.take(&decoded(&request), self.now);
            self.plan(self.setup.delay, Event::Feed { proxy: number, feed });
        }
    }

    fn read(&mut self, number: usize, feed: &Feed) {
        let Proxy { peer, client, memory, .. } = &mut self.proxies[number];
        client.finish(Ok(answer_of(feed)), peer, self.now);
        memory.read(peer.ledger(), self.now);
    }
}

/// Requests in flight count, and nothing else.
fn pipeline() -> Pipeline {
    let plugin = |r#type: &str| v1::Plugin {
        name: r#type.to_owned(),
        r#type: r#type.to_owned(),
        parameters: "{}".to_owned(),
    };
    let plugins = vec![plugin("active-request-scorer"), plugin("max-score-picker")];
    let of_profile = |plugin: &v1::Plugin| v1::PluginRef { name: plugin.name.clone(), weight: None };
    let profile =
        v1::Profile { name: "default".to_owned(), plugins: plugins.iter().map(of_profile).collect() };
    let config = v1::PickerConfig { plugins, profiles: vec![profile], ..v1::PickerConfig::default() };
    pipeline_into_core(&mut v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).unwrap()
}
