//! Custom resources of the projects around.

use super::Cluster;
use crate::programs;
use anyhow::{Context, Result};
use endpoint_picker_harness::tools::root;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::runtime::wait::{await_condition, conditions::is_crd_established};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time until the API server serves a custom resource that it has accepted.
const SERVED: Duration = Duration::from_secs(60);

/// The custom resources of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crds {
    /// Gateway API and Envoy Gateway.
    EnvoyGateway,
    /// The Gateway API Inference Extension: `InferencePool` v1, and the objects of `x-k8s.io` but its pools.
    InferenceExtension,
    /// `InferenceObjective` and `InferenceModelRewrite` of llm-d.
    LlmD,
    /// `InferenceModel` of the early versions of the Inference Extension.
    InferenceModel,
    /// `InferencePool` of the versions before v1.
    ExperimentalPool,
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
            Self::ExperimentalPool => Ok(root().join("tests/kube/crds/experimental-pool")),
            Self::Istio => programs::crds("istio"),
        }
    }
}

impl Cluster {
    /// Installs `InferencePool` in the version of the conformance suite, in place of that of
    /// [`Crds::InferenceExtension`]: `endpointPickerRef` is optional.
    pub async fn upgrade_pools(&self) -> Result<()> {
        let folder = programs::conformance("crds")?;
        self.kubectl(["replace", "--filename", &folder.display().to_string()]).await?;
        Ok(())
    }

    /// Installs them and waits until the API server serves them.
    pub async fn install(&self, crds: &[Crds]) -> Result<()> {
        let mut create: Vec<String> =
            ["create", "--validate=false", "--output=name"].map(str::to_owned).into();
        for crds in crds {
            create.push(format!("--filename={}", crds.folder()?.display()));
        }
        let created = self.kubectl(create).await?;
        self.until_served(created.lines().filter_map(|created| created.rsplit('/').next())).await
    }

    /// Waits until the API server serves the definitions with these names.
    pub(crate) async fn until_served(&self, names: impl IntoIterator<Item = &str>) -> Result<()> {
        // `kubectl wait` fails at one that has no conditions yet.
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client().await?);
        for name in names {
            let served = await_condition(definitions.clone(), name, is_crd_established());
            timeout(SERVED, served).await.with_context(|| format!("{name} is not served"))??;
        }
        Ok(())
    }
}
