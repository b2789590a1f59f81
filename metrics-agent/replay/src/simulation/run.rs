//! The run of a simulation: clients, proxies with pickers, and servers, event by event.

use metrics_agent_kv_events::event::KvEvent as CacheEvent;
use metrics_agent_server_model::Progress;

use super::events::Events;
use super::figures::{Figures, Served};
use super::fleet::{Fleet, RunningFleet};
use super::kv_events::{EVENT_DELAY, EventAgent, GATHER};
use super::pickers::{Chunk, Pick};
use super::proxies::{Proxies, Way};
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
enum Event {
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
struct Sent {
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

struct Run<C, P> {
    events: Events<Event>,
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
    sent: Vec<Sent>,
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
            events.plan(at, Event::Request { client });
        }
        if self.scrape_interval.is_some() {
            events.plan(Duration::ZERO, Event::Scrape);
        }
        let mut fleet = RunningFleet::new(&self.fleet, span.slow_from());
        let agent = self.follows_events.then(|| EventAgent::new(&fleet.endpoints()));
        if agent.is_some() {
            fleet.publish_changes();
            events.plan(Duration::ZERO, Event::CachesPolled);
        }
        for (proxy, after) in proxies.first_syncs().into_iter().enumerate() {
            events.plan(after, Event::Sync { proxy });
        }
        let run = Run {
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

impl<C: Clients, P: Proxies> Run<C, P> {
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

    fn take(&mut self, event: Event, now: Duration) {
        match event {
            Event::Request { client } => self.send(client, now),
            Event::StepEnd { server } => self.end_step(server, now),
            Event::Scrape => {
                if let Some(interval) = self.scrape_interval {
                    self.events.plan(interval, Event::Scrape);
                }
                self.events.plan(READING_DELAY, Event::Readings(self.fleet.readings(now)));
            }
            Event::Readings(mut readings) => {
                let age = u64::try_from(READING_DELAY.as_millis()).ok();
                for reading in &mut readings {
                    reading.age_ms = age;
                }
                for picker in self.proxies.pickers() {
                    picker.read(&readings, now);
                }
            }
            Event::Chunk { number, chunk } => self.pass(number, chunk, now),
            Event::QueueTick { proxy } => {
                self.ticking.remove(&proxy);
                self.proxies.pickers()[proxy].tick_queue(now);
                self.follow_queue(proxy, now);
            }
            Event::Sync { proxy } => {
                let after = self.proxies.sync(proxy, now);
                self.events.plan(after, Event::Sync { proxy });
            }
            Event::CacheEvents { server, events } => {
                if let Some(agent) = &mut self.agent {
                    agent.apply(server, &events, now);
                }
            }
            Event::CachesPolled => {
                let messages = self.agent.as_mut().map(|agent| agent.poll(now)).unwrap_or_default();
                self.events.plan(READING_DELAY, Event::Caches(messages));
                self.events.plan(READING_DELAY + GATHER, Event::CachesPolled);
            }
            Event::Caches(messages) => {
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

    fn send(&mut self, client: usize, now: Duration) {
        let Some(is_measured) = self.span.measures(self.sent.len(), now) else { return };
        let request = self.clients.next_request(client);
        let number = self.sent.len();
        let way = self.proxies.way(self.fleet.len());
        let (proxy, pick) = match way {
            Way::Past(server) => (None, Pick::Server(server)),
            Way::Proxy(proxy) => {
                let picker = &mut self.proxies.pickers()[proxy];
                (Some(proxy), picker.pick(&request, number, &self.fleet, now))
            }
        };
        let is_measured = is_measured && proxy.is_some();
        self.open += usize::from(is_measured);
        self.sent.push(Sent {
            client,
            proxy,
            at: now,
            waiting: Some(request),
            first_token: None,
            made: 0,
            arrives: now,
            server: 0,
            answer_tokens: 0,
            is_measured,
        });
        self.settle(number, pick, now);
        if let Some(proxy) = proxy {
            self.follow_queue(proxy, now);
        }
    }

    /// Sends requests that the queue of a proxy has resumed, and plans its next tick.
    fn follow_queue(&mut self, proxy: usize, now: Duration) {
        let picker = &mut self.proxies.pickers()[proxy];
        let (resumed, wake_at) = (picker.take_resumed(now), picker.wake_at());
        for (number, pick) in resumed {
            self.settle(number, pick, now);
        }
        if let Some(at) = wake_at
            && self.ticking.insert(proxy)
        {
            self.events.plan(at.saturating_sub(now), Event::QueueTick { proxy });
        }
    }

    /// A request has been decided, or waits on.
    fn settle(&mut self, number: usize, pick: Pick, now: Duration) {
        let sent = &mut self.sent[number];
        let server = match pick {
            Pick::Waits => return,
            Pick::Server(server) => server,
            Pick::Refused => {
                self.figures.refused(sent.is_measured);
                self.open -= usize::from(sent.is_measured);
                sent.waiting = None;
                let client = sent.client;
                if let Some(pause) = self.clients.refused(client) {
                    self.events.plan(pause, Event::Request { client });
                }
                return;
            }
        };
        let Some(request) = sent.waiting.take() else { return };
        let work = request.work().clone();
        (sent.server, sent.answer_tokens) = (server, work.answer_tokens());
        if let Some(agent) = &mut self.agent {
            agent.sent(server, number, &request);
        }
        if let Some(end) = self.fleet.add(server, work, number, now) {
            self.events.plan(end.saturating_sub(now), Event::StepEnd { server });
        }
    }

    fn end_step(&mut self, server: usize, now: Duration) {
        let (mut progressed, mut ended) = (Vec::new(), Vec::new());
        let next = self.fleet.end_step(server, now, |number, progress| progressed.push((number, progress)));
        for (number, progress) in progressed {
            self.progress(number, progress, now);
            ended.extend(progress.is_all.then_some(number));
        }
        if let Some(end) = next {
            self.events.plan(end.saturating_sub(now), Event::StepEnd { server });
        }
        if let Some(agent) = &mut self.agent {
            let events = agent.events(server, self.fleet.take_published(server));
            self.events.plan(EVENT_DELAY, Event::CacheEvents { server, events });
            for number in ended {
                agent.ended(server, number);
            }
        }
    }

    /// A request has been in a step, which may have made a token.
    fn progress(&mut self, number: usize, progress: Progress, now: Duration) {
        let Progress { made, is_all, cached } = progress;
        let request = &mut self.sent[number];
        // One that was put back into the queue reads its own tokens again.
        if made == request.made {
            return;
        }
        request.made = made;
        if request.first_token.is_none() {
            request.first_token = Some(now);
            self.respond(number, Chunk::First, now);
        } else if !is_all && (made - 1).is_multiple_of(self.chunk_tokens) {
            self.respond(number, Chunk::More, now);
        }
        if !is_all {
            return;
        }
        self.respond(number, Chunk::Last { cached }, now);
        let request = &self.sent[number];
        if let Some(first_token) = request.first_token.filter(|_| request.is_measured) {
            self.open -= 1;
            self.figures.served(&Served {
                first_token: first_token.saturating_sub(request.at),
                rest: now.saturating_sub(first_token),
                answer_tokens: request.answer_tokens,
                server: request.server,
                is_in_time: self.over.is_none(),
            });
        }
        let client = request.client;
        if let Some(pause) = self.clients.ended(client) {
            self.events.plan(pause, Event::Request { client });
        }
    }

    /// A server responds with a chunk, which arrives at the proxy now or a little later, behind those before
    /// it.
    fn respond(&mut self, number: usize, chunk: Chunk, now: Duration) {
        let Some(late) = self.proxies.lateness() else { return self.pass(number, chunk, now) };
        let request = &mut self.sent[number];
        request.arrives = request.arrives.max(now + late);
        self.events.plan(request.arrives.saturating_sub(now), Event::Chunk { number, chunk });
    }

    fn pass(&mut self, number: usize, chunk: Chunk, now: Duration) {
        if let Some(proxy) = self.sent[number].proxy {
            self.proxies.pickers()[proxy].chunk(number, chunk, now);
        }
    }
}
