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
    /// Microseconds of a decision, as the picker itself counts.
    decision: Option<f64>,
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
            let setting = Setting {
                endpoints: upstreams.addresses(),
                workers: 1,
                rules: "default",
                interval,
                epp: Some(epp),
            };
            let mut running = contender.start(setting).await?;
            let turns = Turns { running: &running, upstreams: &upstreams, folder: dir.path(), contender };
            let busy = |rate| Cell { endpoints, asked: Asked::Chat(KB), rate };
            turns.turn(busy(None), Duration::from_secs(2)).await?;
            let look = Look {
                contender,
                saturated: turns.turn(busy(None), plan.turn).await?,
                steady: turns.turn(busy(Some(RATE)), plan.turn).await?,
                idle: turns.turn(Cell { asked: Asked::Nothing, ..busy(None) }, plan.turn).await?,
                decision: running.decision().await?,
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
    /// Microseconds of processor time for a request, without what goes on anyway.
    fn cpu_of_request(&self) -> f64 {
        let Self { saturated, idle, .. } = self;
        (saturated.cores() - idle.cores()) * 1e6 / saturated.per_second()
    }

    fn p50(&self) -> f64 {
        self.steady.p50.as_secs_f64() * 1e6
    }
}

impl Report {
    fn row(&self, look: &Look) -> [String; 10] {
        let Look { contender, saturated, idle, memory, decision, .. } = look;
        let is_bare = |other: &&Look| {
            other.contender == Contender::Bare && other.saturated.cell.endpoints == saturated.cell.endpoints
        };
        let bare = self.0.iter().find(is_bare);
        let added = |figure: fn(&Look) -> f64| match bare {
            Some(bare) if *contender != Contender::Bare => rounded(figure(look) - figure(bare)),
            _ => String::new(),
        };
        let [envoy, picker] = memory.map(|bytes| rounded(bytes as f64 / MIB));
        let per_second = |time: Duration| rounded(time.as_secs_f64() / idle.took.as_secs_f64());
        [
            saturated.cell.endpoints.to_string(),
            contender.to_string(),
            rounded(saturated.per_second()),
            decision.map(rounded).unwrap_or_default(),
            added(Look::cpu_of_request),
            added(Look::p50),
            envoy,
            picker,
            format!("{}, {}", per_second(idle.cpu.envoy), per_second(idle.cpu.picker)),
            format!("{:.0}", idle.scrapes_per_second()),
        ]
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [envoy, picker] = self.memory.map(|bytes| rounded(bytes as f64 / MIB));
        write!(
            f,
            "{}; {}; {}; {envoy} + {picker} MiB; {:?} us",
            self.saturated, self.steady, self.idle, self.decision
        )
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
            "µs of a decision, by its own count",
            "CPU µs per request beside A's, without scraping",
            "p50 µs at 200 req/s beside A's",
            "Envoy MiB",
            "agent or EPP MiB",
            "idle cores: Envoy, agent or EPP",
            "scrapes/s",
        ];
        table(f, head, self.0.iter().map(|look| self.row(look)))
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
