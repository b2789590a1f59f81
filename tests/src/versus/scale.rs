//! What the size of the pool does: to a decision, to memory, to the scraping.

use super::contender::{Contender, Setting};
use super::cost::{Asked, Cell, Sample, Turns};
use super::markdown::table;
use super::progress::Progress;
use crate::bench::{Upstreams, rounded};
use crate::run_dir::RunDir;
use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Scrapes each second that are asked for in all, whatever the size: more would leave no processor for requests.
const SCRAPES_PER_SECOND: usize = 1_000;
/// The least interval of both pickers.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
const RATE: u32 = 200;
const KB: usize = 1 << 10;
/// Starting and ending a contender, and its warm-up, take about this long.
const START: Duration = Duration::from_secs(6);

const MIB: f64 = 1_048_576.0;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Numbers of endpoints.
    pub sizes: &'static [usize],
    /// How long a turn lasts; whole seconds.
    pub turn: Duration,
}

/// What one contender needed with a pool of one size.
#[derive(Debug)]
pub(super) struct Look {
    contender: Contender,
    saturated: Sample,
    steady: Sample,
    idle: Sample,
    /// Bytes of Envoy, and of what runs beside it.
    memory: [u64; 2],
}

/// All of them.
pub(super) struct Report(Vec<Look>);

impl Plan {
    /// How long it should take.
    pub fn expected(&self) -> Duration {
        (START + self.turn * 3) * u32::try_from(self.sizes.len() * 3).unwrap_or(u32::MAX)
    }
}

/// Between two scrapes of one of so many endpoints.
fn interval(endpoints: usize) -> Duration {
    Duration::from_secs_f64(endpoints as f64 / SCRAPES_PER_SECOND as f64).max(LEAST_INTERVAL)
}

/// Measures everything, once.
pub(super) async fn measure(plan: Plan, epp: &Path, progress: &Progress) -> Result<Report> {
    let most = plan.sizes.iter().max().copied().unwrap_or_default();
    // A listener and two connections for each endpoint, and what else is open.
    allow_open_files(3 * most as u64 + 1_000)?;
    let mut dir = RunDir::new()?;
    let mut looks = Vec::new();
    for &endpoints in plan.sizes {
        let upstreams = Upstreams::start(endpoints).await?;
        for contender in Contender::ALL {
            let interval = interval(endpoints);
            let setting =
                Setting { endpoints: upstreams.addresses(), workers: 1, rules: "default", interval, epp };
            let mut running = contender.start(setting).await?;
            let turns = Turns { running: &running, upstreams: &upstreams, folder: dir.path(), contender };
            let busy = |rate| Cell { endpoints, asked: Asked::Chat(KB), rate };
            turns.turn(busy(None), Duration::from_secs(2)).await?;
            let look = Look {
                contender,
                saturated: turns.turn(busy(None), plan.turn).await?,
                steady: turns.turn(busy(Some(RATE)), plan.turn).await?,
                idle: turns.turn(Cell { asked: Asked::Nothing, ..busy(None) }, plan.turn).await?,
                memory: running.memory()?,
            };
            running.check_running()?;
            progress.say(&look.to_string());
            looks.push(look);
        }
    }
    dir.settle();
    Ok(Report(looks))
}

fn allow_open_files(least: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < least) {
        let raised = Rlimit { current: Some(least), ..limit };
        setrlimit(Resource::Nofile, raised)
            .with_context(|| format!("{least} open files are needed (ulimit -n, and its hard limit)"))?;
    }
    Ok(())
}

impl Look {
    fn row(&self) -> [String; 9] {
        let Self { contender, saturated, steady, idle, memory } = self;
        let [envoy, picker] = memory.map(|bytes| rounded(bytes as f64 / MIB));
        [
            saturated.cell.endpoints.to_string(),
            contender.to_string(),
            rounded(saturated.per_second()),
            rounded(saturated.cpu_per_1000()),
            rounded(steady.p50.as_secs_f64() * 1e6),
            rounded(idle.cores()),
            format!("{:.0}", idle.scrapes_per_second()),
            envoy,
            picker,
        ]
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [endpoints, contender, rate, cpu, p50, cores, scrapes, envoy, picker] = self.row();
        write!(f, "{contender} {endpoints} endpoints: {rate} requests/s, {cpu} s per 1 000, p50 {p50} us; ")?;
        write!(f, "idle {cores} cores, {scrapes} scrapes/s; {envoy} + {picker} MiB")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Chats of 1 KB; each endpoint is scraped every 50 ms, or as rarely as makes {SCRAPES_PER_SECOND} scrapes/s in all:\n"
        )?;
        let head = [
            "endpoints",
            "",
            "req/s, saturated",
            "CPU s per 1 000",
            "p50 µs at 200 req/s",
            "idle: cores",
            "idle: scrapes/s",
            "Envoy MiB",
            "agent or EPP MiB",
        ];
        table(f, head, self.0.iter().map(Look::row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_are_scraped_every_50_ms_and_large_ones_as_often_in_all() {
        let found = [10, 50, 100, 5_000].map(interval);
        assert_eq!(found, [50, 50, 100, 5_000].map(Duration::from_millis));
    }
}
