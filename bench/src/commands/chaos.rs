//! `make chaos`: breaks one thing after another under load. The exit status is 1 when a servable request was
//! lost, the full rules did not come back, or a request was left when all had ended.

use crate::stress::chaos::{self, ChaosOutcome, ChaosPlan};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Puts the whole stack under load and breaks one thing after another.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// How long faults are begun, in seconds; the last one runs to its end.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Determines the faults and their order; random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// The longest a fault lasts, in seconds, unless its kind sets the duration.
    #[arg(long, default_value_t = 3)]
    longest: u64,
    /// Proxies. Several have an agent each; the agents share through a store.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    proxies: u8,
    /// Requests wait in the native module's queue, at more requests than the servers have places for.
    #[arg(long, conflicts_with = "proxies")]
    flow_control: bool,
    /// The native module resumes streams, so none may be cut.
    #[arg(long, conflicts_with = "flow_control")]
    resume_streams: bool,
    /// Workers of each Envoy.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Requests each second.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let Flags { seconds, seed, longest, proxies, flow_control, resume_streams, workers, rate } = flags;
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::UNIX_EPOCH.elapsed()?.as_secs(),
    };
    println!("seed {seed}");
    let (lasting, longest) = (Duration::from_secs(seconds), Duration::from_secs(longest));
    let plan = ChaosPlan {
        lasting,
        longest,
        seed,
        proxies: usize::from(proxies),
        has_flow_control: flow_control,
        resumes_streams: resume_streams,
        workers,
        rate,
    };
    let ChaosOutcome { lost, late, all_recovered, is_idle } = chaos::run(plan).await?;
    println!("seed {seed}: {lost} servable requests lost, {late} late recoveries");
    if !all_recovered {
        println!("after a fault the full rules did not come back, or the proxies did not agree");
    }
    Ok(if lost == 0 && all_recovered && is_idle { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
