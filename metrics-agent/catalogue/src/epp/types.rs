//! The types of plugins of the EPP's releases, and how each decides here.

use super::{Release, names};

/// A type of plugins.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// As documents write it.
    pub name: &'static str,
    /// Whether the EPP counts it as experimental.
    pub is_alpha: bool,
    /// How it decides here.
    pub here: Here,
}

/// How a type decides here, compared with the EPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// The same.
    Equal,
    /// The same, but for this difference.
    Differs(&'static str),
    /// About the same, in this other way.
    Approximate(&'static str),
    /// It is accepted and does nothing, for this reason.
    WithoutEffect(&'static str),
    /// It is not accepted, for this reason.
    Refused(&'static str),
}

/// The type of this name.
pub fn find(name: &str) -> Option<Type> {
    TYPES.iter().copied().map(Type::new).find(|it| it.name == name)
}

/// The types of a release.
pub fn of(release: Release) -> impl Iterator<Item = Type> {
    TYPES.iter().copied().map(Type::new).filter(move |it| names::has_type(release, it.name))
}

impl Type {
    fn new((name, is_alpha, here): (&'static str, bool, Here)) -> Self {
        Self { name, is_alpha, here }
    }
}

use Here::{Approximate, Differs, Equal, Refused, WithoutEffect};

/// Levels of types.
const ALPHA: bool = true;
const BETA: bool = false;

const ALIAS: Here = Differs(
    "it is the type without multicluster- under another name: it is about the endpoints of a pool, and chooses among no clusters",
);
const BY_TEXT: Here = Approximate("prompts are matched by the texts of cached blocks");
const EVICTION: Here = WithoutEffect(
    "flowControl.enableEviction alone decides whether requests are evicted, here as in the EPP, and it uses this rule",
);
const HEADERS: Here = WithoutEffect("disagg-profile-handler writes the headers");
const SESSIONS: Here = Differs(
    "the 65536 most recently used sessions are kept at least; a session's token names the endpoint that answered",
);

const TESTING: Here =
    Differs("needs --allow-experimental-plugins, because clients choose their servers with it");

/// A hub of clusters: its endpoints are gateways, which this picker cannot reach by an address of a pool.
const HUB: Here = Refused(
    "a hub picks among the gateways of clusters, which are host names with TLS and have an EPP's metrics; here the endpoints of a pool are model servers. \
     Weigh the clusters' gateways as backends of an HTTPRoute, and let a picker in each cluster choose its server",
);

/// Each type with its level and how it decides, in alphabetical order.
const TYPES: &[(&str, bool, Here)] = &[
    ("active-request-filter", ALPHA, Equal),
    (
        "active-request-scorer",
        BETA,
        Differs(
            "a request without a body counts too, and the load of a retried request moves to the endpoint that serves it",
        ),
    ),
    (
        "agent-identity",
        ALPHA,
        Differs("of several, the first one that finds a header counts; in the EPP another may overwrite it"),
    ),
    ("always-disagg-multimodal-decider", BETA, Equal),
    ("always-disagg-pd-decider", BETA, Equal),
    ("anthropic-parser", BETA, Equal),
    ("approx-prefix-cache-producer", BETA, Equal),
    (
        "burst-prefix-cache-producer",
        ALPHA,
        Approximate(
            "it holds no request for the window; the first request of a prefix is placed by the other scorers",
        ),
    ),
    ("by-label", BETA, Equal),
    ("by-label-selector", BETA, Equal),
    ("concurrency-detector", BETA, Equal),
    ("context-length-aware", BETA, Equal),
    ("core-metrics-extractor", BETA, Equal),
    ("data-parallel-profile-handler", BETA, Equal),
    ("dcgm-data-source", ALPHA, Equal),
    ("dcgm-extractor", ALPHA, Equal),
    ("decode-filter", BETA, Equal),
    (
        "destination-endpoint-served-verifier",
        BETA,
        Refused(
            "it is for the conformance tests of the EPP; the endpoint that responded is in the metadata envoy.lb and in endpoint_picker_served_elsewhere",
        ),
    ),
    ("disagg-headers-handler", BETA, HEADERS),
    ("disagg-profile-handler", BETA, Equal),
    (
        "disaggregatedset-rollout-screener",
        ALPHA,
        WithoutEffect(
            "every endpoint passes: no revision is drawn by the pods of its roles, and headers neither restrict the choice nor mark responses. Give each revision an InferencePool and weigh these in an HTTPRoute, or keep revisions apart by a label-selector-filter",
        ),
    ),
    ("edf-ordering-policy", BETA, Equal),
    ("encode-filter", BETA, Equal),
    ("endpoint-attribute-filter", ALPHA, Equal),
    (
        "endpoint-attribute-scorer",
        ALPHA,
        Differs(
            "reads waiting, running, KV usage and load as well; the EPP reads only metrics that an extractor names",
        ),
    ),
    ("endpoint-notification-source", BETA, WithoutEffect("discovery reports endpoints to every plugin")),
    ("fcfs-ordering-policy", BETA, Equal),
    ("file-discovery", BETA, Equal),
    ("global-strict-fairness-policy", BETA, Equal),
    ("header-based-testing-filter", BETA, TESTING),
    ("header-label-affinity-scorer", ALPHA, Equal),
    ("header-profile-handler", ALPHA, Equal),
    ("inflight-load-producer", BETA, Equal),
    ("k8s-notification-source", BETA, WithoutEffect("no plugin reads other objects of the cluster")),
    ("kv-cache-utilization-scorer", BETA, Equal),
    ("label-selector-filter", BETA, Equal),
    (
        "latency-observation-scorer-hub",
        ALPHA,
        Approximate(
            "it is latency-scorer by the time to the first token: nothing is rounded, and endpoints that were not observed are not explored",
        ),
    ),
    (
        "latency-observer-producer-hub",
        ALPHA,
        Approximate(
            "it is predicted-latency-producer: each endpoint's time follows its load by a line that all endpoints teach, and by a factor of its own, in place of percentiles of a window",
        ),
    ),
    ("latency-scorer", BETA, Equal),
    ("latency-slo-admitter", BETA, Equal),
    ("load-aware-scorer", BETA, Equal),
    (
        "lora-affinity-scorer",
        BETA,
        Differs(
            "an adapter that runs and waits counts once (countTwice: true for the EPP's count), and a server that reports no adapters counts as empty while others report some (unreportedAsEmpty: false)",
        ),
    ),
    // No source names its level.
    ("max-saturation-detector", ALPHA, Equal),
    ("max-score-picker", BETA, Equal),
    ("metrics-data-source", BETA, Equal),
    ("mm-embeddings-cache-producer", BETA, Equal),
    ("mm-embeddings-cache-scorer", BETA, Equal),
    ("models-data-extractor", BETA, Equal),
    ("models-data-source", BETA, Equal),
    ("multicluster-approx-prefix-cache-producer", ALPHA, ALIAS),
    ("multicluster-file-discovery", ALPHA, HUB),
    ("multicluster-kv-cache-utilization-scorer", ALPHA, HUB),
    ("multicluster-metrics-data-source", ALPHA, HUB),
    ("multicluster-metrics-extractor", ALPHA, HUB),
    ("multicluster-prefix-cache-scorer", ALPHA, ALIAS),
    ("multicluster-queue-scorer", ALPHA, HUB),
    ("multicluster-session-affinity-filter", ALPHA, ALIAS),
    ("no-hit-lru-scorer", BETA, Equal),
    ("openai-parser", BETA, Equal),
    (
        "outlen-bucket",
        ALPHA,
        WithoutEffect(
            "the length of a response is not estimated from its request: with addEstimatedOutputTokens each counts as one of unknown length",
        ),
    ),
    ("p2p-source-producer", ALPHA, Equal),
    ("passthrough-parser", BETA, Equal),
    ("pd-profile-handler", BETA, Equal),
    ("precise-prefix-cache-producer", BETA, BY_TEXT),
    ("precise-prefix-cache-scorer", BETA, BY_TEXT),
    (
        "predicted-latency-producer",
        BETA,
        Approximate("it predicts in the proxy, without training and prediction servers"),
    ),
    ("prefill-filter", BETA, Equal),
    ("prefill-header-handler", BETA, HEADERS),
    ("prefix-based-pd-decider", BETA, Equal),
    ("prefix-cache-affinity-filter", BETA, Equal),
    ("prefix-cache-scorer", BETA, Equal),
    ("priority-holdback-policy", ALPHA, Equal),
    ("priority-then-time-eviction-order-policy", ALPHA, EVICTION),
    ("probabilistic-admitter", BETA, Differs("its refusals are 429; the EPP's become 500")),
    ("program-aware-fairness", BETA, Equal),
    ("queue-scorer", BETA, Equal),
    ("random-picker", BETA, Equal),
    ("request-attribute-reporter", BETA, Equal),
    ("round-robin-fairness-policy", BETA, Equal),
    ("running-requests-size-scorer", BETA, Equal),
    ("served-model-filter", ALPHA, Equal),
    ("session-affinity-filter", ALPHA, SESSIONS),
    ("session-affinity-scorer", ALPHA, SESSIONS),
    ("session-id-producer", BETA, Equal),
    ("sglanghttp-parser", BETA, Equal),
    ("sheddable-eviction-filter", ALPHA, EVICTION),
    ("single-profile-handler", BETA, Equal),
    ("slo-deadline-ordering-policy", BETA, Equal),
    ("slo-headroom-tier-filter", BETA, Equal),
    ("soft-reflective-ceiling-policy", ALPHA, Equal),
    ("static-usage-limit-policy", BETA, Equal),
    ("token-load-scorer", BETA, Equal),
    ("token-producer", BETA, Equal),
    ("tokenizer", BETA, Equal),
    ("topology-affinity-filter", ALPHA, Equal),
    ("topology-affinity-scorer", ALPHA, Equal),
    (
        "topology-extractor",
        ALPHA,
        Differs("an endpoint without the label has no host; the EPP takes the pod's own name"),
    ),
    ("utilization-detector", BETA, Equal),
    ("utilization-filter", ALPHA, Equal),
    ("vertexai-parser", BETA, Equal),
    ("vllmgrpc-parser", BETA, Equal),
    ("vllmhttp-parser", BETA, Equal),
    ("weighted-random-picker", BETA, Equal),
];
