//! The regret of the recommended rules: how much longer clients wait than with the simplest way to pick that
//! would have done, in cells of all kinds.

mod bars;
mod cells;
mod report;

pub use cells::RegretCell;

use self::cells::Requests;
use super::capacity;
use super::run::Cell;
use super::variant::{RECOMMENDED, SIMPLE, Variant};
use super::workloads::Workload;
use metrics_agent_replay::parallel::in_parallel;
use metrics_agent_replay::simulation::figures::Figures;

/// The yardstick.
const OMNISCIENT: &str = "omniscient";

/// The cells to simulate, with every seed.
#[derive(Debug)]
pub struct RegretPlan {
    /// The cells.
    pub cells: Vec<RegretCell>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Measured requests of an open loop.
    pub requests: usize,
    /// Variants that are compared with the recommended rules in addition.
    pub others: Vec<&'static Variant>,
    /// Threads that simulate. The result does not depend on their number.
    pub threads: usize,
}

/// All figures of a plan.
#[derive(Debug)]
pub struct Regrets {
    plan: RegretPlan,
    /// Results by cell, variant and seed. The variants are the recommended rules, the simple ways, the
    /// omniscient picker and the others.
    figures: Vec<Vec<Vec<Figures>>>,
}

impl RegretPlan {
    /// Simulates all. `progress` gets a line after each cell's last seed.
    pub fn run(self, progress: &(dyn Fn(String) + Sync)) -> Regrets {
        /// The seed with which capacities are found.
        const SEED: u64 = 1;
        let mut drawn: Vec<Workload> = Vec::new();
        for cell in &self.cells {
            if let Requests::Open(workload, _) = cell.requests
                && !drawn.contains(&workload)
            {
                drawn.push(workload);
            }
        }
        let capacities =
            in_parallel(self.threads, drawn.len(), |number| capacity::of_workload(drawn[number], SEED));
        let capacity = |cell: &RegretCell| match cell.requests {
            Requests::Open(workload, _) => {
                drawn.iter().position(|known| *known == workload).map_or(0.0, |number| capacities[number])
            }
            Requests::OverCaches(_) | Requests::InTurn(_) | Requests::Closed(_) => 0.0,
        };
        let variants = variants(&self.others);
        let figures = in_parallel(self.threads, self.cells.len() * self.seeds.len(), |run| {
            let (cell, seed) = (&self.cells[run / self.seeds.len()], self.seeds[run % self.seeds.len()]);
            let run = Cell {
                source: cell.source(capacity(cell)),
                requests: cell.requests(self.requests),
                seed,
                conditions: cell.conditions,
                limit: None,
            };
            let figures: Vec<_> = variants.iter().map(|variant| run.run(variant)).collect();
            progress(format!("{}, seed {seed}", cell.name));
            figures
        });
        let mut figures = figures.into_iter();
        let by_cell = self.cells.iter().map(|_| {
            let by_seed: Vec<_> = figures.by_ref().take(self.seeds.len()).collect();
            let of = |variant: usize| by_seed.iter().map(|figures| figures[variant].clone()).collect();
            (0..variants.len()).map(of).collect()
        });
        let figures = by_cell.collect();
        Regrets { plan: self, figures }
    }
}

/// The variants of a plan, in the order of its figures.
fn variants(others: &[&'static Variant]) -> Vec<&'static Variant> {
    let simple = SIMPLE.map(|(variant, _)| variant);
    let names = [RECOMMENDED].into_iter().chain(simple).chain([OMNISCIENT]);
    let mut variants: Vec<_> = names.filter_map(Variant::named).collect();
    variants.extend(others);
    variants
}

impl Regrets {
    /// The cells that miss their bars, with what they have. Empty: none.
    pub fn missed(&self) -> Vec<String> {
        (0..self.plan.cells.len()).filter_map(|cell| self.row(cell).missed()).collect()
    }

    /// The table, in Markdown.
    pub fn markdown(&self) -> String {
        report::markdown(self)
    }
}
