//! Where the agent's plan comes from.

use super::acceptance::Acceptance;
use super::metrics::Metrics;
use crate::catalogue::watch::{self, PlanWatch};
use crate::catalogue::{Options, Plan, cluster};
use crate::runtime::tasks::Tasks;
use crate::sources::kubernetes::Cluster;

/// Where the agent's plan comes from: a cluster with the manifests beside it, manifests alone, or flags alone.
pub(super) struct PlanSources {
    pub(super) manifests: Option<watch::Settings>,
    pub(super) only_pool: Option<String>,
    pub(super) options: Options,
    pub(super) acceptance: Acceptance,
}

impl PlanSources {
    /// Follows the plan. `cluster` is the cluster that is watched.
    pub(super) fn watch(self, cluster: Option<&Cluster>, tasks: &Tasks, metrics: &Metrics) -> PlanWatch {
        let Self { manifests, only_pool, options, acceptance } = self;
        let reads = metrics.manifest_reads.clone();
        if let Some(cluster) = cluster {
            let settings = cluster::Settings {
                namespace: cluster.namespace.clone(),
                pool: only_pool,
                options,
                has_tls: acceptance.has_tls,
            };
            let path = manifests.map(|manifests| manifests.path);
            return PlanWatch::of_cluster(cluster.objects.objects(), settings, path, tasks, reads);
        }
        match manifests {
            Some(manifests) => {
                let path = manifests.path.clone();
                PlanWatch::start(manifests, tasks, reads, move |plan| acceptance.check(&path, plan))
            }
            None => PlanWatch::of(Plan::without_manifests(&options)),
        }
    }
}
