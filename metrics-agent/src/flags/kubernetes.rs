//! Flags about a Kubernetes cluster.

use clap::Args;

use super::error::FlagError;
use super::values;
use crate::publish::cluster::ObjectReports;
use crate::publish::cluster::status::Parent;
use crate::sources::kubernetes::{Limits, Namespaces, Settings};

/// Flags about a Kubernetes cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesFlags {
    /// A namespace whose pools are served; may be repeated; `*`: all of them. By default the pod's own, or the one of the
    /// kubeconfig's context. Pools of the only namespace may be named without it.
    #[arg(long, value_name = "NAMESPACE", value_parser = values::namespace)]
    kubernetes_namespace: Vec<String>,

    /// A `ConfigMap` with picker configurations: each key that ends in .yaml, .yml or .json is read like a file of --manifests.
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = values::object)]
    picker_config_map: Option<(Option<String>, String)>,
}

impl KubernetesFlags {
    /// What to watch.
    pub fn settings(self, limits: Limits) -> Settings {
        let Self { kubernetes_namespace: mut names, picker_config_map } = self;
        names.sort();
        names.dedup();
        let namespaces = if names.iter().any(|name| name == "*") {
            Some(Namespaces::All)
        } else {
            (!names.is_empty()).then_some(Namespaces::Named(names))
        };
        Settings { namespaces, picker_config_map, limits }
    }

    /// Refuses flags that have no effect, because no cluster is watched. `requirement` is the flag that they need.
    pub fn refuse(&self, requirement: &str) -> Result<(), FlagError> {
        let given = [
            (!self.kubernetes_namespace.is_empty(), "--kubernetes-namespace"),
            (self.picker_config_map.is_some(), "--picker-config-map"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(FlagError(format!("{flag} requires {requirement}"))),
            None => Ok(()),
        }
    }
}

/// Flags about what is written to a cluster.
#[derive(Args, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ObjectReportFlags {
    /// Create an Event on each object that is refused, with the reason. Requires the right to create Events.
    #[arg(long, requires = "kubernetes")]
    kubernetes_events: bool,

    /// Write the conditions Accepted and `ResolvedRefs` of this Gateway into the status of pools, unless another controller reports on
    /// their parents. Without a namespace the Gateway is in the pool's. Requires the right to patch inferencepools/status.
    #[arg(long, value_name = "[NAMESPACE/]GATEWAY", requires = "kubernetes", value_parser = values::object)]
    kubernetes_status: Option<(Option<String>, String)>,
}

impl ObjectReportFlags {
    pub(super) fn reports(self) -> ObjectReports {
        let status = self.kubernetes_status.map(|(namespace, name)| Parent { namespace, name });
        ObjectReports { events: self.kubernetes_events, status }
    }
}
