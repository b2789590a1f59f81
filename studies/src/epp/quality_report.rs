//! The figures of [`quality`](mod@super::quality) as tables.

use super::quality::{LOADS, Phases, QualityCell, QualityResults, QualitySample, USUAL_LOAD};
use super::variant::Variant;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{median, rounded};
use endpoint_picker_simulation::workload::Workload;
use std::fmt;

/// Bound of our p90 divided by that of round robin, at the usual load.
const MOST_OF_ROUND_ROBIN: f64 = 0.7;
/// Between the rounds of one variant, the p90 often differs by more than this factor.
const NOISE: f64 = 1.05;

/// All samples.
pub(crate) struct QualityTables<'a>(pub(crate) &'a QualityResults);

impl QualityTables<'_> {
    fn of(&self, cell: QualityCell, variant: Variant, figure: impl Fn(&QualitySample) -> f64) -> Vec<f64> {
        let samples = self.0.samples.iter();
        let samples = samples.filter(|sample| sample.cell == cell && sample.variant == variant);
        samples.map(figure).collect()
    }

    /// All conditions; the first round has all of them.
    fn cells(&self) -> impl Iterator<Item = QualityCell> {
        let runs = self.0.plan.rounds.first().copied().unwrap_or_default();
        Workload::ALL.into_iter().flat_map(move |workload| {
            let cells = move |&(workers, loads): &Phases| {
                loads.iter().map(move |&load| QualityCell { workload, workers, load })
            };
            runs.iter().flat_map(cells)
        })
    }

    fn row(&self, cell: QualityCell, variant: Variant) -> [String; 9] {
        let figure = |figure: &dyn Fn(&QualitySample) -> f64| rounded(median(self.of(cell, variant, figure)));
        let percentile = |part: f64| figure(&|sample| sample.outcome.percentile(part));
        let p90 = self.of(cell, variant, p90);
        let range =
            [f64::min, f64::max].map(|pick| rounded(p90.iter().copied().reduce(pick).unwrap_or(f64::NAN)));
        [
            cell.to_string(),
            variant.to_string(),
            figure(&|sample| sample.outcome.mean()),
            percentile(0.5),
            format!("{} ({} to {})", percentile(0.9), range[0], range[1]),
            percentile(0.99),
            figure(&|sample| sample.outcome.per_second()),
            figure(&|sample| sample.hit_rate() * 100.0),
            figure(&|sample| sample.cores),
        ]
    }

    /// The filter's p90 divided by the EPP's, and by that without a picker.
    fn comparison(&self, cell: QualityCell) -> [String; 5] {
        let [no_picker, filter, epp] = Variant::CHOOSING.map(|variant| self.of(cell, variant, p90));
        let best_of_filter = filter.iter().copied().fold(f64::INFINITY, f64::min);
        let worst_of_epp = epp.iter().copied().fold(0.0, f64::max);
        let [no_picker, filter, epp] = [no_picker, filter, epp].map(median);
        let is_not_worse = filter <= epp * NOISE || best_of_filter <= worst_of_epp;
        let of_no_picker = filter / no_picker;
        let is_usual = (cell.load - USUAL_LOAD).abs() < 1e-9;
        let beside_no_picker = if is_usual { met(of_no_picker <= MOST_OF_ROUND_ROBIN) } else { "" };
        [
            cell.to_string(),
            rounded(filter / epp),
            met(is_not_worse).to_owned(),
            rounded(of_no_picker),
            beside_no_picker.to_owned(),
        ]
    }
}

fn p90(sample: &QualitySample) -> f64 {
    sample.outcome.percentile(0.9)
}

impl fmt::Display for QualityTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(results) = self;
        writeln!(f, "Capacity, requests/s of all servers:\n")?;
        let head = ["", "100 %", "50 %", "80 %", "95 %"];
        let capacity = |workload| {
            let full = results.capacity(workload);
            let [low, usual, high] = LOADS.map(|load| rounded(full * load));
            [format!("{workload}"), rounded(full), low, usual, high]
        };
        table(f, &head, Workload::ALL.map(capacity))?;

        writeln!(f, "Milliseconds to the first token; in brackets the least and the most of the rounds:\n")?;
        let head =
            ["", "", "mean", "p50", "p90", "p99", "answers/s", "% of prompt tokens cached", "cores in use"];
        let rows = self.cells().flat_map(|cell| Variant::CHOOSING.map(|variant| self.row(cell, variant)));
        table(f, &head, rows)?;

        writeln!(
            f,
            "The filter's p90 divided by the others'. It is not worse than the EPP's if it is at most {NOISE} of it, or if the ranges of the rounds overlap:\n"
        )?;
        let head = ["", "to the EPP", "not worse", "to no picker", "≤ 0.7 at 80 %"];
        table(f, &head, self.cells().map(|cell| self.comparison(cell)))?;

        let failed = |variant| {
            let samples = results.samples.iter().filter(|sample| sample.variant == variant);
            samples.map(|sample| sample.outcome.failures.len()).sum::<usize>()
        };
        let failed = Variant::CHOOSING.map(|variant| format!("{variant} {}", failed(variant)));
        writeln!(f, "Requests that failed: {}. Seed {}.\n", failed.join(", "), results.plan.seed)
    }
}
