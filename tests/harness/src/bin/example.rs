//! `make example`: prints the whole Envoy configuration of an example, or the names of all.

use anyhow::Result;
use clap::Parser;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{example, examples};
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints the whole Envoy configuration of an example.
#[derive(Debug, Parser)]
struct Options {
    /// The example's name; without it the names of all are listed.
    name: Option<String>,
    /// The form of the filter: wasm or native.
    #[arg(long, env = "FILTER", default_value = "wasm")]
    filter: Filter,
}

fn main() -> ExitCode {
    match print(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(options: &Options) -> Result<()> {
    let text = match &options.name {
        Some(name) => example(name, options.filter)?,
        None => examples()?.join("\n") + "\n",
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}
