//! The kinds of manifests that the agent reads.

use super::fault::{Fault, Faults, quoted};

pub(super) const POOL: &str = "inference.networking.k8s.io/v1";
pub(super) const LLM_D_CONFIG: &str = "llm-d.ai/v1alpha1";
const LLM_D: &str = "llm-d.ai/v1alpha2";
pub(super) const GIE_V1ALPHA1: &str = "inference.networking.x-k8s.io/v1alpha1";
const GIE: &str = "inference.networking.x-k8s.io/v1alpha2";

/// The kinds there are, each with the versions it is read in.
pub(super) const KINDS: [(&str, &[&str]); 5] = [
    ("InferencePool", &[POOL, GIE]),
    ("EndpointPickerConfig", &[LLM_D_CONFIG, GIE_V1ALPHA1]),
    ("InferenceObjective", &[LLM_D, GIE]),
    // The proposal of the rewrite shows v1alpha1.
    ("InferenceModelRewrite", &[LLM_D, GIE, GIE_V1ALPHA1]),
    ("InferenceModel", &[GIE]),
];

/// The groups whose every kind must be known.
const GROUPS: [&str; 3] = ["inference.networking.k8s.io/", "inference.networking.x-k8s.io/", "llm-d.ai/"];

/// Whether a document is one of ours. Files often hold Deployments and Services beside ours, and these are passed over; but
/// a group or a kind of ours with the other part misspelt is refused.
pub(super) fn is_ours(api_version: &str, kind: &str) -> Result<bool, Faults> {
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let fault = match known {
        Some((_, versions)) if versions.contains(&api_version) => return Ok(true),
        Some((_, versions)) => {
            let text = format!(
                "{} is no version of {kind}; allowed are {}",
                quoted(api_version),
                versions.join(", ")
            );
            Fault::new("apiVersion", text)
        }
        None if GROUPS.iter().any(|group| api_version.starts_with(group)) => {
            let kinds = KINDS.map(|(name, _)| name).join(", ");
            Fault::new("kind", format!("{} is no known kind; allowed are {kinds}", quoted(kind)))
        }
        None => return Ok(false),
    };
    Err(Faults(vec![fault]))
}
