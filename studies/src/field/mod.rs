//! Ways to choose measured with the field's own tools: llm-d-inference-sim as servers, and inference-perf,
//! guidellm and `vllm bench serve` as clients.
//!
//! A run is one client with one workload against one proxy, in front of servers with empty caches. The
//! client's own report is kept as a file, and the table is made from these reports and from the servers'
//! metrics.

mod clients;
mod report;

use self::clients::{Client, ClientFigures, ClientRun};
pub(crate) use self::report::FieldTable;
use crate::epp::rules::Rules;
use crate::epp::running::RunningVariant;
use crate::epp::variant::{Setting, USUAL_INTERVAL};
use crate::simulators::{Room, Simulators};
use crate::timed_servers::{cached_share, counts_since};
use crate::vllm::prefix_cache;
use crate::way::Way;
use anyhow::Result;
use clap::ValueEnum;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::tools;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the clients' reports are kept, relative to the repository's root.
pub(crate) const REPORTS: &str = "target/field";
const SERVERS: usize = 4;
const ROOM: Room = Room { requests: 16, blocks: 1024 };
/// Starting and ending servers, proxy and client, and making the prompts, take about this long.
const AROUND: Duration = Duration::from_secs(30);

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FieldWorkload {
    SharedPrefixes,
    /// 40 of inference-perf take turns, so round robin sends each to the same of four servers.
    Conversations,
    /// 41 take turns, so round robin does not.
    UnevenConversations,
    Adapters,
}

/// The runs to measure, and their parameters.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlan {
    pub(crate) workloads: Vec<FieldWorkload>,
    pub(crate) ways: Vec<Way>,
    /// How long each client sends requests.
    pub(crate) lasting: Duration,
    /// The binary of llm-d-inference-sim.
    pub(crate) sim: PathBuf,
    /// The EPP's binary.
    pub(crate) epp: PathBuf,
    pub(crate) seed: u64,
}

/// The figures of one run.
#[derive(Clone, Debug)]
pub(crate) struct FieldSample {
    client: Client,
    workload: FieldWorkload,
    way: Way,
    figures: ClientFigures,
    /// Share of the prompt tokens that the servers had cached.
    cached: f64,
}

impl FieldPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs = self.runs().count() * self.ways.len();
        (AROUND + self.lasting) * u32::try_from(runs).unwrap_or(u32::MAX)
    }

    fn runs(&self) -> impl Iterator<Item = (FieldWorkload, Client)> {
        let clients = |workload| Client::ALL.into_iter().map(move |client| (workload, client));
        self.workloads.iter().copied().flat_map(clients).filter(|(workload, client)| client.has(*workload))
    }
}

/// Measures all of it, one run at a time.
pub(crate) async fn measure(plan: &FieldPlan, progress: &Progress) -> Result<Vec<FieldSample>> {
    let mut samples = Vec::new();
    for (workload, client) in plan.runs() {
        for &way in &plan.ways {
            let sample = plan.run(workload, client, way).await?;
            progress.print(&sample.to_string());
            samples.push(sample);
        }
    }
    Ok(samples)
}

impl FieldPlan {
    async fn run(&self, workload: FieldWorkload, client: Client, way: Way) -> Result<FieldSample> {
        let reports = new_folder(workload, client, way)?;
        let servers = Simulators::<SERVERS>::start(&self.sim, ROOM, &reports).await?;
        let mut running = start(way, workload, servers.addresses(), &self.epp).await?;
        let before = prefix_cache(servers.addresses()).await?;
        let run = ClientRun {
            workload,
            proxy: running.listener(),
            lasting: self.lasting,
            seed: self.seed,
            reports: &reports,
        };
        let figures = client.measure(&run)?;
        running.check_running()?;
        let cached = cached_share(counts_since(prefix_cache(servers.addresses()).await?, before));
        Ok(FieldSample { client, workload, way, figures, cached })
    }
}

/// An empty folder for the reports of one run.
fn new_folder(workload: FieldWorkload, client: Client, way: Way) -> Result<PathBuf> {
    let name = format!("{workload}-{client}-{way}").replace([' ', ','], "-");
    let folder = tools::root().join(REPORTS).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Starts the proxy of a way.
async fn start(
    way: Way,
    workload: FieldWorkload,
    endpoints: &[SocketAddr],
    epp: &Path,
) -> Result<RunningVariant> {
    // The default rules of neither picker know adapters.
    let is_default = [Way::DEFAULT, Way::Epp].contains(&way);
    let rules =
        if is_default && workload == FieldWorkload::Adapters { Rules::Example("lora") } else { way.rules() };
    let setting =
        Setting { endpoints, workers: 1, rules, interval: USUAL_INTERVAL, agent_flags: &[], epp: Some(epp) };
    way.variant().start(setting).await
}

impl fmt::Display for FieldWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedPrefixes => "shared prefixes",
            Self::Conversations => "conversations",
            Self::UnevenConversations => "uneven conversations",
            Self::Adapters => "adapters",
        })
    }
}

impl fmt::Display for FieldSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, workload, way, figures, cached } = self;
        let ClientFigures { requests, failed, p50, p90 } = figures;
        write!(
            f,
            "{workload}, {client}, {way}: first token {p50:.0} / {p90:.0} ms of {requests} requests, "
        )?;
        write!(f, "{:.0} % cached, {failed} failed", cached * 100.0)
    }
}
