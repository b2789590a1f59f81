//! Istio's control plane: it makes Deployment and Service of a Gateway, and configures its Envoys.
//!
//! Two things are not as Istio's charts have them:
//! - By `gateway.yaml` the pods of a Gateway run Envoy itself, without Istio's agent, and reach the control
//!   plane without TLS. Filters that only Istio's build of Envoy has are off: metadata exchange and ALPN.
//! - The control plane has no authority for certificates: nothing is in the mesh.

use crate::cluster::{Cluster, Crds};
use crate::ground::{images, logs, share, start_cluster};
use crate::namespace::HOST_ADDRESS;
use crate::node::{Image, Node};
use crate::programs::istio;
use anyhow::{Context, Result};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::{Filter, client, tools};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::sync::OnceCell;

/// Its namespace, as in Istio's charts.
const SYSTEM: &str = "istio-system";
const READY: &str = "http://127.0.0.1:8080/ready";
const READY_DEADLINE: Duration = Duration::from_secs(90);

static SHARED: OnceCell<Result<Istio, String>> = OnceCell::const_new();

/// A cluster with a node and Istio's control plane, whose ports are fixed: one in each
/// [`Namespace`](crate::Namespace).
#[derive(Debug)]
pub struct Istio {
    // In the order of their end.
    _control_plane: Process,
    _node: Node,
    cluster: Cluster,
}

impl Istio {
    /// The one that all tests of this program share; see [`Ground::shared`](crate::Ground::shared).
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn shared() -> &'static Self {
        share(&SHARED, async || Self::start(&logs()).await).await
    }

    async fn start(logs: &Path) -> Result<Self> {
        let mut all = images()?;
        all.extend([
            Image::new("envoy", tools::envoy()?, "/usr/local/bin/envoy"),
            Image::new("endpoint-picker-native", Filter::Native.module()?, "/libendpoint_picker.so"),
            Image::new("endpoint-picker-wasm", Filter::Wasm.module()?, "/plugin.wasm"),
        ]);
        let cluster = start_cluster(logs).await?;
        // Gateway API comes with Envoy Gateway.
        let crds = [Crds::EnvoyGateway, Crds::InferenceExtension, Crds::LlmD, Crds::Istio];
        let (node, installed) = tokio::join!(Node::start(&cluster, all), cluster.install(&crds));
        installed?;
        cluster.kubectl(["create", "namespace", SYSTEM]).await?;
        cluster.apply(SYSTEM, &settings().to_string()).await?;
        let mut control_plane = spawn(&cluster)?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = control_plane.check_running() {
                return Ok(Err(ended));
            }
            client::http1().get(READY).send().await?.error_for_status()?;
            anyhow::Ok(Ok(()))
        });
        ready.await.map_err(anyhow::Error::msg).context("Istio's control plane is not ready")??;
        Ok(Self { _control_plane: control_plane, _node: node?, cluster })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// The `ConfigMap`s of Istio's charts: the mesh's settings, and the templates of pods.
fn settings() -> Value {
    let mesh = json!({"enableAutoMtls": false, "enableTracing": false});
    let templates =
        json!({"policy": "disabled", "templates": {"kube-gateway": include_str!("gateway.yaml")}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        map("istio", &json!({"mesh": mesh.to_string()})),
        map("istio-sidecar-injector", &json!({"config": templates.to_string(), "values": "{}"})),
    ]})
}

fn spawn(cluster: &Cluster) -> Result<Process> {
    let mut command = Command::new(istio("bin/pilot-discovery")?);
    command.arg("discovery").arg("--kubeconfig").arg(cluster.kubeconfig());
    command.arg(format!("--grpcAddr={HOST_ADDRESS}:15010"));
    command.args(["--httpAddr=127.0.0.1:8080", "--httpsAddr=", "--secureGRPCAddr=", "--monitoringAddr="]);
    command.envs([
        ("POD_NAMESPACE", SYSTEM),
        ("POD_NAME", "istiod"),
        ("ENABLE_GATEWAY_API_INFERENCE_EXTENSION", "true"),
        ("PILOT_ENABLE_ALPN_FILTER", "false"),
        ("PILOT_ENABLE_METADATA_EXCHANGE", "false"),
        ("ENABLE_CA_SERVER", "false"),
        ("PILOT_CERT_PROVIDER", "none"),
        ("INJECTION_WEBHOOK_CONFIG_NAME", ""),
        ("VALIDATION_WEBHOOK_CONFIG_NAME", ""),
    ]);
    Process::start("pilot-discovery", command, &cluster.logs().join("istio.log"))
}
