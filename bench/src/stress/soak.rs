//! The same load for long, for `make soak`: whether memory grows, and how much is logged.

use super::bounds::BoundTable;
use super::usage::{MIB, ProcessUsage};
use super::{stack, worker_memory};
use crate::load::{MixedLoad, RequestMix};
use anyhow::{Context, Result};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use std::time::{Duration, Instant};

/// Forty blocks of the prefix index, so that it is full soon.
const PROMPT_BYTES: usize = 10_000;
/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a further worker may take, without its part of the prefix index.
const MOST_PER_WORKER: f64 = 24.0 * MIB;
/// Lines that Envoy and the agent together may log each second at level info.
const MOST_LINES: f64 = 1.0;
/// Requests that may fail; nothing breaks here.
const MOST_FAILED: f64 = 0.0;

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

/// Runs the plan and prints the figures; true if each keeps its bound. Panics when the stack cannot be
/// started.
pub(crate) async fn run(plan: SoakPlan) -> Result<bool> {
    let [empty, full] = worker_memory::bytes_per_worker().await?;
    let stack = stack::with_large_caches(plan.workers).await;
    let load = MixedLoad::start(RequestMix::to(&stack, PROMPT_BYTES), plan.rate, plan.seed);
    let agent = stack.agent().context("the stack has an agent")?;
    let mut processes =
        [ProcessUsage::of_envoy(stack.envoy().process_id()), ProcessUsage::of_agent(agent.process_id())];
    let begin = Instant::now();
    watch(&stack, &load, &mut processes, begin, plan.lasting / 3).await?;
    processes.iter_mut().for_each(ProcessUsage::end_warm_up);
    let lines_before = logged_lines(&stack)?;
    watch(&stack, &load, &mut processes, begin, plan.lasting).await?;
    let lines = logged_lines(&stack)? - lines_before;
    let requests = load.sent();
    let phases = load.stop().await;
    let failures = phases.values().map(|phase| phase.failures.len()).sum::<usize>();
    for failure in phases.values().flat_map(|phase| &phase.failures).take(10) {
        println!("not served: request {}: {}", failure.id, failure.kind);
    }

    let seconds = processes[0].seconds();
    let mut table = BoundTable::begin();
    for process in &processes {
        process.print(&mut table);
    }
    table.print("one more worker, index nearly empty", empty / MIB, "MiB", Some(MOST_PER_WORKER / MIB));
    table.print("one more worker, index of 4 servers full", full / MIB, "MiB", None);
    table.print("log lines a second", lines as f64 / seconds, "lines", Some(MOST_LINES));
    table.print("requests not served", failures as f64, "requests", Some(MOST_FAILED));
    let filter = stack.filter();
    println!(
        "{requests} requests, {seconds:.0} s after the warm-up, {} workers, {filter} filter",
        plan.workers
    );
    Ok(table.are_met())
}

/// Takes samples until this time since the beginning.
async fn watch(
    stack: &Stack,
    load: &MixedLoad,
    processes: &mut [ProcessUsage],
    begin: Instant,
    until: Duration,
) -> Result<()> {
    while begin.elapsed() < until {
        tokio::time::sleep(INTERVAL).await;
        let (at, requests) = (begin.elapsed(), load.sent());
        for process in &mut *processes {
            process.add(at, requests)?;
        }
        if at.as_secs() % 20 == 0 {
            let usage: Vec<String> = processes.iter().map(ProcessUsage::progress).collect();
            eprintln!("{:>5.0} s, {requests} requests: {}", at.as_secs_f64(), usage.join(", "));
        }
        // Otherwise the records of the servers would grow, in this process.
        stack.servers().iter().map(ModelServer::take_requests).for_each(drop);
    }
    Ok(())
}

/// Lines that Envoy and the agent have logged so far.
fn logged_lines(stack: &Stack) -> Result<usize> {
    let agent = stack.agent().context("the stack has an agent")?;
    Ok(stack.envoy().log()?.lines().count() + agent.log()?.lines().count())
}
