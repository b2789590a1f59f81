//! A replay: all rules with all seeds, compared with what really happened.

use crate::clients::{Order, RecordClients};
use crate::fit::Fit;
use crate::parallel::in_parallel;
use crate::record::Record;
use crate::simulation::figures::{Figures, Served};
use crate::simulation::fleet::Fleet;
use crate::simulation::pickers::{Mechanism, Picker};
use crate::simulation::run::Simulation;
use crate::simulation::span::Span;
use std::time::Duration;

/// Part of the requests before those that are measured: they fill the caches.
const WARM_UP: f64 = 0.2;

/// Time between two scrapes of a server, the agent's default.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Tokens of a response in a chunk that the picker sees: one for each would double the time of a replay, and
/// changes no decision.
const CHUNK_TOKENS: u64 = 16;

/// Difference of the recorded picks' replay to the record from which on no replay can be trusted.
pub const TRUSTED: f64 = 0.1;

/// A replay.
#[derive(Debug)]
pub struct Replay<'a> {
    /// The requests.
    pub record: &'a Record,
    /// The servers that the record shows.
    pub fit: &'a Fit,
    /// The servers that the rules get, if they are others.
    pub fleet: Fleet,
    /// The rules, by name.
    pub rules: Vec<(String, Mechanism)>,
    /// Seeds: of the pickers' random numbers, and of shifts of the requests' times with all but the first.
    pub seeds: u64,
    /// Requests at a time, as a multiple of the recorded ones.
    pub load: f64,
    /// The limit that each request has for its first token.
    pub limit: Option<Duration>,
    /// Threads. The results do not depend on their number.
    pub threads: usize,
}

/// The results of a replay.
#[derive(Debug)]
pub struct Results {
    /// Figures of the record itself, if it has measurements.
    pub recorded: Option<Figures>,
    /// The recorded picks at the servers that the record shows, if it has them.
    pub repeated: Option<Figures>,
    /// The figures of each rules with each seed, the omniscient picker last.
    pub rules: Vec<(String, Vec<Figures>)>,
}

/// The greatest difference of the repeated record to the record, by figure, as a part of the record's.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The figure.
    pub figure: &'static str,
    /// The difference, positive or negative.
    pub part: f64,
}

impl Difference {
    /// Whether replays can be trusted.
    pub fn is_trusted(&self) -> bool {
        self.part.abs() <= TRUSTED
    }
}

/// The name of the picker that knows everything but the future.
pub const OMNISCIENT: &str = "omniscient";

impl Replay<'_> {
    /// Requests of all runs together.
    pub fn requests(&self) -> usize {
        self.record.requests.len() * self.jobs().len()
    }

    /// The recorded picks, the rules with their seeds, and the omniscient picker.
    fn jobs(&self) -> Vec<(&Mechanism, &Fleet, f64, u64)> {
        let mut jobs = Vec::new();
        if self.has_picks() {
            jobs.push((&Mechanism::Recorded, &self.fit.fleet, 1.0, 1));
        }
        let others = self.rules.iter().map(|(_, mechanism)| mechanism).chain([&Mechanism::Omniscient]);
        for mechanism in others {
            jobs.extend((1..=self.seeds).map(|seed| (mechanism, &self.fleet, self.load, seed)));
        }
        jobs
    }

    fn has_picks(&self) -> bool {
        self.record.requests.iter().any(|request| request.server.is_some())
    }

    /// Runs all, and calls `sent` for each request. The error names the rules that cannot be used.
    pub fn run(&self, sent: &(dyn Fn() + Sync)) -> Result<Results, String> {
        for (name, mechanism) in &self.rules {
            Picker::new(mechanism, self.fleet.servers.len(), self.limit, 1, 0)
                .map_err(|problem| format!("{name}: {problem}"))?;
        }
        let order = Order::new(self.record);
        let jobs = self.jobs();
        let figures = in_parallel(self.threads, jobs.len(), |job| {
            let (mechanism, fleet, load, seed) = jobs[job];
            self.simulate(&order, mechanism, fleet, load, seed, sent)
        });
        let mut figures = figures.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter();
        let repeated = if self.has_picks() { figures.next() } else { None };
        let seeds = usize::try_from(self.seeds).unwrap_or(usize::MAX);
        let names = self.rules.iter().map(|(name, _)| name.clone()).chain([OMNISCIENT.to_owned()]);
        let rules = names.map(|name| (name, figures.by_ref().take(seeds).collect())).collect();
        Ok(Results { recorded: recorded(self.record), repeated, rules })
    }

    fn simulate(
        &self,
        order: &Order,
        mechanism: &Mechanism,
        fleet: &Fleet,
        load: f64,
        seed: u64,
        sent: &(dyn Fn() + Sync),
    ) -> Result<Figures, String> {
        let simulation = Simulation {
            clients: RecordClients::new(self.record, order, sent),
            first_requests: order.first_requests(self.record, load, seed),
            proxies: Picker::new(mechanism, fleet.servers.len(), self.limit, seed, 0)?,
            span: Span::Count { before: warm_up(self.record), all: self.record.requests.len() },
            // The recorded picks and the omniscient picker read nothing.
            scrape_interval: matches!(mechanism, Mechanism::Rules { .. }).then_some(SCRAPE_INTERVAL),
            chunk_tokens: CHUNK_TOKENS,
            follows_events: mechanism.follows_events(),
            resets: (&[], false),
            fleet: fleet.clone(),
        };
        Ok(simulation.run())
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
fn warm_up(record: &Record) -> usize {
    (record.requests.len() as f64 * WARM_UP) as usize
}

/// The figures of the record itself, if it has times to the first token.
fn recorded(record: &Record) -> Option<Figures> {
    let mut figures = Figures::new(record.servers.len().max(1));
    let requests = record.requests.get(warm_up(record)..)?;
    let (begin, over) = (requests.first()?.at, requests.last()?.at);
    let (mut queried, mut hit, mut measured) = (0_u64, 0_u64, 0_usize);
    for request in requests.iter().filter(|request| request.is_served) {
        let (Some(first_token), Some(server)) = (request.first_token, request.server) else { continue };
        let end = request.end.unwrap_or(first_token);
        figures.served(&Served {
            first_token,
            rest: end.saturating_sub(first_token),
            answer_tokens: if request.end.is_some() { request.output.into() } else { 1 },
            server: server.into(),
            is_in_time: request.at + end <= over,
        });
        measured += 1;
        if let Some(cached) = request.cached {
            queried += u64::from(request.input);
            hit += u64::from(cached);
        }
    }
    figures.cache(queried, hit);
    figures.end(over.saturating_sub(begin), 0);
    (measured > 0).then_some(figures)
}

impl Results {
    /// How the repeated record differs from the record; empty: the record has no measurements.
    pub fn differences(&self) -> Vec<Difference> {
        let (Some(recorded), Some(repeated)) = (&self.recorded, &self.repeated) else { return Vec::new() };
        let of = |figure: &'static str, of: &dyn Fn(&Figures) -> f64| {
            let (recorded, repeated) = (of(recorded), of(repeated));
            (recorded > 0.0).then(|| Difference { figure, part: repeated / recorded - 1.0 })
        };
        [
            of("p50 to the first token", &|figures| figures.percentile(0.5)),
            of("p90 to the first token", &|figures| figures.percentile(0.9)),
            of("time for a token", &Figures::token_time),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
