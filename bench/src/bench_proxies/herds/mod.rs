//! Herds: proxies without each other's latest requests send them to the same best server.

mod count;

use self::count::HerdCount;
use super::arrangement::Arrangement;
use super::choices::Setting;
use super::fleet::{Fleet, FleetPlan};
use crate::in_turns::in_turns;
use crate::load::AnswerKind;
use crate::load::schedule::Schedule;
use crate::report::markdown::table;
use crate::report::{Progress, median, rounded};
use crate::timed_servers::TimedServers;
use anyhow::{Result, ensure};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::configurations::LEAST_LOADED;
use endpoint_picker_harness::{Filter, client};
use endpoint_picker_model_server::ServiceTimes;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

const PER_SECOND: f64 = 500.0;
const SERVERS: usize = 24;
/// Tokens of an answer: as many as [`STEP`] makes 80 to 160 ms of, so that the servers are busy to five eighths.
const ANSWER: std::ops::Range<usize> = 8..17;
const STEP: Duration = Duration::from_millis(10);
/// Requests that a server works on at a time. With one more it is busy.
const PLACES: usize = 4;
/// Starting and ending a fleet takes about this long.
const AROUND: Duration = Duration::from_secs(5);

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HerdPlan {
    pub(crate) settings: &'static [Setting],
    pub(crate) rounds: u32,
    /// How long requests are sent.
    pub(crate) phase: Duration,
    /// Determines all requests, their times and their proxies.
    pub(crate) seed: u64,
    pub(crate) filter: Filter,
}

pub(crate) const FEW_SETTINGS: &[Setting] =
    &[(Arrangement::Apart, 1), (Arrangement::Store, 4), (Arrangement::Apart, 4)];

/// The figures of one setting.
struct Sample {
    setting: Setting,
    count: HerdCount,
    mean_ms: f64,
    p99_ms: f64,
    failed: usize,
}

impl HerdPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        (self.phase + AROUND) * u32::try_from(self.settings.len()).unwrap_or(u32::MAX) * self.rounds
    }
}

/// Measures every setting in turns; returns the table.
pub(crate) async fn measure(plan: HerdPlan, progress: &Progress) -> Result<String> {
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        let schedule = schedule(plan, plan.seed + u64::from(round));
        for setting in in_turns(plan.settings, round) {
            let sample = turn(plan, setting, &schedule).await?;
            let (arrangement, proxies) = setting;
            progress.print(&format!(
                "herds, round {}: {proxies} × {arrangement}: {} of {} requests met a busy server while another was idle, mean {:.0} ms, {} failed",
                round + 1,
                sample.count.herded,
                sample.count.requests,
                sample.mean_ms,
                sample.failed
            ));
            samples.push(sample);
        }
    }
    Ok(report(plan, &samples))
}

/// Requests that have nothing in common.
fn schedule(plan: HerdPlan, seed: u64) -> Schedule {
    let mut rng = SplitMix64::new(!seed);
    let mut number = 0_u64;
    let body = || {
        number += 1;
        let mut body = client::chat(&format!("{number:08} is a new prompt"));
        body["max_tokens"] = json!(ANSWER.start + rng.below(ANSWER.len()));
        body.to_string()
    };
    Schedule::of_bodies(body, AnswerKind::Completion, PER_SECOND, plan.phase, seed)
}

/// One setting in front of servers of its own.
async fn turn(plan: HerdPlan, setting: Setting, schedule: &Schedule) -> Result<Sample> {
    let times = ServiceTimes {
        max_running: PLACES,
        step: STEP,
        step_per_sequence: Duration::ZERO,
        prefill_per_token: Duration::ZERO,
        ..ServiceTimes::default()
    };
    let servers = TimedServers::start(SERVERS, times)?;
    let endpoints = servers.addresses();
    let (arrangement, proxies) = setting;
    let filter = plan.filter;
    let rules = Some(LEAST_LOADED);
    let mut fleet =
        Fleet::start(FleetPlan { arrangement, proxies, filter, endpoints: &endpoints, rules, epp: None })
            .await?;
    servers.forget_requests();
    let outcome = schedule.send(&fleet.listeners()).await?;
    fleet.check_running()?;
    for failure in outcome.failures.iter().take(3) {
        eprintln!("herds, {proxies} × {arrangement}: not served: {failure}");
    }
    ensure!(!outcome.first_byte.is_empty(), "no request was served");
    Ok(Sample {
        setting,
        count: HerdCount::of(&servers.busy_times(), PLACES),
        mean_ms: outcome.mean(),
        p99_ms: outcome.percentile(0.99),
        failed: outcome.failures.len(),
    })
}

fn report(plan: HerdPlan, samples: &[Sample]) -> String {
    let head = [
        "proxies",
        "",
        "% of requests that met a busy server while another was idle",
        "mean ms of a request",
        "p99",
        "failed",
    ];
    let rows = plan.settings.iter().map(|&setting| {
        let of: Vec<&Sample> = samples.iter().filter(|sample| sample.setting == setting).collect();
        let figure =
            |figure: fn(&Sample) -> f64| rounded(median(of.iter().map(|sample| figure(sample)).collect()));
        let (arrangement, proxies) = setting;
        [
            proxies.to_string(),
            if proxies == 1 { String::new() } else { arrangement.to_string() },
            figure(|sample| sample.count.share() * 100.0),
            figure(|sample| sample.mean_ms),
            figure(|sample| sample.p99_ms),
            of.iter().map(|sample| sample.failed).sum::<usize>().to_string(),
        ]
    });
    let mut text = String::new();
    // A String does not fail.
    let _ = writeln!(
        text,
        "{PER_SECOND} requests/s to {SERVERS} servers that work on {PLACES} requests at a time; the server with the fewest requests in flight gets the next one:\n"
    );
    let _ = table(&mut text, &head, rows);
    text
}
