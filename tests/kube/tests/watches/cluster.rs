//! The cluster of these tests: API server and etcd without nodes, whose pods exist on paper.

use std::net::Ipv4Addr;

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Cluster, Crds};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
static TURN: RwLock<()> = RwLock::const_new(());

/// A test's turn with the cluster: alone, or at the same time as others.
pub(crate) struct Turn {
    pub(crate) cluster: &'static Cluster,
    pub(crate) client: Client,
    /// A namespace of this test.
    pub(crate) namespace: String,
    _permit: Permit,
}

/// Held for the drop at the end of the turn.
#[expect(dead_code, reason = "the guards are dropped, not read")]
enum Permit {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// A turn of a test that changes only its own namespaces. `InferenceObjective` and
    /// `InferenceModelRewrite` of llm-d are not installed at first.
    pub(crate) async fn begin(prefix: &str) -> Self {
        Self::with(prefix, Permit::Shared(TURN.read().await)).await
    }

    /// A turn of a test that stops the API server, changes the installed kinds, or measures. No other test
    /// has a turn with this cluster then.
    pub(crate) async fn begin_alone(prefix: &str) -> Self {
        Self::with(prefix, Permit::Alone(TURN.write().await)).await
    }

    async fn with(prefix: &str, permit: Permit) -> Self {
        let start = || async {
            let cluster = Cluster::start(&tools::root().join("tests/logs/kube/watches")).await.unwrap();
            cluster.install(&[Crds::InferenceExtension]).await.unwrap();
            cluster
        };
        let cluster = CLUSTER.get_or_init(start).await;
        let client = cluster.client().await.unwrap();
        let namespace = Self::namespace_of(cluster, &client, prefix).await;
        Self { cluster, client, namespace, _permit: permit }
    }

    /// Another namespace, in which pods can be created.
    pub(crate) async fn another_namespace(&self, prefix: &str) -> String {
        Self::namespace_of(self.cluster, &self.client, prefix).await
    }

    async fn namespace_of(cluster: &Cluster, client: &Client, prefix: &str) -> String {
        let namespace = cluster.create_namespace(prefix).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        eventually("the namespace has its ServiceAccount", async || accounts.get("default").await).await;
        namespace
    }

    /// Applies an `InferencePool` of port 8000 whose pods have the label `app`.
    pub(crate) async fn apply_pool(&self, namespace: &str, name: &str, app: &str) {
        let pool = json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": app}}, "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": "endpoint-picker", "port": {"number": 9002}},
            },
        });
        self.cluster.apply(namespace, &pool.to_string()).await.unwrap();
    }

    /// Creates pods with the numbers of this range, ready.
    pub(crate) async fn create_pods(&self, namespace: &str, app: &str, numbers: core::ops::Range<u16>) {
        stream::iter(numbers)
            .map(Ok::<_, kube::Error>)
            .try_for_each_concurrent(16, async |number| {
                let pod = json!({
                    "metadata": {"name": pod_name(app, number), "labels": {"app": app, "llm-d.ai/role": "decode"}},
                    "spec": {"nodeName": "nowhere", "containers": [{"name": "server", "image": "server"}]},
                });
                let pod = serde_json::from_value(pod).unwrap();
                self.pods(namespace).create(&PostParams::default(), &pod).await?;
                self.set_ready(namespace, app, number, true).await
            })
            .await
            .unwrap();
    }

    /// Sets a pod's address and readiness.
    pub(crate) async fn set_ready(
        &self,
        namespace: &str,
        app: &str,
        number: u16,
        ready: bool,
    ) -> kube::Result<()> {
        // Nothing listens there, and packets to it do not leave this machine.
        let [high, low] = number.to_be_bytes();
        let status = json!({"status": {
            "phase": "Running", "podIP": Ipv4Addr::new(127, 1, high, low),
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        }});
        let patch = Patch::Strategic(status);
        let name = pod_name(app, number);
        self.pods(namespace).patch_status(&name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Deletes a pod, which has no node that could let it linger.
    pub(crate) async fn delete_pod(&self, namespace: &str, app: &str, number: u16) {
        let parameters = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods(namespace).delete(&pod_name(app, number), &parameters).await.unwrap();
    }

    pub(crate) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The name of a pod.
pub(crate) fn pod_name(app: &str, number: u16) -> String {
    format!("{app}-{number}")
}

/// The name of its endpoint.
pub(crate) fn endpoint(namespace: &str, app: &str, number: u16) -> String {
    format!("{namespace}/{app}-{number}-rank-0")
}
