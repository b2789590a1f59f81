//! KServe's controller of `LLMInferenceService`s, with the custom resources, settings and presets of its
//! charts.
//!
//! Not as its charts have it: the controller is a process of this machine, and its webhooks are not
//! registered, for which the charts need cert-manager. So nothing sets the fields' defaults, and objects
//! exist in one version, v1alpha2.

use crate::cluster::Cluster;
use crate::programs::kserve;
use anyhow::{Context, Result};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use rcgen::CertifiedKey;
use std::fs;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The namespace of its documentation.
const NAMESPACE: &str = "kserve";
/// The definitions of what it reconciles.
const DEFINITIONS: [&str; 2] =
    ["llminferenceservices.serving.kserve.io", "llminferenceserviceconfigs.serving.kserve.io"];
/// Where it listens for probes.
const PROBES: &str = "127.0.0.1:10081";
const READY_DEADLINE: Duration = Duration::from_secs(90);

/// The running controller; it ends when dropped.
#[derive(Debug)]
pub struct KServe {
    _controller: Process,
    /// The certificate of its webhooks.
    _folder: TempDir,
}

impl KServe {
    /// Installs the charts and starts the controller. Its ports are fixed: one in each
    /// [`Namespace`](crate::Namespace).
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let chart =
            |name: &str| -> Result<String> { Ok(kserve(&format!("charts/{name}"))?.display().to_string()) };
        let in_namespace = ["--namespace", NAMESPACE];
        let definitions = ["install", "kserve-crd", &chart("kserve-llmisvc-crd")?, "--create-namespace"];
        cluster.helm(definitions.iter().chain(&in_namespace)).await?;
        cluster.until_served(DEFINITIONS).await?;
        let presets = ["install", "kserve-presets", &chart("kserve-runtime-configs")?];
        let all_presets = ["--set", "kserve.llmisvcConfigs.enabled=true"];
        cluster.helm(presets.iter().chain(&all_presets).chain(&in_namespace)).await?;
        let settings = ["template", "kserve", &chart("kserve-llmisvc-resources")?];
        let only = ["--show-only", "templates/common/configmap.yaml"];
        let settings = cluster.helm(settings.iter().chain(&only).chain(&in_namespace)).await?;
        cluster.apply(NAMESPACE, &settings).await?;

        let folder = TempDir::new()?;
        write_certificate(&folder)?;
        let mut command = Command::new(kserve("bin/llmisvc")?);
        command
            .arg(format!("--health-probe-addr={PROBES}"))
            .args(["--metrics-addr=0", "--webhook-port=10943"]);
        command.env("KUBECONFIG", cluster.kubeconfig()).env("TMPDIR", folder.path());
        let mut controller = Process::start("llmisvc", command, &cluster.logs().join("kserve.log"))?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = controller.check_running() {
                return Ok(Err(ended));
            }
            client::http1().get(format!("http://{PROBES}/readyz")).send().await?.error_for_status()?;
            anyhow::Ok(Ok(()))
        });
        ready.await.map_err(anyhow::Error::msg).context("KServe's controller is not ready")??;
        Ok(Self { _controller: controller, _folder: folder })
    }
}

/// Writes the certificate without which its webhooks' server does not start, where it looks for it.
fn write_certificate(folder: &TempDir) -> Result<()> {
    let folder = folder.path().join("k8s-webhook-server/serving-certs");
    fs::create_dir_all(&folder)?;
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    fs::write(folder.join("tls.crt"), cert.pem())?;
    fs::write(folder.join("tls.key"), signing_key.serialize_pem())?;
    Ok(())
}
