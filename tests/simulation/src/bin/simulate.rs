//! Simulates pickers in front of model servers, and prints one table. `simulate --help` lists the options.

use clap::{Parser, ValueEnum};
use endpoint_picker_simulation::cell::regret::{RegretCell, RegretPlan};
use endpoint_picker_simulation::cell::table::Plan;
use endpoint_picker_simulation::cell::variant::{VARIANTS, Variant};
use endpoint_picker_simulation::cell::workloads::Workload;
use endpoint_picker_simulation::traces::{Trace, TracePlan};
use metrics_agent_replay::record::Record;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

/// Compares ways to pick a server by what clients wait, in simulated time: no sockets, no Envoy, no clock.
/// Equal options give equal tables.
#[derive(Debug, Parser)]
struct Options {
    /// The table.
    #[arg(long, env = "TABLE", default_value = "ways")]
    table: Table,
    /// Ends with a failure if the recommended rules miss a bar of the table of regrets or of traces.
    #[arg(long)]
    bars: bool,
    /// Number of seeds; each has other requests, or other times of a file's. 3 without it, of regrets 5.
    #[arg(long, env = "SEEDS")]
    seeds: Option<u64>,
    /// Requests that are measured in a run; half of this number comes before. 6 000 without it, of regrets 3
    /// 000. Of a generated trace all of them; 12 000 without it.
    #[arg(long, env = "REQUESTS")]
    requests: Option<usize>,
    /// Loads, as shares of the capacity; not of regrets, whose cells have their own.
    #[arg(long, env = "LOADS", value_delimiter = ',', default_values_t = [0.6, 0.8, 0.95])]
    loads: Vec<f64>,
    /// Workloads, or cells of regrets, whose names contain one of these; all without it.
    #[arg(long, env = "WORKLOADS", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Variants whose names contain one of these, and the default; all without it. Of regrets: variants to
    /// compare with the recommended rules.
    #[arg(long, env = "VARIANTS", value_delimiter = ',')]
    variants: Vec<String>,
    /// Files of recorded requests in place of the generated traces: Mooncake's, Azure's, `AgentX`'s, or a
    /// record of the picker.
    #[arg(long, env = "TRACE", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// Milliseconds between two scrapes of a server; 0: nothing is ever scraped.
    #[arg(long, env = "INTERVAL", default_value_t = 50)]
    interval: u64,
    /// Threads.
    #[arg(long, env = "THREADS", default_value_t = 2)]
    threads: usize,
}

/// The table that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Every way to pick with every workload.
    Ways,
    /// The recommended rules compared with the best of the simple ways and with an omniscient picker, in
    /// cells of all kinds.
    Regret,
    /// The recommended rules, the simple ways and an omniscient picker with published traces.
    Traces,
}

fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|part| name.contains(part.as_str()))
}

impl Options {
    fn regret_plan(self) -> Result<RegretPlan, Box<dyn Error>> {
        let mut cells = RegretCell::all();
        cells.retain(|cell| self.workloads.is_empty() || contains(&self.workloads, &cell.name));
        if cells.is_empty() {
            return Err("no cell has such a name".into());
        }
        let (seeds, requests) = (self.seeds.unwrap_or(5), self.requests.unwrap_or(3_000));
        if requests == 0 || seeds == 0 {
            return Err("requests and seeds must be above 0".into());
        }
        let others = VARIANTS.iter().filter(|variant| contains(&self.variants, variant.name)).collect();
        Ok(RegretPlan { cells, seeds: (1..=seeds).collect(), requests, others, threads: self.threads })
    }

    fn trace_plan(self) -> Result<TracePlan, Box<dyn Error>> {
        let seeds = self.seeds.unwrap_or(3);
        let file = |path: &PathBuf| {
            let at_path = |error: &dyn Error| format!("{}: {error}", path.display());
            let file = File::open(path).map_err(|error| at_path(&error))?;
            let record = Record::read(BufReader::new(file)).map_err(|error| at_path(&error))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok(Trace::of(name, record, seeds))
        };
        let mut traces = if self.trace.is_empty() {
            Trace::generated(self.requests.unwrap_or(12_000), seeds)?
        } else {
            self.trace.iter().map(file).collect::<Result<_, String>>()?
        };
        traces.retain(|trace| self.workloads.is_empty() || contains(&self.workloads, &trace.name));
        Ok(TracePlan { traces, threads: self.threads })
    }

    fn plan(self) -> Result<Plan, Box<dyn Error>> {
        let chosen = |names: &[String], name: &str| names.is_empty() || contains(names, name);
        let mut workloads = Workload::ALL.to_vec();
        workloads.retain(|workload| chosen(&self.workloads, workload.name()));
        let is_default = |variant: &Variant| variant.name == Variant::DEFAULT.name;
        let variants: Vec<_> = VARIANTS
            .iter()
            .filter(|variant| is_default(variant) || chosen(&self.variants, variant.name))
            .collect();
        if workloads.is_empty() {
            let all = Workload::ALL.map(Workload::name).join(", ");
            return Err(format!("no workload has such a name; there are: {all}").into());
        }
        if let Some(load) = self.loads.iter().find(|load| !(0.01..=2.0).contains(*load)) {
            return Err(format!("a load is {load}; must be 0.01 to 2").into());
        }
        let (seeds, requests) = (self.seeds.unwrap_or(3), self.requests.unwrap_or(6_000));
        if requests == 0 || seeds == 0 {
            return Err("requests and seeds must be above 0".into());
        }
        Ok(Plan {
            workloads,
            loads: self.loads,
            seeds: (1..=seeds).collect(),
            variants,
            requests,
            scrape_interval: (self.interval > 0).then(|| Duration::from_millis(self.interval)),
            threads: self.threads,
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let progress = |line| eprintln!("{line}");
    let has_bars = options.bars;
    let missed = match options.table {
        Table::Ways => {
            println!("{}", options.plan()?.run(&progress).markdown());
            Vec::new()
        }
        Table::Regret => {
            let regrets = options.regret_plan()?.run(&progress);
            println!("{}", regrets.markdown());
            regrets.missed()
        }
        Table::Traces => {
            let traces = options.trace_plan()?.run(&progress)?;
            println!("{}", traces.markdown());
            traces.missed()
        }
    };
    if has_bars && !missed.is_empty() {
        return Err(format!("bars are missed:\n{}", missed.join("\n")).into());
    }
    Ok(())
}
