//! Runs a cell.

use metrics_agent_kv_events::event::KvEvent as CacheEvent;

use super::conditions::Conditions;
use super::figures::{Figures, Served};
use super::fleet::RunningFleet;
use super::kv_events::{EVENT_DELAY, EventAgent, GATHER};
use super::pickers::{Chunk, Variant};
use super::proxies::RunningProxies;
use super::source::{Clients, Source, Span};
use crate::events::Events;
use endpoint_picker::rng::Rng;
use endpoint_picker_model_server::Progress;
use endpoint_picker_wire::v1;
use std::time::Duration;

/// Time from a scrape until the proxy decides by it: the mean of publishing and of the proxy's tick, each at
/// most 20 ms.
pub const READING_DELAY: Duration = Duration::from_millis(20);

/// One cell: requests, servers and what lies between them.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The requests and their servers.
    pub source: Source,
    /// Number of requests that are measured, about.
    pub requests: usize,
    /// Determines all requests and their times, and the random numbers of the pickers.
    pub seed: u64,
    /// Delays between clients and servers.
    pub conditions: Conditions,
    /// The limit that each request has for its first token, and by which it may be refused. The client of a
    /// refused request gives up.
    pub limit: Option<Duration>,
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
    first_token: Option<Duration>,
    /// Tokens of its response so far.
    made: u64,
    /// When its last chunk so far arrives at the proxy.
    arrives: Duration,
    server: usize,
    answer_tokens: u64,
    is_measured: bool,
}

struct Run<'a> {
    cell: &'a Cell,
    events: Events<Event>,
    fleet: RunningFleet,
    proxies: RunningProxies,
    /// `None`: no events are followed.
    agent: Option<EventAgent>,
    clients: Clients,
    span: Span,
    /// When the first request was measured, and when the last one was sent.
    began: Option<Duration>,
    over: Option<Duration>,
    sent: Vec<Sent>,
    /// Resets of caches so far.
    resets: usize,
    figures: Figures,
    /// Measured requests that have not ended.
    open: usize,
}

impl Cell {
    /// Lets a variant pick for all requests.
    pub fn run(&self, variant: &Variant) -> Figures {
        let fleet = self.source.fleet();
        let span = self.source.span(self.requests);
        let (clients, times) = self.source.clients(span, self.seed);
        let mut events = Events::new(Duration::ZERO);
        for (client, at) in times.into_iter().enumerate() {
            events.plan(at, Event::Request { client });
        }
        if self.conditions.scrape_interval.is_some() {
            events.plan(Duration::ZERO, Event::Scrape);
        }
        let mut fleet = RunningFleet::new(&fleet, span.slow_from());
        let agent = variant.follows_events().then(|| EventAgent::new(fleet.len()));
        if agent.is_some() {
            fleet.publish_changes();
            events.plan(Duration::ZERO, Event::CachesPolled);
        }
        let proxies = self.conditions.proxies;
        let mut proxies = RunningProxies::new(proxies, variant, fleet.len(), self.limit, self.seed);
        for proxy in 0..proxies.len() {
            if let Some(after) = proxies.first_sync() {
                events.plan(after, Event::Sync { proxy });
            }
        }
        let mut run = Run {
            cell: self,
            events,
            figures: Figures::new(fleet.len()),
            fleet,
            proxies,
            agent,
            clients,
            span,
            began: None,
            over: None,
            sent: Vec::new(),
            resets: 0,
            open: 0,
        };
        run.run();
        run.figures
    }
}

impl Run<'_> {
    fn run(&mut self) {
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
    }

    fn take(&mut self, event: Event, now: Duration) {
        match event {
            Event::Request { client } => self.send(client, now),
            Event::StepEnd { server } => self.end_step(server, now),
            Event::Scrape => {
                self.events.plan(self.cell.conditions.scrape_interval.unwrap(), Event::Scrape);
                self.events.plan(READING_DELAY, Event::Readings(self.fleet.readings(now)));
            }
            Event::Readings(mut readings) => {
                let age = Some(u64::try_from(READING_DELAY.as_millis()).unwrap());
                for reading in &mut readings {
                    reading.age_ms = age;
                }
                for picker in self.proxies.pickers() {
                    picker.read(&readings, now);
                }
            }
            Event::Chunk { number, chunk } => self.pass(number, chunk, now),
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
        let (times, is_restart) = self.cell.conditions.resets.times();
        let passed = self.span.passed(self.sent.len(), now);
        if times.get(self.resets).is_some_and(|time| passed >= *time) {
            self.fleet.reset_cache(self.resets % self.fleet.len(), is_restart, now);
            self.resets += 1;
        }
    }

    fn send(&mut self, client: usize, now: Duration) {
        let Some(is_measured) = self.span.measures(self.sent.len(), now) else { return };
        let request = self.clients.next_request(client);
        let number = self.sent.len();
        let foreign = self.cell.conditions.foreign;
        let is_foreign = foreign > 0.0 && self.proxies.rng().unit() < foreign;
        let (proxy, server) = if is_foreign {
            (None, self.proxies.rng().below(self.fleet.len()))
        } else {
            let proxy = self.proxies.draw();
            let picked = self.proxies.picker(proxy).pick(&request, number, &self.fleet, now);
            let Some(server) = picked else {
                self.figures.refused(is_measured);
                return;
            };
            (Some(proxy), server)
        };
        let is_measured = is_measured && !is_foreign;
        self.open += usize::from(is_measured);
        if let Some(agent) = &mut self.agent {
            agent.sent(server, number, &request);
        }
        let work = request.work().clone();
        self.sent.push(Sent {
            client,
            proxy,
            at: now,
            first_token: None,
            made: 0,
            arrives: now,
            server,
            answer_tokens: work.answer_tokens(),
            is_measured,
        });
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
        } else if !is_all && (made - 1).is_multiple_of(self.cell.conditions.chunk_tokens) {
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
        let jitter = self.cell.conditions.jitter;
        if jitter.is_zero() {
            return self.pass(number, chunk, now);
        }
        let late = jitter.mul_f64(self.proxies.rng().unit());
        let request = &mut self.sent[number];
        request.arrives = request.arrives.max(now + late);
        self.events.plan(request.arrives.saturating_sub(now), Event::Chunk { number, chunk });
    }

    fn pass(&mut self, number: usize, chunk: Chunk, now: Duration) {
        if let Some(proxy) = self.sent[number].proxy {
            self.proxies.picker(proxy).chunk(number, chunk, now);
        }
    }
}
