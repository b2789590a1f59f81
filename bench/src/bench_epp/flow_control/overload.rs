//! Half as many requests again as the servers can answer, of three bands and three tenants.

mod sending;
mod tables;

use super::FlowControlPlan;
use super::gate::Gate;
use crate::bench_epp::rules::Rules;
use crate::load::capacity;
use crate::load::senders::{Sender, schedule};
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

/// The answers of one queue.
#[derive(Debug)]
struct Sample {
    gate: Gate,
    /// The high band alone.
    unloaded: Answers,
    overloaded: Answers,
}

/// Measures both queues; returns the tables.
pub(super) async fn measure(
    plan: FlowControlPlan,
    epp: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<String> {
    let capacity = capacity::of(WORKLOAD, SERVERS, plan.seed);
    let mut requests = WORKLOAD.requests(plan.seed);
    let mut drawn = |rate: &dyn Fn(Sender) -> f64, lasting| schedule(&mut requests, rate, lasting, plan.seed);
    let demand = |Sender { band, tenant }| capacity * DEMAND[band][tenant];
    let senders = Sender::all().count() as f64;
    let warm_up = drawn(&|_| capacity * WARM_UP / senders, WARM_UP_LASTS);
    let overload = drawn(&demand, plan.phase);
    let unloaded: Vec<_> = overload.iter().filter(|sent| sent.sender.band == 0).cloned().collect();
    let mut samples = Vec::new();
    for gate in Gate::BOTH {
        let times = WORKLOAD.service_times();
        let mut gated = gate.start(Rules::Queue("overload"), SERVERS, times, epp, cluster).await?;
        sending::send(&gated, &warm_up).await?;
        let sample = Sample {
            gate,
            unloaded: sending::send(&gated, &unloaded).await?,
            overloaded: sending::send(&gated, &overload).await?,
        };
        gated.running.check_running()?;
        progress.print(&tables::line(&sample));
        samples.push(sample);
    }
    Ok(tables::tables(&samples, plan, capacity))
}
