//! Studies: comparisons that are repeated when our picker, the EPP or the machine is new. `studies --help`
//! lists them.

mod choosing;
mod epp;
mod field;
mod prefixes;
mod replay;
mod resuming;
mod schedule;
mod simulators;
mod streams;
mod timed_servers;
mod vllm;
mod way;
mod words;

use crate::choosing::{ChoosingPlan, Requests};
use crate::epp::cost::{self, CostPlan};
use crate::epp::cost_cells;
use crate::epp::cost_report::CostTables;
use crate::epp::quality::{self, ALL_ROUNDS, QUICK_ROUND, QualityPlan};
use crate::epp::quality_report::QualityTables;
use crate::field::{FieldPlan, FieldTable, FieldWorkload, REPORTS};
use crate::prefixes::{PrefixPart, PrefixPlan, PrefixTables};
use crate::replay::{REPORTS as RECORDS, ReplayPlan};
use crate::resuming::REPORTS as STREAM_LOGS;
use crate::streams::held::{self, HeldPlan};
use crate::streams::held_report::HeldTable;
use crate::streams::traffic::{self, TrafficPlan};
use crate::way::Way;
use anyhow::{Result, bail, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use endpoint_picker_bench::epp::binary;
use endpoint_picker_bench::load::wrk;
use endpoint_picker_bench::report::{Machine, Progress, epp_version, notebook};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compares the endpoint picker with the EPP (llm-d-router's epp) and with round robin.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    study: Study,
    #[command(flatten)]
    run: Run,
}

/// Flags of every study.
#[derive(Clone, Debug, Args)]
struct Run {
    /// The EPP's binary, a path or a name on PATH.
    #[arg(long, env = "EPP", default_value = "epp", global = true)]
    epp: PathBuf,
    /// A shorter run.
    #[arg(long, global = true)]
    quick: bool,
    /// Determines all requests and their times.
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
    /// Also write the figures into pages of docs/benchmarks.
    #[arg(long, conflicts_with = "quick", global = true)]
    write: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum Study {
    /// Cost and choices of our picker, in both forms, compared with the EPP and with round robin: 25 minutes.
    Epp {
        /// Only this part.
        #[arg(long)]
        only: Option<Part>,
    },
    /// Streams held open for a minute through one Envoy, and the cost of many chunks and of long prompts: 30
    /// minutes.
    Streams {
        /// Only this part.
        #[arg(long)]
        only: Option<StreamPart>,
    },
    /// Our picker, round robin and the EPP, measured with llm-d-inference-sim, inference-perf, guidellm and
    /// `vllm bench serve`: half an hour.
    Field {
        /// The binary of llm-d-inference-sim, which you build from its repository.
        #[arg(long, env = "SIM")]
        sim: PathBuf,
        /// Only this workload.
        #[arg(long)]
        only: Option<FieldWorkload>,
        /// Ways to choose, as those of `choosing`.
        #[arg(
            long,
            env = "WAYS",
            value_delimiter = ',',
            default_value = "optimized-baseline,default,epp,round-robin,expected-latency"
        )]
        ways: Vec<Way>,
    },
    /// Prefixes in the caches of two real vLLM, which publish KV-cache events: 20 minutes.
    Prefixes {
        /// Only this part.
        #[arg(long)]
        only: Option<PrefixPart>,
        /// Turns of each way.
        #[arg(long, env = "TURNS", default_value_t = 4)]
        turns: usize,
        /// Requests of a turn.
        #[arg(long, env = "REQUESTS", default_value_t = 300)]
        requests: usize,
    },
    /// Predictions of `metrics-agent replay` compared with what is then measured, by llm-d-inference-sim: 6
    /// minutes.
    Replay {
        /// The binary of llm-d-inference-sim, which you build from its repository.
        #[arg(long, env = "SIM")]
        sim: PathBuf,
    },
    /// Streams with reasoning and tool calls at two real vLLM, one of which is killed: 3 minutes.
    Resuming,
    /// Ways to choose, with the workloads and closed loops of the simulation. The usual ones take six hours.
    Choosing(Choosing),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Cost,
    Quality,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StreamPart {
    /// 1 000, 4 000 and 20 000 streams at once: counts and memory, which other load does not change.
    Held,
    /// Processor time of chunks and of prompts of 100 000 tokens.
    Traffic,
}

/// Subject of the comparison.
#[derive(Clone, Debug, Args)]
struct Choosing {
    /// Workloads and closed loops whose names contain one of these; all without it.
    #[arg(long, env = "WORKLOADS", value_delimiter = ',')]
    workloads: Vec<String>,
    /// Ways to choose: configurations by their names, `round-robin`, `omniscient`, `epp`. The others are
    /// compared with the first one.
    #[arg(
        long,
        env = "WAYS",
        value_delimiter = ',',
        default_value = "optimized-baseline,default,expected-latency,omniscient"
    )]
    ways: Vec<Way>,
    /// Loads, as fractions of the capacity.
    #[arg(long, env = "LOADS", value_delimiter = ',', default_values_t = [0.8, 0.95])]
    loads: Vec<f64>,
    /// Number of seeds, the first of which is `--seed`.
    #[arg(long, env = "SEEDS", default_value_t = 3)]
    seeds: u64,
    /// Numbers of Envoy's workers.
    #[arg(long, env = "WORKERS", value_delimiter = ',', default_values_t = [1, 4])]
    workers: Vec<u32>,
    /// How many seconds requests are measured; half of this time they are sent before.
    #[arg(long, env = "PHASE", default_value_t = 30)]
    phase: u32,
    /// Milliseconds within which the first token of every request has to come; the way `latency-limits`
    /// refuses requests that would not keep it.
    #[arg(long, env = "LIMIT")]
    limit: Option<u32>,
    /// Milliseconds between two scrapes of a server.
    #[arg(long, env = "INTERVAL", default_value_t = 50, value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    interval: u32,
}

impl Choosing {
    fn plan(self, run: &Run) -> Result<ChoosingPlan> {
        let Self { workloads: names, ways, loads, seeds, workers, phase, limit, interval } = self;
        let is_chosen =
            |requests: &Requests| names.is_empty() || names.iter().any(|part| requests.name().contains(part));
        let requests: Vec<Requests> = Requests::all(&loads).into_iter().filter(is_chosen).collect();
        if requests.is_empty() {
            let all = Requests::all(&[1.0]);
            bail!(
                "no such workload; there are {}",
                all.iter().map(Requests::name).collect::<Vec<_>>().join("; ")
            );
        }
        if let Some(load) = loads.iter().find(|load| !(0.01..=2.0).contains(*load)) {
            bail!("a load is {load}; must be 0.01 to 2");
        }
        ensure!(phase > 0 && seeds > 0, "phase and seeds must be above 0");
        let phase = Duration::from_secs(run.pick(5, phase).into());
        let seeds = run.seed..run.seed + run.pick(1, seeds);
        let epp = if ways.contains(&Way::Epp) { binary(&run.epp)? } else { run.epp.clone() };
        let (seeds, warm_up) = (seeds.collect(), phase / 2);
        let interval = Duration::from_millis(interval.into());
        let limit = limit.map(|limit| Duration::from_millis(limit.into()));
        Ok(ChoosingPlan { requests, seeds, workers, ways, phase, warm_up, limit, interval, epp })
    }
}

impl Run {
    fn pick<T>(&self, quick: T, whole: T) -> T {
        if self.quick { quick } else { whole }
    }

    fn quality(&self) -> QualityPlan {
        let seconds = Duration::from_secs;
        let (rounds, phase) = self.pick((QUICK_ROUND, seconds(3)), (ALL_ROUNDS, seconds(5)));
        QualityPlan { rounds, phase, warm_up: seconds(4), seed: self.seed }
    }

    /// Prints a part with its machine, and writes it into the notebook, if it is to be written.
    fn finish(&self, machine: &Machine, progress: &Progress, text: &str, part: &str) -> Result<()> {
        let took = progress.took().as_secs();
        let head =
            format!("{machine}. Seed {}. The run took {}:{:02} minutes.", self.seed, took / 60, took % 60);
        let text = format!("{head}\n\n{text}");
        println!("## {part}\n\n{text}");
        if self.write { notebook::write(part, &text) } else { Ok(()) }
    }

    async fn compare_with_epp(&self, only: Option<Part>) -> Result<()> {
        let epp = binary(&self.epp)?;
        let machine = Machine::read(vec![epp_version(&epp), wrk::version()?])?;
        let cost =
            CostPlan { cells: cost_cells::CELLS, rounds: self.pick(1, 3), turn: Duration::from_secs(2) };
        let quality = self.quality();
        let has = |part| only.is_none_or(|only| only == part);
        let parts = [(Part::Cost, cost.expected()), (Part::Quality, quality.expected())];
        let progress = Progress::begin(expected(only, parts));
        if has(Part::Cost) {
            let samples = cost::measure(cost, &epp, &progress).await?;
            let tables = CostTables(&samples).to_string();
            self.finish(&machine, &progress, &tables, "EPP cost")?;
        }
        if has(Part::Quality) {
            let results = quality::measure(quality, &epp, &progress).await?;
            let tables = QualityTables(&results).to_string();
            self.finish(&machine, &progress, &tables, "EPP quality")?;
        }
        Ok(())
    }

    async fn hold_streams(&self, only: Option<StreamPart>) -> Result<()> {
        let epp = binary(&self.epp)?;
        let machine = Machine::read(vec![epp_version(&epp), wrk::version()?])?;
        let seconds = Duration::from_secs;
        let (counts, lasting) = self.pick((held::QUICK_COUNTS, 9), (held::COUNTS, 75));
        let held = HeldPlan { counts, lasting: seconds(lasting) };
        let prompts = CostPlan { cells: traffic::PROMPT_CELLS, rounds: self.pick(1, 3), turn: seconds(2) };
        let traffic = TrafficPlan { rounds: self.pick(2, 12), turn: seconds(self.pick(2, 3)), prompts };
        let has = |part| only.is_none_or(|only| only == part);
        let parts = [(StreamPart::Held, held.expected()), (StreamPart::Traffic, traffic.expected())];
        let progress = Progress::begin(expected(only, parts));
        if has(StreamPart::Held) {
            let samples = held::measure(held, &epp, &progress).await?;
            self.finish(&machine, &progress, &HeldTable(&samples).to_string(), "Held streams")?;
        }
        if has(StreamPart::Traffic) {
            let tables = traffic::measure(traffic, &epp, &progress).await?;
            self.finish(&machine, &progress, &tables.to_string(), "Chunks and long prompts")?;
        }
        Ok(())
    }

    async fn measure_with_field(
        &self,
        sim: PathBuf,
        only: Option<FieldWorkload>,
        ways: Vec<Way>,
    ) -> Result<()> {
        let epp = binary(&self.epp)?;
        check_simulator(&sim)?;
        let machine = Machine::read(vec![epp_version(&epp)])?;
        let workloads = FieldWorkload::value_variants()
            .iter()
            .filter(|workload| only.is_none_or(|only| only == **workload));
        let workloads = workloads.copied().collect();
        let lasting = Duration::from_secs(self.pick(5, 10));
        let plan = FieldPlan { workloads, ways, lasting, sim, epp, seed: self.seed };
        let progress = Progress::begin(plan.expected());
        let samples = field::measure(&plan, &progress).await?;
        let table = format!(
            "{}The clients' reports are in {REPORTS}.\n",
            FieldTable { ways: &plan.ways, runs: &samples }
        );
        self.finish(&machine, &progress, &table, "Field tools")
    }

    async fn compare_prefixes(&self, only: Option<PrefixPart>, turns: usize, requests: usize) -> Result<()> {
        let machine = Machine::read(Vec::new())?;
        let parts = PrefixPart::value_variants().iter().filter(|part| only.is_none_or(|only| only == **part));
        let plan = PrefixPlan {
            parts: parts.copied().collect(),
            turns: self.pick(2, turns),
            requests: self.pick(30, requests),
            after_crash: Duration::from_secs(self.pick(5, 30)),
            seed: self.seed,
        };
        let progress = Progress::begin(plan.expected());
        let samples = prefixes::measure(&plan, &progress).await?;
        let tables =
            format!("{}A line for each request is in {}.\n", PrefixTables(&samples), prefixes::REPORTS);
        self.finish(&machine, &progress, &tables, "Cached prefixes in front of vLLM")
    }

    async fn replay_records(&self, sim: PathBuf) -> Result<()> {
        check_simulator(&sim)?;
        let machine = Machine::read(Vec::new())?;
        let plan = ReplayPlan { sim, lasting: Duration::from_secs(self.pick(20, 60)), seed: self.seed };
        let progress = Progress::begin(plan.expected());
        let table = replay::measure(&plan, &progress).await?;
        let table = format!("{table}\nThe records are in {RECORDS}.\n");
        self.finish(&machine, &progress, &table, "Replayed and measured")
    }

    async fn resume_streams(&self) -> Result<()> {
        let machine = Machine::read(Vec::new())?;
        let progress = Progress::begin(resuming::EXPECTED);
        let table = resuming::measure(self.seed, &progress).await?;
        let table = format!("{table}\nThe servers' logs are in {STREAM_LOGS}.\n");
        self.finish(&machine, &progress, &table, "Resumed streams of vLLM")
    }

    async fn compare_ways(&self, chosen: Choosing) -> Result<()> {
        let machine = Machine::read(Vec::new())?;
        let plan = chosen.plan(self)?;
        let progress = Progress::begin(plan.expected());
        let tables = choosing::measure(plan, &progress).await?.to_string();
        self.finish(&machine, &progress, &tables, "Choosing")
    }
}

/// An error if the file does not exist.
fn check_simulator(sim: &Path) -> Result<()> {
    ensure!(sim.is_file(), "{} is not there: build llm-d-inference-sim and name it with SIM=", sim.display());
    Ok(())
}

/// How long the chosen parts of a study should take.
fn expected<P: Copy + PartialEq>(only: Option<P>, parts: [(P, Duration); 2]) -> Duration {
    let chosen = parts.into_iter().filter(|(part, _)| only.is_none_or(|only| only == *part));
    chosen.map(|(_, expected)| expected).sum()
}

#[tokio::main]
async fn main() -> Result<()> {
    let Options { study, run } = Options::parse();
    match study {
        Study::Epp { only } => run.compare_with_epp(only).await,
        Study::Streams { only } => run.hold_streams(only).await,
        Study::Field { sim, only, ways } => run.measure_with_field(sim, only, ways).await,
        Study::Prefixes { only, turns, requests } => run.compare_prefixes(only, turns, requests).await,
        Study::Replay { sim } => run.replay_records(sim).await,
        Study::Resuming => run.resume_streams().await,
        Study::Choosing(chosen) => run.compare_ways(chosen).await,
    }
}
