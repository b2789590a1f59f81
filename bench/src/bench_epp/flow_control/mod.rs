//! Flow control beside the EPP's: the native module and the EPP with its gate `flowControl` on, in the same Envoy, in front of the same servers,
//! with the same requests at the same moments.

mod gate;
mod objects;
mod order;
mod overload;
mod throughput;

use crate::report::Progress;
use anyhow::Result;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Cluster, Crds};
use std::path::Path;
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowControlPlan {
    /// Rounds of the overload and of the throughput.
    pub(crate) rounds: u32,
    /// How long more requests are sent than the servers can answer.
    pub(crate) phase: Duration,
    /// Determines all requests and their times.
    pub(crate) seed: u64,
}

impl FlowControlPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let cluster = Duration::from_secs(20);
        let start = Duration::from_secs(4);
        let overload = (start + self.phase * 3) * 2;
        let order = (start + Duration::from_secs(3)) * 2;
        cluster + order + (overload + throughput::expected(*self, start)) * self.rounds
    }
}

/// Measures; returns the tables.
pub(crate) async fn measure(plan: FlowControlPlan, epp: &Path, progress: &Progress) -> Result<String> {
    // The EPP reads priorities only from an API server.
    let cluster = Cluster::start(&tools::root().join("tests/logs/bench-flow-control")).await?;
    cluster.install(&[Crds::InferenceExtension, Crds::LlmD]).await?;
    progress.print("the API server is ready");
    let order = order::measure(plan, epp, &cluster, progress).await?;
    let overload = overload::measure(plan, epp, &cluster, progress).await?;
    drop(cluster);
    let throughput = throughput::measure(plan, epp, progress).await?;
    Ok(format!("{order}\n{overload}\n{throughput}"))
}
