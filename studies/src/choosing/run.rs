//! Runs a plan.

use super::capacities::Capacities;
use super::clients::Clients;
use super::figures::RunFigures;
use super::plan::{ChoosingPlan, Condition, Requests};
use super::report::{Choice, Choices};
use super::servers::{self, OmniscientClient};
use crate::epp::variant::Setting;
use crate::schedule::print_failures;
use crate::timed_servers::{TimedServers, cached_share, counts_since};
use crate::way::Way;
use anyhow::{Result, ensure};
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::program::process_tree::cpu_time;
use endpoint_picker_simulation::cell::source::ClosedLoop;
use futures_util::future::join_all;
use metrics_agent_replay::simulation::request::SegmentTexts;
use metrics_agent_replay::simulation::sessions::Arrival;
use std::sync::Mutex;
use std::time::Instant;
use tokio::time::sleep_until;

/// One run.
struct Run<'a> {
    way: Way,
    condition: Condition,
    seed: u64,
    traffic: &'a Traffic,
    plan: &'a ChoosingPlan,
    texts: &'a SegmentTexts,
}

/// The requests that the clients of a run send.
enum Traffic {
    Sessions(Vec<Arrival>),
    Loop(ClosedLoop),
}

/// Measures all in turns.
pub(crate) async fn measure(plan: ChoosingPlan, progress: &Progress) -> Result<Choices> {
    let texts = SegmentTexts::new();
    let mut choices = Vec::new();
    let mut capacities = Capacities::default();
    let mut turn = 0;
    for condition in plan.conditions() {
        for &seed in &plan.seeds {
            let traffic = match condition.requests {
                Requests::Open(workload, load) => {
                    let per_second = capacities.of(workload, progress) * load;
                    Traffic::Sessions(workload.arrivals(
                        per_second,
                        per_second,
                        plan.warm_up + plan.phase,
                        seed,
                    ))
                }
                Requests::Closed(_, closed) => Traffic::Loop(closed),
            };
            for way in in_turns(&plan.ways, turn) {
                let run = Run { way, condition, seed, traffic: &traffic, plan: &plan, texts: &texts };
                let choice = Choice { way, condition, seed, figures: run.measure().await? };
                progress.print(&choice.to_string());
                choices.push(choice);
            }
            // Another way begins.
            turn += 1;
        }
    }
    Ok(Choices { plan, capacities, choices })
}

impl Run<'_> {
    async fn measure(&self) -> Result<RunFigures> {
        let Self { way, condition, seed, traffic, plan, texts } = *self;
        let servers = servers::start(&condition.requests.fleet())?;
        let setting = Setting {
            endpoints: &servers.addresses(),
            workers: condition.workers,
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
        let sending = async {
            match traffic {
                Traffic::Sessions(arrivals) => {
                    join_all(arrivals.iter().map(|arrival| clients.session(arrival))).await;
                }
                Traffic::Loop(closed) => {
                    let all = Mutex::new(closed.conversations(seed));
                    let client = |_| clients.continue_conversations(&all, closed.pause);
                    join_all((0..closed.clients).map(client)).await;
                }
            }
        };
        let (before, ()) = tokio::join!(before, sending);
        let (cache, cpu, begin) = before?;
        running.check_running()?;
        let mut figures = clients.into_figures();
        figures.of_expected = running.first_chunk_of_expected().await?;
        figures.cached = cached_share(counts_since(servers.prefix_cache(), cache));
        figures.busiest = busiest(&servers);
        figures.cores =
            cpu_time(std::process::id())?.saturating_sub(cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
        print_failures(&format!("{way}, {condition}"), &figures.failures);
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
