//! How long clients wait for the first token: what the choices are worth.

use super::capacity;
use super::contender::{Contender, Running, Setting, USUAL_INTERVAL};
use super::open_loop::{Outcome, Schedule};
use super::progress::Progress;
use super::workload::Workload;
use crate::model_server::{ModelServer, Tally};
use crate::process_tree::cpu_time;
use anyhow::{Result, ensure};
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const SERVERS: usize = 12;
/// Parts of the capacity that are asked for.
pub(super) const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
/// The load at which more workers are compared.
pub(super) const USUAL_LOAD: f64 = 0.8;
/// Starting and ending a contender takes about this long.
const START: Duration = Duration::from_millis(2_500);
/// So do answers that are still in flight when the last request of a phase has been sent.
const AFTERMATH: Duration = Duration::from_millis(1_300);
const MOST_FAILURES_SHOWN: usize = 3;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is measured in each of the rounds, every one of which has a seed of its own.
    pub rounds: &'static [&'static [Phases]],
    /// How long requests are sent at each load.
    pub phase: Duration,
    /// How long before that, to fill the caches.
    pub warm_up: Duration,
    /// Decides all requests and when they come.
    pub seed: u64,
}

/// Under what the contenders are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) workload: Workload,
    /// Envoy's.
    pub(super) workers: u32,
    /// Part of the capacity.
    pub(super) load: f64,
}

/// What one phase gave.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) contender: Contender,
    pub(super) cell: Cell,
    pub(super) outcome: Outcome,
    pub(super) cache: Tally,
    /// Cores in use by everything: servers, load generator and proxy.
    pub(super) cores: f64,
}

/// All phases, and requests per second of each workload at which the servers are full.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) samples: Vec<Sample>,
    pub(super) capacities: Vec<(Workload, f64)>,
    pub(super) plan: Plan,
}

/// Envoy's workers, and the loads that follow each other.
pub(super) type Phases = (u32, &'static [f64]);

const ONE_WORKER: Phases = (1, &LOADS);
const MORE_WORKERS: Phases = (4, &[USUAL_LOAD]);
/// Three rounds; two with more workers, for which there is not more time.
pub const ALL_ROUNDS: &[&[Phases]] =
    &[&[ONE_WORKER, MORE_WORKERS], &[ONE_WORKER, MORE_WORKERS], &[ONE_WORKER]];
/// The usual and the highest load, three times, for the comparison of scrape intervals.
pub const INTERVAL_ROUNDS: &[&[Phases]] = &[INTERVAL_ROUND; 3];
const INTERVAL_ROUND: &[Phases] = &[(1, &[USUAL_LOAD, 0.95])];
/// The load that matters most, once.
pub const QUICK_ROUND: &[&[Phases]] = &[&[(1, &[USUAL_LOAD])]];

impl Plan {
    /// How long one turn with these loads should take.
    pub(super) fn turn(&self, loads: &[f64]) -> Duration {
        let phases = (self.phase + AFTERMATH) * u32::try_from(loads.len()).unwrap_or(u32::MAX);
        START + self.warm_up + AFTERMATH + phases
    }

    /// How long it should take.
    pub fn expected(&self) -> Duration {
        let turns = self.rounds.iter().copied().flatten().map(|(_, loads)| self.turn(loads));
        turns.sum::<Duration>() * 9
    }
}

impl Found {
    /// Requests per second at which the servers are full.
    pub(super) fn capacity(&self, workload: Workload) -> f64 {
        let found = self.capacities.iter().find(|(of, _)| *of == workload);
        found.map_or(f64::NAN, |(_, capacity)| *capacity)
    }
}

/// Measures everything, in turns.
pub(super) async fn measure(plan: Plan, epp: &Path, progress: &Progress) -> Result<Found> {
    let capacity = |workload| (workload, capacity::of(workload, SERVERS, plan.seed));
    let capacities = Workload::ALL.map(capacity).to_vec();
    let mut found = Found { samples: Vec::new(), capacities, plan };
    for workload in Workload::ALL {
        progress.say(&format!(
            "{workload}: {SERVERS} servers can answer {:.1} requests/s",
            found.capacity(workload)
        ));
    }
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            for &(workers, loads) in *runs {
                let phases = phases(plan, found.capacity(workload), workload, loads, round);
                for contender in Contender::in_round(round) {
                    let turn =
                        Turn { contender, workload, workers, interval: USUAL_INTERVAL, epp: Some(epp) };
                    for sample in turn.run(&phases).await? {
                        progress.say(&format!("round {}: {sample}", round + 1));
                        found.samples.push(sample);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The warm-up and what follows it: one and the same for all contenders.
pub(super) fn phases(
    plan: Plan,
    capacity: f64,
    workload: Workload,
    loads: &[f64],
    round: u32,
) -> Vec<(Option<f64>, Schedule)> {
    let seed = plan.seed + u64::from(round);
    let mut requests = workload.requests(seed);
    let warm_up = (None, Schedule::poisson(&mut requests, capacity * USUAL_LOAD, plan.warm_up, seed));
    let measured = loads.iter().map(|load| {
        (Some(*load), Schedule::poisson(&mut requests, capacity * load, plan.phase, seed ^ load.to_bits()))
    });
    std::iter::once(warm_up).chain(measured).collect()
}

/// One variant in front of servers of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn<'a> {
    pub(super) contender: Contender,
    pub(super) workload: Workload,
    /// Envoy's.
    pub(super) workers: u32,
    /// Between two scrapes of an endpoint.
    pub(super) interval: Duration,
    pub(super) epp: Option<&'a Path>,
}

impl Turn<'_> {
    /// Starts servers with empty caches, and the contender in front of them.
    pub(super) async fn run(&self, phases: &[(Option<f64>, Schedule)]) -> Result<Vec<Sample>> {
        let Self { contender, workload, workers, interval, epp } = *self;
        let start = |_| ModelServer::start_with_service_times("server", workload.service_times());
        let servers = (0..SERVERS).map(start).collect::<Result<Vec<_>>>()?;
        let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        let rules = workload.rules();
        let setting = Setting { endpoints: &endpoints, workers, rules, interval, epp };
        let mut running = contender.start(setting).await?;
        let mut samples = Vec::new();
        for (load, schedule) in phases {
            let (cache, cpu, begin) = (cached(&servers), cpu_time(std::process::id())?, Instant::now());
            let outcome = self.send(&mut running, schedule).await?;
            for server in &servers {
                server.take_requests();
            }
            let cores = cpu_time(std::process::id())?.saturating_sub(cpu).as_secs_f64()
                / begin.elapsed().as_secs_f64();
            let now = cached(&servers);
            let cache = Tally { queried: now.queried - cache.queried, hit: now.hit - cache.hit };
            if let Some(load) = *load {
                samples.push(Sample {
                    contender,
                    cell: Cell { workload, workers, load },
                    outcome,
                    cache,
                    cores,
                });
            }
        }
        Ok(samples)
    }

    async fn send(&self, running: &mut Running, schedule: &Schedule) -> Result<Outcome> {
        let outcome = schedule.send(running.listener()).await?;
        running.check_running()?;
        for failure in outcome.failures.iter().take(MOST_FAILURES_SHOWN) {
            eprintln!("{}, {}: not served: {failure}", self.contender, self.workload);
        }
        ensure!(!outcome.first_byte.is_empty(), "{} served no request", self.contender);
        Ok(outcome)
    }
}

fn cached(servers: &[ModelServer]) -> Tally {
    let tallies = servers.iter().map(ModelServer::prefix_cache);
    tallies.fold(Tally::default(), |sum, one| Tally {
        queried: sum.queried + one.queried,
        hit: sum.hit + one.hit,
    })
}

impl Sample {
    /// Part of the prompt tokens that the servers had cached.
    pub(super) fn hit_rate(&self) -> f64 {
        self.cache.hit as f64 / self.cache.queried as f64
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, workers, load } = self;
        let plural = if *workers == 1 { "" } else { "s" };
        write!(f, "{workload}, {workers} worker{plural}, {:.0} %", load * 100.0)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, cell, outcome, cores, .. } = self;
        let of = |part| outcome.percentile(part);
        write!(
            f,
            "{contender} {cell}: mean {:.0} ms, p50 {:.0}, p90 {:.0}, ",
            outcome.mean(),
            of(0.5),
            of(0.9)
        )?;
        write!(f, "p99 {:.0}; {:.1} requests/s, ", of(0.99), outcome.per_second())?;
        write!(
            f,
            "{:.0} % cached, {cores:.2} cores, {} failed",
            self.hit_rate() * 100.0,
            outcome.failures.len()
        )
    }
}
