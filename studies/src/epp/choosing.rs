//! The configurations of `examples/choosing` compared: which one to choose for which load.

use super::quality::{Phases, QualityCell, QualityPlan, QualitySample, QualityTurn, phases};
use super::rules::Rules;
use super::variant::{USUAL_INTERVAL, Variant};
use crate::timed_servers::SERVERS;
use anyhow::Result;
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{Progress, median, rounded};
use endpoint_picker_harness::Filter;
use endpoint_picker_simulation::capacity;
use endpoint_picker_simulation::workload::Workload;
use std::fmt;
use std::time::Duration;

/// The configurations, by the names of their files; the first is the EPP's default. Only the native module has flow control.
pub(super) const CONFIGURATIONS: [&str; 5] = ["default", "token-aware", "lora", "session", "flow-control"];

/// The samples of every configuration.
#[derive(Debug)]
pub(crate) struct Choices {
    plan: QualityPlan,
    samples: Vec<(&'static str, QualitySample)>,
}

/// How long [`measure`] should take.
pub(crate) fn expected(plan: &QualityPlan) -> Duration {
    let turns = plan.rounds.iter().copied().flatten().map(|(_, loads)| plan.turn(loads));
    let each = u32::try_from(CONFIGURATIONS.len() * Workload::ALL.len()).unwrap_or(u32::MAX);
    turns.sum::<Duration>() * each
}

/// Measures every configuration in turns.
pub(crate) async fn measure(plan: QualityPlan, progress: &Progress) -> Result<Choices> {
    let mut choices = Choices { plan, samples: Vec::new() };
    let mut turns = 0;
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            let capacity = capacity::of(workload, SERVERS, plan.seed);
            for &(workers, loads) in *runs {
                let phases = phases(plan, capacity, workload, loads, round);
                for configuration in in_turns(&CONFIGURATIONS, turns) {
                    let turn = QualityTurn {
                        variant: Variant::Filter(Filter::Native),
                        workload,
                        rules: Rules::Example(configuration),
                        workers,
                        interval: USUAL_INTERVAL,
                        epp: None,
                    };
                    for sample in turn.run(&phases).await? {
                        progress.print(&format!("round {}, {configuration}: {sample}", round + 1));
                        choices.samples.push((configuration, sample));
                    }
                }
                // Another configuration begins.
                turns += 1;
            }
        }
    }
    Ok(choices)
}

/// Aim for one configuration: at most this part of the default's p90, with at least [`AIM_WORKLOADS`] workloads.
const AIM: f64 = 0.85;
const AIM_WORKLOADS: usize = 2;

impl Choices {
    fn figures(
        &self,
        cell: QualityCell,
        configuration: &str,
        figure: impl Fn(&QualitySample) -> f64,
    ) -> Vec<f64> {
        let of_cell = self.samples.iter().filter(|(of, sample)| *of == configuration && sample.cell == cell);
        of_cell.map(|(_, sample)| figure(sample)).collect()
    }

    fn figure(&self, cell: QualityCell, configuration: &str, figure: impl Fn(&QualitySample) -> f64) -> f64 {
        median(self.figures(cell, configuration, figure))
    }

    /// Envoy's workers, and the loads; the first round has all of them.
    fn runs(&self) -> &'static [Phases] {
        self.plan.rounds.first().copied().unwrap_or_default()
    }

    fn cells(&self, workload: Workload) -> impl Iterator<Item = QualityCell> {
        let cells = move |&(workers, loads): &'static Phases| {
            loads.iter().map(move |&load| QualityCell { workload, workers, load })
        };
        self.runs().iter().flat_map(cells)
    }

    /// A configuration's p90 as a part of the default's: the median over workers, loads and rounds.
    fn to_default(&self, workload: Workload, configuration: &str) -> f64 {
        let p90 = |sample: &QualitySample| sample.outcome.percentile(0.9);
        let ratios = self.cells(workload).flat_map(|cell| {
            let own = self.figures(cell, configuration, p90);
            own.into_iter()
                .zip(self.figures(cell, CONFIGURATIONS[0], p90))
                .map(|(own, default)| own / default)
        });
        median(ratios.collect())
    }

    fn cached(&self, workload: Workload, configuration: &str) -> f64 {
        median(
            self.cells(workload)
                .map(|cell| self.figure(cell, configuration, QualitySample::hit_rate))
                .collect(),
        )
    }

    /// The times of one configuration in one cell: p50, p90 and p99.
    fn times(&self, cell: QualityCell, configuration: &str) -> String {
        let percentile =
            |share: f64| rounded(self.figure(cell, configuration, |sample| sample.outcome.percentile(share)));
        [0.5, 0.9, 0.99].map(percentile).join(" / ")
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Milliseconds to the first token, p50 / p90 / p99:\n")?;
        let columns = |workers: u32| {
            let runs = self.runs().iter().filter(move |(of, _)| *of == workers);
            let loads = runs.flat_map(|(_, loads)| loads.iter().copied());
            let each = |load: f64| Workload::ALL.map(|workload| QualityCell { workload, workers, load });
            let mut cells: Vec<QualityCell> = loads.flat_map(each).collect();
            cells.sort_by_key(|cell| Workload::ALL.iter().position(|of| *of == cell.workload));
            cells
        };
        let first = self.runs().first().map_or(1, |(workers, _)| *workers);
        let title = |cell: &QualityCell| format!("{}, {:.0} %", cell.workload, cell.load * 100.0);
        let head: Vec<String> =
            ["", "workers"].map(str::to_owned).into_iter().chain(columns(first).iter().map(title)).collect();
        let mut rows = Vec::new();
        for configuration in CONFIGURATIONS {
            for &(workers, _) in self.runs() {
                let times = columns(workers).into_iter().map(|cell| self.times(cell, configuration));
                rows.push(
                    [configuration.to_owned(), workers.to_string()]
                        .into_iter()
                        .chain(times)
                        .collect::<Vec<_>>(),
                );
            }
        }
        table(f, &head, rows)?;

        writeln!(
            f,
            "The p90 as a part of the default's, the median over loads and workers, and in brackets the share of the prompt tokens that the servers had cached. The aim is one configuration with at most {AIM} on {AIM_WORKLOADS} of {} workloads:\n",
            Workload::ALL.len()
        )?;
        let titles = Workload::ALL.map(|workload| workload.to_string());
        let head = [&[String::new()][..], &titles, &["aim".to_owned(), "failed".to_owned()]].concat();
        let rows = CONFIGURATIONS.map(|configuration| {
            let ratios = Workload::ALL.map(|workload| self.to_default(workload, configuration));
            let cells = Workload::ALL.into_iter().zip(ratios).map(|(workload, ratio)| {
                format!("{} ({:.0} %)", rounded(ratio), self.cached(workload, configuration) * 100.0)
            });
            let reached = ratios.iter().filter(|ratio| **ratio <= AIM).count();
            let aim = if configuration == CONFIGURATIONS[0] { "" } else { met(reached >= AIM_WORKLOADS) };
            let own = self.samples.iter().filter(|(of, _)| *of == configuration);
            let failed: usize = own.map(|(_, sample)| sample.outcome.failures.len()).sum();
            let end = [aim.to_owned(), failed.to_string()];
            std::iter::once(configuration.to_owned()).chain(cells).chain(end).collect::<Vec<_>>()
        });
        table(f, &head, rows)
    }
}
