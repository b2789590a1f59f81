//! The figures of all runs as tables.

use super::figures::RunFigures;
use super::plan::ChoosingPlan;
use super::way::Way;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{median, rounded, with_range};
use endpoint_picker_simulation::cell::workloads::Workload;
use std::fmt;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(super) way: Way,
    pub(super) workload: Workload,
    pub(super) workers: u32,
    pub(super) load: f64,
    pub(super) seed: u64,
    pub(super) figures: RunFigures,
}

/// All runs.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(super) plan: ChoosingPlan,
    /// Requests per second of each workload.
    pub(super) capacities: Vec<f64>,
    pub(super) choices: Vec<Choice>,
}

/// The conditions of runs that differ in seed and way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Condition {
    workload: Workload,
    workers: u32,
    load: f64,
}

/// Aims of expected latency: this part of the default's p90 with [`AIM_WORKLOADS`] workloads at one of the
/// loads, and at most [`MAX`] with all.
const AIM: f64 = 0.85;
const AIM_WORKLOADS: usize = 4;
const MAX: f64 = 1.05;

impl Choices {
    fn conditions(&self) -> impl Iterator<Item = Condition> {
        let ChoosingPlan { workloads, loads, workers, .. } = &self.plan;
        workloads.iter().flat_map(move |&workload| {
            let of_load =
                move |load: f64| workers.iter().map(move |&workers| Condition { workload, workers, load });
            loads.iter().flat_map(move |&load| of_load(load))
        })
    }

    /// A figure of each seed, in the order of the seeds.
    fn figures(&self, condition: Condition, way: Way, figure: impl Fn(&RunFigures) -> f64) -> Vec<f64> {
        let runs = self.choices.iter().filter(|run| run.way == way && run.condition() == condition);
        runs.map(|run| figure(&run.figures)).collect()
    }

    /// The p90 of each seed, divided by that of another way.
    fn ratios(&self, condition: Condition, way: Way, to: Way) -> Vec<f64> {
        let [own, other] = [way, to].map(|way| self.figures(condition, way, p90));
        own.into_iter().zip(other).map(|(own, other)| own / other).collect()
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
        let capacities: Vec<String> = self
            .plan
            .workloads
            .iter()
            .zip(&self.capacities)
            .map(|(workload, capacity)| format!("{} {capacity:.1}", name(*workload)))
            .collect();
        let seeds = self.plan.seeds.len();
        writeln!(
            f,
            "p90 to the first token of {} in ms, and of the others as a part of it with the same requests: medians of the seeds ({seeds}), and the range. Servers are scraped every {} ms. Capacity, requests/s of all servers: {}.\n",
            self.first(),
            self.plan.interval.as_millis(),
            capacities.join("; ")
        )?;
        let has_both =
            [Way::EXPECTED_LATENCY, Way::Omniscient].iter().all(|way| self.plan.ways.contains(way));
        let mut head = vec![String::new(), format!("{}, ms", self.first())];
        head.extend(self.others().map(|way| way.to_string()));
        head.extend(has_both.then(|| "expected-latency to omniscient".to_owned()));
        let rows: Vec<Vec<String>> = self
            .conditions()
            .map(|condition| {
                let mut row =
                    vec![condition.to_string(), with_range(self.figures(condition, self.first(), p90))];
                row.extend(self.others().map(|way| with_range(self.ratios(condition, way, self.first()))));
                row.extend(has_both.then(|| {
                    rounded(median(self.ratios(condition, Way::EXPECTED_LATENCY, Way::Omniscient)))
                }));
                row
            })
            .collect();
        table(f, &head, rows)
    }

    fn write_aims(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first() != Way::DEFAULT || !self.plan.ways.contains(&Way::EXPECTED_LATENCY) {
            return Ok(());
        }
        let ratio = |condition| median(self.ratios(condition, Way::EXPECTED_LATENCY, Way::DEFAULT));
        let best = |workload: &Workload| {
            let own = self.conditions().filter(|condition| condition.workload == *workload);
            own.map(ratio).fold(f64::INFINITY, f64::min)
        };
        let reached = self.plan.workloads.iter().filter(|workload| best(workload) <= AIM).count();
        let max = self.conditions().map(ratio).fold(0.0, f64::max);
        writeln!(
            f,
            "Aims of expected-latency: at most {AIM} of the default's p90 with {AIM_WORKLOADS} of {} workloads at one of the loads: {reached}, {}; at most {MAX} everywhere: {}, {}.\n",
            self.plan.workloads.len(),
            met(reached >= AIM_WORKLOADS),
            rounded(max),
            met(max <= MAX)
        )
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
            .conditions()
            .flat_map(|condition| self.plan.ways.iter().map(move |&way| row(condition, way)));
        table(f, &head, rows)
    }
}

impl fmt::Display for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_ratios(f)?;
        self.write_aims(f)?;
        self.write_limits(f)?;
        self.write_all(f)
    }
}

impl Choice {
    fn condition(&self) -> Condition {
        Condition { workload: self.workload, workers: self.workers, load: self.load }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, seed, figures, .. } = self;
        let times = [0.5, 0.9, 0.99].map(|share| rounded(figures.first_token(share))).join(" / ");
        write!(
            f,
            "{}, seed {seed}, {way}: {times} ms of {} requests, {:.1} % cached, {:.2} cores, {} failed",
            self.condition(),
            figures.served(),
            figures.cached * 100.0,
            figures.cores,
            figures.failures.len()
        )
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, workers, load } = self;
        let plural = if *workers == 1 { "" } else { "s" };
        write!(f, "{}, {:.0} %, {workers} worker{plural}", name(*workload), load * 100.0)
    }
}

fn name(workload: Workload) -> String {
    workload.name().to_owned()
}

fn p90(figures: &RunFigures) -> f64 {
    figures.first_token(0.9)
}
