//! What a request costs, and what a pool at rest costs.

use super::contender::{Contender, Cpu, Running, Setting, USUAL_INTERVAL};
use super::progress::Progress;
use crate::bench::{Load, PACED, Upstreams, body, run_wrk};
use crate::run_dir::RunDir;
use crate::tools;
use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::sleep;

/// What vLLM really says when it is scraped, some 50 KB.
const REAL_METRICS: &str = "metrics-agent/tests/captures/vllm-0.32.0-kv-busy.prom";
/// Starting and ending a contender, and its warm-up, take about this long.
const START: Duration = Duration::from_millis(4_500);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender in everything.
    pub rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub turn: Duration,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A chat of so many bytes.
    Chat(usize),
    /// A chat of 1 KB whose answer comes in 1 000 chunks, as fast as they are taken.
    Streamed,
    /// The same, with a chunk every 2 ms.
    Paced,
    /// Nothing.
    Nothing,
    /// Nothing, and what the servers say when they are scraped is as long as vLLM's.
    NothingButLongMetrics,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) endpoints: usize,
    pub(super) asked: Asked,
    /// Requests each second; `None` for as many as go through.
    pub(super) rate: Option<u32>,
}

/// What one turn gave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) contender: Contender,
    pub(super) cell: Cell,
    pub(super) took: Duration,
    pub(super) cpu: Cpu,
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) scrapes: u64,
    /// Chunks that came one at a time.
    pub(super) chunks: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

const KB: usize = 1 << 10;
const fn cell(endpoints: usize, asked: Asked, rate: Option<u32>) -> Cell {
    Cell { endpoints, asked, rate }
}

/// By size of the pool, which is started anew for each.
pub(super) const CELLS: [&[Cell]; 2] = [
    &[
        cell(10, Asked::Chat(KB), None),
        cell(10, Asked::Chat(8 * KB), None),
        cell(10, Asked::Chat(128 * KB), None),
        cell(10, Asked::Chat(1024 * KB), None),
        cell(10, Asked::Streamed, None),
        cell(10, Asked::Paced, None),
        cell(10, Asked::Chat(KB), Some(200)),
        cell(10, Asked::Chat(8 * KB), Some(200)),
        cell(10, Asked::Chat(128 * KB), Some(50)),
        cell(10, Asked::Chat(1024 * KB), Some(10)),
    ],
    &[
        cell(100, Asked::Chat(KB), None),
        cell(100, Asked::Chat(KB), Some(200)),
        cell(100, Asked::Nothing, None),
        cell(100, Asked::NothingButLongMetrics, None),
    ],
];

impl Plan {
    /// How long it should take.
    pub fn expected(&self) -> Duration {
        let turns: usize = CELLS.iter().map(|cells| cells.len()).sum();
        (self.turn * u32::try_from(turns).unwrap_or(u32::MAX) + START * 2) * self.rounds * 3
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, asked, rate } = self;
        match asked {
            Asked::Chat(bytes) if *bytes < 1024 * KB => write!(f, "{} KB", bytes / KB)?,
            Asked::Chat(bytes) => write!(f, "{} MiB", bytes / KB / 1024)?,
            Asked::Streamed => write!(f, "answers of 1 000 chunks, at once")?,
            Asked::Paced => write!(f, "answers of 1 000 chunks, one every 2 ms")?,
            Asked::Nothing => write!(f, "idle, short metrics")?,
            Asked::NothingButLongMetrics => write!(f, "idle, vLLM's metrics (48 KB)")?,
        }
        write!(f, ", {endpoints} endpoints")?;
        rate.map_or(Ok(()), |rate| write!(f, ", {rate} requests/s"))
    }
}

/// Measures everything, in turns.
pub(super) async fn measure(plan: Plan, epp: &Path, progress: &Progress) -> Result<Vec<Sample>> {
    let mut dir = RunDir::new()?;
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for cells in CELLS {
            let upstreams = Upstreams::start(cells[0].endpoints).await?;
            for contender in Contender::in_round(round) {
                let endpoints = upstreams.addresses();
                let setting = Setting {
                    endpoints,
                    workers: 1,
                    rules: "default",
                    interval: USUAL_INTERVAL,
                    epp: Some(epp),
                };
                let mut running = contender.start(setting).await?;
                let turns = Turns { running: &running, upstreams: &upstreams, folder: dir.path(), contender };
                // Connections to every endpoint, and what else the first requests are spent on.
                turns.turn(cell(cells[0].endpoints, Asked::Chat(KB), None), Duration::from_secs(2)).await?;
                for &cell in cells {
                    let sample = turns.turn(cell, plan.turn).await?;
                    progress.say(&format!("round {}: {sample}", round + 1));
                    samples.push(sample);
                }
                running.check_running()?;
            }
        }
    }
    dir.settle();
    Ok(samples)
}

/// A contender that is running, in front of these servers.
pub(super) struct Turns<'a> {
    pub(super) running: &'a Running,
    pub(super) upstreams: &'a Upstreams,
    /// Where the bodies are.
    pub(super) folder: &'a Path,
    pub(super) contender: Contender,
}

impl Turns<'_> {
    /// Puts it under load.
    pub(super) async fn turn(&self, cell: Cell, lasting: Duration) -> Result<Sample> {
        let contender = self.contender;
        let (asked, rate) = (cell.asked, cell.rate);
        let long = fs::read_to_string(tools::root().join(REAL_METRICS)).context(REAL_METRICS)?;
        let is_long = asked == Asked::NothingButLongMetrics;
        self.upstreams.say_when_scraped(is_long.then_some(long.as_str()));
        let before = (self.running.cpu()?, self.upstreams.scrapes(), self.upstreams.paced_chunks());
        let (took, requests, failed, p50, p99) = match asked {
            Asked::Nothing | Asked::NothingButLongMetrics => {
                sleep(lasting).await;
                (lasting, 0, 0, Duration::ZERO, Duration::ZERO)
            }
            Asked::Chat(_) | Asked::Streamed | Asked::Paced => {
                let load = match rate {
                    Some(per_second) => Load::Steady { per_second },
                    None => Load::Saturating { connections: connections(asked) },
                };
                let found =
                    run_wrk(self.running.listener(), load, lasting, &bodies(self.folder, asked)?, None)?;
                (found.took, found.requests, found.failed, found.p50, found.p99)
            }
        };
        let cpu = self.running.cpu()?.since(before.0);
        let scrapes = self.upstreams.scrapes() - before.1;
        let chunks = self.upstreams.paced_chunks() - before.2;
        self.upstreams.say_when_scraped(None);
        Ok(Sample { contender, cell, took, cpu, requests, failed, scrapes, chunks, p50, p99 })
    }
}

/// So few where a request takes long that those in flight at the end do not count.
fn connections(asked: Asked) -> u32 {
    match asked {
        Asked::Chat(bytes) if bytes <= 8 * KB => 32,
        Asked::Paced => 16,
        _ => 4,
    }
}

/// A file with a body in each line; prompts differ, so that the prefix rule spreads them.
fn bodies(folder: &Path, asked: Asked) -> Result<PathBuf> {
    let (bytes, is_streamed) = match asked {
        Asked::Chat(bytes) => (bytes, false),
        _ => (KB, true),
    };
    let path = folder.join(format!("bodies-{asked:?}"));
    if !path.is_file() {
        let count = (4 << 20) / bytes;
        let text: String = (0..count.clamp(8, 500)).map(|number| body(number, bytes, is_streamed)).collect();
        let text = match asked {
            Asked::Paced => text.replace("}\n", &format!(",\"user\":\"{PACED}\"}}\n")),
            _ => text,
        };
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}

impl Sample {
    pub(super) fn per_second(&self) -> f64 {
        self.answered() / self.took.as_secs_f64()
    }

    /// Requests answered. Of answers that take as long as the turn, the part that came counts.
    fn answered(&self) -> f64 {
        if self.cell.asked == Asked::Paced { self.chunks as f64 / 1_000.0 } else { self.requests as f64 }
    }

    /// Processor seconds of everything on the path.
    pub(super) fn cpu_per_1000(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1_000.0 / self.answered()
    }

    /// Processor microseconds for each scrape.
    pub(super) fn cpu_per_scrape(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / self.scrapes as f64
    }

    /// Cores in use.
    pub(super) fn cores(&self) -> f64 {
        self.cpu.total().as_secs_f64() / self.took.as_secs_f64()
    }

    pub(super) fn scrapes_per_second(&self) -> f64 {
        self.scrapes as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.contender, self.cell)?;
        let cores = |cpu: Duration| cpu.as_secs_f64() / self.took.as_secs_f64();
        write!(f, "{:.2} + {:.2} cores, ", cores(self.cpu.envoy), cores(self.cpu.picker))?;
        if matches!(self.cell.asked, Asked::Nothing | Asked::NothingButLongMetrics) {
            return write!(f, "{:.0} scrapes/s", self.scrapes_per_second());
        }
        write!(f, "{:.1} requests/s, {:.3} s per 1 000, ", self.per_second(), self.cpu_per_1000())?;
        write!(f, "p50 {:?}, p99 {:?}, {} failed", self.p50, self.p99, self.failed)
    }
}
