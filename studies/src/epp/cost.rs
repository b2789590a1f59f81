//! The cost of a request, and of an idle pool.

use super::cost_cells::{CostCell, KB, Traffic, bodies, connections};
use super::rules::Rules;
use super::running::{Cpu, RunningVariant};
use super::variant::{Setting, USUAL_INTERVAL, Variant};
use anyhow::{Context, Result};
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::load::wrk::{self, WrkLoad};
use endpoint_picker_bench::report::Progress;
use endpoint_picker_bench::upstreams::Upstreams;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::tools;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// A real scrape of vLLM, about 50 KB.
const REAL_METRICS: &str = "metrics-agent/tests/captures/vllm-0.32.0-kv-busy.prom";
/// Starting and ending a variant, and its warm-up, take about this long.
const START: Duration = Duration::from_millis(4_500);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostPlan {
    /// The conditions, by size of the pool.
    pub(crate) cells: &'static [&'static [CostCell]],
    /// Turns of each variant under each condition.
    pub(crate) rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// The figures of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostSample {
    pub(crate) variant: Variant,
    pub(crate) cell: CostCell,
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    pub(crate) scrapes: u64,
    /// Chunks that came one at a time.
    pub(crate) chunks: u64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl CostPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns: usize = self.cells.iter().map(|cells| cells.len()).sum();
        let pools = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        (self.turn * u32::try_from(turns).unwrap_or(u32::MAX) + START * pools) * self.rounds * 4
    }
}

/// Measures all variants in turns.
pub(crate) async fn measure(plan: CostPlan, epp: &Path, progress: &Progress) -> Result<Vec<CostSample>> {
    let mut dir = RunDir::new()?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for &cells in plan.cells {
            let upstreams = Upstreams::start(cells[0].endpoints).await?;
            for variant in in_turns(&Variant::ALL, round) {
                let endpoints = upstreams.addresses();
                let setting = Setting {
                    endpoints,
                    workers: 1,
                    rules: Rules::Parity("default"),
                    interval: USUAL_INTERVAL,
                    agent_flags: &[],
                    epp: Some(epp),
                };
                let mut running = variant.start(setting).await?;
                let turns =
                    CostTurns { running: &running, upstreams: &upstreams, folder: dir.path(), variant };
                // Opens connections to every endpoint; first requests are slower for other reasons too.
                turns
                    .turn(
                        CostCell { traffic: Traffic::Chat(KB), rate: None, ..cells[0] },
                        Duration::from_secs(2),
                    )
                    .await?;
                for &cell in cells {
                    let sample = turns.turn(cell, plan.turn).await?;
                    progress.print(&format!("round {}: {sample}", round + 1));
                    samples.push(sample);
                }
                running.check_running()?;
            }
        }
    }
    dir.settle();
    Ok(samples)
}

/// A running variant in front of these servers.
pub(crate) struct CostTurns<'a> {
    pub(crate) running: &'a RunningVariant,
    pub(crate) upstreams: &'a Upstreams,
    /// The folder of the files with bodies.
    pub(crate) folder: &'a Path,
    pub(crate) variant: Variant,
}

impl CostTurns<'_> {
    /// Measures it under one condition.
    pub(crate) async fn turn(&self, cell: CostCell, lasting: Duration) -> Result<CostSample> {
        let variant = self.variant;
        let (traffic, rate) = (cell.traffic, cell.rate);
        let long = fs::read_to_string(tools::root().join(REAL_METRICS)).context(REAL_METRICS)?;
        let is_long = traffic == Traffic::NoneLongMetrics;
        self.upstreams.set_metrics_text(is_long.then_some(long.as_str()));
        let before = (self.running.cpu()?, self.upstreams.scrapes(), self.upstreams.paced_chunks());
        let (took, requests, failed, p50, p99) = match traffic {
            Traffic::None | Traffic::NoneLongMetrics => {
                sleep(lasting).await;
                (lasting, 0, 0, Duration::ZERO, Duration::ZERO)
            }
            Traffic::Chat(_) | Traffic::Streamed | Traffic::Paced => {
                let load = match rate {
                    Some(per_second) => WrkLoad::Steady { per_second },
                    None => WrkLoad::Saturating { connections: connections(traffic) },
                };
                let figures =
                    wrk::run(self.running.listener(), load, lasting, &bodies(self.folder, traffic)?, None)?;
                (figures.took, figures.requests, figures.failed, figures.p50, figures.p99)
            }
        };
        let cpu = self.running.cpu()?.since(before.0);
        let scrapes = self.upstreams.scrapes() - before.1;
        let chunks = self.upstreams.paced_chunks() - before.2;
        self.upstreams.set_metrics_text(None);
        Ok(CostSample { variant, cell, took, cpu, requests, failed, scrapes, chunks, p50, p99 })
    }
}

impl CostSample {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered() / self.took.as_secs_f64()
    }

    /// Requests answered. Answers that take as long as the turn count by the chunks that came.
    fn answered(&self) -> f64 {
        if self.cell.traffic == Traffic::Paced { self.chunks as f64 / 1_000.0 } else { self.requests as f64 }
    }

    /// Processor microseconds of proxy and picker for a request.
    pub(crate) fn cpu_of_request(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / self.answered()
    }

    /// Processor microseconds for each scrape.
    pub(crate) fn cpu_per_scrape(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / self.scrapes as f64
    }

    /// Cores in use by proxy and picker.
    pub(crate) fn cores(&self) -> f64 {
        self.cpu.total().as_secs_f64() / self.took.as_secs_f64()
    }

    pub(crate) fn scrapes_per_second(&self) -> f64 {
        self.scrapes as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for CostSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.variant, self.cell)?;
        let cores = |cpu: Duration| cpu.as_secs_f64() / self.took.as_secs_f64();
        write!(f, "{:.2} + {:.2} cores, ", cores(self.cpu.envoy), cores(self.cpu.picker))?;
        if matches!(self.cell.traffic, Traffic::None | Traffic::NoneLongMetrics) {
            return write!(f, "{:.0} scrapes/s", self.scrapes_per_second());
        }
        write!(f, "{:.1} requests/s, {:.1} us each, ", self.per_second(), self.cpu_of_request())?;
        write!(f, "p50 {:?}, p99 {:?}, {} failed", self.p50, self.p99, self.failed)
    }
}
