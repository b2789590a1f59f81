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
use crate::epp::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::simulators::{Room, Simulators};
use crate::timed_servers::{cached_share, counts_since};
use crate::vllm::prefix_cache;
use anyhow::Result;
use clap::ValueEnum;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::{Filter, tools};
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
const AROUND: Duration = Duration::from_secs(20);

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FieldWorkload {
    SharedPrefixes,
    Conversations,
    Adapters,
}

/// A proxy with a picker and its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldProxy {
    RoundRobin,
    Default(Filter),
    ExpectedLatency(Filter),
    Epp,
}

/// The runs to measure, and their parameters.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlan {
    pub(crate) workloads: Vec<FieldWorkload>,
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
    proxy: FieldProxy,
    figures: ClientFigures,
    /// Share of the prompt tokens that the servers had cached.
    cached: f64,
}

impl FieldPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs = self.runs().count() * FieldProxy::ALL.len();
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
        for proxy in FieldProxy::ALL {
            let sample = plan.run(workload, client, proxy).await?;
            progress.print(&sample.to_string());
            samples.push(sample);
        }
    }
    Ok(samples)
}

impl FieldPlan {
    async fn run(&self, workload: FieldWorkload, client: Client, proxy: FieldProxy) -> Result<FieldSample> {
        let reports = new_folder(workload, client, proxy)?;
        let servers = Simulators::<SERVERS>::start(&self.sim, ROOM, &reports).await?;
        let mut running = proxy.start(workload, servers.addresses(), &self.epp).await?;
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
        Ok(FieldSample { client, workload, proxy, figures, cached })
    }
}

/// An empty folder for the reports of one run.
fn new_folder(workload: FieldWorkload, client: Client, proxy: FieldProxy) -> Result<PathBuf> {
    let name = format!("{workload}-{client}-{proxy}").replace([' ', ','], "-");
    let folder = tools::root().join(REPORTS).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

impl FieldProxy {
    pub(crate) const ALL: [Self; 6] = [
        Self::RoundRobin,
        Self::Default(Filter::Native),
        Self::ExpectedLatency(Filter::Native),
        Self::Default(Filter::Wasm),
        Self::ExpectedLatency(Filter::Wasm),
        Self::Epp,
    ];

    async fn start(
        self,
        workload: FieldWorkload,
        endpoints: &[SocketAddr],
        epp: &Path,
    ) -> Result<RunningVariant> {
        let variant = match self {
            Self::RoundRobin => Variant::NoPicker,
            Self::Default(filter) | Self::ExpectedLatency(filter) => Variant::Filter(filter),
            Self::Epp => Variant::Epp,
        };
        // The default rules of neither picker know adapters.
        let rules = match (self, workload) {
            (Self::ExpectedLatency(_), _) => "expected-latency",
            (_, FieldWorkload::Adapters) => "lora",
            (_, FieldWorkload::SharedPrefixes | FieldWorkload::Conversations) => "default",
        };
        let setting = Setting {
            endpoints,
            workers: 1,
            rules: Rules::Example(rules),
            interval: USUAL_INTERVAL,
            agent_flags: &[],
            epp: Some(epp),
        };
        variant.start(setting).await
    }
}

impl fmt::Display for FieldWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedPrefixes => "shared prefixes",
            Self::Conversations => "conversations",
            Self::Adapters => "adapters",
        })
    }
}

impl fmt::Display for FieldProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => f.write_str("round robin"),
            Self::Default(filter) => write!(f, "{filter}, default"),
            Self::ExpectedLatency(filter) => write!(f, "{filter}, expected latency"),
            Self::Epp => f.write_str("EPP"),
        }
    }
}

impl fmt::Display for FieldSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, workload, proxy, figures, cached } = self;
        let ClientFigures { requests, failed, p50, p90 } = figures;
        write!(
            f,
            "{workload}, {client}, {proxy}: first token {p50:.0} / {p90:.0} ms of {requests} requests, "
        )?;
        write!(f, "{:.0} % cached, {failed} failed", cached * 100.0)
    }
}
