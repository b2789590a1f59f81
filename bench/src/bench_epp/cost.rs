//! What a request costs, and what a pool at rest costs.

use super::variant::{Cpu, Running, Setting, USUAL_INTERVAL, Variant};
use crate::in_turns::in_turns;
use crate::load::bodies::chat_line;
use crate::load::wrk::{self, WrkLoad};
use crate::report::Progress;
use crate::upstreams::{PACED, Upstreams};
use anyhow::{Context, Result};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::tools;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// What vLLM really says when it is scraped, some 50 KB.
const REAL_METRICS: &str = "metrics-agent/tests/captures/vllm-0.32.0-kv-busy.prom";
/// Starting and ending a variant, and its warm-up, take about this long.
const START: Duration = Duration::from_millis(4_500);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostPlan {
    /// CostTurns of each variant in everything.
    pub(crate) rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// A chat of so many bytes.
    Chat(usize),
    /// A chat of 1 KB whose answer comes in 1 000 chunks, as fast as they are taken.
    Streamed,
    /// The same, with a chunk every 2 ms.
    Paced,
    /// Nothing.
    None,
    /// Nothing, and what the servers say when they are scraped is as long as vLLM's.
    NoneLongMetrics,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostCell {
    pub(crate) endpoints: usize,
    pub(crate) traffic: Traffic,
    /// Requests each second; `None` for as many as go through.
    pub(crate) rate: Option<u32>,
}

/// What one turn gave.
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

const KB: usize = 1 << 10;
const fn cell(endpoints: usize, traffic: Traffic, rate: Option<u32>) -> CostCell {
    CostCell { endpoints, traffic, rate }
}

/// By size of the pool, which is started anew for each.
pub(crate) const CELLS: [&[CostCell]; 2] = [
    &[
        cell(10, Traffic::Chat(KB), None),
        cell(10, Traffic::Chat(8 * KB), None),
        cell(10, Traffic::Chat(128 * KB), None),
        cell(10, Traffic::Chat(1024 * KB), None),
        cell(10, Traffic::Streamed, None),
        cell(10, Traffic::Paced, None),
        cell(10, Traffic::Chat(KB), Some(200)),
        cell(10, Traffic::Chat(8 * KB), Some(200)),
        cell(10, Traffic::Chat(128 * KB), Some(50)),
        cell(10, Traffic::Chat(1024 * KB), Some(10)),
    ],
    &[
        cell(100, Traffic::Chat(KB), None),
        cell(100, Traffic::Chat(KB), Some(200)),
        cell(100, Traffic::None, None),
        cell(100, Traffic::NoneLongMetrics, None),
    ],
];

impl CostPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns: usize = CELLS.iter().map(|cells| cells.len()).sum();
        (self.turn * u32::try_from(turns).unwrap_or(u32::MAX) + START * 2) * self.rounds * 3
    }
}

impl fmt::Display for CostCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, traffic, rate } = self;
        match traffic {
            Traffic::Chat(bytes) if *bytes < 1024 * KB => write!(f, "{} KB", bytes / KB)?,
            Traffic::Chat(bytes) => write!(f, "{} MiB", bytes / KB / 1024)?,
            Traffic::Streamed => write!(f, "answers of 1 000 chunks, at once")?,
            Traffic::Paced => write!(f, "answers of 1 000 chunks, one every 2 ms")?,
            Traffic::None => write!(f, "idle, short metrics")?,
            Traffic::NoneLongMetrics => write!(f, "idle, vLLM's metrics (48 KB)")?,
        }
        write!(f, ", {endpoints} endpoints")?;
        rate.map_or(Ok(()), |rate| write!(f, ", {rate} requests/s"))
    }
}

/// Measures everything, in turns.
pub(crate) async fn measure(plan: CostPlan, epp: &Path, progress: &Progress) -> Result<Vec<CostSample>> {
    let mut dir = RunDir::new()?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for cells in CELLS {
            let upstreams = Upstreams::start(cells[0].endpoints).await?;
            for variant in in_turns(&Variant::ALL, round) {
                let endpoints = upstreams.addresses();
                let setting = Setting {
                    endpoints,
                    workers: 1,
                    rules: "default",
                    interval: USUAL_INTERVAL,
                    epp: Some(epp),
                };
                let mut running = variant.start(setting).await?;
                let turns =
                    CostTurns { running: &running, upstreams: &upstreams, folder: dir.path(), variant };
                // Connections to every endpoint, and what else the first requests are spent on.
                turns.turn(cell(cells[0].endpoints, Traffic::Chat(KB), None), Duration::from_secs(2)).await?;
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

/// A variant that is running, in front of these servers.
pub(crate) struct CostTurns<'a> {
    pub(crate) running: &'a Running,
    pub(crate) upstreams: &'a Upstreams,
    /// Where the bodies are.
    pub(crate) folder: &'a Path,
    pub(crate) variant: Variant,
}

impl CostTurns<'_> {
    /// Puts it under load.
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
                let found =
                    wrk::run(self.running.listener(), load, lasting, &bodies(self.folder, traffic)?, None)?;
                (found.took, found.requests, found.failed, found.p50, found.p99)
            }
        };
        let cpu = self.running.cpu()?.since(before.0);
        let scrapes = self.upstreams.scrapes() - before.1;
        let chunks = self.upstreams.paced_chunks() - before.2;
        self.upstreams.set_metrics_text(None);
        Ok(CostSample { variant, cell, took, cpu, requests, failed, scrapes, chunks, p50, p99 })
    }
}

/// So few where a request takes long that those in flight at the end do not count.
fn connections(traffic: Traffic) -> u32 {
    match traffic {
        Traffic::Chat(bytes) if bytes <= 8 * KB => 32,
        Traffic::Paced => 16,
        _ => 4,
    }
}

/// A file with a body in each line; prompts differ, so that the prefix rule spreads them.
fn bodies(folder: &Path, traffic: Traffic) -> Result<PathBuf> {
    let (bytes, is_streamed) = match traffic {
        Traffic::Chat(bytes) => (bytes, false),
        _ => (KB, true),
    };
    let path = folder.join(format!("bodies-{traffic:?}"));
    if !path.is_file() {
        let count = (4 << 20) / bytes;
        let text: String =
            (0..count.clamp(8, 500)).map(|number| chat_line(number, bytes, is_streamed)).collect();
        let text = match traffic {
            Traffic::Paced => text.replace("}\n", &format!(",\"user\":\"{PACED}\"}}\n")),
            _ => text,
        };
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

impl CostSample {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered() / self.took.as_secs_f64()
    }

    /// Requests answered. Of answers that take as long as the turn, the part that came counts.
    fn answered(&self) -> f64 {
        if self.cell.traffic == Traffic::Paced { self.chunks as f64 / 1_000.0 } else { self.requests as f64 }
    }

    /// Processor seconds of everything on the path.
    pub(crate) fn cpu_per_1000(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1_000.0 / self.answered()
    }

    /// Processor microseconds for each scrape.
    pub(crate) fn cpu_per_scrape(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / self.scrapes as f64
    }

    /// Cores in use.
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
        write!(f, "{:.1} requests/s, {:.3} s per 1 000, ", self.per_second(), self.cpu_per_1000())?;
        write!(f, "p50 {:?}, p99 {:?}, {} failed", self.p50, self.p99, self.failed)
    }
}
