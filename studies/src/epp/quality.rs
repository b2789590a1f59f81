//! The quality of the choices: how long clients wait for the first token.

use super::rules::Rules;
use super::running::RunningVariant;
use super::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::schedule::{Outcome, Schedule, print_failures};
use crate::timed_servers::{SERVERS, TimedServers, cached_share, counts_since};
use anyhow::{Result, ensure};
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::program::process_tree::cpu_time;
use endpoint_picker_simulation::capacity;
use endpoint_picker_simulation::workload::Workload;
use metrics_agent_server_model::PrefixCacheCounts;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Loads, as fractions of the capacity.
pub(crate) const LOADS: [f64; 3] = [0.5, 0.8, 0.95];
/// The load at which more workers are compared.
pub(crate) const USUAL_LOAD: f64 = 0.8;
/// Starting and ending a variant takes about this long.
const START: Duration = Duration::from_millis(2_500);
/// Responses in flight after the last request of a phase take about this long.
const AFTERMATH: Duration = Duration::from_millis(1_300);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QualityPlan {
    /// The phases of each round; each round has a seed of its own.
    pub(crate) rounds: &'static [&'static [Phases]],
    /// How long requests are sent at each load.
    pub(crate) phase: Duration,
    /// How long requests are sent before, to fill the caches.
    pub(crate) warm_up: Duration,
    /// Determines all requests and their times.
    pub(crate) seed: u64,
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QualityCell {
    pub(crate) workload: Workload,
    /// Number of Envoy's workers.
    pub(crate) workers: u32,
    /// Fraction of the capacity.
    pub(crate) load: f64,
}

/// The figures of one phase.
#[derive(Clone, Debug)]
pub(crate) struct QualitySample {
    pub(crate) variant: Variant,
    pub(crate) cell: QualityCell,
    pub(crate) outcome: Outcome,
    pub(crate) cache: PrefixCacheCounts,
    /// Cores in use by this process and its children: servers, load generator, proxy and picker.
    pub(crate) cores: f64,
}

/// The figures of all phases, and the capacity for each workload in requests per second.
#[derive(Debug)]
pub(crate) struct QualityResults {
    pub(crate) samples: Vec<QualitySample>,
    pub(crate) capacities: Vec<(Workload, f64)>,
    pub(crate) plan: QualityPlan,
}

/// Number of Envoy's workers, and the loads one after another.
pub(crate) type Phases = (u32, &'static [f64]);

const ONE_WORKER: Phases = (1, &LOADS);
const MORE_WORKERS: Phases = (4, &[USUAL_LOAD]);
/// Three rounds, two of them with more workers, within the time of a run.
pub(crate) const ALL_ROUNDS: &[&[Phases]] =
    &[&[ONE_WORKER, MORE_WORKERS], &[ONE_WORKER, MORE_WORKERS], &[ONE_WORKER]];
/// The usual load, once.
pub(crate) const QUICK_ROUND: &[&[Phases]] = &[&[(1, &[USUAL_LOAD])]];

impl QualityPlan {
    /// How long one turn with these loads should take.
    pub(crate) fn turn(&self, loads: &[f64]) -> Duration {
        let phases = (self.phase + AFTERMATH) * u32::try_from(loads.len()).unwrap_or(u32::MAX);
        START + self.warm_up + AFTERMATH + phases
    }

    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns = self.rounds.iter().copied().flatten().map(|(_, loads)| self.turn(loads));
        turns.sum::<Duration>() * 9
    }
}

impl QualityResults {
    /// Requests per second at which the servers are full.
    pub(crate) fn capacity(&self, workload: Workload) -> f64 {
        let found = self.capacities.iter().find(|(of, _)| *of == workload);
        found.map_or(f64::NAN, |(_, capacity)| *capacity)
    }
}

/// Measures the variants that choose in different ways, in turns.
pub(crate) async fn measure(plan: QualityPlan, epp: &Path, progress: &Progress) -> Result<QualityResults> {
    let capacity = |workload| (workload, capacity::of(workload, SERVERS, plan.seed));
    let capacities = Workload::ALL.map(capacity).to_vec();
    let mut results = QualityResults { samples: Vec::new(), capacities, plan };
    for workload in Workload::ALL {
        progress.print(&format!(
            "{workload}: {SERVERS} servers can answer {:.1} requests/s",
            results.capacity(workload)
        ));
    }
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            for &(workers, loads) in *runs {
                let phases = phases(plan, results.capacity(workload), workload, loads, round);
                for variant in in_turns(&Variant::CHOOSING, round) {
                    let turn = QualityTurn {
                        variant,
                        workload,
                        rules: Rules::Parity(workload.rules()),
                        workers,
                        interval: USUAL_INTERVAL,
                        epp: Some(epp),
                    };
                    for sample in turn.run(&phases).await? {
                        progress.print(&format!("round {}: {sample}", round + 1));
                        results.samples.push(sample);
                    }
                }
            }
        }
    }
    Ok(results)
}

/// The warm-up and the phases after it, the same for all variants.
pub(crate) fn phases(
    plan: QualityPlan,
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
pub(crate) struct QualityTurn<'a> {
    pub(crate) variant: Variant,
    pub(crate) workload: Workload,
    pub(crate) rules: Rules,
    /// Number of Envoy's workers.
    pub(crate) workers: u32,
    /// Between two scrapes of an endpoint.
    pub(crate) interval: Duration,
    pub(crate) epp: Option<&'a Path>,
}

impl QualityTurn<'_> {
    /// Starts servers with empty caches, and the variant in front of them.
    pub(crate) async fn run(&self, phases: &[(Option<f64>, Schedule)]) -> Result<Vec<QualitySample>> {
        let Self { variant, workload, rules, workers, interval, epp } = *self;
        let servers = TimedServers::start(SERVERS, workload.service_times())?;
        let endpoints = servers.addresses();
        let setting = Setting { endpoints: &endpoints, workers, rules, interval, agent_flags: &[], epp };
        let mut running = variant.start(setting).await?;
        let mut samples = Vec::new();
        for (load, schedule) in phases {
            let (cache, cpu, begin) = (servers.prefix_cache(), cpu_time(std::process::id())?, Instant::now());
            let outcome = self.send(&mut running, schedule).await?;
            servers.forget_requests();
            let cores = cpu_time(std::process::id())?.saturating_sub(cpu).as_secs_f64()
                / begin.elapsed().as_secs_f64();
            let cache = counts_since(servers.prefix_cache(), cache);
            if let Some(load) = *load {
                samples.push(QualitySample {
                    variant,
                    cell: QualityCell { workload, workers, load },
                    outcome,
                    cache,
                    cores,
                });
            }
        }
        Ok(samples)
    }

    async fn send(&self, running: &mut RunningVariant, schedule: &Schedule) -> Result<Outcome> {
        let outcome = schedule.send(running.listener()).await?;
        running.check_running()?;
        print_failures(&format!("{}, {}", self.variant, self.workload), &outcome.failures);
        ensure!(!outcome.first_byte.is_empty(), "{} served no request", self.variant);
        Ok(outcome)
    }
}

impl QualitySample {
    /// Fraction of the prompt tokens that the servers had cached.
    pub(crate) fn hit_rate(&self) -> f64 {
        cached_share(self.cache)
    }
}

impl fmt::Display for QualityCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, workers, load } = self;
        let plural = if *workers == 1 { "" } else { "s" };
        write!(f, "{workload}, {workers} worker{plural}, {:.0} %", load * 100.0)
    }
}

impl fmt::Display for QualitySample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variant, cell, outcome, cores, .. } = self;
        let of = |part| outcome.percentile(part);
        write!(
            f,
            "{variant} {cell}: mean {:.0} ms, p50 {:.0}, p90 {:.0}, ",
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
