//! The variants, by name.

/// A way to pick.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: &'static str,
    /// How it picks.
    pub mechanism: Mechanism,
}

/// How a variant picks.
#[derive(Clone, Copy, Debug)]
pub enum Mechanism {
    /// Each server in turn.
    RoundRobin,
    /// Pick by the true state of all servers.
    Omniscient,
    /// Pick by the rules of a configuration.
    Rules {
        /// An `EndpointPickerConfig`, as users write it.
        config: &'static str,
        /// The switch of the configuration that is on.
        switch: Option<&'static str>,
        /// The contents of the index of prompts.
        contents: Contents,
    },
}

/// How a variant knows the prompts that servers have cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The proxy knows them by the prompts that it has sent.
    Sent,
    /// The index is replaced by the contents of the caches before each decision.
    Exact,
    /// The agent knows them by the servers' KV-cache events.
    Events,
}

const fn rules(name: &'static str, config: &'static str) -> Variant {
    Variant { name, mechanism: Mechanism::Rules { config, switch: None, contents: Contents::Sent } }
}

const fn exact(name: &'static str, config: &'static str) -> Variant {
    Variant { name, mechanism: Mechanism::Rules { config, switch: None, contents: Contents::Exact } }
}

const fn by_events(name: &'static str, config: &'static str) -> Variant {
    Variant { name, mechanism: Mechanism::Rules { config, switch: None, contents: Contents::Events } }
}

const fn switched(name: &'static str, config: &'static str, switch: &'static str) -> Variant {
    Variant { name, mechanism: Mechanism::Rules { config, switch: Some(switch), contents: Contents::Sent } }
}

/// A configuration of these plugins and of the index of prompts with these parameters.
macro_rules! with_index {
    ($plugins:literal, $parameters:literal) => {
        concat!(
            "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [",
            "{type: approx-prefix-cache-producer, parameters: {",
            $parameters,
            "}}, ",
            $plugins,
            "}"
        )
    };
}

/// The plugins of the default with this index.
macro_rules! default_with {
    ($parameters:literal) => {
        with_index!(
            "{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}],
             schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer, weight: 2},
             {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3}]}]",
            $parameters
        )
    };
}

/// Expected latency with this index.
macro_rules! latency_with {
    ($parameters:literal) => {
        with_index!("{type: expected-latency-scorer}]", $parameters)
    };
}

const EXPECTED_LATENCY: &str = include_str!("../../../../../examples/choosing/expected-latency.yaml");

/// The tokens in flight are those that the events show as not cached. Without this producer's name whole
/// prompts would count.
const EXPECTED_LATENCY_BY_EVENTS: &str = "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: precise-prefix-cache-producer}, \
    {type: inflight-load-producer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}, \
    {type: expected-latency-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}]}";

/// All variants. The second one is what the others are compared with.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "round robin", mechanism: Mechanism::RoundRobin },
    rules("default", include_str!("../../../rules/default.yaml")),
    rules(
        "least in flight",
        "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: active-request-scorer}]}",
    ),
    rules(
        "token-aware",
        "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: prefix-cache-affinity-filter}, {type: token-load-scorer}]}",
    ),
    rules("token-aware, tuned", include_str!("../../../rules/token-aware.yaml")),
    rules("lmetric", include_str!("../../../rules/lmetric.yaml")),
    rules("expected latency", EXPECTED_LATENCY),
    exact("expected latency, exact contents", EXPECTED_LATENCY),
    by_events("expected latency, events", EXPECTED_LATENCY_BY_EVENTS),
    rules("default, capacity in tokens", default_with!("capacityInTokens: true")),
    rules("default, blocks of 16", default_with!("minBlockSizeTokens: 16, capacityInTokens: true")),
    rules("default, learning", default_with!("learnFromUsage: true")),
    rules("expected latency, blocks of 16", latency_with!("minBlockSizeTokens: 16, capacityInTokens: true")),
    rules("expected latency, learning", latency_with!("capacityInTokens: true, learnFromUsage: true")),
    switched("expected latency, limits", EXPECTED_LATENCY, "latency-limits"),
    Variant { name: "omniscient", mechanism: Mechanism::Omniscient },
];

impl Variant {
    /// Whether it follows the servers' KV-cache events.
    pub(in crate::cell) fn follows_events(&self) -> bool {
        matches!(self.mechanism, Mechanism::Rules { contents: Contents::Events, .. })
    }

    /// Variant with which the others are compared: the EPP's default.
    pub const DEFAULT: &'static Self = &VARIANTS[1];

    /// The variant of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIANTS.iter().find(|variant| variant.name == name)
    }
}
