//! What sharing costs: processor time of the proxies, their agents and the store, and the bytes that the store receives.

mod report;

pub(crate) use report::CostTable;

use super::arrangement::Arrangement;
use super::fleet::{Fleet, FleetCpu, FleetPlan};
use crate::in_turns::in_turns;
use crate::load::bodies::{NEW_NUMBER, chat_line};
use crate::load::wrk::{self, WrkLoad};
use crate::report::Progress;
use crate::upstreams::Upstreams;
use anyhow::{Result, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::run_dir::RunDir;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

pub(crate) const PROXIES: usize = 4;
/// Requests each second to each proxy.
pub(crate) const PER_SECOND: u32 = 1_000;
const ENDPOINTS: usize = 10;
const BYTES: usize = 2 << 10;
/// Prompts that come again and again.
const PROMPTS: usize = 500;
/// Starting and ending all fleets takes about this long.
const AROUND: Duration = Duration::from_secs(12);

pub(crate) const ARRANGEMENTS: [Arrangement; 3] =
    [Arrangement::Apart, Arrangement::OneAgent, Arrangement::Store];

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostPlan {
    pub(crate) rounds: u32,
    /// How long each arrangement is under load in each round.
    pub(crate) turn: Duration,
    pub(crate) filter: Filter,
}

/// The prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompts {
    Repeated,
    New,
}

/// The figures of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostSample {
    pub(crate) arrangement: Arrangement,
    pub(crate) prompts: Prompts,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) took: Duration,
    pub(crate) cpu: FleetCpu,
    /// Bytes that the store received.
    pub(crate) stored: u64,
}

impl Prompts {
    pub(crate) const ALL: [Self; 2] = [Self::Repeated, Self::New];
}

impl fmt::Display for Prompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated => "500 prompts again and again",
            Self::New => "new prompts",
        })
    }
}

impl CostPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns = self.rounds * 6;
        AROUND + self.turn * turns
    }
}

/// Measures every arrangement in turns. All of them run all the time.
pub(crate) async fn measure(plan: CostPlan, progress: &Progress) -> Result<Vec<CostSample>> {
    let mut dir = RunDir::new()?;
    let upstreams = Upstreams::start(ENDPOINTS).await?;
    let mut fleets = Vec::new();
    for arrangement in ARRANGEMENTS {
        let (filter, endpoints) = (plan.filter, upstreams.addresses());
        let proxies = PROXIES;
        let fleet =
            Fleet::start(FleetPlan { arrangement, proxies, filter, endpoints, rules: None, epp: None });
        fleets.push((arrangement, fleet.await?));
    }
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for prompts in Prompts::ALL {
            let bodies = dir.path().join(format!("{prompts:?}"));
            fs::write(&bodies, prompts.bodies())?;
            for index in in_turns(&[0, 1, 2], round) {
                let (arrangement, fleet) = &mut fleets[index];
                let sample = turn(plan, *arrangement, fleet, prompts, &bodies).await?;
                fleet.check_running()?;
                progress.print(&format!("cost, round {}: {sample}", round + 1));
                samples.push(sample);
            }
        }
    }
    dir.settle();
    Ok(samples)
}

async fn turn(
    plan: CostPlan,
    arrangement: Arrangement,
    fleet: &Fleet,
    prompts: Prompts,
    bodies: &Path,
) -> Result<CostSample> {
    let stored = async || match fleet.store() {
        Some(store) => store.received().await,
        None => Ok(0),
    };
    let (before, cpu, begin) = (stored().await?, fleet.cpu()?, Instant::now());
    let mut loads = JoinSet::new();
    for proxy in fleet.listeners() {
        let bodies = bodies.to_owned();
        loads.spawn_blocking(move || load(proxy, plan.turn, &bodies));
    }
    let (mut requests, mut failed) = (0, 0);
    for figures in loads.join_all().await {
        let figures = figures?;
        requests += figures.requests;
        failed += figures.failed;
    }
    let (took, cpu, stored) = (begin.elapsed(), fleet.cpu()?.since(cpu), stored().await? - before);
    ensure!(requests > 0, "{arrangement}: no request was answered");
    Ok(CostSample { arrangement, prompts, requests, failed, took, cpu, stored })
}

fn load(proxy: SocketAddr, lasting: Duration, bodies: &Path) -> Result<wrk::Figures> {
    wrk::run(proxy, WrkLoad::Steady { per_second: PER_SECOND }, lasting, bodies, None)
}

impl Prompts {
    /// A body in each line.
    fn bodies(self) -> String {
        match self {
            Self::Repeated => (0..PROMPTS).map(|number| chat_line(number, BYTES, false)).collect(),
            Self::New => chat_line(NEW_NUMBER, BYTES, false),
        }
    }
}

impl CostSample {
    /// Processor microseconds of the proxies for a request.
    pub(crate) fn envoy_micros(&self) -> f64 {
        self.cpu.envoys.as_secs_f64() * 1e6 / self.requests as f64
    }

    /// Cores that each agent uses.
    pub(crate) fn agent_cores(&self) -> f64 {
        let agents = if self.arrangement.has_one_picker() { 1 } else { PROXIES };
        self.cpu.pickers.as_secs_f64() / self.took.as_secs_f64() / agents as f64
    }

    /// Cores that the store uses.
    pub(crate) fn store_cores(&self) -> f64 {
        self.cpu.store.as_secs_f64() / self.took.as_secs_f64()
    }

    /// Megabytes that the store receives each second.
    pub(crate) fn megabytes(&self) -> f64 {
        self.stored as f64 / 1e6 / self.took.as_secs_f64()
    }

    /// Requests answered each second, by all proxies.
    pub(crate) fn per_second(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for CostSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arrangement, prompts, failed, .. } = self;
        write!(f, "{arrangement}, {prompts}: {:.0} requests/s, ", self.per_second())?;
        write!(f, "{:.1} µs of Envoy for a request, ", self.envoy_micros())?;
        write!(f, "{:.3} cores for an agent, {:.3} for the store, ", self.agent_cores(), self.store_cores())?;
        write!(f, "{:.2} MB/s to the store, {failed} failed", self.megabytes())
    }
}
