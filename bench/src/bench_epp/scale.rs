//! The effect of the pool's size on decisions, memory and scraping.

use super::cost::{CostSample, CostTurns};
use super::cost_cells::{CostCell, KB, Traffic};
use super::rules::Rules;
use super::variant::{Setting, Variant};
use crate::epp::PoolSource;
use crate::report::Progress;
use crate::report::markdown::table;
use crate::report::rounded;
use crate::upstreams::Upstreams;
use anyhow::{Context, Result};
use endpoint_picker_harness::run_dir::RunDir;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Scrapes each second in all, for any size: more would leave no processor for requests.
const SCRAPES_PER_SECOND: usize = 1_000;
/// The least interval of both pickers.
const LEAST_INTERVAL: Duration = Duration::from_millis(50);
const RATE: u32 = 200;
/// Starting and ending a variant, and its warm-up, take about this long.
const START: Duration = Duration::from_secs(6);

const MIB: f64 = 1_048_576.0;

/// The sizes to measure, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScalePlan {
    /// Numbers of endpoints.
    pub(crate) sizes: &'static [usize],
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// The figures of one variant with a pool of one size.
#[derive(Debug)]
pub(crate) struct SizeSample {
    variant: Variant,
    saturated: CostSample,
    steady: CostSample,
    idle: CostSample,
    /// Mean microseconds of a decision, by the picker's own metric.
    decision: Option<f64>,
    /// Bytes of Envoy, and of the process beside it.
    memory: [u64; 2],
}

/// The figures of all sizes.
pub(crate) struct ScaleTable(Vec<SizeSample>);

impl ScalePlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        (START + self.turn * 3) * u32::try_from(self.sizes.len() * Variant::ALL.len()).unwrap_or(u32::MAX)
    }
}

/// Time between two scrapes of an endpoint, in a pool of this many.
fn interval(endpoints: usize) -> Duration {
    Duration::from_secs_f64(endpoints as f64 / SCRAPES_PER_SECOND as f64).max(LEAST_INTERVAL)
}

/// Measures every variant once with every size.
pub(crate) async fn measure(plan: ScalePlan, epp: &Path, progress: &Progress) -> Result<ScaleTable> {
    let most = plan.sizes.iter().max().copied().unwrap_or_default();
    // A listener and two connections for each endpoint, and some others.
    allow_open_files(3 * most as u64 + 1_000)?;
    let mut dir = RunDir::new()?;
    let mut samples = Vec::new();
    for &endpoints in plan.sizes {
        let upstreams = Upstreams::start(endpoints).await?;
        for variant in Variant::ALL {
            let interval = interval(endpoints);
            let setting = Setting {
                endpoints: upstreams.addresses(),
                workers: 1,
                rules: Rules::Parity("default"),
                interval,
                epp: Some(epp),
                pool: PoolSource::File,
            };
            let mut running = variant.start(setting).await?;
            let turns = CostTurns { running: &running, upstreams: &upstreams, folder: dir.path(), variant };
            let busy = |rate| CostCell { endpoints, traffic: Traffic::Chat(KB), rate };
            turns.turn(busy(None), Duration::from_secs(2)).await?;
            let sample = SizeSample {
                variant,
                saturated: turns.turn(busy(None), plan.turn).await?,
                steady: turns.turn(busy(Some(RATE)), plan.turn).await?,
                idle: turns.turn(CostCell { traffic: Traffic::None, ..busy(None) }, plan.turn).await?,
                decision: running.decision().await?,
                memory: running.memory()?,
            };
            running.check_running()?;
            progress.print(&sample.to_string());
            samples.push(sample);
        }
    }
    dir.settle();
    Ok(ScaleTable(samples))
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

impl SizeSample {
    /// Microseconds of processor time for a request, without the cost of an idle pool.
    fn cpu_of_request(&self) -> f64 {
        let Self { saturated, idle, .. } = self;
        (saturated.cores() - idle.cores()) * 1e6 / saturated.per_second()
    }

    fn p50(&self) -> f64 {
        self.steady.p50.as_secs_f64() * 1e6
    }
}

impl ScaleTable {
    fn row(&self, sample: &SizeSample) -> [String; 10] {
        let SizeSample { variant, saturated, idle, memory, decision, .. } = sample;
        let is_baseline = |other: &&SizeSample| {
            other.variant == Variant::NoPicker && other.saturated.cell.endpoints == saturated.cell.endpoints
        };
        let baseline = self.0.iter().find(is_baseline);
        let added = |figure: fn(&SizeSample) -> f64| match baseline {
            Some(baseline) if *variant != Variant::NoPicker => rounded(figure(sample) - figure(baseline)),
            _ => String::new(),
        };
        let [envoy, picker] = memory.map(|bytes| rounded(bytes as f64 / MIB));
        let per_second = |time: Duration| rounded(time.as_secs_f64() / idle.took.as_secs_f64());
        [
            saturated.cell.endpoints.to_string(),
            variant.to_string(),
            rounded(saturated.per_second()),
            decision.map(rounded).unwrap_or_default(),
            added(SizeSample::cpu_of_request),
            added(SizeSample::p50),
            envoy,
            picker,
            format!("{}, {}", per_second(idle.cpu.envoy), per_second(idle.cpu.picker)),
            format!("{:.0}", idle.scrapes_per_second()),
        ]
    }
}

impl fmt::Display for SizeSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [envoy, picker] = self.memory.map(|bytes| rounded(bytes as f64 / MIB));
        write!(
            f,
            "{}; {}; {}; {envoy} + {picker} MiB; {:?} us",
            self.saturated, self.steady, self.idle, self.decision
        )
    }
}

impl fmt::Display for ScaleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Chats of 1 KB; each endpoint is scraped every 50 ms, or at the interval that makes {SCRAPES_PER_SECOND} scrapes/s in all:\n"
        )?;
        let head = [
            "endpoints",
            "",
            "req/s, saturated",
            "µs of a decision, by its own count",
            "CPU µs per request beside no picker, without scraping",
            "p50 µs at 200 req/s beside no picker",
            "Envoy MiB",
            "agent or EPP MiB",
            "idle cores: Envoy, agent or EPP",
            "scrapes/s",
        ];
        table(f, &head, self.0.iter().map(|sample| self.row(sample)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pools_are_scraped_every_50_ms_and_large_ones_at_a_constant_total_rate() {
        let found = [10, 50, 100, 5_000].map(interval);
        assert_eq!(found, [50, 50, 100, 5_000].map(Duration::from_millis));
    }
}
