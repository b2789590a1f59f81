//! All parts together for long, for `make soak WHOLE=1`: two proxies with an agent each, which share loads,
//! prompts and readings through a store, a queue in front of the servers, and expected latency. Parts are
//! replaced under load as an upgrade does; no request may be lost.
//!
//! One proxy and its agent stay for the whole run, so that growth shows; those of another proxy and the store
//! are replaced.

use super::bounds::BoundTable;
use super::chaos::agreement::until_idle;
use super::chaos::queue;
use super::proxies::{Calm, Proxies, SHIPPED};
use super::soak::SoakPlan;
use super::stack::{SERVERS, set_large_caches};
use super::usage::ProcessUsage;
use crate::load::{MixedLoad, RequestMix};
use anyhow::{Context, Result};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::statistics::PickerStatistics;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use std::fs;
use std::time::{Duration, Instant};

/// Relative to the repository's root.
const MANIFESTS: &str = "bench/flow-control/soak.yaml";
/// Requests that each server takes at once, by that file.
const PLACES: usize = 4;
/// Fraction of the servers' places that the load asks for: enough that requests wait at times, and none for
/// long.
const LOAD: f64 = 0.6;
/// Some blocks of the prefix index.
const PROMPT_BYTES: usize = 900;
const PROXIES: usize = 2;
/// The proxy whose parts are replaced, and the one whose parts stay.
const REPLACED: usize = 0;
const STAYS: usize = 1;
/// How often each part is replaced in a run.
const REPLACEMENTS: u32 = 6;
/// Requests that fail within this time after a part was replaced count as its failures.
const SETTLING: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(1);
/// Scrapes of each server in a second: one every 50 ms, by one of the agents, and some when an agent takes
/// over from another one.
const MAX_SCRAPES: f64 = 22.0;

/// A part that is replaced.
#[derive(Clone, Copy, Debug)]
enum Part {
    Agent,
    Envoy,
    Store,
}

/// A run.
struct WholeSoak {
    proxies: Proxies,
    load: MixedLoad,
    processes: [ProcessUsage; 2],
    begin: Instant,
    /// How long processes warm up.
    warm_up: Duration,
    is_warm: bool,
    /// The maximum of requests that waited in the queue of the proxy that stays.
    waited: u64,
}

/// Runs the plan and prints the figures; true if each keeps its bound. Panics when a part cannot be started.
pub(crate) async fn run(plan: SoakPlan) -> Result<bool> {
    let SoakPlan { lasting, seed, workers, rate } = plan;
    let proxies = Proxies::start(PROXIES, workers, calm(rate)?).await?;
    set_large_caches(proxies.servers());
    let mix = RequestMix::new(proxies.mixed().to_vec(), PROMPT_BYTES).with_senders(queue::sender);
    let load = MixedLoad::start(mix, rate, seed);
    let stays = &proxies.stacks()[STAYS];
    let agent = stays.agent().context("the stack has an agent")?;
    let processes =
        [ProcessUsage::of_envoy(stays.envoy().process_id()), ProcessUsage::of_agent(agent.process_id())];
    let (begin, warm_up) = (Instant::now(), lasting / 3);
    let mut soak = WholeSoak { proxies, load, processes, begin, warm_up, is_warm: false, waited: 0 };
    let period = lasting / REPLACEMENTS;
    for replacement in 0..REPLACEMENTS {
        for (part, sixth) in [(Part::Agent, 1), (Part::Envoy, 3), (Part::Store, 5)] {
            soak.watch(period * replacement + period * sixth / 6).await?;
            soak.replace(part).await?;
        }
    }
    soak.watch(lasting).await?;
    soak.finish(rate).await
}

impl WholeSoak {
    /// Takes samples until this time since the beginning.
    async fn watch(&mut self, until: Duration) -> Result<()> {
        while self.begin.elapsed() < until {
            tokio::time::sleep(INTERVAL).await;
            let (at, requests) = (self.begin.elapsed(), self.load.sent());
            if at >= self.warm_up && !self.is_warm {
                self.is_warm = true;
                self.processes.iter_mut().for_each(ProcessUsage::end_warm_up);
            }
            for process in &mut self.processes {
                process.add(at, requests)?;
            }
            let stays = self.proxies.stacks()[STAYS].envoy();
            self.waited = self.waited.max(PickerStatistics::of(stays).await?.sum("queued"));
            if at.as_secs() % 20 == 0 {
                let usage: Vec<String> = self.processes.iter().map(ProcessUsage::progress).collect();
                eprintln!("{:>5.0} s, {requests} requests: {}", at.as_secs_f64(), usage.join(", "));
            }
            // Otherwise the records of the servers would grow, in this process.
            self.proxies.servers().iter().map(ModelServer::take_requests).for_each(drop);
        }
        Ok(())
    }

    /// Replaces a part under load.
    async fn replace(&mut self, part: Part) -> Result<()> {
        self.load.enter(part.name());
        let begin = Instant::now();
        match part {
            Part::Agent => self.proxies.stack(REPLACED).replace_agent().await,
            Part::Envoy => self.proxies.stack(REPLACED).hot_restart().await?,
            Part::Store => {
                let store = self.proxies.store()?;
                store.kill();
                store.restart().await?;
            }
        }
        eprintln!("{} in {:.1} s", part.name(), begin.elapsed().as_secs_f64());
        self.watch(self.begin.elapsed() + SETTLING).await?;
        self.load.enter("calm");
        Ok(())
    }

    async fn finish(self, rate: u32) -> Result<bool> {
        let Self { mut proxies, load, processes, begin, waited, .. } = self;
        let scrapes: usize = proxies.servers().iter().map(ModelServer::scrapes).sum();
        let scrapes = scrapes as f64 / SERVERS as f64 / begin.elapsed().as_secs_f64();
        let phases = load.stop().await;
        let is_idle = until_idle(&proxies).await;
        let failures: usize = phases.values().map(|phase| phase.failures.len()).sum();
        let requests: usize = phases.values().map(|phase| phase.sent).sum();
        for (name, phase) in &phases {
            println!("{name}: {} requests, {} not served", phase.sent, phase.failures.len());
            for failure in phase.failures.iter().take(10) {
                println!("  request {}: {}", failure.id, failure.kind);
            }
        }
        let mut table = BoundTable::begin();
        for process in &processes {
            process.print(&mut table);
        }
        table.print("scrapes of a server a second, by both agents", scrapes, "scrapes", Some(MAX_SCRAPES));
        table.print("requests not served", failures as f64, "requests", Some(0.0));
        let seconds = processes[0].seconds();
        println!(
            "{requests} requests, {rate} a second, {seconds:.0} s after the warm-up; {waited} waited at once, the maximum"
        );
        if let Err(reason) = &is_idle {
            println!("{reason:#}");
        }
        let is_good = table.are_met() && is_idle.is_ok() && waited > 0;
        if !is_good {
            for logs in proxies.keep_logs() {
                println!("logs are kept in {}", logs.display());
            }
        }
        Ok(is_good)
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent replaced",
            Self::Envoy => "Envoy hot-restarted",
            Self::Store => "store replaced, empty",
        }
    }
}

fn calm(rate: u32) -> Result<Calm> {
    let manifests =
        fs::read_to_string(tools::root().join(MANIFESTS)).with_context(|| MANIFESTS.to_owned())?;
    let behaviour = Behaviour::SlowChunks(queue::pause(LOAD, SERVERS * PLACES, rate));
    Ok(Calm { filter: Filter::Native, config: SHIPPED, manifests, behaviour, has_access_log: false })
}
