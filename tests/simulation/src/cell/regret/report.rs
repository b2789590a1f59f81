//! The table of the regrets.

use super::bars::Bar;
use super::{RegretCell, Regrets};
use crate::cell::table::{digits, median, summary};
use crate::cell::variant::SIMPLE;
use core::fmt::Write;
use metrics_agent_replay::simulation::figures::Figures;

/// A cell and what was measured there.
pub(super) struct Row<'a> {
    cell: &'a RegretCell,
    /// Results by seed.
    recommended: &'a [Figures],
    simple: &'a [Vec<Figures>],
    omniscient: &'a [Figures],
    others: &'a [Vec<Figures>],
}

type Figure = dyn Fn(&Figures) -> f64;

fn p90(figures: &Figures) -> f64 {
    figures.percentile(0.9)
}

fn p95(figures: &Figures) -> f64 {
    figures.percentile(0.95)
}

/// The median over the seeds.
fn middle(figures: &[Figures], figure: &Figure) -> f64 {
    let mut numbers: Vec<_> = figures.iter().map(figure).collect();
    numbers.sort_by(f64::total_cmp);
    median(&numbers)
}

/// One as a part of another, for each seed.
fn ratios(one: &[Figures], other: &[Figures], figure: &Figure) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| figure(one) / figure(other)).collect()
}

fn median_of(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    median(&numbers)
}

impl Regrets {
    pub(super) fn row(&self, cell: usize) -> Row<'_> {
        let figures = &self.figures[cell];
        let (simple, rest) = figures[1..].split_at(SIMPLE.len());
        Row {
            cell: &self.plan.cells[cell],
            recommended: &figures[0],
            simple,
            omniscient: &rest[0],
            others: &rest[1..],
        }
    }
}

impl Row<'_> {
    /// The place of the simple way that has the least of a figure, by the median over the seeds.
    fn best(&self, figure: &Figure) -> usize {
        let middle = |place: &usize| middle(&self.simple[*place], figure);
        (0..self.simple.len()).min_by(|a, b| middle(a).total_cmp(&middle(b))).unwrap_or(0)
    }

    /// A figure of the recommended rules as a part of the best simple way's, for each seed.
    fn regrets(&self, figure: &Figure) -> Vec<f64> {
        ratios(self.recommended, &self.simple[self.best(figure)], figure)
    }

    fn of_omniscient(&self) -> Vec<f64> {
        ratios(self.recommended, self.omniscient, &p90)
    }

    /// Value of the cell, if it misses its bar.
    pub(super) fn missed(&self) -> Option<String> {
        let (regret, of_omniscient) = (median_of(self.regrets(&p90)), median_of(self.of_omniscient()));
        let Bar { regret: bar, of_omniscient: omniscient_bar } = self.cell.bar;
        // A figure of a simulation that is not a number has missed its bar.
        let is_met = regret <= bar && of_omniscient <= omniscient_bar;
        (!is_met).then(|| {
            format!(
                "{}: {regret:.3} of the best simple way (bar {bar}), {of_omniscient:.3} of the omniscient picker (bar {omniscient_bar})",
                self.cell.name
            )
        })
    }

    fn line(&self) -> String {
        let best = self.best(&p90);
        let (_, name) = SIMPLE[best];
        let to_best = |figures: &Vec<Figures>| digits(median_of(ratios(figures, &self.simple[best], &p90)));
        let regret = |figure: &Figure| digits(median_of(self.regrets(figure)));
        let mut cells =
            vec![self.cell.name.clone(), format!("{name} {}", digits(middle(&self.simple[best], &p90)))];
        cells.extend(self.simple.iter().map(to_best));
        cells.extend([
            summary(self.regrets(&p90)),
            summary(self.of_omniscient()),
            regret(&|figures| figures.percentile(0.5)),
            regret(&p95),
            regret(&|figures| figures.percentile(0.99)),
            regret(&Figures::mean),
            digits(middle(self.recommended, &Figures::loads)),
            self.cell.bar.to_string(),
        ]);
        for other in self.others {
            cells.extend(
                [&p90 as &Figure, &p95].map(|figure| summary(ratios(other, self.recommended, figure))),
            );
        }
        format!("| {} |", cells.join(" | "))
    }
}

impl std::fmt::Display for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.regret, self.of_omniscient)
    }
}

/// The table, with medians over the seeds and in brackets the least and the most.
pub(super) fn markdown(regrets: &Regrets) -> String {
    let mut text = String::from("| cell | best simple, ms |");
    for (_, name) in SIMPLE {
        let _ = write!(text, " {name} |");
    }
    text.push_str(" regret | of omniscient | regret, p50 | p95 | p99 | mean | loads | bars |");
    for other in &regrets.plan.others {
        let _ = write!(text, " {}, p90 | p95 |", other.name);
    }
    let columns = SIMPLE.len() + 10 + 2 * regrets.plan.others.len();
    let _ = writeln!(text, "\n|{}", "---|".repeat(columns));
    for cell in 0..regrets.plan.cells.len() {
        let _ = writeln!(text, "{}", regrets.row(cell).line());
    }
    text
}
