//! Answers per second with a queue and without one, where servers saturate in 200 ms and readings are 50 ms old: a gate that opens
//! too late leaves them idle. The same with the EPP's queue.

use super::FlowControlPlan;
use super::gate::Gate;
use crate::bench_epp::rules::Rules;
use crate::bench_epp::variant::{Setting, USUAL_INTERVAL};
use crate::epp::PoolSource;
use crate::in_turns::in_turns;
use crate::load::AnswerKind;
use crate::load::schedule::{Outcome, Schedule};
use crate::report::markdown::{met, table};
use crate::report::{Progress, median, rounded};
use anyhow::Result;
use endpoint_picker_harness::client;
use endpoint_picker_model_server::{ModelServer, ServiceTimes};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const SERVERS: usize = 4;
/// Tokens of every answer.
const TOKENS: u32 = 8;
/// Each server answers 50 requests a second.
const TIMES: ServiceTimes = ServiceTimes {
    max_running: 4,
    step: Duration::from_millis(10),
    step_per_sequence: Duration::ZERO,
    prefill_per_token: Duration::ZERO,
    max_batched_tokens: 2048,
    kv_blocks: 8192,
    max_loras: 0,
    lora_load: Duration::ZERO,
    stream_interval: 8,
};
/// Half as many again as they answer: five requests wait at each after 200 ms, where the detector counts it as saturated.
const DEMAND: f64 = 1.5;
const LEAST_OF_NO_QUEUE: f64 = 0.98;

const CONFIGURATIONS: [Configuration; 3] =
    [Configuration::NoQueue, Configuration::DefaultRules, Configuration::Example];

/// The rules of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Configuration {
    /// The default, without flow control.
    NoQueue,
    /// The default with flow control.
    DefaultRules,
    /// The example with flow control.
    Example,
}

/// The outcome of one turn.
#[derive(Debug)]
struct Sample {
    gate: Gate,
    configuration: Configuration,
    outcome: Outcome,
}

impl Configuration {
    fn rules(self) -> Rules {
        match self {
            Self::NoQueue => Rules::Example("default"),
            Self::DefaultRules => Rules::Queue("default"),
            Self::Example => Rules::Example("flow-control"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NoQueue => "no queue",
            Self::DefaultRules => "queue, default rules",
            Self::Example => "queue, `flow-control.yaml`",
        }
    }
}

/// How long all turns of a round last, without their starts.
pub(super) fn expected(plan: FlowControlPlan, start: Duration) -> Duration {
    // Until all that waited at the end are answered, by servers that stand idle for a quarter of the time.
    let all = plan.phase.mul_f64(DEMAND / 0.75);
    turns().map(|_| start + all).sum()
}

/// The turns of a round.
fn turns() -> impl Iterator<Item = (Gate, Configuration)> {
    CONFIGURATIONS.into_iter().flat_map(|configuration| Gate::BOTH.map(|gate| (gate, configuration)))
}

/// Measures both pickers, in turns; returns a table.
pub(super) async fn measure(plan: FlowControlPlan, epp: &Path, progress: &Progress) -> Result<String> {
    let step = TIMES.step.as_secs_f64() * f64::from(TOKENS);
    let capacity = (SERVERS * TIMES.max_running) as f64 / step;
    let turns: Vec<_> = turns().collect();
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        let seed = plan.seed + u64::from(round);
        for (gate, configuration) in in_turns(&turns, round) {
            let outcome = turn(gate, configuration, capacity, plan, seed, epp).await?;
            progress.print(&format!(
                "round {}, {gate}, {}: {} answers/s, p50 {} ms, {} failed",
                round + 1,
                configuration.name(),
                rounded(outcome.per_second()),
                rounded(outcome.percentile(0.5)),
                outcome.failures.len()
            ));
            samples.push(Sample { gate, configuration, outcome });
        }
    }
    let mut text = format!(
        "{SERVERS} servers of {} requests/s together, {} % of that asked for during {} s; readings every 50 ms, `utilization-detector` as by \
         default; medians of {} rounds, beside no queue of the ratios of the rounds (aim ≥ {LEAST_OF_NO_QUEUE}):\n\n",
        rounded(capacity),
        rounded(DEMAND * 100.0),
        plan.phase.as_secs(),
        plan.rounds
    );
    let rows = turns.iter().map(|&(gate, configuration)| row(&samples, gate, configuration));
    let head = [
        "",
        "rules",
        "answers/s until the last",
        "beside no queue",
        "p50 ms to the first token",
        "p99",
        "failed",
    ];
    table(&mut text, &head, rows)?;
    Ok(text)
}

fn row(samples: &[Sample], gate: Gate, configuration: Configuration) -> [String; 7] {
    let figures = |configuration: Configuration, figure: fn(&Outcome) -> f64| {
        let own =
            samples.iter().filter(|sample| (sample.gate, sample.configuration) == (gate, configuration));
        own.map(|sample| figure(&sample.outcome)).collect::<Vec<f64>>()
    };
    let per_second = figures(configuration, Outcome::per_second);
    let without = figures(Configuration::NoQueue, Outcome::per_second);
    let ratio = median(per_second.iter().zip(without).map(|(with, without)| with / without).collect());
    let is_aim = (gate, configuration) == (Gate::Native, Configuration::Example);
    let aim = if is_aim { met(ratio >= LEAST_OF_NO_QUEUE) } else { "" };
    let failed = figures(configuration, |outcome| outcome.failures.len() as f64).iter().sum::<f64>();
    [
        gate.to_string(),
        configuration.name().to_owned(),
        rounded(median(per_second)),
        format!("{ratio:.3} {aim}").trim_end().to_owned(),
        rounded(median(figures(configuration, |outcome| outcome.percentile(0.5)))),
        rounded(median(figures(configuration, |outcome| outcome.percentile(0.99)))),
        failed.to_string(),
    ]
}

async fn turn(
    gate: Gate,
    configuration: Configuration,
    capacity: f64,
    plan: FlowControlPlan,
    seed: u64,
    epp: &Path,
) -> Result<Outcome> {
    let start = |_| ModelServer::start_with_service_times("server", TIMES);
    let servers = (0..SERVERS).map(start).collect::<Result<Vec<_>>>()?;
    let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
    let setting = Setting {
        endpoints: &endpoints,
        workers: 1,
        rules: configuration.rules(),
        interval: USUAL_INTERVAL,
        epp: Some(epp),
        pool: PoolSource::File,
    };
    let mut running = gate.variant().start(setting).await?;
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
