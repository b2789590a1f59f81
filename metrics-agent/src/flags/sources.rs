//! Flags about endpoints, manifests and Envoy's endpoint files.

use std::path::PathBuf;

use clap::Args;
use endpoint_picker::pool::Endpoint;
use metrics_agent_gateway::object_reports::ObjectReports;
use metrics_agent_gateway::object_reports::status::Parent;
use metrics_agent_sources::endpoints::{Declared, NamedServer, Sources};
use metrics_agent_sources::kubernetes::{ClusterSettings, Namespaces};
use metrics_agent_sources::names::Resolver;

use super::values::{self, FlagError, ServerFlag};
use crate::publish::eds::Target;

/// Sources of endpoints and policies; one of them is required.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sources, of which one is required")]
#[group(required = true, multiple = true)]
pub(super) struct SourceFlags {
    /// Kubernetes manifests in YAML or JSON, a file or a directory: `InferencePool`, `EndpointPickerConfig`,
    /// `InferenceObjective`, `InferenceModelRewrite` and `InferenceModel`; read again when they change.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,

    /// Watch a Kubernetes cluster: `InferencePool` and the other kinds, and the pods of the pools. The API
    /// server is the one of KUBECONFIG, otherwise of the pod's `ServiceAccount`, otherwise of ~/.kube/config.
    /// Manifests of --manifests are used too, such as a mounted `EndpointPickerConfig`.
    #[arg(long)]
    kubernetes: bool,

    /// A model server, with an IPv6 address in brackets; may be repeated. Its name is default/HOST:PORT. A
    /// host name is resolved by DNS again and again: each of its addresses is an endpoint, named
    /// default/HOST:PORT@ADDRESS.
    #[arg(long = "endpoint", value_name = "HOST:PORT", value_parser = values::server)]
    endpoint: Vec<ServerFlag>,

    /// Model servers in the EPP's file-discovery format (YAML or JSON); read again when it changes.
    #[arg(long, value_name = "PATH")]
    endpoints_file: Option<PathBuf>,
}

impl SourceFlags {
    pub(super) fn manifests(&self) -> Option<PathBuf> {
        self.manifests.clone()
    }

    pub(super) fn kubernetes(&self) -> bool {
        self.kubernetes
    }

    pub(super) fn sources(self) -> Result<Sources, FlagError> {
        let mut fixed = Declared::default();
        for server in self.endpoint {
            match server {
                ServerFlag::Address(address) => {
                    fixed.endpoints.push(Endpoint::new(format!("default/{address}"), address, Vec::new()));
                }
                ServerFlag::Named(host, port) => {
                    let name = format!("default/{host}:{port}");
                    fixed.named.push(NamedServer { name, host, port: Some(port), labels: Vec::new() });
                }
            }
        }
        let fixed = fixed.unique().map_err(|error| FlagError(format!("--endpoint: {error}")))?;
        Ok(Sources { fixed, file: self.endpoints_file, resolver: Resolver::default() })
    }
}

/// Limits on endpoints.
#[derive(Args, Debug)]
#[command(next_help_heading = "Endpoints")]
pub(super) struct EndpointLimits {
    /// Maximum number of endpoints of all sources together, and of one pool; larger sets are refused.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..))]
    max_endpoints: u16,
}

impl EndpointLimits {
    pub(super) fn max_endpoints(&self) -> usize {
        usize::from(self.max_endpoints)
    }
}

/// The file that Envoy watches.
#[derive(Args, Debug)]
#[command(next_help_heading = "Envoy")]
pub(super) struct EdsFlags {
    /// A file to write with a pool's endpoints, for the EDS (`path_config_source`) of Envoy's cluster. With
    /// several pools, `{pool}` in it is replaced by the pool's name.
    #[arg(long, value_name = "PATH")]
    eds_file: Option<PathBuf>,

    /// The name of Envoy's cluster; `{pool}` in it is replaced by the pool's name.
    #[arg(long, value_name = "NAME", default_value = "model-servers", requires = "eds_file")]
    eds_cluster: String,
}

impl EdsFlags {
    pub(super) fn target(self) -> Option<Target> {
        self.eds_file.map(|path| Target { path, cluster: self.eds_cluster })
    }
}

/// Flags about a Kubernetes cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub struct KubernetesFlags {
    /// A namespace whose pools are served; may be repeated; `*`: all of them. By default the pod's own, or
    /// the one of the kubeconfig's context. Pools of the only namespace may be named without it.
    #[arg(long, value_name = "NAMESPACE", value_parser = values::namespace)]
    kubernetes_namespace: Vec<String>,

    /// A `ConfigMap` with picker configurations: each key that ends in .yaml, .yml or .json is read like a
    /// file of --manifests.
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = values::object)]
    picker_config_map: Option<(Option<String>, String)>,

    /// Read the `ConfigMap`s with the label inference.networking.k8s.io/bbr-managed=true, of which each names
    /// a base model and its adapters, for body-based routing. Requires the right to list `ConfigMap`s in
    /// these namespaces.
    #[arg(long)]
    base_model_config_maps: bool,
}

impl KubernetesFlags {
    /// Objects to watch, and at most `max_pods` ready pods of one pool.
    pub fn settings(self, max_pods: usize) -> ClusterSettings {
        let Self { kubernetes_namespace: mut names, picker_config_map, base_model_config_maps: base_models } =
            self;
        names.sort();
        names.dedup();
        let namespaces = if names.iter().any(|name| name == "*") {
            Some(Namespaces::All)
        } else {
            (!names.is_empty()).then_some(Namespaces::Named(names))
        };
        ClusterSettings { namespaces, picker_config_map, base_models, routes: None, max_pods }
    }

    /// Refuses flags that have no effect, because no cluster is watched. `requirement` is the flag that they
    /// need.
    pub fn refuse(&self, requirement: &str) -> Result<(), FlagError> {
        let given = [
            (!self.kubernetes_namespace.is_empty(), "--kubernetes-namespace"),
            (self.picker_config_map.is_some(), "--picker-config-map"),
            (self.base_model_config_maps, "--base-model-config-maps"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(FlagError(format!("{flag} requires {requirement}"))),
            None => Ok(()),
        }
    }
}

/// Flags about reports that the agent writes to a cluster's objects.
#[derive(Args, Debug)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ObjectReportFlags {
    /// Create an Event on each object that is refused, with the reason. Requires the right to create Events.
    #[arg(long, requires = "kubernetes")]
    kubernetes_events: bool,

    /// Write the conditions Accepted and `ResolvedRefs` of this Gateway into the status of pools, unless
    /// another controller reports on their parents. Without a namespace the Gateway is in the pool's.
    /// Requires the right to patch inferencepools/status.
    #[arg(long, value_name = "[NAMESPACE/]GATEWAY", requires = "kubernetes", value_parser = values::object)]
    kubernetes_status: Option<(Option<String>, String)>,
}

impl ObjectReportFlags {
    pub(super) fn reports(self) -> ObjectReports {
        let status = self.kubernetes_status.map(|(namespace, name)| Parent { namespace, name });
        ObjectReports { events: self.kubernetes_events, status }
    }
}
