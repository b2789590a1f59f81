//! `make bench-epp`: our picker beside the EPP's and beside none.

use crate::bench_epp::{
    self, ALL_ROUNDS, CHOOSING_ROUND, CostPlan, FlowControlPlan, INTERVAL_ROUNDS, QUICK_ROUND, QualityPlan,
    ScalePlan, ShadowPlan,
};
use crate::epp::binary;
use crate::load::wrk;
use crate::report::{Machine, Progress, document, epp_version};
use anyhow::Result;
use clap::{Args, ValueEnum};
use endpoint_picker_harness::tools;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Compares cost and choices of our picker, in both forms, with those of the EPP (llm-d-router's epp) and of round robin.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The EPP's binary, a path or a name on PATH.
    #[arg(long, env = "EPP", default_value = "epp")]
    epp: PathBuf,
    /// A shorter run, of 5 minutes.
    #[arg(long)]
    quick: bool,
    /// Determines all requests and their times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
    /// Also write the figures into docs/benchmarks.md, and the chart into README.md.
    #[arg(long, conflicts_with = "quick")]
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Cost,
    Quality,
    Scale,
    /// Our choices at several scrape intervals, beside round robin. Needs no EPP, and runs only on its own.
    Intervals,
    /// The configurations of `examples/choosing`. Needs no EPP, and runs only on its own.
    Choosing,
    /// Flow control beside the EPP's. Needs the programs of `make kube-tools`, and runs only on its own.
    FlowControl,
    /// How often our filter agrees as the EPP's shadow, and what that costs. Runs only on its own.
    Shadow,
}

async fn intervals(plan: QualityPlan) -> Result<ExitCode> {
    let machine = Machine::read(Vec::new())?;
    let progress = Progress::begin(bench_epp::intervals_expected(&plan));
    let table = bench_epp::intervals(plan, &progress).await?;
    finish(&machine, plan.seed, &progress, &table, None)
}

async fn choosing(plan: QualityPlan, write: bool) -> Result<ExitCode> {
    let machine = Machine::read(Vec::new())?;
    let progress = Progress::begin(bench_epp::choosing_expected(&plan));
    let tables = bench_epp::choosing(plan, &progress).await?;
    let into = write.then_some(("docs/reference/configurations.md", "make bench-choosing"));
    finish(&machine, plan.seed, &progress, &tables, into)
}

/// Prints the tables of a part with where they were measured, and writes them into this part of this document, if any.
fn finish(
    machine: &Machine,
    seed: u64,
    progress: &Progress,
    tables: &str,
    into: Option<(&str, &str)>,
) -> Result<ExitCode> {
    let took = progress.took().as_secs();
    let head = format!("{machine}. Seed {seed}. The run took {}:{:02} minutes.", took / 60, took % 60);
    let text = format!("{head}\n\n{tables}");
    println!("{text}");
    if let Some((file, part)) = into {
        document::write(&tools::root().join(file), part, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn flow_control(plan: FlowControlPlan, epp: &Path, write: bool) -> Result<ExitCode> {
    let machine = Machine::read(vec![epp_version(epp)])?;
    let progress = Progress::begin(plan.expected());
    let tables = bench_epp::flow_control(plan, epp, &progress).await?;
    let into = write.then_some(("docs/benchmarks.md", "make bench-epp: flow control"));
    finish(&machine, plan.seed, &progress, &tables, into)
}

async fn shadow(plan: ShadowPlan, epp: &Path) -> Result<ExitCode> {
    let machine = Machine::read(vec![epp_version(epp)])?;
    let progress = Progress::begin(plan.expected());
    let table = bench_epp::shadow(plan, epp, &progress).await?;
    println!("{machine}. Seed {}.\n\n{table}", plan.seed);
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let Flags { epp, quick, seed, only, write } = flags;
    let seconds = Duration::from_secs;
    if only == Some(Part::Intervals) {
        return intervals(QualityPlan {
            rounds: if quick { QUICK_ROUND } else { INTERVAL_ROUNDS },
            phase: seconds(if quick { 5 } else { 10 }),
            warm_up: seconds(4),
            seed,
        })
        .await;
    }
    if only == Some(Part::Choosing) {
        let plan = QualityPlan {
            rounds: if quick { QUICK_ROUND } else { CHOOSING_ROUND },
            phase: seconds(if quick { 2 } else { 5 }),
            warm_up: seconds(3),
            seed,
        };
        return choosing(plan, write).await;
    }
    let epp = binary(&epp)?;
    if only == Some(Part::FlowControl) {
        let plan = FlowControlPlan {
            rounds: if quick { 1 } else { 3 },
            phase: seconds(if quick { 6 } else { 15 }),
            seed,
        };
        return flow_control(plan, &epp, write).await;
    }
    if only == Some(Part::Shadow) {
        let phase = seconds(if quick { 5 } else { 15 });
        return shadow(ShadowPlan { phase, warm_up: seconds(4), seed }, &epp).await;
    }
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

    let machine = Machine::read(vec![epp_version(&epp), wrk::version()?])?;
    let progress = Progress::begin(expected);
    let mut parts = Vec::new();
    if has(Part::Cost) {
        let (tables, chart) = bench_epp::cost(cost, &epp, &progress).await?;
        parts.push(("docs/benchmarks.md", "make bench-epp: cost", tables));
        parts.push(("README.md", "make bench-epp: chart", chart));
    }
    if has(Part::Quality) {
        let tables = bench_epp::quality(quality, &epp, &progress).await?;
        parts.push(("docs/benchmarks.md", "make bench-epp: quality", tables));
    }
    if has(Part::Scale) {
        let table = bench_epp::scale(scale, &epp, &progress).await?;
        parts.push(("docs/benchmarks.md", "make bench-epp: scale", table));
    }
    let took = progress.took().as_secs();
    let head = format!("{machine}. Seed {seed}. The run took {}:{:02} minutes.", took / 60, took % 60);
    println!("{head}");
    for (file, part, text) in parts {
        println!("\n{text}");
        let with_head = if file == "README.md" { text } else { format!("{head}\n\n{text}") };
        if write {
            document::write(&tools::root().join(file), part, &with_head)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
