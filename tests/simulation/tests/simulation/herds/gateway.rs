//! Proxies in front of servers.

use core::fmt;
use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::{FractionalLoad, Load};
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::testing::{START, picker_config, pipeline, pool};
use endpoint_picker_simulation::proxy::Proxy;
use endpoint_picker_simulation::servers::PlaceServers;
use endpoint_picker_simulation::world::World;

/// Time in which the proxies begin to share. Its requests are not counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// Time in which the first server serves nothing.
const STOPS: Range<Duration> = Duration::from_secs(3)..Duration::from_secs(5);

const BETWEEN_BURSTS: Duration = Duration::from_millis(500);

const ONE: Load = Load { requests: 1, tokens: 100 };

/// How the loads of other proxies count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// Not at all: proxies do not share.
    Apart,
    /// As they are read.
    AtOnce,
    /// As the engine defers them.
    Deferred,
}

#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) proxies: usize,
    pub(super) rule: Rule,
    pub(super) servers: u16,
    /// Requests of all proxies in a second, at random times.
    pub(super) per_second: u32,
    pub(super) service_ms: Range<u32>,
    /// How many times longer every second server takes.
    pub(super) slowness: u32,
    /// Time from the agent's response until a proxy has it.
    pub(super) delay: Duration,
    /// Whether the first server serves nothing for a while.
    pub(super) stops: bool,
    /// Requests that a proxy sends to one server at once, in addition to the others.
    pub(super) burst: usize,
    pub(super) seconds: u64,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Count {
    requests: usize,
    herded: usize,
    /// Requests sent to the first server while it served nothing.
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

enum Event {
    Request,
    Burst,
    /// A server has served a request of a proxy.
    Served {
        server: usize,
        proxy: usize,
    },
}

pub(super) struct Gateway {
    setup: Setup,
    world: World<Event>,
    pool: Arc<Endpoints>,
    pipeline: Pipeline,
    readings: Vec<Reading>,
    /// The servers, with the proxy of each request.
    servers: PlaceServers<usize>,
    count: Count,
}

impl Gateway {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        let pool = pool("p", 0..setup.servers);
        // Requests in flight count, and nothing else.
        let pipeline =
            pipeline(picker_config(&[("active-request-scorer", None), ("max-score-picker", None)]));
        let servers = usize::from(setup.servers);
        let rng = |number| SplitMix64::new(seed ^ number as u64);
        let proxies = (0..setup.proxies).map(|number| Proxy::new(number, &pool, &pipeline, rng(number)));
        let mut world = World::new(proxies.collect(), SplitMix64::new(!seed));
        world.plan(Duration::ZERO, Event::Request);
        if setup.burst > 0 {
            world.plan(BETWEEN_BURSTS, Event::Burst);
        }
        if setup.rule != Rule::Apart {
            world.share(setup.delay);
        }
        Self {
            readings: vec![Reading { ready: true, updated: Some(START), ..Reading::default() }; servers],
            servers: PlaceServers::new(servers),
            count: Count::default(),
            world,
            pool,
            pipeline,
            setup,
        }
    }

    pub(super) fn run(mut self) -> Count {
        while let Some(event) = self.world.next_event() {
            if self.world.since_start() > Duration::from_secs(self.setup.seconds) {
                break;
            }
            match event {
                Event::Request => {
                    let gap = -(1.0 - self.world.rng.unit()).ln() / f64::from(self.setup.per_second);
                    self.world.plan(Duration::from_secs_f64(gap), Event::Request);
                    self.request();
                }
                Event::Burst => {
                    self.world.plan(BETWEEN_BURSTS, Event::Burst);
                    self.burst();
                }
                Event::Served { server, proxy } => {
                    self.apply(proxy, server, ChangeKind::Ended(ONE));
                    if let Some(next) = self.servers.end(server) {
                        self.begin(server, next);
                    }
                }
            }
        }
        self.count
    }

    fn request(&mut self) {
        let (now, since_start) = (self.world.now(), self.world.since_start());
        let number = self.world.rng.below(self.world.proxies.len());
        let proxy = &mut self.world.proxies[number];
        let deferred: Option<&[FractionalLoad]> = match self.setup.rule {
            Rule::Apart | Rule::AtOnce => Some(&[]),
            Rule::Deferred => None,
        };
        let request = Request { model: "llama", ..Request::default() };
        let pick = proxy.pick(&self.pipeline, &request, &self.readings, deferred, now);
        if since_start > WARM_UP {
            self.count.requests += 1;
            self.count.herded += usize::from(self.servers.would_be_herded(pick.server));
            let has_stopped = self.setup.stops && pick.server == 0 && STOPS.contains(&since_start);
            self.count.to_stopped += usize::from(has_stopped);
        }
        self.send(number, pick.server);
    }

    /// A proxy has other reasons than load to send many requests to one server.
    fn burst(&mut self) {
        let world = &mut self.world;
        let (proxy, server) = (world.rng.below(world.proxies.len()), world.rng.below(self.readings.len()));
        (0..self.setup.burst).for_each(|_| self.send(proxy, server));
    }

    fn send(&mut self, proxy: usize, server: usize) {
        self.apply(proxy, server, ChangeKind::Started(ONE));
        if let Some(proxy) = self.servers.add(server, proxy) {
            self.begin(server, proxy);
        }
    }

    fn apply(&mut self, proxy: usize, server: usize, kind: ChangeKind) {
        let endpoint = self.pool.as_slice()[server].key();
        self.world.proxies[proxy].apply([Change::Endpoint { endpoint, kind }]);
    }

    fn begin(&mut self, server: usize, proxy: usize) {
        let Range { start, end } = self.setup.service_ms;
        let slowness = if server.is_multiple_of(2) { self.setup.slowness } else { 1 };
        let mut time = Duration::from_millis(start.into()).mul_f64(f64::from(slowness));
        time +=
            Duration::from_millis((end - start).into()).mul_f64(f64::from(slowness) * self.world.rng.unit());
        if self.setup.stops && server == 0 {
            let (begin, stopped) = (self.world.since_start(), &STOPS);
            if begin < stopped.end && begin + time > stopped.start {
                time += stopped.end - begin.max(stopped.start);
            }
        }
        self.world.plan(time, Event::Served { server, proxy });
    }
}
