//! Types of the EPP that are refused on purpose, each with the reason and what to use.

/// A hub of clusters: its endpoints are gateways, which this picker cannot reach by an address of a pool.
const HUB: &str = "a hub picks among the gateways of clusters, which are host names with TLS and have an EPP's metrics; here the endpoints of a pool are model servers. \
     Weigh the clusters' gateways as backends of an HTTPRoute, and let a picker in each cluster choose its server";

/// The types, in alphabetical order.
pub(super) const TYPES: [(&str, &str); 10] = [
    (
        "destination-endpoint-served-verifier",
        "it is for the conformance tests of the EPP; the endpoint that responded is in the metadata envoy.lb and in endpoint_picker_served_elsewhere",
    ),
    (
        "disaggregatedset-rollout-screener",
        "it draws a revision by the number of ready pods of each role in a whole cluster, and the agent knows only the pods that a pool selects; shares would be wrong as soon as a role is in another pool. \
         Give each revision an InferencePool and weigh these in an HTTPRoute, or keep revisions apart by a label-selector-filter",
    ),
    (
        "multicluster-approx-prefix-cache-producer",
        "it is approx-prefix-cache-producer under another name; use that",
    ),
    ("multicluster-file-discovery", HUB),
    ("multicluster-kv-cache-utilization-scorer", HUB),
    ("multicluster-metrics-data-source", HUB),
    ("multicluster-metrics-extractor", HUB),
    ("multicluster-prefix-cache-scorer", "it is prefix-cache-scorer under another name; use that"),
    ("multicluster-queue-scorer", HUB),
    ("multicluster-session-affinity-filter", "it is session-affinity-filter under another name; use that"),
];

/// Why a type of the EPP is refused; `None`: it is not one of these.
pub(super) fn reason(type_name: &str) -> Option<&'static str> {
    TYPES.iter().find(|(known, _)| *known == type_name).map(|&(_, reason)| reason)
}
