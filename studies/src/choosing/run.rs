//! Runs a plan.

use super::clients::Clients;
use super::figures::RunFigures;
use super::plan::ChoosingPlan;
use super::report::{Choice, Choices};
use super::servers::{self, OmniscientClient};
use super::way::Way;
use crate::epp::variant::Setting;
use crate::schedule::print_failures;
use crate::timed_servers::{TimedServers, cached_share, counts_since};
use anyhow::{Result, ensure};
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::program::process_tree::cpu_time;
use endpoint_picker_simulation::cell::capacity;
use endpoint_picker_simulation::cell::workloads::Workload;
use futures_util::future::join_all;
use metrics_agent_replay::simulation::request::SegmentTexts;
use metrics_agent_replay::simulation::sessions::Arrival;
use std::time::Instant;
use tokio::time::sleep_until;

/// One run.
struct Run<'a> {
    way: Way,
    workload: Workload,
    workers: u32,
    arrivals: &'a [Arrival],
    plan: &'a ChoosingPlan,
    texts: &'a SegmentTexts,
}

/// Measures all in turns.
pub(crate) async fn measure(plan: ChoosingPlan, progress: &Progress) -> Result<Choices> {
    /// The seed with which capacities are found.
    const SEED: u64 = 1;
    let texts = SegmentTexts::new();
    let mut choices = Vec::new();
    let mut capacities = Vec::new();
    let mut turn = 0;
    for &workload in &plan.workloads {
        let capacity = capacity::of_workload(workload, SEED);
        progress.print(&format!("{}: {capacity:.1} requests/s are the capacity", workload.name()));
        capacities.push(capacity);
        for (&load, &seed) in
            plan.loads.iter().flat_map(|load| plan.seeds.iter().map(move |seed| (load, seed)))
        {
            let arrivals = workload.arrivals(capacity * load, plan.warm_up + plan.phase, seed);
            for &workers in &plan.workers {
                for way in in_turns(&plan.ways, turn) {
                    let run = Run { way, workload, workers, arrivals: &arrivals, plan: &plan, texts: &texts };
                    let figures = run.measure().await?;
                    let choice = Choice { way, workload, workers, load, seed, figures };
                    progress.print(&choice.to_string());
                    choices.push(choice);
                }
                // Another way begins.
                turn += 1;
            }
        }
    }
    Ok(Choices { plan, capacities, choices })
}

impl Run<'_> {
    async fn measure(&self) -> Result<RunFigures> {
        let Self { way, workload, workers, arrivals, plan, texts } = *self;
        let servers = servers::start(workload)?;
        let setting = Setting {
            endpoints: &servers.addresses(),
            workers,
            rules: way.rules(),
            interval: plan.interval,
            agent_flags: &[],
            epp: Some(&plan.epp),
        };
        let mut running = way.variant().start(setting).await?;
        let omniscient = (way == Way::Omniscient).then(|| OmniscientClient::new(&servers));
        let end = plan.warm_up + plan.phase;
        let clients = Clients::new(running.listener(), texts, omniscient, plan, end)?;
        let before = async {
            sleep_until(clients.measured_from()).await;
            servers.forget_requests();
            anyhow::Ok((servers.prefix_cache(), cpu_time(std::process::id())?, Instant::now()))
        };
        let sessions = join_all(arrivals.iter().map(|arrival| clients.session(arrival)));
        let (before, _) = tokio::join!(before, sessions);
        let (cache, cpu, begin) = before?;
        running.check_running()?;
        let mut figures = clients.into_figures();
        figures.of_expected = running.first_chunk_of_expected().await?;
        figures.cached = cached_share(counts_since(servers.prefix_cache(), cache));
        figures.busiest = busiest(&servers);
        figures.cores =
            cpu_time(std::process::id())?.saturating_sub(cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        print_failures(&format!("{way}, {}", workload.name()), &figures.failures);
        ensure!(figures.served() > 0, "{way} served no request");
        Ok(figures)
    }
}

/// Requests of the server with the maximum, as a multiple of the mean.
fn busiest(servers: &TimedServers) -> f64 {
    let requests = servers.take_requests();
    let all: usize = requests.iter().sum();
    requests.iter().max().copied().unwrap_or(0) as f64 * requests.len() as f64 / all.max(1) as f64
}
