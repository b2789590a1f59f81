//! A kubelet for pods that are processes: it binds pods to itself, starts the programs that stand for their
//! images, and reports what the API server expects of a node.
//!
//! It is real where the product notices: each pod has a network namespace with an address of its own, its
//! containers have the files, the environment, the user and the read-only root folder of their specification,
//! a projected token is one of the `TokenRequest` API, readiness follows the probe and the pod's readiness
//! gates, and a deleted pod's containers get their `preStop` hooks, SIGTERM and the grace period. It ignores
//! resources, affinity and taints, since there is one node. Routing by Services' cluster IPs is not there: a
//! DNS server leads from the names of Services to their ready pods, as from those of headless Services. A
//! Service of type `LoadBalancer` gets an address.

mod balancers;
mod container;
mod environment;
mod hooks;
mod names;
mod network;
mod pod;
mod probe;
mod scheduling;
mod status;
mod volumes;

use crate::cluster::Cluster;
use crate::namespace::Namespace;
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use network::Addresses;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// The name of the node.
pub(crate) const NODE: &str = "test-node";

/// The pause after a failed call of the API server.
const RETRY: Duration = Duration::from_millis(200);

/// The file that stands for a container image: its program, or all that an image without a program has.
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    program: PathBuf,
    path: &'static str,
}

impl Image {
    /// The image of a name without registry and path: `metrics-agent` for all tags but those of further
    /// images, such as `metrics-agent:1.2.3`. `program` is the file on this machine, and `path` its path in
    /// the image, which is also the entry point.
    pub fn new(name: impl Into<String>, program: PathBuf, path: &'static str) -> Self {
        Self { name: name.into(), program, path }
    }
}

/// A pod's readiness, as the API server has accepted it.
#[derive(Clone, Debug)]
pub struct ReadinessChange {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Its condition `Ready`.
    pub is_ready: bool,
    /// When the API server answered the change.
    pub at: Instant,
}

/// A running node; its pods end when it is dropped.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Kubelet>,
    _pods: AbortOnDropHandle<()>,
    _names: AbortOnDropHandle<()>,
    _balancers: AbortOnDropHandle<()>,
}

/// Parts that all pods of the node share.
struct Kubelet {
    client: Client,
    images: BTreeMap<String, Image>,
    addresses: Addresses,
    namespace: Namespace,
    /// The folders of the pods.
    folder: PathBuf,
    logs: PathBuf,
    api_server: SocketAddr,
    changes: Mutex<Vec<ReadinessChange>>,
}

impl Node {
    /// Starts it; the programs of pods write their logs into the folder of the cluster's logs.
    pub async fn start(cluster: &Cluster, images: impl IntoIterator<Item = Image>) -> Result<Self> {
        let namespace = Namespace::required()?;
        let client = cluster.client().await?;
        register(client.clone()).await.context("register the node")?;
        let folder = namespace.folder().join("pods");
        fs::create_dir_all(&folder)?;
        let shared = Arc::new(Kubelet {
            client: client.clone(),
            images: images.into_iter().map(|image| (image.name.clone(), image)).collect(),
            addresses: Addresses::default(),
            folder,
            logs: cluster.logs().to_owned(),
            api_server: cluster.api_server(),
            changes: Mutex::default(),
            namespace,
        });
        let pods = AbortOnDropHandle::new(tokio::spawn(scheduling::run_pods(shared.clone())));
        let names = names::serve(client.clone(), cluster.api_server()).await?;
        let names = AbortOnDropHandle::new(tokio::spawn(names));
        let balancers = AbortOnDropHandle::new(tokio::spawn(balancers::run(client)));
        Ok(Self { shared, _pods: pods, _names: names, _balancers: balancers })
    }

    /// All changes of readiness so far, in their order.
    ///
    /// # Panics
    ///
    /// When a thread has panicked while it recorded one.
    pub fn readiness_changes(&self) -> Vec<ReadinessChange> {
        self.shared.changes.lock().expect("no holder of this lock panics").clone()
    }
}

impl fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelet").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Kubelet {
    /// Program in place of an image.
    fn image(&self, reference: &str) -> Result<&Image> {
        let without_digest = reference.split_once('@').map_or(reference, |(name, _)| name);
        let last = without_digest.rsplit('/').next().unwrap_or(without_digest);
        let name = last.split_once(':').map_or(last, |(name, _)| name);
        let found = self.images.get(last).or_else(|| self.images.get(name));
        found.with_context(|| format!("no program stands for image {reference:?}"))
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn record(&self, namespace: &str, pod: &str, is_ready: bool) {
        let change =
            ReadinessChange { namespace: namespace.into(), pod: pod.into(), is_ready, at: Instant::now() };
        self.changes.lock().expect("no holder of this lock panics").push(change);
    }
}

/// Creates the node's object, without which the controllers leave its pods out of `EndpointSlices`.
async fn register(client: Client) -> Result<()> {
    let nodes: Api<KubeNode> = Api::all(client);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}});
    nodes.patch(NODE, &PatchParams::apply("test").force(), &Patch::Apply(node)).await?;
    let status = json!({"status": {
        "capacity": {"cpu": "64", "memory": "256Gi", "pods": "2000"},
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "2000"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}],
    }});
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Strategic(status)).await?;
    Ok(())
}
