//! Simulates pickers in front of model servers, and prints one table. `simulate --help` lists the options.

use clap::Parser;
use endpoint_picker_simulation::cell::pickers::{VARIANTS, Variant};
use endpoint_picker_simulation::cell::table::Plan;
use endpoint_picker_simulation::cell::workloads::{Drawn, Workload, trace::Trace};
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Compares ways to pick a server by what clients wait, in simulated time: no sockets, no Envoy, no clock. Equal options give equal tables.
#[derive(Debug, Parser)]
struct Options {
    /// Number of seeds; each has other requests.
    #[arg(long, env = "SEEDS", default_value_t = 3)]
    seeds: u64,
    /// Requests that are measured in a run; half of this number comes before.
    #[arg(long, env = "REQUESTS", default_value_t = 6_000)]
    requests: usize,
    /// Loads, as shares of the capacity.
    #[arg(long, env = "LOADS", value_delimiter = ',', default_values_t = [0.6, 0.8, 0.95])]
    loads: Vec<f64>,
    /// Workloads whose names contain one of these; all without it.
    #[arg(long, env = "WORKLOADS", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Variants whose names contain one of these, and the default; all without it.
    #[arg(long, env = "VARIANTS", value_delimiter = ',')]
    variants: Vec<String>,
    /// Files of recorded requests, in place of the workloads: Azure's CSV, or JSON lines with `hash_ids`.
    #[arg(long, env = "TRACE", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// Milliseconds between two scrapes of a server; 0: nothing is ever scraped.
    #[arg(long, env = "INTERVAL", default_value_t = 50)]
    interval: u64,
    /// Threads.
    #[arg(long, env = "THREADS", default_value_t = 2)]
    threads: usize,
}

impl Options {
    fn plan(self) -> Result<Plan, Box<dyn Error>> {
        let chosen = |names: &[String], name: &str| {
            names.is_empty() || names.iter().any(|part| name.contains(part.as_str()))
        };
        let mut workloads = Vec::new();
        for path in &self.trace {
            let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let trace = Trace::read(path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
            workloads.push(Workload::Trace(Arc::new(trace)));
        }
        if self.trace.is_empty() {
            workloads.extend(Drawn::ALL.map(Workload::Drawn));
            workloads.retain(|workload| chosen(&self.workloads, workload.name()));
        }
        let is_default = |variant: &Variant| variant.name == Variant::DEFAULT.name;
        let variants: Vec<_> = VARIANTS
            .iter()
            .filter(|variant| is_default(variant) || chosen(&self.variants, variant.name))
            .collect();
        if workloads.is_empty() {
            let all = Drawn::ALL.map(|drawn| Workload::Drawn(drawn).name().to_owned()).join(", ");
            return Err(format!("no workload has such a name; there are: {all}").into());
        }
        if let Some(load) = self.loads.iter().find(|load| !(0.01..=2.0).contains(*load)) {
            return Err(format!("a load is {load}; must be 0.01 to 2").into());
        }
        if self.requests == 0 || self.seeds == 0 {
            return Err("requests and seeds must be above 0".into());
        }
        Ok(Plan {
            workloads,
            loads: self.loads,
            seeds: (1..=self.seeds).collect(),
            variants,
            requests: self.requests,
            scrape_interval: (self.interval > 0).then(|| Duration::from_millis(self.interval)),
            threads: self.threads,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let plan = Options::parse().plan()?;
    let results = plan.run(&|line| eprintln!("{line}"));
    println!("{}", results.markdown());
    Ok(())
}
