//! Our filter as the shadow of the EPP: how often both agree, and the processor time that it takes.

use super::rules::Rules;
use super::running::RunningVariant;
use super::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::epp::PoolSource;
use crate::in_turns::in_turns;
use crate::load::capacity;
use crate::load::schedule::Schedule;
use crate::load::workload::Workload;
use crate::report::Progress;
use crate::timed_servers::{SERVERS, TimedServers};
use anyhow::{Result, ensure};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::within;
use std::fmt::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Loads, as fractions of the capacity.
const LOADS: [f64; 2] = [0.5, 0.8];
const VARIANTS: [Variant; 3] =
    [Variant::Epp, Variant::ShadowedEpp(Filter::Wasm), Variant::ShadowedEpp(Filter::Native)];
const COUNTED_DEADLINE: Duration = Duration::from_secs(10);
/// Starting and ending a variant takes about this long.
const START: Duration = Duration::from_secs(4);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShadowPlan {
    /// How long requests are sent at each load.
    pub(crate) phase: Duration,
    /// How long requests are sent before, to fill the caches.
    pub(crate) warm_up: Duration,
    /// Determines all requests and their times.
    pub(crate) seed: u64,
}

impl ShadowPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turn = START + self.warm_up + self.phase * 2;
        turn * 9
    }
}

/// Comparisons that the filter has counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    agreed: u64,
    equal_score: u64,
    disagreed: u64,
    not_compared: u64,
}

/// The figures of one phase.
#[derive(Debug)]
struct Sample {
    variant: Variant,
    workload: Workload,
    load: f64,
    requests: usize,
    failed: usize,
    envoy: Duration,
    /// Milliseconds to the first token, the median.
    first_byte: f64,
    counts: Counts,
}

/// Measures; returns a table.
pub(crate) async fn measure(plan: ShadowPlan, epp: &Path, progress: &Progress) -> Result<String> {
    let mut table = String::from(
        "| Workload, load | Proxy | Agreed | Of these equal score, other pick | Not compared | Envoy's processor time of a request | p50 to the first token |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (round, workload) in (0..).zip(Workload::ALL) {
        let capacity = capacity::of(workload, SERVERS, plan.seed);
        let mut samples = Vec::new();
        for variant in in_turns(&VARIANTS, round) {
            for sample in turn(plan, variant, workload, capacity, epp).await? {
                progress.print(&sample.to_string());
                samples.push(sample);
            }
        }
        samples.sort_by(|one, other| {
            let place = |sample: &Sample| VARIANTS.iter().position(|variant| *variant == sample.variant);
            one.load.total_cmp(&other.load).then(place(one).cmp(&place(other)))
        });
        for sample in &samples {
            let _ = writeln!(table, "| {} |", sample.cells().join(" | "));
        }
    }
    Ok(table)
}

/// One variant in front of servers with empty caches.
async fn turn(
    plan: ShadowPlan,
    variant: Variant,
    workload: Workload,
    capacity: f64,
    epp: &Path,
) -> Result<Vec<Sample>> {
    let servers = TimedServers::start(SERVERS, workload.service_times())?;
    let endpoints = servers.addresses();
    let rules = Rules::Parity(workload.rules());
    let setting = Setting {
        endpoints: &endpoints,
        workers: 1,
        rules,
        interval: USUAL_INTERVAL,
        epp: Some(epp),
        pool: PoolSource::File,
    };
    let mut running = variant.start(setting).await?;
    let mut requests = workload.requests(plan.seed);
    Schedule::poisson(&mut requests, capacity * LOADS[0], plan.warm_up, plan.seed)
        .send(&[running.listener()])
        .await?;
    let mut samples = Vec::new();
    for load in LOADS {
        let schedule =
            Schedule::poisson(&mut requests, capacity * load, plan.phase, plan.seed ^ load.to_bits());
        let (before, cpu) = (settled(&running).await?, running.cpu()?);
        let outcome = schedule.send(&[running.listener()]).await?;
        running.check_running()?;
        let envoy = running.cpu()?.since(cpu).envoy;
        let after = settled(&running).await?;
        servers.forget_requests();
        samples.push(Sample {
            variant,
            workload,
            load,
            requests: outcome.first_byte.len(),
            failed: outcome.failures.len(),
            envoy,
            first_byte: outcome.percentile(0.5),
            counts: Counts {
                agreed: after.agreed - before.agreed,
                equal_score: after.equal_score - before.equal_score,
                disagreed: after.disagreed - before.disagreed,
                not_compared: after.not_compared - before.not_compared,
            },
        });
    }
    Ok(samples)
}

/// The counts when every worker has flushed its own: snapshots are counted all the time, and twice they have become more.
async fn settled(running: &RunningVariant) -> Result<Counts> {
    let mut statistics = running.statistics().await?;
    if statistics.series("snapshots") == 0 {
        return Ok(Counts::default());
    }
    for _ in 0..2 {
        let before = statistics.sum("snapshots");
        let flushed = within(COUNTED_DEADLINE, async || {
            let now = running.statistics().await?;
            ensure!(now.sum("snapshots") > before, "no more snapshots are counted");
            Ok(now)
        });
        statistics = flushed.await.map_err(anyhow::Error::msg)?;
    }
    Ok(Counts {
        agreed: statistics.sum("shadow_agreed"),
        equal_score: statistics.sum("shadow_equal_score"),
        disagreed: statistics.sum("shadow_disagreed"),
        not_compared: statistics.sum("shadow_not_compared"),
    })
}

impl Sample {
    fn cells(&self) -> [String; 7] {
        let Self { variant, workload, load, requests, envoy, first_byte, counts, .. } = self;
        let Counts { agreed, equal_score, disagreed, not_compared } = *counts;
        let compared = agreed + disagreed;
        let share = |count: u64| {
            if compared == 0 {
                return "–".to_owned();
            }
            format!("{:.1} % ({count} of {compared})", 100.0 * count as f64 / compared as f64)
        };
        [
            format!("{workload}, {:.0} %", load * 100.0),
            variant.to_string(),
            share(agreed),
            share(equal_score),
            not_compared.to_string(),
            format!("{:.0} µs", envoy.as_secs_f64() * 1e6 / *requests as f64),
            format!("{first_byte:.0} ms"),
        ]
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} failed", self.cells().join("; "), self.failed)
    }
}
