//! The benchmarks' command line; `bench --help` lists them.

use endpoint_picker_bench::commands;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    commands::run().await
}
