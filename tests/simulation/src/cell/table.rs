//! The figures of many cells as a table.

use super::capacity;
use super::conditions::Conditions;
use super::run::Cell;
use super::source::Source;
use super::variant::Variant;
use super::workloads::Workload;
use core::fmt::Write;
use metrics_agent_replay::parallel::in_parallel;
use metrics_agent_replay::simulation::figures::Figures;
use std::time::Duration;

/// Plan of a simulation: every workload at every load with every seed, by every variant.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Loads, as shares of the capacity.
    pub loads: Vec<f64>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Variants. The first one is compared with the others.
    pub variants: Vec<&'static Variant>,
    /// Number of requests that are measured in a run.
    pub requests: usize,
    /// Time between two scrapes of a server; `None`: nothing is ever scraped.
    pub scrape_interval: Option<Duration>,
    /// Threads that simulate. The result does not depend on their number.
    pub threads: usize,
}

/// All figures of a plan.
#[derive(Debug)]
pub struct Results {
    plan: Plan,
    capacities: Vec<f64>,
    /// Results by workload, load, variant and seed.
    figures: Vec<Vec<Vec<Vec<Figures>>>>,
}

/// A workload at a load, by their places in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    workload: usize,
    load: usize,
}

impl Plan {
    /// Simulates all. `progress` gets a line after each run.
    pub fn run(self, progress: &(dyn Fn(String) + Sync)) -> Results {
        /// The seed with which capacities are found.
        const SEED: u64 = 1;
        let capacities = in_parallel(self.threads, self.workloads.len(), |workload| {
            let workload = &self.workloads[workload];
            let capacity = capacity::of_workload(*workload, SEED);
            progress(format!("{}: {capacity:.1} requests/s are the capacity", workload.name()));
            capacity
        });
        let Self { workloads, loads, seeds, variants, .. } = &self;
        let runs = workloads.len() * loads.len() * variants.len() * seeds.len();
        let figures = in_parallel(self.threads, runs, |run| {
            let (rest, seed) = (run / seeds.len(), seeds[run % seeds.len()]);
            let (rest, variant) = (rest / variants.len(), variants[rest % variants.len()]);
            let (workload, load) = (rest / loads.len(), loads[rest % loads.len()]);
            let cell = Cell {
                source: Source::Open {
                    workload: workloads[workload],
                    per_second: load * capacities[workload],
                },
                requests: self.requests,
                seed,
                conditions: Conditions { scrape_interval: self.scrape_interval, ..Conditions::USUAL },
                limit: None,
            };
            let figures = cell.run(variant);
            let p90 = figures.percentile(0.9);
            let name = workloads[workload].name();
            progress(format!(
                "{name}, {:.0} %, seed {seed}, {}: p90 {p90:.1} ms",
                load * 100.0,
                variant.name
            ));
            figures
        });
        let mut figures = figures.into_iter();
        let mut take = |number: usize| figures.by_ref().take(number).collect::<Vec<_>>();
        let mut by_condition = || (0..variants.len()).map(|_| take(seeds.len())).collect::<Vec<_>>();
        let mut by_load = || (0..loads.len()).map(|_| by_condition()).collect::<Vec<_>>();
        let figures = (0..workloads.len()).map(|_| by_load()).collect();
        Results { capacities, figures, plan: self }
    }
}

impl Results {
    /// All conditions.
    pub fn conditions(&self) -> impl Iterator<Item = Condition> {
        let loads = self.plan.loads.len();
        (0..self.plan.workloads.len())
            .flat_map(move |workload| (0..loads).map(move |load| Condition { workload, load }))
    }

    /// The name of a condition.
    pub fn name(&self, condition: Condition) -> String {
        let Condition { workload, load } = condition;
        format!("{}, {:.0} %", self.plan.workloads[workload].name(), self.plan.loads[load] * 100.0)
    }

    fn figures(&self, condition: Condition, variant: &str) -> &[Figures] {
        let place = self.plan.variants.iter().position(|of| of.name == variant);
        place.map_or(&[], |place| &self.figures[condition.workload][condition.load][place])
    }

    /// The p90 to the first token of a variant as a part of another one's, for each seed.
    pub fn p90_ratios(&self, condition: Condition, variant: &str, other: &str) -> Vec<f64> {
        let own = self.figures(condition, variant).iter();
        own.zip(self.figures(condition, other))
            .map(|(own, other)| own.percentile(0.9) / other.percentile(0.9))
            .collect()
    }

    /// The table, in Markdown: medians over the seeds, and in brackets the least and the most.
    pub fn markdown(&self) -> String {
        let mut text = String::from("Capacity, requests/s of all servers:");
        for (workload, capacity) in self.plan.workloads.iter().zip(&self.capacities) {
            let _ = write!(text, " {} {capacity:.1};", workload.name());
        }
        text.pop();
        text.push_str(
            ".\n\n| | variant | p50 | p90 | p99 | rel | ms/token | requests/s | % cached | busiest | loads |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for condition in self.conditions() {
            for variant in &self.plan.variants {
                let figures = self.figures(condition, variant.name);
                let of = |figure: &dyn Fn(&Figures) -> f64| summary(figures.iter().map(figure).collect());
                let ratios = self.p90_ratios(condition, variant.name, Variant::DEFAULT.name);
                let cells = [
                    self.name(condition),
                    variant.name.to_owned(),
                    of(&|figures| figures.percentile(0.5)),
                    of(&|figures| figures.percentile(0.9)),
                    of(&|figures| figures.percentile(0.99)),
                    summary(ratios),
                    of(&Figures::token_time),
                    of(&Figures::per_second),
                    of(&|figures| figures.cached() * 100.0),
                    of(&Figures::busiest),
                    of(&Figures::loads),
                ];
                let _ = writeln!(text, "| {} |", cells.join(" | "));
            }
        }
        text
    }
}

/// The median, and in brackets the least and the most, if they differ.
pub(crate) fn summary(mut numbers: Vec<f64>) -> String {
    numbers.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (numbers.first(), numbers.last()) else { return "–".to_owned() };
    let [median, least, most] = [median(&numbers), *least, *most].map(digits);
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// The median of sorted numbers; NaN of none.
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted {
        [] => f64::NAN,
        _ if sorted.len() % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// Three significant digits.
pub(super) fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.995 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_three_digits_and_the_range() {
        assert_eq!(summary(vec![1234.4, 12.34, 0.123_44]), "12.3 (0.123–1234)");
        assert_eq!(summary(vec![1.0, 1.0]), "1.00");
        assert_eq!(summary(Vec::new()), "–");
    }
}
