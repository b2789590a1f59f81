//! `make chaos`: breaks one thing after another under load. The exit status is 1 when a servable request was lost.

use anyhow::Result;
use clap::Parser;
use endpoint_picker_tests::chaos::{self, Plan};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Puts the whole stack under load and breaks one thing after another.
#[derive(Debug, Parser)]
struct Flags {
    /// How long faults are begun, in seconds; the last one is seen through.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same seed breaks the same things in the same order; without one it is another each time.
    #[arg(long)]
    seed: Option<u64>,
    /// Envoy's workers.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Requests each second.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Flags { seconds, seed, workers, rate } = Flags::parse();
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::UNIX_EPOCH.elapsed()?.as_secs(),
    };
    println!("seed {seed}");
    let (lasting, longest) = (Duration::from_secs(seconds), Duration::from_secs(3));
    let outcome = chaos::run(Plan { lasting, longest, seed, workers, rate }).await?;
    println!("seed {seed}: {} servable requests lost, {} late recoveries", outcome.lost, outcome.late);
    Ok(if outcome.lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
