//! `make bench`: what the picker costs.

use crate::load::wrk;
use crate::picker_cost::{self, Cell, CostPlan, CostTable, DEFAULT_CELLS, ProxyKind};
use crate::report::{Machine, OwnFigureTable, Progress, load_average, notebook};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::process::ExitCode;
use std::time::Duration;

/// Measures what the picker costs.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// The proxies that are compared with the first of them: bare, wasm, native, native-cluster,
    /// native-resuming, wasm-epp and native-epp by the EPP's rules; another build as wasm=FILE, native=FILE,
    /// and so on.
    #[arg(long, value_delimiter = ',', default_value = "bare,native,native-epp,wasm")]
    proxies: Vec<ProxyKind>,
    /// The conditions, TRAFFIC/BYTES/ENDPOINTS/WORKERS; traffic is saturating, new-prompts, steady, streamed
    /// or paced.
    #[arg(long, value_delimiter = ',', default_value = DEFAULT_CELLS)]
    cells: Vec<Cell>,
    /// Rounds for each cell; in each, every proxy has a turn.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of one turn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Only this part.
    #[arg(long)]
    only: Option<Part>,
    /// Also write the figures into a page of docs/benchmarks.
    #[arg(long, conflicts_with_all = ["proxies", "cells", "only"])]
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The proxies in turns.
    Proxies,
    /// The packages' own benches, choices and the agent, and the modules' sizes.
    Packages,
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let Flags { proxies: kinds, cells, rounds, seconds, only, write } = flags;
    let machine = Machine::read(vec![wrk::version()?])?;
    let plan = CostPlan { kinds, cells, rounds, turn: Duration::from_secs(seconds) };
    let progress = Progress::begin(plan.expected());

    let mut parts = Vec::new();
    // At once, so that a later part that fails takes no figures with it.
    let mut add = |part: String| {
        println!("{part}\n");
        parts.push(part);
    };
    add(format!(
        "{machine}. Turns of {seconds} s, {rounds} rounds. Proxies, load generator, model servers and agent share the processors, with \
         all other programs:\nrely on comparisons within a run, not on single figures."
    ));
    if only != Some(Part::Packages) {
        add(CostTable(&picker_cost::measure(plan, &progress).await?).to_string());
    }
    if only != Some(Part::Proxies) {
        let mut figures = picker_cost::decisions()?;
        figures.extend(picker_cost::native_module()?);
        figures.extend(picker_cost::agent()?);
        figures.extend(picker_cost::cached_prefixes()?);
        figures.extend(picker_cost::module_sizes()?);
        add(OwnFigureTable(&figures).to_string());
    }
    add(format!("Load average after: {}.", load_average()?));
    if write {
        notebook::write("Picker cost", &parts.join("\n\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
