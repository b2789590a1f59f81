//! `make bench`: measures and prints one table.

use crate::load::wrk;
use crate::picker_cost::{self, ProxyPair, RoundPlan};
use crate::report::{envoy_version, load_average, table};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;

/// Envoy's workers and endpoints in the measurement of sharing.
const WORKERS: u32 = 8;
const SHARING_ENDPOINTS: usize = 100;

/// Measures what the picker costs.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Rounds for each kind of load; in each, the proxy without and the proxy with the picker have a turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of one turn.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Sizes of the pool behind the proxies.
    #[arg(long, value_delimiter = ',', default_value = "10,100")]
    endpoints: Vec<u16>,
    /// Only this and the module.
    #[arg(long)]
    only: Option<Part>,
    /// Another build of the filter: the proxy with it takes the place of the proxy without the picker, and nothing else is measured.
    #[arg(long, value_name = "MODULE", conflicts_with = "only")]
    other_filter: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The proxy with the picker and without it.
    Proxy,
    /// Workers that share and workers that do not.
    Sharing,
    /// The packages' own benches: choices and the agent.
    Packages,
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let plan = RoundPlan { rounds: flags.rounds, turn: Duration::from_secs(flags.seconds) };
    let wrk = wrk::version()?;
    let load_before = load_average()?;

    let mut rows = Vec::new();
    let measures = |part| match flags.only {
        Some(only) => only == part,
        None => flags.other_filter.is_none() || part == Part::Proxy,
    };
    let sizes = flags.endpoints.iter().filter(|_| measures(Part::Proxy));
    for &endpoints in sizes {
        eprintln!("measuring the proxy with {endpoints} endpoints");
        let mut pair = match &flags.other_filter {
            Some(other) => ProxyPair::with_other_filter(endpoints.into(), other).await?,
            None => ProxyPair::with_and_without_picker(endpoints.into()).await?,
        };
        rows.extend(pair.requests(plan).await?);
        if endpoints == flags.endpoints[0] {
            eprintln!("measuring streamed answers");
            rows.push(pair.streamed_answers(plan)?);
        }
    }
    if measures(Part::Sharing) {
        eprintln!("measuring the cost of sharing for {WORKERS} workers");
        let mut pair = ProxyPair::with_and_without_sharing(SHARING_ENDPOINTS, WORKERS).await?;
        rows.extend(pair.sharing(plan, WORKERS)?);
    }
    if measures(Part::Packages) {
        rows.extend(picker_cost::decisions()?);
        rows.extend(picker_cost::agent()?);
    }
    let (module, imports) = picker_cost::module()?;
    rows.push(module);

    table::print(&rows);
    println!();
    println!("{}; {wrk}; {} rounds of {} s", envoy_version()?, flags.rounds, flags.seconds);
    println!(
        "{} processors; load average before {load_before}, after {}",
        available_parallelism()?,
        load_average()?
    );
    println!(
        "Proxies, load generator, model servers and agent share these processors, with all other programs: trust"
    );
    println!("the comparisons within this run, not the absolute figures.");
    println!("The module imports {} functions: {}", imports.len(), Vec::from_iter(imports).join(", "));
    Ok(ExitCode::SUCCESS)
}
