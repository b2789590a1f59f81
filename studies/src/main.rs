//! Studies: comparisons that are repeated when our picker, the EPP or the machine is new. `studies --help` lists them.

mod epp;
mod proxies;
mod schedule;
mod timed_servers;

use crate::epp::choosing;
use crate::epp::cost::{self, CostPlan};
use crate::epp::cost_report::CostTables;
use crate::epp::quality::{self, ALL_ROUNDS, CHOOSING_ROUND, QUICK_ROUND, QualityPlan};
use crate::epp::quality_report::QualityTables;
use crate::proxies::choices::{self, ChoicePlan};
use crate::proxies::report::ChoiceTables;
use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum};
use endpoint_picker_bench::epp::binary;
use endpoint_picker_bench::load::wrk;
use endpoint_picker_bench::report::{Machine, Progress, epp_version, notebook};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::program::Store;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compares the endpoint picker with the EPP (llm-d-router's epp), with round robin and with itself in several proxies.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    study: Study,
    #[command(flatten)]
    run: Run,
}

/// Flags of every study.
#[derive(Clone, Debug, Args)]
struct Run {
    /// The EPP's binary, a path or a name on PATH.
    #[arg(long, env = "EPP", default_value = "epp", global = true)]
    epp: PathBuf,
    /// A shorter run.
    #[arg(long, global = true)]
    quick: bool,
    /// Determines all requests, their times and their proxies.
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
    /// Also write the figures into pages of docs/benchmarks.
    #[arg(long, conflicts_with = "quick", global = true)]
    write: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Study {
    /// Cost and choices of our picker, in both forms, compared with the EPP and with round robin: 25 minutes.
    Epp {
        /// Only this part.
        #[arg(long)]
        only: Option<Part>,
    },
    /// The configurations of `examples/choosing`, without the EPP: 11 minutes.
    Choosing,
    /// Proxies that share, compared with one proxy, with proxies that do not share and with EPPs: 20 minutes.
    Proxies {
        /// The form of our filter. A native module leaves more of a small machine to the other processes.
        #[arg(long, default_value_t = Filter::Native)]
        filter: Filter,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Cost,
    Quality,
}

impl Run {
    fn pick<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }

    fn quality(&self, rounds: &'static [&'static [quality::Phases]], warm_up: u64) -> QualityPlan {
        let seconds = Duration::from_secs;
        let (rounds, phase) = self.pick((QUICK_ROUND, seconds(3)), (rounds, seconds(5)));
        QualityPlan { rounds, phase, warm_up: seconds(warm_up), seed: self.seed }
    }

    /// Prints a part with its machine, and writes it into the notebook, if it is to be written.
    fn finish(&self, machine: &Machine, progress: &Progress, text: &str, part: &str) -> Result<()> {
        let took = progress.took().as_secs();
        let head =
            format!("{machine}. Seed {}. The run took {}:{:02} minutes.", self.seed, took / 60, took % 60);
        let text = format!("{head}\n\n{text}");
        println!("## {part}\n\n{text}");
        if self.write { notebook::write(part, &text) } else { Ok(()) }
    }

    async fn compare_with_epp(&self, only: Option<Part>) -> Result<()> {
        let epp = binary(&self.epp)?;
        let machine = Machine::read(vec![epp_version(&epp), wrk::version()?])?;
        let cost = CostPlan { rounds: self.pick(1, 3), turn: Duration::from_secs(2) };
        let quality = self.quality(ALL_ROUNDS, 4);
        let has = |part| only.is_none_or(|only| only == part);
        let expected = [(Part::Cost, cost.expected()), (Part::Quality, quality.expected())];
        let expected =
            expected.into_iter().filter(|(part, _)| has(*part)).map(|(_, expected)| expected).sum();
        let progress = Progress::begin(expected);
        if has(Part::Cost) {
            let samples = cost::measure(cost, &epp, &progress).await?;
            let tables = CostTables(&samples).to_string();
            self.finish(&machine, &progress, &tables, "EPP cost")?;
        }
        if has(Part::Quality) {
            let results = quality::measure(quality, &epp, &progress).await?;
            let tables = QualityTables(&results).to_string();
            self.finish(&machine, &progress, &tables, "EPP quality")?;
        }
        Ok(())
    }

    async fn compare_configurations(&self) -> Result<()> {
        let machine = Machine::read(Vec::new())?;
        let plan = self.quality(CHOOSING_ROUND, 3);
        let progress = Progress::begin(choosing::expected(&plan));
        let tables = choosing::measure(plan, &progress).await?.to_string();
        self.finish(&machine, &progress, &tables, "Configurations")
    }

    async fn compare_proxies(&self, filter: Filter, epp: &Path) -> Result<()> {
        let machine = Machine::read(vec![Store::version()?, epp_version(epp)])?;
        let (rounds, phase) = self.pick((choices::QUICK_ROUND, 4), (choices::ALL_ROUNDS, 6));
        let phase = Duration::from_secs(phase);
        let plan =
            ChoicePlan { rounds, warm_up: Duration::from_secs(4), phase, seed: self.seed, filter, epp };
        let progress = Progress::begin(plan.expected());
        let samples = choices::measure(plan, &progress).await?;
        let tables = ChoiceTables(&samples).to_string();
        self.finish(&machine, &progress, &tables, "Several proxies")
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { study, run } = Options::parse();
    match study {
        Study::Epp { only } => run.compare_with_epp(only).await,
        Study::Choosing => run.compare_configurations().await,
        Study::Proxies { filter } => run.compare_proxies(filter, &binary(&run.epp)?).await,
    }
}
