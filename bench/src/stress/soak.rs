//! The same load for long, for `make soak`: whether memory grows, and how much is logged.

use super::growth::median_growth;
use super::{stack, worker_memory};
use crate::load::{MixedLoad, RequestMix};
use anyhow::{Context, Result};
use endpoint_picker_harness::program::process_tree::taken;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use std::time::{Duration, Instant};

/// Forty blocks of the prefix index, so that it is full soon.
const PROMPT_BYTES: usize = 10_000;
/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Distance of the samples that are compared: about 20 s.
const APART: usize = 20;
/// Bytes by which memory may grow each minute after the warm-up.
const MOST_GROWTH: f64 = 0.5 * MIB;
/// Bytes that one more worker may take, without its part of the prefix index.
const MOST_PER_WORKER: f64 = 24.0 * MIB;
/// Lines that Envoy and the agent together may log each second at level info.
const MOST_LINES: f64 = 1.0;
/// Requests that may fail; nothing breaks here.
const MOST_FAILED: f64 = 0.0;

const MIB: f64 = 1_048_576.0;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoakPlan {
    /// Duration of the run; its first third warms up.
    pub(crate) lasting: Duration,
    /// Determines the mix of requests.
    pub(crate) seed: u64,
    /// Envoy's workers.
    pub(crate) workers: u32,
    /// Requests each second.
    pub(crate) rate: u32,
}

/// Requests so far, and bytes in use, at one moment.
struct MemorySample {
    /// Seconds since the beginning.
    at: f64,
    requests: f64,
    envoy: f64,
    agent: f64,
}

/// Runs the plan and prints the figures; true if each keeps its bound. Panics when the stack cannot be started.
pub(crate) async fn run(plan: SoakPlan) -> Result<bool> {
    let [empty, full] = worker_memory::bytes_per_worker().await?;
    let stack = stack::with_large_caches(plan.workers).await;
    let load = MixedLoad::start(RequestMix::to(&stack, PROMPT_BYTES), plan.rate, plan.seed);
    watch(&stack, &load, plan.lasting / 3).await?;
    let lines_before = logged_lines(&stack)?;
    let samples = watch(&stack, &load, plan.lasting * 2 / 3).await?;
    let lines = logged_lines(&stack)? - lines_before;
    let phases = load.stop().await;
    let failures = phases.values().map(|phase| phase.failures.len()).sum::<usize>();
    for failure in phases.values().flat_map(|phase| &phase.failures).take(10) {
        println!("not served: request {}: {}", failure.id, failure.kind);
    }

    let seconds = samples.last().map_or(0.0, |last| last.at) - samples.first().map_or(0.0, |first| first.at);
    let growth = |of: fn(&MemorySample) -> f64, by: fn(&MemorySample) -> f64| {
        median_growth(&samples.iter().map(|sample| (by(sample), of(sample))).collect::<Vec<_>>(), APART)
    };
    let mut is_good = true;
    let mut print = |what: &str, figure: f64, unit: &str, most: Option<f64>| {
        let bound = most.map_or_else(
            || "| ".to_owned(),
            |most| format!("<= {most} {unit} | {}", if figure <= most { "met" } else { "MISSED" }),
        );
        is_good &= most.is_none_or(|most| figure <= most);
        println!("| {what} | {figure:.3} {unit} | {bound} |");
    };
    println!("| What | Measured | Bound | |\n|---|---|---|---|");
    for (name, of) in
        [("Envoy", (|sample| sample.envoy) as fn(&MemorySample) -> f64), ("agent", |sample| sample.agent)]
    {
        let last = samples.last().map_or(0.0, of);
        print(&format!("{name}: memory at the end"), last / MIB, "MiB", None);
        let a_minute = growth(of, |sample| sample.at) * 60.0;
        print(&format!("{name}: growth a minute"), a_minute / MIB, "MiB", Some(MOST_GROWTH / MIB));
        print(&format!("{name}: growth a request"), growth(of, |sample| sample.requests), "bytes", None);
    }
    print("one more worker, index nearly empty", empty / MIB, "MiB", Some(MOST_PER_WORKER / MIB));
    print("one more worker, index of 4 servers full", full / MIB, "MiB", None);
    print("log lines a second", lines as f64 / seconds, "lines", Some(MOST_LINES));
    print("requests not served", failures as f64, "requests", Some(MOST_FAILED));
    let requests = samples.last().map_or(0.0, |sample| sample.requests);
    let filter = stack.filter();
    println!(
        "{requests} requests, {seconds:.0} s after the warm-up, {} workers, {filter} filter",
        plan.workers
    );
    Ok(is_good)
}

async fn watch(stack: &Stack, load: &MixedLoad, lasting: Duration) -> Result<Vec<MemorySample>> {
    let (begin, mut samples) = (Instant::now(), Vec::new());
    while begin.elapsed() < lasting {
        tokio::time::sleep(INTERVAL).await;
        let agent = stack.agent().context("the stack has an agent")?;
        samples.push(MemorySample {
            at: begin.elapsed().as_secs_f64(),
            requests: load.sent() as f64,
            envoy: taken(stack.envoy().process_id())? as f64,
            agent: taken(agent.process_id())? as f64,
        });
        if let Some(sample) = samples.last().filter(|_| samples.len() % 20 == 0) {
            let MemorySample { at, requests, envoy, agent } = sample;
            let (envoy, agent) = (envoy / MIB, agent / MIB);
            eprintln!("{at:>5.0} s, {requests} requests: Envoy {envoy:.1} MiB, agent {agent:.1} MiB");
        }
        // Otherwise the records of the servers would grow, in this process.
        stack.servers().iter().map(ModelServer::take_requests).for_each(drop);
    }
    Ok(samples)
}

/// Lines that Envoy and the agent have logged so far.
fn logged_lines(stack: &Stack) -> Result<usize> {
    let agent = stack.agent().context("the stack has an agent")?;
    Ok(stack.envoy().log()?.lines().count() + agent.log()?.lines().count())
}
