//! Reads manifests, from texts and from the objects of a cluster, and checks each by itself.

pub(super) mod base_model;
pub(super) mod document;
pub(super) mod fault;
pub(super) mod fields;
mod inference_model;
mod inference_model_rewrite;
pub(crate) mod inference_pool;
pub(super) mod picker;

use fault::{Fault, Faults, quoted};

const POOL: &str = "inference.networking.k8s.io/v1";
const LLM_D_CONFIG: &str = "llm-d.ai/v1alpha1";
const LLM_D_V1: &str = "llm-d.ai/v1";
const LLM_D: &str = "llm-d.ai/v1alpha2";
const GIE_V1ALPHA1: &str = "inference.networking.x-k8s.io/v1alpha1";
const GIE: &str = "inference.networking.x-k8s.io/v1alpha2";

/// API groups in which every kind must be supported.
const GROUPS: [&str; 3] = ["inference.networking.k8s.io/", "inference.networking.x-k8s.io/", "llm-d.ai/"];

/// A kind of manifests that the agent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ManifestKind {
    InferencePool,
    EndpointPickerConfig,
    InferenceObjective,
    InferenceModelRewrite,
    InferenceModel,
}

impl ManifestKind {
    const ALL: [Self; 5] = [
        Self::InferencePool,
        Self::EndpointPickerConfig,
        Self::InferenceObjective,
        Self::InferenceModelRewrite,
        Self::InferenceModel,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::InferencePool => "InferencePool",
            Self::EndpointPickerConfig => "EndpointPickerConfig",
            Self::InferenceObjective => "InferenceObjective",
            Self::InferenceModelRewrite => "InferenceModelRewrite",
            Self::InferenceModel => "InferenceModel",
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The supported versions.
    fn versions(self) -> &'static [&'static str] {
        match self {
            Self::InferencePool => &[POOL, GIE],
            Self::EndpointPickerConfig => &[LLM_D_V1, LLM_D_CONFIG, GIE_V1ALPHA1],
            Self::InferenceObjective => &[LLM_D, GIE],
            // The proposal of the rewrite shows v1alpha1.
            Self::InferenceModelRewrite => &[LLM_D, GIE, GIE_V1ALPHA1],
            Self::InferenceModel => &[GIE],
        }
    }

    /// The kind of a document; `None` for a document that the agent does not read, such as a Deployment in
    /// the same file. But a supported kind in a wrong version, or an unknown kind in a supported group, is
    /// refused as a spelling mistake.
    fn of(api_version: &str, name: &str) -> Result<Option<Self>, Faults> {
        let fault = match Self::by_name(name) {
            Some(kind) if kind.versions().contains(&api_version) => return Ok(Some(kind)),
            Some(kind) => {
                let (version, versions) = (quoted(api_version), kind.versions().join(", "));
                let text = format!("{version} is not a version of {name}; allowed are {versions}");
                Fault::new("apiVersion", text)
            }
            None if GROUPS.iter().any(|group| api_version.starts_with(group)) => {
                let kinds = Self::ALL.map(Self::name).join(", ");
                Fault::new("kind", format!("unknown kind {}; allowed are {kinds}", quoted(name)))
            }
            None => return Ok(None),
        };
        Err(Faults(vec![fault]))
    }
}

/// How manifests identify pools, and the namespace of a manifest that names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Manifests of files alone: pools are identified by name.
    Files,
    /// Manifests of a cluster: pools are identified by namespace and name.
    Cluster {
        /// The namespace of manifests that name none.
        namespace: String,
    },
}

impl Scope {
    pub(crate) fn namespace_or_default(&self, given: Option<String>) -> String {
        given.unwrap_or_else(|| match self {
            Self::Files => "default".to_owned(),
            Self::Cluster { namespace } => namespace.clone(),
        })
    }

    /// The name of a pool in the plan.
    pub(crate) fn pool_name(&self, namespace: &str, name: &str) -> String {
        match self {
            Self::Files => name.to_owned(),
            Self::Cluster { .. } => format!("{namespace}/{name}"),
        }
    }
}
