//! Servers at work.

use super::server::BatchServer;
use core::net::SocketAddr;
use endpoint_picker::pool::Endpoint;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker_wire::{reading_from_core, v1};
use metrics_agent_server_model::{
    BatchRequest, CacheChange, Forecast, Outlook, PrefixCacheCounts, Progress, ServiceTimes,
};
use std::ops::Range;
use std::time::Duration;

/// Servers, and how they differ.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Times of a server of the usual speed.
    pub times: ServiceTimes,
    /// The servers.
    pub servers: Vec<ServerKind>,
    /// Whether the last server is slower [for a while](RunningFleet::SLOW).
    pub has_slow_spell: bool,
    /// Whether all servers share one processor: the time of a step is multiplied by the number of servers
    /// that work when it begins.
    pub shares_processor: bool,
}

/// One server of a fleet.
#[derive(Clone, Copy, Debug)]
pub struct ServerKind {
    /// How many times longer its steps take.
    pub slowness: f64,
    /// Blocks in its cache.
    pub kv_blocks: u32,
    /// Blocks that it reports.
    pub reported_blocks: u32,
}

impl ServerKind {
    /// A server that takes this many times longer for its steps, and has this many blocks.
    pub fn new(slowness: f64, kv_blocks: u32) -> Self {
        Self { slowness, kv_blocks, reported_blocks: kv_blocks }
    }
}

impl Fleet {
    /// Equal servers.
    pub fn equal(number: usize, times: ServiceTimes) -> Self {
        let server = ServerKind::new(1.0, times.kv_blocks);
        Self { times, servers: vec![server; number], has_slow_spell: false, shares_processor: false }
    }
}

/// Endpoint of the server of this number, without labels.
pub fn endpoint(number: u16) -> v1::Endpoint {
    v1::Endpoint {
        name: format!("default/e{number}"),
        address: address(number).to_string(),
        labels: Vec::new(),
    }
}

fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    ([10, 0, high, low], 8000).into()
}

/// Servers at work. A request is named by its number.
#[derive(Debug)]
pub struct RunningFleet {
    servers: Vec<Server>,
    slow_spell: Option<Range<Duration>>,
    shares_processor: bool,
}

#[derive(Debug)]
struct Server {
    batch: BatchServer<usize>,
    slowness: f64,
    reported_blocks: u32,
    /// The end of the step in flight.
    step_end: Option<Duration>,
    /// When it was last started, as a reading shows it.
    cached_since: Option<Duration>,
}

impl RunningFleet {
    /// How long a slow spell lasts, and how many times longer the steps take.
    pub const SLOW: (Duration, f64) = (Duration::from_secs(40), 3.0);

    /// Idle servers with empty caches. A slow spell begins at `slow_from`, if the fleet has one.
    pub fn new(fleet: &Fleet, slow_from: Duration) -> Self {
        let server = |kind: &ServerKind| Server {
            batch: BatchServer::new(ServiceTimes { kv_blocks: kind.kv_blocks, ..fleet.times }),
            slowness: kind.slowness,
            reported_blocks: kind.reported_blocks,
            step_end: None,
            cached_since: None,
        };
        let slow_spell = fleet.has_slow_spell.then(|| slow_from..slow_from + Self::SLOW.0);
        Self {
            servers: fleet.servers.iter().map(server).collect(),
            slow_spell,
            shares_processor: fleet.shares_processor,
        }
    }

    /// Number of servers.
    pub fn len(&self) -> usize {
        self.servers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The endpoints of all servers; of more than 65 536 the first ones.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let numbers = 0..u16::try_from(self.servers.len()).unwrap_or(u16::MAX);
        numbers.map(|number| Endpoint::new(format!("default/e{number}"), address(number), vec![])).collect()
    }

    /// All servers publish the changes of their caches from now on.
    pub fn publish_changes(&mut self) {
        for server in &mut self.servers {
            server.batch.publish_changes();
        }
    }

    /// The changes that a server has published since the last call.
    pub fn take_published(&mut self, server: usize) -> Vec<CacheChange> {
        self.servers[server].batch.take_published()
    }

    /// Sends a request to a server. Returns the end of the step that begins with it, if the server was idle.
    pub fn add(
        &mut self,
        server: usize,
        work: BatchRequest,
        number: usize,
        now: Duration,
    ) -> Option<Duration> {
        let step = self.servers[server].batch.add(work, number);
        self.begin_step(server, step, now)
    }

    /// Ends a step. `report` gets each request. Returns the end of the next step, if there is one.
    pub fn end_step(
        &mut self,
        server: usize,
        now: Duration,
        mut report: impl FnMut(usize, Progress),
    ) -> Option<Duration> {
        let step = self.servers[server].batch.end_step(|&mut number, progress| report(number, progress));
        self.servers[server].step_end = None;
        self.begin_step(server, step, now)
    }

    fn begin_step(&mut self, server: usize, step: Option<Duration>, now: Duration) -> Option<Duration> {
        let slowness = self.slowness(server, now);
        let others = self.servers.iter().filter(|other| self.shares_processor && other.step_end.is_some());
        let working = 1.0 + others.count() as f64;
        let end = now + step?.mul_f64(slowness * working);
        self.servers[server].step_end = Some(end);
        Some(end)
    }

    /// How many times longer the steps of a server take now.
    fn slowness(&self, server: usize, now: Duration) -> f64 {
        let is_slow = server + 1 == self.servers.len()
            && self.slow_spell.as_ref().is_some_and(|spell| spell.contains(&now));
        self.servers[server].slowness * if is_slow { Self::SLOW.1 } else { 1.0 }
    }

    /// Empties the cache of a server. With `is_restart` its readings show that it was started at this time.
    pub fn reset_cache(&mut self, server: usize, is_restart: bool, now: Duration) {
        let server = &mut self.servers[server];
        server.batch.reset_cache();
        if is_restart {
            server.cached_since = Some(now);
        }
    }

    /// Prompt tokens of a request that a server has cached.
    pub fn cached_tokens(&self, server: usize, work: &BatchRequest) -> usize {
        self.servers[server].batch.batch().cached_tokens(work)
    }

    /// How long a prompt would keep a server of the usual speed busy.
    pub fn time_to_read(&self, server: usize, work: &BatchRequest) -> Duration {
        self.servers[server].batch.batch().time_to_read(work)
    }

    /// State that a request would meet at a server, from now on.
    pub fn outlook(&self, server: usize, work: &BatchRequest, now: Duration) -> Outlook {
        let batch = self.servers[server].batch.batch();
        let forecast = batch.forecast(work);
        let slowness = self.slowness(server, now);
        let step_left = self.servers[server].step_end.map_or(Duration::ZERO, |end| end.saturating_sub(now));
        let forecast = Forecast {
            first_token: step_left + forecast.first_token.mul_f64(slowness),
            own: forecast.own.mul_f64(slowness),
        };
        Outlook { requests: batch.waiting() + batch.running(), forecast }
    }

    /// Prompt tokens that the servers have looked up and found.
    pub fn prefix_cache(&self) -> PrefixCacheCounts {
        let counts = self.servers.iter().map(|server| server.batch.prefix_cache());
        counts.fold(PrefixCacheCounts::default(), |sum, one| PrefixCacheCounts {
            queried: sum.queried + one.queried,
            hit: sum.hit + one.hit,
        })
    }

    /// Adapters that the servers have loaded.
    pub fn adapter_loads(&self) -> u64 {
        self.servers.iter().map(|server| server.batch.batch().adapter_loads()).sum()
    }

    /// How often a request was put back into a queue.
    pub fn preemptions(&self) -> u64 {
        self.servers.iter().map(|server| server.batch.batch().preemptions()).sum()
    }

    /// The readings of all servers, as an agent publishes them.
    pub fn readings(&self, now: Duration) -> Vec<v1::Reading> {
        let reading = |server: &Server| {
            let num_blocks = Some(server.reported_blocks);
            let cached_since = server.cached_since;
            reading_from_core(&Reading { num_blocks, cached_since, ..server.batch.reading(now) }, now)
        };
        self.servers.iter().map(reading).collect()
    }
}
