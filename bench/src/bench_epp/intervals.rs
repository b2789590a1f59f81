//! How good the choices are when servers are scraped less often, beside round robin: for `make bench-intervals`.

use super::quality::{QualityCell, QualityPlan, QualitySample, QualityTurn, phases};
use super::rules::Rules;
use super::variant::{USUAL_INTERVAL, Variant};
use crate::in_turns::in_turns;
use crate::load::capacity;
use crate::load::workload::Workload;
use crate::report::Progress;
use crate::report::markdown::table;
use crate::report::{median, rounded};
use crate::timed_servers::SERVERS;
use anyhow::Result;
use endpoint_picker_harness::Filter;
use std::fmt;
use std::time::Duration;

/// Time between two scrapes of an endpoint.
const INTERVALS: [Duration; 4] =
    [USUAL_INTERVAL, Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(500)];

/// The filter at one scrape interval; `None` for round robin, which scrapes nothing.
type ScrapeInterval = Option<Duration>;

/// The samples of every interval.
#[derive(Debug)]
pub(crate) struct IntervalTable {
    plan: QualityPlan,
    samples: Vec<(ScrapeInterval, QualitySample)>,
}

fn all() -> Vec<ScrapeInterval> {
    std::iter::once(None).chain(INTERVALS.map(Some)).collect()
}

/// How long [`measure`] should take.
pub(crate) fn expected(plan: &QualityPlan) -> Duration {
    let turns = plan.rounds.iter().copied().flatten().map(|(_, loads)| plan.turn(loads));
    let each = u32::try_from(all().len() * Workload::ALL.len()).unwrap_or(u32::MAX);
    turns.sum::<Duration>() * each
}

/// Measures every interval in turns.
pub(crate) async fn measure(plan: QualityPlan, progress: &Progress) -> Result<IntervalTable> {
    let mut table = IntervalTable { plan, samples: Vec::new() };
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            let capacity = capacity::of(workload, SERVERS, plan.seed);
            for &(workers, loads) in *runs {
                let phases = phases(plan, capacity, workload, loads, round);
                for interval in in_turns(&all(), round) {
                    let variant = interval.map_or(Variant::NoPicker, |_| Variant::Filter(Filter::Wasm));
                    let turn = QualityTurn {
                        variant,
                        workload,
                        rules: Rules::Parity(workload.rules()),
                        workers,
                        interval: interval.unwrap_or(USUAL_INTERVAL),
                        epp: None,
                    };
                    for sample in turn.run(&phases).await? {
                        progress.print(&format!("round {}, {}: {sample}", round + 1, name(interval)));
                        table.samples.push((interval, sample));
                    }
                }
            }
        }
    }
    Ok(table)
}

fn name(interval: ScrapeInterval) -> String {
    interval.map_or_else(|| "round robin".to_owned(), |interval| format!("every {} ms", interval.as_millis()))
}

impl fmt::Display for IntervalTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.plan.rounds.first().copied().unwrap_or_default();
        let mut rows = Vec::new();
        for workload in Workload::ALL {
            for &(workers, loads) in runs {
                for &load in loads {
                    let cell = QualityCell { workload, workers, load };
                    rows.extend(all().into_iter().map(|interval| self.row(cell, interval)));
                }
            }
        }
        let head = ["", "scraped", "mean ms to the first token", "p50", "p90", "p99", "% cached", "failed"];
        table(f, &head, rows)
    }
}

impl IntervalTable {
    fn row(&self, cell: QualityCell, interval: ScrapeInterval) -> [String; 8] {
        let samples: Vec<&QualitySample> = self
            .samples
            .iter()
            .filter(|(of, sample)| *of == interval && sample.cell == cell)
            .map(|(_, sample)| sample)
            .collect();
        let figure = |figure: &dyn Fn(&QualitySample) -> f64| {
            rounded(median(samples.iter().map(|sample| figure(sample)).collect()))
        };
        let percentile = |share: f64| figure(&|sample| sample.outcome.percentile(share));
        let failed: usize = samples.iter().map(|sample| sample.outcome.failures.len()).sum();
        [
            cell.to_string(),
            name(interval),
            figure(&|sample| sample.outcome.mean()),
            percentile(0.5),
            percentile(0.9),
            percentile(0.99),
            figure(&|sample| sample.hit_rate() * 100.0),
            failed.to_string(),
        ]
    }
}
