//! The figures of the overload as tables.

use super::{DEMAND, SERVERS, Sample, WORKLOAD};
use crate::bench_epp::flow_control::FlowControlPlan;
use crate::bench_epp::flow_control::gate::Gate;
use crate::load::senders::{BANDS, TENANTS};
use crate::report::markdown::{met, table};
use crate::report::rounded;
use std::time::Duration;

/// The tenants of the low band share what is left from here on: until then the servers have room.
const BACKLOG_AFTER: Duration = Duration::from_secs(2);
/// Most difference of a tenant's share from a third.
const MOST_DIFFERENCE: f64 = 0.02;
/// Most of the high band's p90 under overload, as a multiple of that without other bands.
const MOST_OF_UNLOADED: f64 = 1.1;
/// Waits differ by this factor from run to run.
const NOISE: f64 = 1.05;

const HIGH: usize = 0;
const LOW: usize = 2;

/// A sample in one line.
pub(super) fn line(sample: &Sample) -> String {
    let p90 =
        [0, 1, 2].map(|band| format!("{} {}", BANDS[band], rounded(sample.overloaded.percentile(band, 0.9))));
    format!(
        "{}: p90 ms to the first token {}; high alone {}; {} failed",
        sample.gate,
        p90.join(", "),
        rounded(sample.unloaded.percentile(HIGH, 0.9)),
        failed(sample)
    )
}

fn failed(sample: &Sample) -> usize {
    sample.unloaded.failures.len() + sample.overloaded.failures.len()
}

/// The share of each tenant of the low band.
fn shares(sample: &Sample, plan: FlowControlPlan) -> [f64; 3] {
    let counts = sample.overloaded.by_tenant(LOW, BACKLOG_AFTER, plan.phase);
    let all: usize = counts.iter().sum();
    counts.map(|count| count as f64 / all as f64)
}

pub(super) fn tables(samples: &[Sample], plan: FlowControlPlan, capacity: f64) -> String {
    let demand = DEMAND.map(|band| rounded(band.iter().sum::<f64>() * 100.0));
    let all: f64 = DEMAND.iter().flatten().sum();
    let mut text = format!(
        "Requests as in {WORKLOAD}, {SERVERS} servers of {} requests/s together; for {} s {} % of that is asked for: {} % high, {} % normal, {} % low; \
         the answers of {} rounds together. Milliseconds to the first token, p50 / p90 / p99:\n\n",
        rounded(capacity),
        plan.phase.as_secs(),
        rounded(all * 100.0),
        demand[0],
        demand[1],
        demand[2],
        plan.rounds
    );
    let times = |sample: &Sample, band: usize| {
        [0.5, 0.9, 0.99].map(|share| rounded(sample.overloaded.percentile(band, share))).join(" / ")
    };
    let rows = samples.iter().map(|sample| {
        let Sample { gate, unloaded, overloaded } = sample;
        let [before, now] = [unloaded, overloaded].map(|answers| answers.percentile(HIGH, 0.9));
        let ratio = now / before;
        [
            gate.to_string(),
            times(sample, 0),
            times(sample, 1),
            times(sample, 2),
            rounded(before),
            format!("{} {}", rounded(ratio), aim(*gate, ratio <= MOST_OF_UNLOADED)),
            rounded(overloaded.took.as_secs_f64() / f64::from(plan.rounds)),
            failed(sample).to_string(),
        ]
    });
    let head = [
        "",
        "high",
        "normal",
        "low",
        "p90 of high alone",
        "overloaded beside it, ≤ 1.1",
        "all answered after s",
        "failed",
    ];
    // Writing into a string does not fail.
    let _ = table(&mut text, &head, rows);

    text.push_str("Shares of the tenants in the low band while all three wait, a third each by the rules; and our waits as a multiple of the EPP's:\n\n");
    let epp = samples.iter().find(|sample| sample.gate == Gate::Epp);
    let rows = samples.iter().map(|sample| {
        let shares = shares(sample, plan);
        let is_fair = shares.iter().all(|share| (share - 1.0 / 3.0).abs() <= MOST_DIFFERENCE);
        let shares = shares.map(|share| format!("{:.1} %", share * 100.0)).join(", ");
        let beside = |share: f64, band: usize| {
            epp.map_or(f64::NAN, |epp| {
                sample.overloaded.percentile(band, share) / epp.overloaded.percentile(band, share)
            })
        };
        let ratios: Vec<f64> =
            (0..BANDS.len()).flat_map(|band| [beside(0.5, band), beside(0.9, band)]).collect();
        let is_no_longer = ratios.iter().all(|ratio| *ratio <= NOISE);
        [
            sample.gate.to_string(),
            shares,
            aim(sample.gate, is_fair).to_owned(),
            ratios.iter().map(|ratio| rounded(*ratio)).collect::<Vec<_>>().join(" / "),
            aim(sample.gate, is_no_longer).to_owned(),
        ]
    });
    let head = [
        String::new(),
        format!("tenants {}", TENANTS.join(", ")),
        "within 2 %".to_owned(),
        "p50 / p90 of high, normal, low".to_owned(),
        format!("none above {NOISE}"),
    ];
    let _ = table(&mut text, &head, rows);
    text
}

/// Aims are ours.
fn aim(gate: Gate, is_met: bool) -> &'static str {
    if gate == Gate::Native { met(is_met) } else { "" }
}
