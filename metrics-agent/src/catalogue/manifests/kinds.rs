//! The kinds of manifests that the agent reads.

use super::fault::{Fault, Faults, quoted};

pub(super) const POOL: &str = "inference.networking.k8s.io/v1";
pub(super) const LLM_D_CONFIG: &str = "llm-d.ai/v1alpha1";
const LLM_D: &str = "llm-d.ai/v1alpha2";
pub(super) const GIE_V1ALPHA1: &str = "inference.networking.x-k8s.io/v1alpha1";
const GIE: &str = "inference.networking.x-k8s.io/v1alpha2";

/// The supported kinds, each with its supported versions.
pub(super) const KINDS: [(&str, &[&str]); 5] = [
    ("InferencePool", &[POOL, GIE]),
    ("EndpointPickerConfig", &[LLM_D_CONFIG, GIE_V1ALPHA1]),
    ("InferenceObjective", &[LLM_D, GIE]),
    // The proposal of the rewrite shows v1alpha1.
    ("InferenceModelRewrite", &[LLM_D, GIE, GIE_V1ALPHA1]),
    ("InferenceModel", &[GIE]),
];

/// API groups in which every kind must be supported.
const GROUPS: [&str; 3] = ["inference.networking.k8s.io/", "inference.networking.x-k8s.io/", "llm-d.ai/"];

/// Whether the agent reads documents of this version and kind. Other documents, such as Deployments and Services in the same file,
/// are skipped. But a supported kind in a wrong version, or a wrong kind in a supported group, is refused as a spelling mistake.
pub(super) fn is_supported(api_version: &str, kind: &str) -> Result<bool, Faults> {
    let supported = KINDS.iter().find(|(name, _)| *name == kind);
    let fault = match supported {
        Some((_, versions)) if versions.contains(&api_version) => return Ok(true),
        Some((_, versions)) => {
            let text = format!(
                "{} is not a version of {kind}; allowed are {}",
                quoted(api_version),
                versions.join(", ")
            );
            Fault::new("apiVersion", text)
        }
        None if GROUPS.iter().any(|group| api_version.starts_with(group)) => {
            let kinds = KINDS.map(|(name, _)| name).join(", ");
            Fault::new("kind", format!("unknown kind {}; allowed are {kinds}", quoted(kind)))
        }
        None => return Ok(false),
    };
    Err(Faults(vec![fault]))
}
