//! Prefixes in the caches of real servers: vLLM with KV-cache events, conversations that fill the caches,
//! LoRA adapters, resets of caches, a server that is killed, and data-parallel ranks.
//!
//! The ways to choose take turns at the same servers, whose caches are emptied before each turn, so that
//! other work on the machine changes all alike. Each request that our picker routed has a prediction of its
//! cached tokens by three indices in its explanation, which is compared with the number in its response.

mod clients;
mod conversations;
mod prediction;
mod report;
mod way;

use self::clients::{Clients, Outcomes};
pub(crate) use self::report::PrefixTables;
use self::way::PrefixWay;
use crate::epp::running::RunningVariant;
use crate::timed_servers::counts_since;
use crate::vllm::{VllmServer, prefix_cache};
use anyhow::{Context, Result};
use clap::ValueEnum;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::tools;
use metrics_agent_server_model::PrefixCacheCounts;
use std::cell::Cell;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A file for each run with a line for each request, and the servers' logs, relative to the repository's
/// root.
pub(crate) const REPORTS: &str = "target/prefixes";
/// Predictions have to be exact this long after a server was started again.
pub(crate) const EXACT_WITHIN: Duration = Duration::from_secs(5);
const SERVERS: usize = 2;
/// Data-parallel ranks of one server.
const RANKS: u16 = 2;
/// Between the first requests and the end of a server, so that it works on some.
const BEFORE_CRASH: Duration = Duration::from_secs(1);
/// A server empties its cache within this time after its last response.
const RESET_DEADLINE: Duration = Duration::from_secs(10);
/// A start of servers takes about this long, and a request of four at a time a fourth of this.
const START: Duration = Duration::from_mins(2);
const REQUEST: Duration = Duration::from_millis(600);

/// A part of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrefixPart {
    /// Ways to choose, and a server that is killed and started again.
    Servers,
    /// A server with two data-parallel ranks.
    Ranks,
}

/// The runs to measure.
#[derive(Clone, Debug)]
pub(crate) struct PrefixPlan {
    pub(crate) parts: Vec<PrefixPart>,
    /// Turns of each way.
    pub(crate) turns: usize,
    /// Requests of a turn, between which the cache of one server is emptied twice.
    pub(crate) requests: usize,
    /// How long requests are sent after the server that was killed is exact again.
    pub(crate) after_crash: Duration,
    pub(crate) seed: u64,
}

/// The runs of a study.
#[derive(Debug, Default)]
pub(crate) struct PrefixSamples {
    servers: Vec<PrefixSample>,
    crash: Option<CrashSample>,
    ranks: Vec<PrefixSample>,
}

/// All turns of a way.
#[derive(Debug)]
struct PrefixSample {
    way: PrefixWay,
    turns: Vec<Turn>,
}

/// A turn of a way.
#[derive(Debug)]
struct Turn {
    outcomes: Outcomes,
    /// Tokens of prompts, by the servers' own counters.
    tokens: PrefixCacheCounts,
}

/// A run in which a server was killed, and started again.
#[derive(Debug)]
struct CrashSample {
    outcomes: Outcomes,
    killed: Instant,
    ready: Instant,
}

impl PrefixPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let requests = u32::try_from(self.requests * self.turns).unwrap_or(u32::MAX);
        let ways = |count: usize| REQUEST / 4 * requests * u32::try_from(count).unwrap_or(u32::MAX);
        let parts = self.parts.iter().map(|part| match part {
            PrefixPart::Servers => START * 2 + ways(PrefixWay::OF_SERVERS.len() + 1) + self.after_crash,
            PrefixPart::Ranks => START + ways(PrefixWay::OF_RANKS.len()),
        });
        parts.sum()
    }
}

/// Measures all of it, one run at a time.
pub(crate) async fn measure(plan: &PrefixPlan, progress: &Progress) -> Result<PrefixSamples> {
    fs::create_dir_all(reports())?;
    let mut samples = PrefixSamples::default();
    if plan.parts.contains(&PrefixPart::Servers) {
        let mut fleet = Fleet::start("servers", SERVERS, 1, plan.seed).await?;
        progress.print("the servers are ready");
        samples.servers = fleet.measure_ways(&PrefixWay::OF_SERVERS, plan, progress).await?;
        let crash = fleet.crash(plan).await?;
        progress.print(&format!("a server was killed and is ready again: {}", crash.outcomes));
        samples.crash = Some(crash);
    }
    if plan.parts.contains(&PrefixPart::Ranks) {
        let fleet = Fleet::start("ranks", 1, RANKS, plan.seed).await?;
        progress.print("the server with two ranks is ready");
        samples.ranks = fleet.measure_ways(&PrefixWay::OF_RANKS, plan, progress).await?;
    }
    Ok(samples)
}

fn reports() -> PathBuf {
    tools::root().join(REPORTS)
}

/// Running servers.
struct Fleet {
    /// In the names of the reports.
    name: &'static str,
    servers: Vec<VllmServer>,
    addresses: Vec<SocketAddr>,
}

impl Fleet {
    async fn start(name: &'static str, servers: usize, ranks: u16, seed: u64) -> Result<Self> {
        let folder = reports();
        let mut servers: Vec<_> =
            (0..servers).map(|_| VllmServer::start(&folder, ranks, seed, &[])).collect::<Result<_>>()?;
        for server in &mut servers {
            server.ready().await?;
        }
        let addresses = servers.iter().map(VllmServer::address).collect();
        Ok(Self { name, servers, addresses })
    }

    /// Measures the ways in turns, each of which begins with another one.
    async fn measure_ways(
        &self,
        ways: &[PrefixWay],
        plan: &PrefixPlan,
        progress: &Progress,
    ) -> Result<Vec<PrefixSample>> {
        let of_way = |way: &PrefixWay| PrefixSample { way: *way, turns: Vec::new() };
        let mut samples: Vec<_> = ways.iter().map(of_way).collect();
        for turn in 0..plan.turns {
            for place in 0..samples.len() {
                let at = (turn + place) % samples.len();
                let PrefixSample { way, turns } = &mut samples[at];
                let measured = self.measure(*way, turn, plan).await.with_context(|| way.to_string())?;
                progress.print(&format!("turn {turn}, {way}: {measured}"));
                turns.push(measured);
            }
        }
        Ok(samples)
    }

    async fn measure(&self, way: PrefixWay, turn: usize, plan: &PrefixPlan) -> Result<Turn> {
        let mut running = self.start_proxy(way).await?;
        let clients = Clients::new(running.listener(), plan.seed + turn as u64)?;
        let (begin, before) = (Instant::now(), prefix_cache(&self.addresses).await?);
        clients.send(plan.requests / 3).await;
        for _ in 0..2 {
            reset(&self.servers[..1]).await?;
            clients.send(plan.requests / 3).await;
        }
        let tokens = counts_since(prefix_cache(&self.addresses).await?, before);
        running.check_running()?;
        let outcomes = clients.into_outcomes();
        outcomes.write(&format!("{} {way} {turn}", self.name), begin)?;
        Ok(Turn { outcomes, tokens })
    }

    /// Kills a server with SIGKILL while clients send requests, and starts it again.
    async fn crash(&mut self, plan: &PrefixPlan) -> Result<CrashSample> {
        let mut running = self.start_proxy(PrefixWay::Events).await?;
        let clients = Clients::new(running.listener(), !plan.seed)?;
        let begin = Instant::now();
        // Caches are full.
        clients.send(plan.requests * 2).await;
        let is_over = Cell::new(false);
        let restart = async {
            let result = self.restart_one(plan).await;
            is_over.set(true);
            result
        };
        let ((), times) = tokio::join!(clients.send_while(|| !is_over.get()), restart);
        let (killed, ready) = times?;
        running.check_running()?;
        let outcomes = clients.into_outcomes();
        outcomes.write("crash", begin)?;
        Ok(CrashSample { outcomes, killed, ready })
    }

    /// Returns when the server was killed, and when it was ready again.
    async fn restart_one(&mut self, plan: &PrefixPlan) -> Result<(Instant, Instant)> {
        let server = self.servers.last_mut().context("a server")?;
        sleep(BEFORE_CRASH).await;
        let killed = Instant::now();
        server.restart_after_crash()?;
        server.ready().await?;
        let ready = Instant::now();
        sleep(EXACT_WITHIN + plan.after_crash).await;
        Ok((killed, ready))
    }

    /// Starts a proxy in front of servers with empty caches.
    async fn start_proxy(&self, way: PrefixWay) -> Result<RunningVariant> {
        reset(&self.servers).await?;
        for server in &self.servers {
            server.send_short_prompt().await?;
        }
        way.start(&self.addresses).await
    }
}

/// Empties the caches of servers that have no requests.
async fn reset(servers: &[VllmServer]) -> Result<()> {
    for server in servers {
        // A server frees the blocks of a request after its response.
        let reset = within(RESET_DEADLINE, async || server.reset_prefix_cache().await);
        reset.await.map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

impl Outcomes {
    /// Writes a line for each request.
    fn write(&self, run: &str, begin: Instant) -> Result<()> {
        let mut text = String::new();
        for served in &self.served {
            writeln!(text, "{}", served.report(begin))?;
        }
        let path = reports().join(format!("{}.jsonl", run.replace([' ', ',', '`'], "-")));
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}
