//! Custom resources of the projects around.

use super::Cluster;
use crate::programs;
use anyhow::Result;
use endpoint_picker_harness::tools::root;
use std::path::PathBuf;

/// The custom resources of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crds {
    /// Gateway API and Envoy Gateway.
    EnvoyGateway,
    /// The Gateway API Inference Extension: `InferencePool` in both groups, and the older objects of `x-k8s.io`.
    InferenceExtension,
    /// `InferenceObjective` and `InferenceModelRewrite` of llm-d.
    LlmD,
    /// `InferenceModel` of the early versions of the Inference Extension.
    InferenceModel,
    /// Istio.
    Istio,
}

impl Crds {
    fn folder(self) -> Result<PathBuf> {
        match self {
            Self::EnvoyGateway => programs::crds("envoy-gateway"),
            Self::InferenceExtension => programs::crds("inference-extension"),
            Self::LlmD => Ok(root().join("tests/kube/crds/llm-d")),
            Self::InferenceModel => Ok(root().join("tests/kube/crds/inference-model")),
            Self::Istio => programs::crds("istio"),
        }
    }
}

impl Cluster {
    /// Installs them and waits until the API server serves them.
    pub async fn install(&self, crds: &[Crds]) -> Result<()> {
        let mut create: Vec<String> = ["create", "--validate=false"].map(str::to_owned).into();
        for crds in crds {
            create.push(format!("--filename={}", crds.folder()?.display()));
        }
        self.kubectl(create).await?;
        self.kubectl(["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?;
        Ok(())
    }
}
