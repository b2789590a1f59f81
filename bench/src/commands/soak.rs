//! `make soak`: the same load for long. The exit status is 1 when memory or logs are beyond their bounds.

use crate::stress::soak::{self, SoakPlan};
use crate::stress::soak_whole;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::time::Duration;

/// Puts the stack under the same load for long and watches memory, open files and logs.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// How long, in seconds. The first third warms up; by default until the agent has kept proxies' changes
    /// for as long as it does.
    #[arg(long, default_value_t = 1830, value_parser = clap::value_parser!(u64).range(30..))]
    seconds: u64,
    /// Determines the mix of requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Envoy's workers.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Requests each second.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Two proxies with an agent each, a store, flow control, shared readings and expected latency; six times
    /// in the run, one proxy's Envoy and agent and the store are replaced as an upgrade does. The native
    /// module only.
    #[arg(long)]
    whole: bool,
}

pub(super) async fn run(flags: Flags) -> Result<ExitCode> {
    let Flags { seconds, seed, workers, rate, whole } = flags;
    let plan = SoakPlan { lasting: Duration::from_secs(seconds), seed, workers, rate };
    let is_good = if whole { soak_whole::run(plan).await? } else { soak::run(plan).await? };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
