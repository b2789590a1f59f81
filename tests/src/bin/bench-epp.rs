//! `make bench-epp`: our picker against the reference's and against none.

use anyhow::Result;
use clap::{Parser, ValueEnum};
use endpoint_picker_tests::parity::reference;
use endpoint_picker_tests::versus::{
    self, ALL_ROUNDS, CostPlan, Machine, Progress, QUICK_ROUND, QualityPlan, ScalePlan,
};
use std::path::PathBuf;
use std::time::Duration;

/// Compares what our picker costs and how well it chooses with the reference (llm-d-router's epp) and with round robin.
#[derive(Debug, Parser)]
struct Flags {
    /// The reference's binary, a path or a name on PATH.
    #[arg(long, env = "EPP", default_value = "epp")]
    epp: PathBuf,
    /// Less of everything, in 5 minutes.
    #[arg(long)]
    quick: bool,
    /// Decides all requests and when they come.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Cost,
    Quality,
    Scale,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Flags { epp, quick, seed, only } = Flags::parse();
    let epp = reference::binary(&epp)?;
    let seconds = Duration::from_secs;
    let (cost, quality, scale) = if quick {
        (
            CostPlan { rounds: 1, turn: seconds(2) },
            QualityPlan { rounds: QUICK_ROUND, phase: seconds(5), warm_up: seconds(3), seed },
            ScalePlan { sizes: &[1_000], turn: seconds(1) },
        )
    } else {
        (
            CostPlan { rounds: 3, turn: seconds(2) },
            QualityPlan { rounds: ALL_ROUNDS, phase: seconds(5), warm_up: seconds(4), seed },
            ScalePlan { sizes: &[10, 100, 1_000, 5_000], turn: seconds(2) },
        )
    };
    let has = |part| only.is_none_or(|only| only == part);
    let expected =
        [(Part::Cost, cost.expected()), (Part::Quality, quality.expected()), (Part::Scale, scale.expected())];
    let expected = expected.into_iter().filter(|(part, _)| has(*part)).map(|(_, expected)| expected).sum();

    println!("{}", Machine::look(&epp)?);
    let progress = Progress::begin(expected);
    if has(Part::Cost) {
        println!("{}", versus::cost(cost, &epp, &progress).await?);
    }
    if has(Part::Quality) {
        println!("{}", versus::quality(quality, &epp, &progress).await?);
    }
    if has(Part::Scale) {
        println!("{}", versus::scale(scale, &epp, &progress).await?);
    }
    Ok(())
}
