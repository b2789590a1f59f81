//! The subcommands and their flags.

mod chaos;
mod cost;
mod parity;
mod soak;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures the endpoint picker in a real Envoy.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cost(cost::Flags),
    Chaos(chaos::Flags),
    Soak(soak::Flags),
    Parity(parity::Flags),
}

/// Runs the subcommand of the command line.
pub async fn run() -> ExitCode {
    let result = match Options::parse().command {
        Command::Cost(flags) => cost::run(flags).await,
        Command::Chaos(flags) => chaos::run(flags).await,
        Command::Soak(flags) => soak::run(flags).await,
        Command::Parity(flags) => parity::run(&flags).await,
    };
    result.unwrap_or_else(|reason| {
        eprintln!("{reason:#}");
        ExitCode::FAILURE
    })
}
