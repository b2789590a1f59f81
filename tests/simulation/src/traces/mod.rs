//! Published traces as a bench: the recommended rules, the simple ways and an omniscient picker replay the
//! same requests on eight servers.
//!
//! Without files the traces are [generated](generate) by a seed, in the form and with the statistics of the
//! published ones; each seed is then another trace. A trace without sessions is stretched in time, so that
//! its requests come at a share of what the servers can serve. Sessions have a rate of their own: the number
//! of sessions is the load.

mod agents;
mod draw;
mod generate;
mod report;

use crate::cell::capacity;
use crate::cell::sessions::Sessions;
use crate::cell::variant::{RECOMMENDED, SIMPLE, Variant};
use metrics_agent_replay::clients;
use metrics_agent_replay::fit::{self, Given};
use metrics_agent_replay::record::Record;
use metrics_agent_replay::replay::Replay;
use metrics_agent_replay::simulation::figures::Figures;
use metrics_agent_replay::simulation::sessions::Session;
use std::sync::Arc;

/// Servers, and tokens in the cache of each. They have the times of the workloads' large servers.
const SERVERS: usize = 8;
const CACHE_TOKENS: u32 = 960_000;
/// Sessions of agents in progress at once.
const TREES: usize = 64;
/// Load of a trace without sessions, as a share of the capacity.
const LOAD: f64 = 0.8;

/// A trace.
#[derive(Debug)]
pub struct Trace {
    /// Its name, which no other one has.
    pub name: String,
    /// Its requests: of a generated trace those of each seed.
    records: Vec<Record>,
    /// Seeds of the replay of each, which shift times.
    seeds: u64,
}

/// The generated traces, and the most that the recommended rules' p90 may be, as a part of the best simple
/// way's: that of today with `SEEDS=1 REQUESTS=1500`, rounded up.
const GENERATED: [(&str, f64); 3] =
    [("Mooncake, conversations", 0.93), ("Azure, code", 1.02), ("agents", 0.95)];

impl Trace {
    /// A trace from a file, replayed with this many seeds.
    pub fn of(name: String, record: Record, seeds: u64) -> Self {
        Self { name, records: vec![record], seeds }
    }

    /// The generated traces, each with about this many requests.
    ///
    /// # Errors
    /// The name of a trace that cannot be read as a record, and why.
    pub fn generated(requests: usize, seeds: u64) -> Result<Vec<Self>, String> {
        let text = |name: &str, seed: u64| match name {
            "Mooncake, conversations" => generate::mooncake(requests, seed),
            "Azure, code" => generate::azure(requests, seed),
            _ => agents::agents(TREES, requests, seed),
        };
        let read = |name: &str, seed| {
            Record::read(text(name, seed).as_bytes()).map_err(|error| format!("{name}: {error}"))
        };
        let trace = |(name, _): (&str, f64)| {
            let records = (1..=seeds).map(|seed| read(name, seed)).collect::<Result<_, _>>()?;
            Ok(Self { name: name.to_owned(), records, seeds: 1 })
        };
        GENERATED.into_iter().map(trace).collect()
    }
}

/// The traces to replay.
#[derive(Debug)]
pub struct TracePlan {
    /// The traces.
    pub traces: Vec<Trace>,
    /// Threads. The results do not depend on their number.
    pub threads: usize,
}

/// The figures of all ways to pick with one trace.
#[derive(Debug)]
struct TraceResults {
    name: String,
    /// Requests, and requests a second.
    requests: usize,
    per_second: f64,
    /// Figures by way and seed: the recommended rules, the simple ways, the omniscient picker.
    ways: Vec<(String, Vec<Figures>)>,
}

/// All figures of a plan.
#[derive(Debug)]
pub struct TraceTable(Vec<TraceResults>);

impl TracePlan {
    /// Replays all. `progress` gets a line after each trace.
    pub fn run(self, progress: &dyn Fn(String)) -> Result<TraceTable, String> {
        let mut table = Vec::new();
        for trace in self.traces {
            let mut results: Option<TraceResults> = None;
            for (place, record) in trace.records.iter().enumerate() {
                let (per_second, ways) = replay(record, trace.seeds, self.threads)?;
                let own = TraceResults {
                    name: trace.name.clone(),
                    requests: record.requests.len(),
                    per_second,
                    ways,
                };
                match &mut results {
                    None => results = Some(own),
                    Some(all) => {
                        for ((_, all), (_, own)) in all.ways.iter_mut().zip(own.ways) {
                            all.extend(own);
                        }
                    }
                }
                progress(format!("{}, seed {}", trace.name, place + 1));
            }
            table.extend(results);
        }
        Ok(TraceTable(table))
    }
}

/// The requests a second at which a record is replayed, and the figures of all ways.
type Replayed = (f64, Vec<(String, Vec<Figures>)>);

fn replay(record: &Record, seeds: u64, threads: usize) -> Result<Replayed, String> {
    let given = Given { cache_tokens: Some(CACHE_TOKENS), ..Given::default() };
    let mut fit = fit::fit(record, &given, SERVERS);
    // The servers of a record do not matter here.
    fit.fleet.servers = vec![fit.fleet.servers[0]; SERVERS];
    let lasting = record.requests.last().map_or(0.0, |last| last.at.as_secs_f64()).max(f64::MIN_POSITIVE);
    let recorded = record.requests.len() as f64 / lasting;
    let sessions = clients::sessions(record);
    let load = if sessions.len() < record.requests.len() {
        1.0
    } else {
        let again = || Box::new(Again { sessions: sessions.clone(), next: 0 }) as Box<dyn Sessions>;
        LOAD * capacity::of(&fit.fleet, &again) / recorded
    };
    drop(sessions);
    let ways = core::iter::once((RECOMMENDED, RECOMMENDED)).chain(SIMPLE);
    let ways =
        ways.filter_map(|(variant, name)| Some((name.to_owned(), Variant::named(variant)?.mechanism())));
    let replay = Replay {
        record,
        fit: &fit,
        fleet: fit.fleet.clone(),
        rules: ways.collect(),
        seeds,
        load,
        limit: None,
        threads,
    };
    Ok((recorded * load, replay.run(&|| ())?.rules))
}

/// The sessions of a record, again and again, each time with other texts: else all would be cached.
struct Again {
    sessions: Vec<Session>,
    next: usize,
}

impl Sessions for Again {
    fn draw(&mut self) -> Session {
        let (round, place) = (self.next / self.sessions.len(), self.next % self.sessions.len());
        self.next += 1;
        let mut session = self.sessions[place].clone();
        if round > 0 {
            for turn in &mut session.turns {
                turn.request = Arc::new(turn.request.with_other_texts(round as u64));
            }
        }
        session
    }
}
