//! The run of a simulation: clients, proxies with pickers, and servers, event by event.

mod requests;

use metrics_agent_kv_events::event::KvEvent as CacheEvent;

use super::events::Events;
use super::figures::Figures;
use super::fleet::{Fleet, RunningFleet};
use super::kv_events::{EventAgent, GATHER};
use super::pickers::Chunk;
use super::proxies::Proxies;
use super::request::SimulatedRequest;
use super::span::Span;
use endpoint_picker_wire::v1;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Time from a scrape until the proxy decides by it: the mean of publishing and of the proxy's tick, each at
/// most 20 ms.
pub const READING_DELAY: Duration = Duration::from_millis(20);

/// Clients, proxies and servers, before the first request.
#[derive(Debug)]
pub struct Simulation<C, P> {
    /// The servers.
    pub fleet: Fleet,
    /// The clients.
    pub clients: C,
    /// When each client sends its first request.
    pub first_requests: Vec<Duration>,
    /// The proxies.
    pub proxies: P,
    /// Which requests are sent and measured.
    pub span: Span,
    /// Time between two scrapes of a server; `None`: nothing is ever scraped.
    pub scrape_interval: Option<Duration>,
    /// Tokens of a response in a chunk after the first one.
    pub chunk_tokens: u64,
    /// Whether the servers' KV-cache events are followed.
    pub follows_events: bool,
    /// The parts of the run, 0 to 1, after which the cache of a server is emptied, and whether its readings
    /// show a restart then.
    pub resets: (&'static [f64], bool),
}

/// Clients that send requests, by their numbers.
pub trait Clients {
    /// The next request of a client.
    fn next_request(&mut self, client: usize) -> Arc<SimulatedRequest>;

    /// A client's response has ended. Returns the time until its next request, if it sends one.
    fn ended(&mut self, client: usize) -> Option<Duration>;

    /// A client's request was refused. Returns the time until its next request, if it sends one.
    fn refused(&mut self, client: usize) -> Option<Duration> {
        let _ = client;
        None
    }
}

/// Time after the last request until an unanswered one counts as never answered.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug)]
enum SimulatedEvent {
    /// A client sends its next request.
    Request {
        client: usize,
    },
    StepEnd {
        server: usize,
    },
    Scrape,
    Readings(Vec<v1::Reading>),
    /// A chunk of a response arrives at its proxy.
    Chunk {
        number: usize,
        chunk: Chunk,
    },
    /// The queue in front of a proxy's pool is ticked.
    QueueTick {
        proxy: usize,
    },
    /// A proxy sends its changes to the agent, and reads the other proxies' changes.
    Sync {
        proxy: usize,
    },
    /// Events of a server arrive at the agent.
    CacheEvents {
        server: usize,
        events: Vec<CacheEvent>,
    },
    /// The agent responds to the proxies' poll for the contents of caches.
    CachesPolled,
    /// The response arrives at the proxies.
    Caches(Vec<Vec<u8>>),
}

/// A request that was sent.
struct RunRequest {
    client: usize,
    /// `None`: it passed all of them by.
    proxy: Option<usize>,
    at: Duration,
    /// The request, while it waits in the queue.
    waiting: Option<Arc<SimulatedRequest>>,
    first_token: Option<Duration>,
    /// Tokens of its response so far.
    made: u64,
    /// When its last chunk so far arrives at the proxy.
    arrives: Duration,
    /// Zero while it waits.
    server: usize,
    answer_tokens: u64,
    is_measured: bool,
}

struct SimulationRun<C, P> {
    events: Events<SimulatedEvent>,
    fleet: RunningFleet,
    proxies: P,
    /// `None`: no events are followed.
    agent: Option<EventAgent>,
    clients: C,
    span: Span,
    scrape_interval: Option<Duration>,
    chunk_tokens: u64,
    resets: (&'static [f64], bool),
    /// When the first request was measured, and when the last one was sent.
    began: Option<Duration>,
    over: Option<Duration>,
    sent: Vec<RunRequest>,
    /// The proxies whose queue is to be ticked.
    ticking: BTreeSet<usize>,
    /// Resets of caches so far.
    resets_so_far: usize,
    figures: Figures,
    /// Measured requests that have not ended.
    open: usize,
}

impl<C: Clients, P: Proxies> Simulation<C, P> {
    /// Runs it to its end.
    pub fn run(self) -> Figures {
        let Self { clients, first_requests, mut proxies, span, .. } = self;
        let mut events = Events::new(Duration::ZERO);
        for (client, at) in first_requests.into_iter().enumerate() {
            events.plan(at, SimulatedEvent::Request { client });
        }
        if self.scrape_interval.is_some() {
            events.plan(Duration::ZERO, SimulatedEvent::Scrape);
        }
        let mut fleet = RunningFleet::new(&self.fleet, span.slow_from());
        let agent = self.follows_events.then(|| EventAgent::new(&fleet.endpoints()));
        if agent.is_some() {
            fleet.publish_changes();
            events.plan(Duration::ZERO, SimulatedEvent::CachesPolled);
        }
        for (proxy, after) in proxies.first_syncs().into_iter().enumerate() {
            events.plan(after, SimulatedEvent::Sync { proxy });
        }
        let run = SimulationRun {
            events,
            figures: Figures::new(fleet.len()),
            fleet,
            proxies,
            agent,
            clients,
            span,
            scrape_interval: self.scrape_interval,
            chunk_tokens: self.chunk_tokens.max(1),
            resets: self.resets,
            began: None,
            over: None,
            sent: Vec::new(),
            ticking: BTreeSet::new(),
            resets_so_far: 0,
            open: 0,
        };
        run.run()
    }
}

impl<C: Clients, P: Proxies> SimulationRun<C, P> {
    fn run(mut self) -> Figures {
        let (mut cache, mut loads) = (None, 0);
        while let Some(event) = self.events.pop() {
            let now = self.events.now();
            match self.span.measures(self.sent.len(), now) {
                None => {
                    self.over.get_or_insert(now);
                }
                Some(true) if self.began.is_none() => {
                    self.began = Some(now);
                    cache = Some(self.fleet.prefix_cache());
                    loads = self.fleet.adapter_loads();
                }
                Some(_) => {}
            }
            if self.over.is_some_and(|over| self.open == 0 || now >= over + PATIENCE) {
                break;
            }
            self.reset_caches(now);
            self.take(event, now);
        }
        let (before, after) = (cache.unwrap_or_default(), self.fleet.prefix_cache());
        self.figures.cache(after.queried - before.queried, after.hit - before.hit);
        self.figures.adapter_loads(self.fleet.adapter_loads() - loads);
        let lasting = self.over.unwrap_or(self.events.now()).saturating_sub(self.began.unwrap_or_default());
        self.figures.end(lasting, self.open);
        self.figures
    }

    fn take(&mut self, event: SimulatedEvent, now: Duration) {
        match event {
            SimulatedEvent::Request { client } => self.send(client, now),
            SimulatedEvent::StepEnd { server } => self.end_step(server, now),
            SimulatedEvent::Scrape => {
                if let Some(interval) = self.scrape_interval {
                    self.events.plan(interval, SimulatedEvent::Scrape);
                }
                self.events.plan(READING_DELAY, SimulatedEvent::Readings(self.fleet.readings(now)));
            }
            SimulatedEvent::Readings(mut readings) => {
                let age = u64::try_from(READING_DELAY.as_millis()).ok();
                for reading in &mut readings {
                    reading.age_ms = age;
                }
                for picker in self.proxies.pickers() {
                    picker.read(&readings, now);
                }
            }
            SimulatedEvent::Chunk { number, chunk } => self.pass(number, chunk, now),
            SimulatedEvent::QueueTick { proxy } => {
                self.ticking.remove(&proxy);
                self.proxies.pickers()[proxy].tick_queue(now);
                self.follow_queue(proxy, now);
            }
            SimulatedEvent::Sync { proxy } => {
                let after = self.proxies.sync(proxy, now);
                self.events.plan(after, SimulatedEvent::Sync { proxy });
            }
            SimulatedEvent::CacheEvents { server, events } => {
                if let Some(agent) = &mut self.agent {
                    agent.apply(server, &events, now);
                }
            }
            SimulatedEvent::CachesPolled => {
                let messages = self.agent.as_mut().map(|agent| agent.poll(now)).unwrap_or_default();
                self.events.plan(READING_DELAY, SimulatedEvent::Caches(messages));
                self.events.plan(READING_DELAY + GATHER, SimulatedEvent::CachesPolled);
            }
            SimulatedEvent::Caches(messages) => {
                for picker in self.proxies.pickers() {
                    picker.update_caches(&messages, now);
                }
            }
        }
    }

    fn reset_caches(&mut self, now: Duration) {
        let (times, is_restart) = self.resets;
        let passed = self.span.passed(self.sent.len(), now);
        if times.get(self.resets_so_far).is_some_and(|time| passed >= *time) {
            self.fleet.reset_cache(self.resets_so_far % self.fleet.len(), is_restart, now);
            self.resets_so_far += 1;
        }
    }
}
