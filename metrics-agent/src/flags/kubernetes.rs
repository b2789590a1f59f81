//! Flags about a Kubernetes cluster.

use clap::Args;

use super::error::FlagError;
use super::values;
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
    /// What to watch; `None` unless a cluster is watched.
    pub fn settings(self, is_watched: bool, limits: Limits) -> Result<Option<Settings>, FlagError> {
        let Self { kubernetes_namespace: mut names, picker_config_map } = self;
        if !is_watched {
            let given = [
                (!names.is_empty(), "--kubernetes-namespace"),
                (picker_config_map.is_some(), "--picker-config-map"),
            ];
            return match given.into_iter().find(|(is_given, _)| *is_given) {
                Some((_, flag)) => Err(FlagError(format!("{flag} requires --kubernetes"))),
                None => Ok(None),
            };
        }
        names.sort();
        names.dedup();
        let namespaces = if names.iter().any(|name| name == "*") {
            Some(Namespaces::All)
        } else {
            (!names.is_empty()).then_some(Namespaces::Named(names))
        };
        Ok(Some(Settings { namespaces, picker_config_map, limits }))
    }
}
