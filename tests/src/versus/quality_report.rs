//! The figures of [`quality`](super::quality) as tables.

use super::contender::Contender;
use super::markdown::{table, verdict};
use super::quality::{Cell, Found, LOADS, Phases, Sample, USUAL_LOAD};
use super::workload::Workload;
use crate::bench::{median, rounded};
use std::fmt;

/// The most that the p90 of ours may be of round robin's, at the usual load.
const MOST_OF_ROUND_ROBIN: f64 = 0.7;
/// Of one contender's own rounds, the slowest is often more than this above the fastest.
const NOISE: f64 = 1.05;

/// All samples.
pub(super) struct Report<'a>(pub(super) &'a Found);

impl Report<'_> {
    fn of(&self, cell: Cell, contender: Contender, figure: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let samples = self.0.samples.iter();
        let samples = samples.filter(|sample| sample.cell == cell && sample.contender == contender);
        samples.map(figure).collect()
    }

    /// Everything that was measured; the first round has all of it.
    fn cells(&self) -> impl Iterator<Item = Cell> {
        let runs = self.0.plan.rounds.first().copied().unwrap_or_default();
        Workload::ALL.into_iter().flat_map(move |workload| {
            let cells = move |&(workers, loads): &Phases| {
                loads.iter().map(move |&load| Cell { workload, workers, load })
            };
            runs.iter().flat_map(cells)
        })
    }

    fn row(&self, cell: Cell, contender: Contender) -> [String; 9] {
        let figure = |figure: &dyn Fn(&Sample) -> f64| rounded(median(self.of(cell, contender, figure)));
        let percentile = |part: f64| figure(&|sample| sample.outcome.percentile(part));
        let p90 = self.of(cell, contender, p90);
        let range =
            [f64::min, f64::max].map(|pick| rounded(p90.iter().copied().reduce(pick).unwrap_or(f64::NAN)));
        [
            cell.to_string(),
            contender.to_string(),
            figure(&|sample| sample.outcome.mean()),
            percentile(0.5),
            format!("{} ({} to {})", percentile(0.9), range[0], range[1]),
            percentile(0.99),
            figure(&|sample| sample.outcome.per_second()),
            figure(&|sample| sample.hit_rate() * 100.0),
            figure(&|sample| sample.cores),
        ]
    }

    /// How B does beside C and A, by the p90.
    fn verdict(&self, cell: Cell) -> [String; 5] {
        let [bare, ours, theirs] = Contender::ALL.map(|contender| self.of(cell, contender, p90));
        let best_of_ours = ours.iter().copied().fold(f64::INFINITY, f64::min);
        let worst_of_theirs = theirs.iter().copied().fold(0.0, f64::max);
        let [bare, ours, theirs] = [bare, ours, theirs].map(median);
        let is_no_worse = ours <= theirs * NOISE || best_of_ours <= worst_of_theirs;
        let of_bare = ours / bare;
        let is_usual = (cell.load - USUAL_LOAD).abs() < 1e-9;
        let beside_bare = if is_usual { verdict(of_bare <= MOST_OF_ROUND_ROBIN) } else { "" };
        [
            cell.to_string(),
            rounded(ours / theirs),
            verdict(is_no_worse).to_owned(),
            rounded(of_bare),
            beside_bare.to_owned(),
        ]
    }
}

fn p90(sample: &Sample) -> f64 {
    sample.outcome.percentile(0.9)
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found) = self;
        writeln!(f, "Capacity, requests/s of all servers:\n")?;
        let head = ["", "100 %", "50 %", "80 %", "95 %"];
        let capacity = |workload| {
            let full = found.capacity(workload);
            let [low, usual, high] = LOADS.map(|load| rounded(full * load));
            [format!("{workload}"), rounded(full), low, usual, high]
        };
        table(f, head, Workload::ALL.map(capacity))?;

        writeln!(f, "Milliseconds to the first token; in brackets the rounds' least and most:\n")?;
        let head =
            ["", "", "mean", "p50", "p90", "p99", "answers/s", "% of prompt tokens cached", "cores in use"];
        let rows = self.cells().flat_map(|cell| Contender::ALL.map(|contender| self.row(cell, contender)));
        table(f, head, rows)?;

        writeln!(
            f,
            "B's p90 beside the others'. It is no worse than C's if it is at most {NOISE} of it, or if the rounds' ranges overlap:\n"
        )?;
        let head = ["", "B / C", "no worse", "B / A", "≤ 0.7 at 80 %"];
        table(f, head, self.cells().map(|cell| self.verdict(cell)))?;

        let failed = |contender| {
            let samples = found.samples.iter().filter(|sample| sample.contender == contender);
            samples.map(|sample| sample.outcome.failures.len()).sum::<usize>()
        };
        let [a, b, c] = Contender::ALL.map(failed);
        writeln!(f, "Requests that failed: A {a}, B {b}, C {c}. Seed {}.\n", found.plan.seed)
    }
}
