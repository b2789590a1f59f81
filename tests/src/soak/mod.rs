//! The same load for long, for `make soak`: what grows, and what is logged.

mod growth;
mod workers;

use crate::model_server::{CacheConfig, ModelServer};
use crate::process_tree::taken;
use crate::stack::Stack;
use crate::traffic::{Load, Range};
use anyhow::{Context, Result};
use growth::usual_growth;
use std::time::{Duration, Instant};

const SERVERS: usize = 4;
/// Forty blocks of the prefix index, so that it is full soon.
const PROMPT_BYTES: usize = 10_000;
/// Two million tokens at each server, so that the index is bounded by its own default of 31 250 blocks, not by the servers.
const LARGE_CACHE: CacheConfig = CacheConfig { block_size: 16, num_gpu_blocks: 125_000 };
/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Looks that are compared: about 20 s.
const APART: usize = 20;
/// Memory may usually grow by this much each minute after the warm-up.
const MOST_GROWTH: f64 = 0.5 * MIB;
/// Memory that one more worker may take, its part of the prefix index apart.
const MOST_PER_WORKER: f64 = 24.0 * MIB;
/// Lines that Envoy and the agent may log each second at level info.
const MOST_LINES: f64 = 1.0;
/// Servable requests that are lost, in a calm.
const MOST_LOST: f64 = 0.0;

const MIB: f64 = 1_048_576.0;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long, a third of it to warm up.
    pub lasting: Duration,
    /// Decides the mix of requests.
    pub seed: u64,
    /// Envoy's workers.
    pub workers: u32,
    /// Requests each second.
    pub rate: u32,
}

/// What was seen at one moment.
struct Look {
    /// Seconds since the begin.
    at: f64,
    requests: f64,
    envoy: f64,
    agent: f64,
}

/// Runs the plan and prints the figures; true if none is beyond its bound.
///
/// # Panics
///
/// When the stack cannot be started.
pub async fn run(plan: Plan) -> Result<bool> {
    let [empty, full] = workers::bytes_per_worker().await?;
    let stack = start(plan.workers).await;
    let load = Load::start(Range::new(&stack, PROMPT_BYTES), plan.rate, plan.seed);
    watch(&stack, &load, plan.lasting / 3).await?;
    let lines_before = logged_lines(&stack)?;
    let looks = watch(&stack, &load, plan.lasting * 2 / 3).await?;
    let lines = logged_lines(&stack)? - lines_before;
    let tally = load.stop().await;
    let failures = tally.values().map(|phase| phase.failures.len()).sum::<usize>();
    for failure in tally.values().flat_map(|phase| &phase.failures).take(10) {
        println!("not served: request {}: {}", failure.id, failure.trouble);
    }

    let seconds = looks.last().map_or(0.0, |last| last.at) - looks.first().map_or(0.0, |first| first.at);
    let growth = |of: fn(&Look) -> f64, by: fn(&Look) -> f64| {
        usual_growth(&looks.iter().map(|look| (by(look), of(look))).collect::<Vec<_>>(), APART)
    };
    let mut is_good = true;
    let mut say = |what: &str, figure: f64, unit: &str, most: Option<f64>| {
        let bound = most.map_or_else(
            || "| ".to_owned(),
            |most| format!("<= {most} {unit} | {}", if figure <= most { "met" } else { "MISSED" }),
        );
        is_good &= most.is_none_or(|most| figure <= most);
        println!("| {what} | {figure:.3} {unit} | {bound} |");
    };
    println!("| What | Measured | Bound | |\n|---|---|---|---|");
    for (name, of) in [("Envoy", (|look| look.envoy) as fn(&Look) -> f64), ("agent", |look| look.agent)] {
        let last = looks.last().map_or(0.0, of);
        say(&format!("{name}: memory at the end"), last / MIB, "MiB", None);
        let a_minute = growth(of, |look| look.at) * 60.0;
        say(&format!("{name}: growth a minute"), a_minute / MIB, "MiB", Some(MOST_GROWTH / MIB));
        say(&format!("{name}: growth a request"), growth(of, |look| look.requests), "bytes", None);
    }
    say("one more worker, index nearly empty", empty / MIB, "MiB", Some(MOST_PER_WORKER / MIB));
    say("one more worker, index of 4 servers full", full / MIB, "MiB", None);
    say("log lines a second", lines as f64 / seconds, "lines", Some(MOST_LINES));
    say("requests not served", failures as f64, "requests", Some(MOST_LOST));
    let requests = looks.last().map_or(0.0, |look| look.requests);
    println!("{requests} requests, {seconds:.0} s after the warm-up, {} workers", plan.workers);
    Ok(is_good)
}

async fn start(workers: u32) -> Stack {
    let stack = Stack::builder().servers(SERVERS).workers(workers).without_access_log().start().await;
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.cache = Some(LARGE_CACHE));
    }
    stack
}

async fn watch(stack: &Stack, load: &Load, lasting: Duration) -> Result<Vec<Look>> {
    let (begin, mut looks) = (Instant::now(), Vec::new());
    while begin.elapsed() < lasting {
        tokio::time::sleep(EVERY).await;
        let agent = stack.agent().context("the stack has an agent")?;
        looks.push(Look {
            at: begin.elapsed().as_secs_f64(),
            requests: load.sent() as f64,
            envoy: taken(stack.envoy().process_id())? as f64,
            agent: taken(agent.process_id())? as f64,
        });
        if let Some(look) = looks.last().filter(|_| looks.len() % 20 == 0) {
            let Look { at, requests, envoy, agent } = look;
            let (envoy, agent) = (envoy / MIB, agent / MIB);
            eprintln!("{at:>5.0} s, {requests} requests: Envoy {envoy:.1} MiB, agent {agent:.1} MiB");
        }
        // Or this process would be the one that grows.
        stack.servers().iter().map(ModelServer::take_requests).for_each(drop);
    }
    Ok(looks)
}

/// Lines that Envoy and the agent have logged.
fn logged_lines(stack: &Stack) -> Result<usize> {
    let agent = stack.agent().context("the stack has an agent")?;
    Ok(stack.envoy().log()?.lines().count() + agent.log()?.lines().count())
}
