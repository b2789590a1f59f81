//! Runs a plan.

use super::clients::Clients;
use super::figures::RunFigures;
use super::report::{Choice, Choices};
use super::servers::{self, Oracle};
use super::way::Way;
use crate::epp::variant::{Setting, USUAL_INTERVAL};
use crate::timed_servers::{TimedServers, cached_share, counts_since};
use anyhow::{Result, ensure};
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::program::process_tree::cpu_time;
use endpoint_picker_simulation::cell::capacity;
use endpoint_picker_simulation::cell::request::Texts;
use endpoint_picker_simulation::cell::sessions::Arrival;
use endpoint_picker_simulation::cell::workloads::{Drawn, Workload};
use futures_util::future::join_all;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// The workloads that are compared.
pub(crate) const WORKLOADS: [Drawn; 6] = [
    Drawn::SharedPrompts,
    Drawn::Conversations,
    Drawn::Adapters,
    Drawn::ShareGpt,
    Drawn::Agents,
    Drawn::LongMix,
];

/// Starting and ending a way, and the responses in flight at the end, take about this long.
const AROUND: Duration = Duration::from_secs(6);
const MAX_FAILURES_SHOWN: usize = 3;

/// What to compare: every workload at every load with every seed and number of workers, by every way.
#[derive(Clone, Debug)]
pub(crate) struct ChoosingPlan {
    pub(crate) workloads: Vec<Drawn>,
    /// Fractions of the capacity.
    pub(crate) loads: Vec<f64>,
    pub(crate) seeds: Vec<u64>,
    /// Numbers of Envoy's workers.
    pub(crate) workers: Vec<u32>,
    /// The first one is compared with the others.
    pub(crate) ways: Vec<Way>,
    /// How long requests are measured.
    pub(crate) phase: Duration,
    /// How long requests are sent before.
    pub(crate) warm_up: Duration,
    /// The EPP's binary.
    pub(crate) epp: PathBuf,
}

/// One run.
struct Run<'a> {
    way: Way,
    workload: &'a Workload,
    workers: u32,
    arrivals: &'a [Arrival],
    plan: &'a ChoosingPlan,
    texts: &'a Texts,
}

impl ChoosingPlan {
    /// How long all runs should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs =
            self.workloads.len() * self.loads.len() * self.seeds.len() * self.workers.len() * self.ways.len();
        (AROUND + self.warm_up + self.phase) * u32::try_from(runs).unwrap_or(u32::MAX)
    }

    /// Measures all in turns.
    pub(crate) async fn measure(self, progress: &Progress) -> Result<Choices> {
        /// The seed with which capacities are found.
        const SEED: u64 = 1;
        let texts = Texts::new();
        let mut choices = Vec::new();
        let mut capacities = Vec::new();
        let mut turn = 0;
        for &drawn in &self.workloads {
            let workload = Workload::Drawn(drawn);
            let capacity = capacity::of(&workload, SEED);
            progress.print(&format!("{}: {capacity:.1} requests/s are the capacity", workload.name()));
            capacities.push(capacity);
            for (&load, &seed) in
                self.loads.iter().flat_map(|load| self.seeds.iter().map(move |seed| (load, seed)))
            {
                let arrivals = workload.arrivals(capacity * load, self.warm_up + self.phase, seed);
                for &workers in &self.workers {
                    for way in in_turns(&self.ways, turn) {
                        let run = Run {
                            way,
                            workload: &workload,
                            workers,
                            arrivals: &arrivals,
                            plan: &self,
                            texts: &texts,
                        };
                        let figures = run.measure().await?;
                        let choice = Choice { way, workload: drawn, workers, load, seed, figures };
                        progress.print(&choice.to_string());
                        choices.push(choice);
                    }
                    // Another way begins.
                    turn += 1;
                }
            }
        }
        Ok(Choices { plan: self, capacities, choices })
    }
}

impl Run<'_> {
    async fn measure(&self) -> Result<RunFigures> {
        let Self { way, workload, workers, arrivals, plan, texts } = *self;
        let servers = servers::start(workload)?;
        let setting = Setting {
            endpoints: &servers.addresses(),
            workers,
            rules: way.rules(),
            interval: USUAL_INTERVAL,
            epp: Some(&plan.epp),
        };
        let mut running = way.variant().start(setting).await?;
        let oracle = (way == Way::Omniscient).then(|| Oracle::new(&servers));
        let end = plan.warm_up + plan.phase;
        let clients = Clients::new(running.listener(), texts, oracle, plan.warm_up, end)?;
        let before = async {
            sleep_until(clients.measured_from()).await;
            servers.forget_requests();
            anyhow::Ok((servers.prefix_cache(), cpu_time(std::process::id())?, Instant::now()))
        };
        let sessions = join_all(arrivals.iter().map(|arrival| clients.session(arrival)));
        let (before, _) = tokio::join!(before, sessions);
        let (cache, cpu, begin) = before?;
        running.check_running()?;
        let mut figures = clients.into_figures();
        figures.cached = cached_share(counts_since(servers.prefix_cache(), cache));
        figures.busiest = busiest(&servers);
        figures.cores =
            cpu_time(std::process::id())?.saturating_sub(cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        for failure in figures.failures.iter().take(MAX_FAILURES_SHOWN) {
            eprintln!("{way}, {}: not served: {failure}", workload.name());
        }
        ensure!(figures.served() > 0, "{way} served no request");
        Ok(figures)
    }
}

/// Requests of the server with the maximum, as a multiple of the mean.
fn busiest(servers: &TimedServers) -> f64 {
    let requests = servers.take_requests();
    let all: usize = requests.iter().sum();
    requests.iter().max().copied().unwrap_or(0) as f64 * requests.len() as f64 / all.max(1) as f64
}
