//! Runs a cell.

use super::figures::{Figures, Served};
use super::fleet::RunningFleet;
use super::kv_events::{EVENT_DELAY, EventAgent, GATHER};
use super::pickers::{Picker, Variant};
use super::sessions::Arrival;
use super::workloads::Workload;
use crate::events::Events;
use endpoint_picker_model_server::Progress;
use endpoint_picker_wire::v1;
use metrics_agent::kv_events::event::Event as CacheEvent;
use std::time::Duration;

/// Time from a scrape until the proxy decides by it: the mean of publishing and of the proxy's tick, each at most 20 ms.
pub const READING_DELAY: Duration = Duration::from_millis(20);

/// The conditions of a run.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The requests.
    pub workload: Workload,
    /// Requests per second.
    pub per_second: f64,
    /// Number of requests that are measured, about.
    pub requests: usize,
    /// Determines all requests and their times, and the random numbers of the picker.
    pub seed: u64,
    /// Time between two scrapes of a server; `None`: nothing is ever scraped.
    pub scrape_interval: Option<Duration>,
    /// The limit that each request has for its first token, and by which it may be refused. The client of a refused request gives up.
    pub limit: Option<Duration>,
}

/// Requests before those that are measured, as a part of these: they fill the caches.
const WARM_UP: f64 = 0.5;

/// Time after the last measured request until an unanswered one counts as never answered.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug)]
enum Event {
    /// The next turn of a session is sent.
    Turn {
        session: usize,
    },
    StepEnd {
        server: usize,
    },
    Scrape,
    Readings(Vec<v1::Reading>),
    /// Events of a server arrive at the agent.
    CacheEvents {
        server: usize,
        events: Vec<CacheEvent>,
    },
    /// The agent responds to the proxy's poll for the contents of caches.
    CachesPolled,
    /// The response arrives at the proxy.
    Caches(Vec<Vec<u8>>),
}

struct SessionState {
    arrival: Arrival,
    /// The next turn.
    next: usize,
}

/// A request that was sent.
struct Sent {
    session: usize,
    at: Duration,
    first_token: Option<Duration>,
    server: usize,
    answer_tokens: u64,
    is_measured: bool,
}

struct Run<'a> {
    events: Events<Event>,
    fleet: RunningFleet,
    picker: Picker,
    /// `None`: no events are followed.
    agent: Option<EventAgent>,
    sessions: Vec<SessionState>,
    sent: Vec<Sent>,
    figures: Figures,
    cell: &'a Cell,
    /// The requests that are sent then are measured.
    begin: Duration,
    end: Duration,
    /// Measured requests that have not ended.
    open: usize,
}

impl Cell {
    /// Lets a variant pick for all requests.
    pub fn run(&self, variant: &Variant) -> Figures {
        let measured = Duration::from_secs_f64(self.requests as f64 / self.per_second);
        let begin = measured.mul_f64(WARM_UP);
        let end = begin + measured;
        let arrivals = self.workload.arrivals(self.per_second, end, self.seed);
        let mut events = Events::new(Duration::ZERO);
        for (session, arrival) in arrivals.iter().enumerate() {
            events.plan(arrival.at, Event::Turn { session });
        }
        if self.scrape_interval.is_some() {
            events.plan(Duration::ZERO, Event::Scrape);
        }
        let fleet = self.workload.fleet();
        // A slow spell begins after a quarter of the measured time.
        let mut fleet = RunningFleet::new(&fleet, begin + measured / 4);
        let agent = variant.follows_events().then(|| EventAgent::new(fleet.len()));
        if agent.is_some() {
            fleet.publish_changes();
            events.plan(Duration::ZERO, Event::CachesPolled);
        }
        let picker = Picker::new(variant, fleet.len(), self.limit, self.seed);
        let sessions = arrivals.into_iter().map(|arrival| SessionState { arrival, next: 0 }).collect();
        let figures = Figures::new(fleet.len(), measured);
        let sent = Vec::new();
        let mut run =
            Run { events, fleet, picker, agent, sessions, sent, figures, cell: self, begin, end, open: 0 };
        run.run();
        run.figures
    }
}

impl Run<'_> {
    fn run(&mut self) {
        let mut cache = None;
        while let Some(event) = self.events.pop() {
            let now = self.events.now();
            if cache.is_none() && now >= self.begin {
                cache = Some(self.fleet.prefix_cache());
            }
            if now >= self.end && (self.open == 0 || now >= self.end + PATIENCE) {
                break;
            }
            match event {
                Event::Turn { session } => self.send(session, now),
                Event::StepEnd { server } => self.end_step(server, now),
                Event::Scrape => {
                    self.events.plan(self.cell.scrape_interval.unwrap(), Event::Scrape);
                    self.events.plan(READING_DELAY, Event::Readings(self.fleet.readings(now)));
                }
                Event::Readings(mut readings) => {
                    let age = Some(u64::try_from(READING_DELAY.as_millis()).unwrap());
                    for reading in &mut readings {
                        reading.age_ms = age;
                    }
                    self.picker.read(readings, now);
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
                Event::Caches(messages) => self.picker.update_caches(&messages, now),
            }
        }
        let (before, after) = (cache.unwrap_or_default(), self.fleet.prefix_cache());
        self.figures.cache(after.queried - before.queried, after.hit - before.hit);
        self.figures.unanswered(self.open);
    }

    fn send(&mut self, session: usize, now: Duration) {
        if now >= self.end {
            return;
        }
        let state = &mut self.sessions[session];
        let request = state.arrival.session.turns[state.next].request.clone();
        state.next += 1;
        let number = self.sent.len();
        let is_measured = now >= self.begin;
        let Some(server) = self.picker.pick(&request, number, &self.fleet, now) else {
            self.figures.refused(is_measured);
            return;
        };
        self.open += usize::from(is_measured);
        if let Some(agent) = &mut self.agent {
            agent.sent(server, number, &request);
        }
        let work = request.work().clone();
        let answer_tokens = work.answer_tokens();
        self.sent.push(Sent { session, at: now, first_token: None, server, answer_tokens, is_measured });
        if let Some(end) = self.fleet.add(server, work, number, now) {
            self.events.plan(end.saturating_sub(now), Event::StepEnd { server });
        }
    }

    fn end_step(&mut self, server: usize, now: Duration) {
        let Self { fleet, sent, picker, sessions, events, figures, open, end, .. } = self;
        let mut ended = Vec::new();
        let next = fleet.end_step(server, now, |number, Progress { made, is_all, cached }| {
            let request = &mut sent[number];
            if made > 0 && request.first_token.is_none() {
                request.first_token = Some(now);
                picker.first_token(number, now);
            }
            if !is_all {
                return;
            }
            picker.last_token(number, cached, now);
            ended.push(number);
            if let Some(first_token) = request.first_token.filter(|_| request.is_measured) {
                *open -= 1;
                figures.served(&Served {
                    first_token: first_token.saturating_sub(request.at),
                    rest: now.saturating_sub(first_token),
                    answer_tokens: request.answer_tokens,
                    server: request.server,
                    is_in_time: now < *end,
                });
            }
            let state = &sessions[request.session];
            if let Some(turn) = state.arrival.session.turns.get(state.next) {
                events.plan(turn.pause, Event::Turn { session: request.session });
            }
        });
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
}
