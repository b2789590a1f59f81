//! Half as many requests again as the servers can answer, of three bands and three tenants.

mod sending;
mod tables;

use super::FlowControlPlan;
use super::gate::Gate;
use crate::bench_epp::rules::Rules;
use crate::in_turns::in_turns;
use crate::load::capacity;
use crate::load::senders::{Sender, Sent, schedule};
use crate::load::workload::Workload;
use crate::report::Progress;
use anyhow::Result;
use endpoint_picker_kube::Cluster;
use sending::Answers;
use std::path::Path;
use std::time::Duration;

const WORKLOAD: Workload = Workload::Conversations;
const SERVERS: usize = 4;

/// Parts of the capacity that the tenants of each band ask for. Those of the low band ask for more than is left, each for more than
/// its share of that.
const DEMAND: [[f64; 3]; 3] = [[0.05, 0.05, 0.05], [0.1, 0.1, 0.1], [0.5, 0.3, 0.25]];

/// Requests sent before, to fill the caches: this part of the capacity, evenly.
const WARM_UP: f64 = 0.5;
const WARM_UP_LASTS: Duration = Duration::from_secs(3);

/// The answers of one queue, in a round or in all of them.
#[derive(Debug)]
struct Sample {
    gate: Gate,
    /// The high band alone.
    unloaded: Answers,
    overloaded: Answers,
}

/// Measures both queues, in turns; returns the tables.
pub(super) async fn measure(
    plan: FlowControlPlan,
    epp: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<String> {
    let capacity = capacity::of(WORKLOAD, SERVERS, plan.seed);
    let mut samples =
        Gate::BOTH.map(|gate| Sample { gate, unloaded: Answers::default(), overloaded: Answers::default() });
    for round in 0..plan.rounds {
        let sent = RoundRequests::drawn(plan, round, capacity);
        for gate in in_turns(&Gate::BOTH, round) {
            let sample = turn(gate, &sent, epp, cluster).await?;
            progress.print(&format!("round {}, {}", round + 1, tables::line(&sample)));
            samples.iter_mut().filter(|of_all| of_all.gate == gate).for_each(|of_all| {
                of_all.unloaded.extend(&sample.unloaded);
                of_all.overloaded.extend(&sample.overloaded);
            });
        }
    }
    Ok(tables::tables(&samples, plan, capacity))
}

/// The requests of a round, the same for both queues.
struct RoundRequests {
    warm_up: Vec<Sent>,
    overload: Vec<Sent>,
}

impl RoundRequests {
    fn drawn(plan: FlowControlPlan, round: u32, capacity: f64) -> Self {
        let seed = plan.seed + u64::from(round);
        let mut requests = WORKLOAD.requests(seed);
        let mut drawn = |rate: &dyn Fn(Sender) -> f64, lasting| schedule(&mut requests, rate, lasting, seed);
        let senders = Sender::all().count() as f64;
        let warm_up = drawn(&|_| capacity * WARM_UP / senders, WARM_UP_LASTS);
        let demand = |Sender { band, tenant }| capacity * DEMAND[band][tenant];
        Self { warm_up, overload: drawn(&demand, plan.phase) }
    }
}

async fn turn(gate: Gate, sent: &RoundRequests, epp: &Path, cluster: &Cluster) -> Result<Sample> {
    let times = WORKLOAD.service_times();
    let mut gated = gate.start(Rules::Queue("overload"), SERVERS, times, epp, cluster).await?;
    sending::send(&gated, &sent.warm_up).await?;
    let unloaded: Vec<_> = sent.overload.iter().filter(|sent| sent.sender.band == 0).cloned().collect();
    let unloaded = sending::send(&gated, &unloaded).await?;
    let overloaded = sending::send(&gated, &sent.overload).await?;
    gated.running.check_running()?;
    Ok(Sample { gate, unloaded, overloaded })
}
