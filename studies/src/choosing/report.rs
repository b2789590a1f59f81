//! The figures of all runs as tables.

use super::capacities::Capacities;
use super::figures::RunFigures;
use super::plan::{ChoosingPlan, Condition};
use crate::way::Way;
use endpoint_picker_bench::report::markdown::table;
use endpoint_picker_bench::report::{median, rounded, with_range};
use std::fmt;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(super) way: Way,
    pub(super) condition: Condition,
    pub(super) seed: u64,
    pub(super) figures: RunFigures,
}

/// All runs.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(super) plan: ChoosingPlan,
    pub(super) capacities: Capacities,
    pub(super) choices: Vec<Choice>,
}

impl Choices {
    /// A figure of each seed, in the order of the seeds.
    fn figures(&self, condition: Condition, way: Way, figure: impl Fn(&RunFigures) -> f64) -> Vec<f64> {
        let runs = self.choices.iter().filter(|run| run.way == way && run.condition == condition);
        runs.map(|run| figure(&run.figures)).collect()
    }

    /// The p90 of each seed, divided by that of another way.
    fn ratios(&self, condition: Condition, way: Way, to: Way) -> Vec<f64> {
        let [own, other] = [way, to].map(|way| self.figures(condition, way, p90));
        own.into_iter().zip(other).map(|(own, other)| own / other).collect()
    }

    /// The way with the least median p90, except for the recommended one and the yardstick.
    fn best(&self, condition: Condition) -> Option<Way> {
        let ways = self.plan.ways.iter().copied();
        let others = ways.filter(|way| ![Way::EXPECTED_LATENCY, Way::Omniscient].contains(way));
        let p90 = |way: &Way| median(self.figures(condition, *way, p90));
        others.min_by(|one, other| p90(one).total_cmp(&p90(other)))
    }

    /// The omniscient picker, if it is compared.
    fn yardstick(&self) -> Option<Way> {
        self.plan.ways.iter().copied().find(|way| *way == Way::Omniscient)
    }

    /// The p90 of the recommended configuration as a part of another way's.
    fn regret(&self, condition: Condition, to: Option<Way>) -> String {
        let to = to.filter(|_| self.plan.ways.contains(&Way::EXPECTED_LATENCY));
        to.map_or_else(String::new, |to| with_range(self.ratios(condition, Way::EXPECTED_LATENCY, to)))
    }

    /// The quartiles of the first token's time as a percentage of what the picker expected, medians of the
    /// seeds.
    fn of_expected(&self, condition: Condition, way: Way) -> String {
        let quartile = |at: usize| {
            let seeds = self.figures(condition, way, |run| run.of_expected.map_or(f64::NAN, |all| all[at]));
            rounded(median(seeds))
        };
        let expects = |run: &Choice| run.way == way && run.figures.of_expected.is_some();
        if self.choices.iter().any(expects) { [0, 1, 2].map(quartile).join(" / ") } else { String::new() }
    }

    fn others(&self) -> impl Iterator<Item = Way> {
        self.plan.ways.iter().copied().skip(1)
    }

    fn first(&self) -> Way {
        self.plan.ways.first().copied().unwrap_or(Way::DEFAULT)
    }

    fn write_ratios(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacities = self.capacities.0.iter();
        let capacities: Vec<String> =
            capacities.map(|(workload, capacity)| format!("{} {capacity:.1}", workload.name())).collect();
        let seeds = self.plan.seeds.len();
        writeln!(
            f,
            "p90 to the first token of {} in ms, and of the others as a part of it with the same requests: medians of the seeds ({seeds}), and the range. Servers are scraped every {} ms. Capacity, requests/s of all servers: {}.\n",
            self.first(),
            self.plan.interval.as_millis(),
            capacities.join("; ")
        )?;
        let mut head = vec![String::new(), format!("{}, ms", self.first())];
        head.extend(self.others().map(|way| way.to_string()));
        head.extend(["expected-latency to the best", "to omniscient"].map(str::to_owned));
        let rows: Vec<Vec<String>> = self
            .plan
            .conditions()
            .map(|condition| {
                let mut row =
                    vec![condition.to_string(), with_range(self.figures(condition, self.first(), p90))];
                row.extend(self.others().map(|way| with_range(self.ratios(condition, way, self.first()))));
                row.extend([self.best(condition), self.yardstick()].map(|to| self.regret(condition, to)));
                row
            })
            .collect();
        table(f, &head, rows)
    }

    /// How well the limit was kept, with one.
    fn write_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.plan.limit else { return Ok(()) };
        writeln!(
            f,
            "Every request has a limit of {} ms for its first token, and may be refused. Medians of the seeds, and the range:\n",
            limit.as_millis()
        )?;
        let row = |condition: Condition, way: Way| {
            let figure = |figure: &dyn Fn(&RunFigures) -> f64| {
                format!("{} %", with_range(self.figures(condition, way, figure)))
            };
            let (refused, kept) = (figure(&RunFigures::refused), figure(&|run| run.kept(limit)));
            [condition.to_string(), way.to_string(), refused, kept]
        };
        let rows = self
            .plan
            .conditions()
            .flat_map(|condition| self.plan.ways.iter().map(move |&way| row(condition, way)));
        table(f, &["", "", "refused", "of the others, kept"], rows)
    }

    fn write_all(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Medians of the seeds. Milliseconds to the first token, p50 / p90 / p99; for a token after it; requests/s; prompt tokens that the servers had cached; requests of the busiest server as a multiple of the mean; the first token's time as a percentage of what the picker expected, quartiles; cores of servers, clients, proxy and picker together:\n"
        )?;
        let head = [
            "",
            "",
            "p50 / p90 / p99",
            "a token",
            "requests/s",
            "cached",
            "busiest",
            "of expected",
            "cores",
            "failed",
        ];
        let row = |condition: Condition, way: Way| {
            let figure = |figure: &dyn Fn(&RunFigures) -> f64| median(self.figures(condition, way, figure));
            let times = [0.5, 0.9, 0.99].map(|share| rounded(figure(&|run| run.first_token(share))));
            [
                condition.to_string(),
                way.to_string(),
                times.join(" / "),
                rounded(figure(&RunFigures::token)),
                rounded(figure(&RunFigures::per_second)),
                format!("{:.1} %", figure(&|run| run.cached * 100.0)),
                rounded(figure(&|run| run.busiest)),
                self.of_expected(condition, way),
                rounded(figure(&|run| run.cores)),
                self.figures(condition, way, |run| run.failures.len() as f64).iter().sum::<f64>().to_string(),
            ]
        };
        let rows = self
            .plan
            .conditions()
            .flat_map(|condition| self.plan.ways.iter().map(move |&way| row(condition, way)));
        table(f, &head, rows)
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_ratios(f)?;
        self.write_limits(f)?;
        self.write_all(f)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, seed, figures, .. } = self;
        let times = [0.5, 0.9, 0.99].map(|share| rounded(figures.first_token(share))).join(" / ");
        write!(
            f,
            "{}, seed {seed}, {way}: {times} ms of {} requests, {:.1} % cached, busiest {:.2}, {:.2} cores, {} failed",
            self.condition,
            figures.served(),
            figures.cached * 100.0,
            figures.busiest,
            figures.cores,
            figures.failures.len()
        )
    }
}

fn p90(figures: &RunFigures) -> f64 {
    figures.first_token(0.9)
}
