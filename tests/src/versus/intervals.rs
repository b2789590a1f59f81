//! How good the choices are when servers are scraped less often, beside round robin: for `make bench-intervals`.

use super::capacity;
use super::contender::{Contender, USUAL_INTERVAL};
use super::markdown::table;
use super::progress::Progress;
use super::quality::{Cell, Plan, SERVERS, Sample, Turn, phases};
use super::workload::Workload;
use crate::bench::{median, rounded};
use anyhow::Result;
use std::fmt;
use std::time::Duration;

/// Time between two scrapes of an endpoint.
const INTERVALS: [Duration; 4] =
    [USUAL_INTERVAL, Duration::from_millis(100), Duration::from_millis(200), Duration::from_millis(500)];

/// The filter at one scrape interval, or round robin, which scrapes nothing.
type Variant = Option<Duration>;

/// What was measured.
#[derive(Debug)]
pub(super) struct Report {
    plan: Plan,
    samples: Vec<(Variant, Sample)>,
}

fn variants() -> impl Iterator<Item = Variant> {
    std::iter::once(None).chain(INTERVALS.map(Some))
}

/// How long [`measure`] should take.
pub(super) fn expected(plan: &Plan) -> Duration {
    let turns = plan.rounds.iter().copied().flatten().map(|(_, loads)| plan.turn(loads));
    let each = u32::try_from(variants().count() * Workload::ALL.len()).unwrap_or(u32::MAX);
    turns.sum::<Duration>() * each
}

/// Measures every variant in turns, another one first in each round.
pub(super) async fn measure(plan: Plan, progress: &Progress) -> Result<Report> {
    let mut report = Report { plan, samples: Vec::new() };
    let count = variants().count();
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            let capacity = capacity::of(workload, SERVERS, plan.seed);
            for &(workers, loads) in *runs {
                let phases = phases(plan, capacity, workload, loads, round);
                let variants: Vec<Variant> = variants().collect();
                for variant in variants.into_iter().cycle().skip(round as usize % count).take(count) {
                    let contender = if variant.is_some() { Contender::Ours } else { Contender::Bare };
                    let interval = variant.unwrap_or(USUAL_INTERVAL);
                    let turn = Turn { contender, workload, workers, interval, epp: None };
                    for sample in turn.run(&phases).await? {
                        progress.say(&format!("round {}, {}: {sample}", round + 1, name(variant)));
                        report.samples.push((variant, sample));
                    }
                }
            }
        }
    }
    Ok(report)
}

fn name(variant: Variant) -> String {
    variant.map_or_else(|| "round robin".to_owned(), |interval| format!("every {} ms", interval.as_millis()))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.plan.rounds.first().copied().unwrap_or_default();
        let mut rows = Vec::new();
        for workload in Workload::ALL {
            for &(workers, loads) in runs {
                for &load in loads {
                    let cell = Cell { workload, workers, load };
                    rows.extend(variants().map(|variant| self.row(cell, variant)));
                }
            }
        }
        let head = ["", "scraped", "mean ms to the first token", "p50", "p90", "p99", "% cached", "failed"];
        table(f, head, rows)
    }
}

impl Report {
    fn row(&self, cell: Cell, variant: Variant) -> [String; 8] {
        let samples: Vec<&Sample> = self
            .samples
            .iter()
            .filter(|(of, sample)| *of == variant && sample.cell == cell)
            .map(|(_, sample)| sample)
            .collect();
        let figure = |figure: &dyn Fn(&Sample) -> f64| {
            rounded(median(samples.iter().map(|sample| figure(sample)).collect()))
        };
        let percentile = |part: f64| figure(&|sample| sample.outcome.percentile(part));
        let failed: usize = samples.iter().map(|sample| sample.outcome.failures.len()).sum();
        [
            cell.to_string(),
            name(variant),
            figure(&|sample| sample.outcome.mean()),
            percentile(0.5),
            percentile(0.9),
            percentile(0.99),
            figure(&|sample| sample.hit_rate() * 100.0),
            failed.to_string(),
        ]
    }
}
