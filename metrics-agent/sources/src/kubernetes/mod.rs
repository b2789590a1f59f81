//! Pools, their policies and their pods, as a Kubernetes API server has them.
//!
//! [`objects`] and [`pods`] each keep some watches and publish what these have read; [`watch`] is one of
//! them, over the [`client`].

mod client;
mod objects;
mod pods;
mod services;
mod watch;

pub use client::{ApiError, Client, ConnectError, Lines, Reason, ResponseBody};
use metrics_agent_support::runtime::Tasks;
pub use objects::{
    BASE_MODEL_LABEL, ClusterObject, ClusterObjects, ConfigMaps, MAX_OBJECTS, ObjectId, ObjectWatches,
    ObjectsResult, PickerConfigMap,
};
pub use pods::{PendingPods, Pod, PodSelector, PodWatches, ReadyPods};
pub use services::{ServiceWatches, Services, WatchedServices};
pub use watch::WatchMetrics;

/// Objects to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The namespaces of pools and policies; `None`: the pod's own, or the one of the kubeconfig's context.
    pub namespaces: Option<Namespaces>,
    /// The `ConfigMap` with picker configurations; without a namespace it is in the agent's own.
    pub picker_config_map: Option<(Option<String>, String)>,
    /// Whether `ConfigMap`s of base models are read, which have a label.
    pub base_models: bool,
    /// Watch the `HTTPRoute`s that lead to pools, and these Services that pools name; `None`: neither.
    pub routes: Option<WatchedServices>,
    /// Maximum number of ready pods of one pool.
    pub max_pods: usize,
}

/// Namespaces to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// All.
    All,
    /// These.
    Named(Vec<String>),
}

/// A cluster that is watched until dropped.
#[derive(Debug)]
pub struct Cluster {
    /// The client, for reports to the API server.
    pub client: Client,
    /// The namespace of pools that are named without one: the only watched one, otherwise the agent's own.
    pub namespace: String,
    /// The watches of the pods, which the pools' selectors start.
    pub pods: PodWatches,
    /// The watches of the objects of all kinds.
    pub objects: ObjectWatches,
    /// The watches of routes and Services, if they are read.
    pub routes: Option<(ObjectWatches, ServiceWatches)>,
}

impl Cluster {
    /// Reads the configuration, and watches the objects from now on. An API server that cannot be reached is
    /// not an error.
    pub async fn start(
        settings: ClusterSettings,
        tasks: &Tasks,
        metrics: &WatchMetrics,
    ) -> Result<Self, ConnectError> {
        let ClusterSettings { namespaces, picker_config_map, base_models, routes, max_pods } = settings;
        let client = Client::connect().await?;
        let own = client.namespace().to_owned();
        let namespaces = namespaces.unwrap_or_else(|| Namespaces::Named(vec![own.clone()]));
        let config_map = picker_config_map.map(|(namespace, name)| PickerConfigMap {
            namespace: namespace.unwrap_or_else(|| own.clone()),
            name,
        });
        let config_maps = ConfigMaps { picker: config_map, base_models };
        let objects = ObjectWatches::start(&client, &namespaces, config_maps, tasks, metrics);
        let routes = routes.map(|services| {
            let routes = ObjectWatches::of_routes(&client, &namespaces, tasks, metrics);
            (routes, ServiceWatches::start(&client, &namespaces, services, tasks, metrics))
        });
        let pods = PodWatches::new(client.clone(), max_pods, tasks.clone(), metrics.clone());
        let namespace = match namespaces {
            Namespaces::Named(mut names) if names.len() == 1 => names.remove(0),
            Namespaces::Named(_) | Namespaces::All => own,
        };
        Ok(Self { client, namespace, pods, objects, routes })
    }
}
