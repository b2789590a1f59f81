//! The kinds of objects that are watched.

use crate::sources::kubernetes::watch::Resource;

const POOLS: &str = "inference.networking.k8s.io";
/// The group of the older versions, and of the other kinds before they moved.
const EXPERIMENTAL: &str = "inference.networking.x-k8s.io";
const LLM_D: &str = "llm-d.ai";

/// The kinds that describe pools and their policies, in each of their groups.
pub(super) const KINDS: [Resource; 7] = [
    Resource {
        group: POOLS,
        version: "v1",
        kind: "InferencePool",
        name: "inferencepools.inference.networking.k8s.io",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferencePool",
        name: "inferencepools.inference.networking.x-k8s.io",
    },
    Resource {
        group: LLM_D,
        version: "v1alpha2",
        kind: "InferenceObjective",
        name: "inferenceobjectives.llm-d.ai",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceObjective",
        name: "inferenceobjectives.inference.networking.x-k8s.io",
    },
    Resource {
        group: LLM_D,
        version: "v1alpha2",
        kind: "InferenceModelRewrite",
        name: "inferencemodelrewrites.llm-d.ai",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceModelRewrite",
        name: "inferencemodelrewrites.inference.networking.x-k8s.io",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceModel",
        name: "inferencemodels.inference.networking.x-k8s.io",
    },
];

/// The kind of the object with picker configurations.
pub(super) const CONFIG_MAP: Resource =
    Resource { group: "", version: "v1", kind: "ConfigMap", name: "configmaps" };
