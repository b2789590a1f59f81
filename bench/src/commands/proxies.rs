//! `make bench-proxies`: several proxies that share their changes.

use crate::bench_proxies::{
    self, ALL_ROUNDS, ChoicePlan, CostPlan, FEW_SETTINGS, FailurePlan, HerdPlan, OURS, OutagePlan,
    QUICK_ROUND, QUICK_SHARING_ROUNDS, SHARING_ROUNDS, SimulationPlan,
};
use crate::epp::binary;
use crate::load::wrk;
use crate::report::{Machine, Progress, document, epp_version};
use anyhow::Result;
use clap::{Args, ValueEnum};
use endpoint_picker_harness::program::Store;
use endpoint_picker_harness::{Filter, tools};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const DOCUMENT: &str = "docs/benchmarks.md";

/// Compares proxies that share their changes with one proxy, with proxies that do not share, and with those of the EPP (llm-d-router's epp).
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The EPP's binary, a path or a name on PATH. Only the part choices needs it.
    #[arg(long, env = "EPP", default_value = "epp")]
    epp: PathBuf,
    /// A shorter run, of 10 minutes.
    #[arg(long)]
    quick: bool,
    /// Determines all requests, their times and their proxies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
    /// The form of our filter. A native module leaves more of a small machine to the other processes.
    #[arg(long, default_value_t = Filter::Native)]
    filter: Filter,
    /// Also write the figures into docs/benchmarks.md.
    #[arg(long, conflicts_with = "quick")]
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Cached prompts and times to the first token.
    Choices,
    /// The same of one proxy and of such that share, in five rounds.
    Rounds,
    /// The same of many rounds, in simulated time.
    Simulation,
    /// How often proxies send requests to the same best server.
    Herds,
    /// The store and proxies are killed.
    Failures,
    /// Processor time and bytes.
    Cost,
}

impl Part {
    const ALL: [Self; 6] =
        [Self::Choices, Self::Rounds, Self::Simulation, Self::Herds, Self::Failures, Self::Cost];

    /// Its name in the document.
    fn name(self) -> &'static str {
        match self {
            Self::Choices => "make bench-proxies: choices",
            Self::Rounds => "make bench-proxies: rounds",
            Self::Simulation => "make bench-proxies: simulation",
            Self::Herds => "make bench-proxies: herds",
            Self::Failures => "make bench-proxies: failures",
            Self::Cost => "make bench-proxies: cost",
        }
    }
}

/// The plans of all parts.
struct Plans<'a> {
    choices: ChoicePlan<'a>,
    rounds: ChoicePlan<'a>,
    simulation: SimulationPlan,
    herds: HerdPlan,
    failures: FailurePlan,
    cost: CostPlan,
}

impl<'a> Plans<'a> {
    fn new(is_quick: bool, seed: u64, filter: Filter, epp: &'a Path) -> Self {
        let seconds = Duration::from_secs;
        let pick = |quick, whole| seconds(if is_quick { quick } else { whole });
        let choices = ChoicePlan {
            rounds: if is_quick { QUICK_ROUND } else { ALL_ROUNDS },
            warm_up: seconds(4),
            phase: pick(4, 6),
            seed,
            filter,
            epp,
        };
        let sharing = if is_quick { QUICK_SHARING_ROUNDS } else { SHARING_ROUNDS };
        Self {
            choices,
            rounds: ChoicePlan { rounds: sharing, ..choices },
            simulation: SimulationPlan {
                rounds: if is_quick { 20 } else { 200 },
                warm_up: seconds(4),
                phase: seconds(6),
                seed,
            },
            herds: HerdPlan {
                settings: if is_quick { FEW_SETTINGS } else { OURS },
                rounds: 1,
                phase: pick(4, 6),
                seed,
                filter,
            },
            failures: FailurePlan {
                outage: OutagePlan {
                    proxies: 4,
                    warm_up: seconds(6),
                    before: seconds(10),
                    away: pick(10, 30),
                    after: seconds(14),
                    seed,
                    filter,
                },
                kills: if is_quick { 1 } else { 3 },
            },
            cost: CostPlan { rounds: if is_quick { 1 } else { 3 }, turn: pick(2, 4), filter },
        }
    }

    fn expected(&self, part: Part) -> Duration {
        match part {
            Part::Choices => self.choices.expected(),
            Part::Rounds => self.rounds.expected(),
            Part::Simulation => self.simulation.expected(),
            Part::Herds => self.herds.expected(),
            Part::Failures => self.failures.expected(),
            Part::Cost => self.cost.expected(),
        }
    }

    async fn measure(&self, part: Part, progress: &Progress) -> Result<String> {
        match part {
            Part::Choices => bench_proxies::choices(self.choices, progress).await,
            Part::Rounds => bench_proxies::rounds(self.rounds, progress).await,
            Part::Simulation => bench_proxies::simulation(self.simulation, progress),
            Part::Herds => bench_proxies::herds(self.herds, progress).await,
            Part::Failures => bench_proxies::failures(self.failures, progress).await,
            Part::Cost => bench_proxies::cost(self.cost, progress).await,
        }
    }
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let Flags { epp, quick, seed, only, filter, write } = flags;
    let parts: Vec<Part> =
        Part::ALL.into_iter().filter(|part| only.is_none_or(|only| only == *part)).collect();
    // What is missing stops the run before it begins.
    let mut versions = vec![Store::version()?];
    let epp = if parts.contains(&Part::Choices) { binary(&epp)? } else { epp };
    if parts.contains(&Part::Choices) {
        versions.push(epp_version(&epp));
    }
    if parts.contains(&Part::Cost) {
        versions.push(wrk::version()?);
    }
    let plans = Plans::new(quick, seed, filter, &epp);
    let machine = Machine::read(versions)?;
    let progress = Progress::begin(parts.iter().map(|part| plans.expected(*part)).sum());
    for part in parts {
        let begun = progress.took();
        let text = plans.measure(part, &progress).await?;
        let took = progress.took().saturating_sub(begun).as_secs();
        let head =
            format!("{machine}; {filter} filter. Seed {seed}. {}:{:02} minutes.", took / 60, took % 60);
        let text = format!("{head}\n\n{text}");
        println!("## {}\n\n{text}", part.name());
        if write {
            document::write(&tools::root().join(DOCUMENT), part.name(), &text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
