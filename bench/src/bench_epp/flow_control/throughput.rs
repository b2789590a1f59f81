//! Answers per second with a queue and without one, where servers saturate in 200 ms and readings are 50 ms old: a gate that opens
//! too late leaves them idle.

use super::FlowControlPlan;
use crate::bench_epp::rules::Rules;
use crate::bench_epp::variant::{Setting, USUAL_INTERVAL, Variant};
use crate::epp::PoolSource;
use crate::in_turns::in_turns;
use crate::load::AnswerKind;
use crate::load::schedule::{Outcome, Schedule};
use crate::report::markdown::{met, table};
use crate::report::{Progress, median, rounded};
use anyhow::Result;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_model_server::{ModelServer, ServiceTimes};
use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

const SERVERS: usize = 4;
/// Tokens of every answer.
const TOKENS: u32 = 8;
/// Each server answers 100 requests a second.
const TIMES: ServiceTimes = ServiceTimes {
    max_running: 4,
    step: Duration::from_millis(5),
    step_per_sequence: Duration::ZERO,
    prefill_per_token: Duration::ZERO,
    max_batched_tokens: 2048,
    kv_blocks: 8192,
    max_loras: 0,
    lora_load: Duration::ZERO,
    stream_interval: 8,
};
/// A quarter more than they answer: five requests wait at each after 200 ms, where the detector counts it as saturated.
const DEMAND: f64 = 1.25;
const LEAST_OF_NO_QUEUE: f64 = 0.98;

const CONFIGURATIONS: [&str; 2] = ["default", "flow-control"];

/// Measures the default with and without flow control, in turns; returns a table.
pub(super) async fn measure(plan: FlowControlPlan, progress: &Progress) -> Result<String> {
    let step = TIMES.step.as_secs_f64() * f64::from(TOKENS);
    let capacity = (SERVERS * TIMES.max_running) as f64 / step;
    let mut samples: Vec<(&str, Outcome)> = Vec::new();
    for round in 0..plan.rounds {
        let seed = plan.seed + u64::from(round);
        for configuration in in_turns(&CONFIGURATIONS, round) {
            let outcome = turn(configuration, capacity, plan, seed).await?;
            progress.print(&format!(
                "round {}, {configuration}: {} answers/s, p50 {} ms, {} failed",
                round + 1,
                rounded(outcome.per_second()),
                rounded(outcome.percentile(0.5)),
                outcome.failures.len()
            ));
            samples.push((configuration, outcome));
        }
    }
    let figures = |configuration: &str, figure: fn(&Outcome) -> f64| {
        let own = samples.iter().filter(|(of, _)| *of == configuration);
        own.map(|(_, outcome)| figure(outcome)).collect::<Vec<f64>>()
    };
    let per_second = |configuration| figures(configuration, Outcome::per_second);
    let ratios = per_second("flow-control")
        .into_iter()
        .zip(per_second("default"))
        .map(|(with, without)| with / without);
    let ratio = median(ratios.collect());
    let mut text = format!(
        "{SERVERS} servers of {} requests/s together, {} % of that asked for during {} s; readings every 50 ms, `utilization-detector` as by \
         default; medians of {} rounds:\n\n",
        rounded(capacity),
        rounded(DEMAND * 100.0),
        plan.phase.as_secs(),
        plan.rounds
    );
    let rows = CONFIGURATIONS.map(|configuration| {
        let failed: usize = samples
            .iter()
            .filter(|(of, _)| *of == configuration)
            .map(|(_, outcome)| outcome.failures.len())
            .sum();
        [
            configuration.to_owned(),
            rounded(median(per_second(configuration))),
            rounded(median(figures(configuration, |outcome| outcome.percentile(0.5)))),
            rounded(median(figures(configuration, |outcome| outcome.percentile(0.99)))),
            failed.to_string(),
        ]
    });
    table(&mut text, &["", "answers/s until the last", "p50 ms to the first token", "p99", "failed"], rows)?;
    writeln!(
        text,
        "With the queue beside without: {} (aim ≥ {LEAST_OF_NO_QUEUE}: {}).",
        rounded(ratio),
        met(ratio >= LEAST_OF_NO_QUEUE)
    )?;
    Ok(text)
}

async fn turn(
    configuration: &'static str,
    capacity: f64,
    plan: FlowControlPlan,
    seed: u64,
) -> Result<Outcome> {
    let start = |_| ModelServer::start_with_service_times("server", TIMES);
    let servers = (0..SERVERS).map(start).collect::<Result<Vec<_>>>()?;
    let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
    let setting = Setting {
        endpoints: &endpoints,
        workers: 1,
        rules: Rules::Example(configuration),
        interval: USUAL_INTERVAL,
        epp: None,
        pool: PoolSource::File,
    };
    let mut running = Variant::Filter(Filter::Native).start(setting).await?;
    let mut numbers = 0_u64..;
    let body = || {
        let mut body = client::chat(&format!("question {:?}", numbers.next()));
        (body["max_tokens"], body["stream"]) = (TOKENS.into(), true.into());
        body.to_string()
    };
    let schedule = Schedule::of_bodies(body, AnswerKind::Stream, capacity * DEMAND, plan.phase, seed);
    let outcome = schedule.send(&[running.listener()]).await?;
    running.check_running()?;
    Ok(outcome)
}
