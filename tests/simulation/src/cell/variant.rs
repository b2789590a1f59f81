//! The variants, by name.

use metrics_agent_replay::rules;
use metrics_agent_replay::simulation::pickers::{Contents, Mechanism};
use std::path::Path;

/// A way to pick.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: &'static str,
    way: Way,
}

/// How a variant picks.
#[derive(Clone, Copy, Debug)]
enum Way {
    RoundRobin,
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

const fn sent(name: &'static str, config: &'static str) -> Variant {
    Variant { name, way: Way::Rules { config, switch: None, contents: Contents::Sent } }
}

const fn exact(name: &'static str, config: &'static str) -> Variant {
    Variant { name, way: Way::Rules { config, switch: None, contents: Contents::Exact } }
}

const fn by_events(name: &'static str, config: &'static str) -> Variant {
    Variant { name, way: Way::Rules { config, switch: None, contents: Contents::Events } }
}

const fn switched(name: &'static str, config: &'static str, switch: &'static str) -> Variant {
    Variant { name, way: Way::Rules { config, switch: Some(switch), contents: Contents::Sent } }
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

const EXPECTED_LATENCY: &str = include_str!("../../../../examples/choosing/expected-latency.yaml");

/// The tokens in flight are those that the events show as not cached. Without this producer's name whole
/// prompts would count.
const EXPECTED_LATENCY_BY_EVENTS: &str = "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: precise-prefix-cache-producer}, \
    {type: inflight-load-producer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}, \
    {type: expected-latency-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}]}";

/// All variants. The second one is what the others are compared with.
pub const VARIANTS: &[Variant] = &[
    Variant { name: "round robin", way: Way::RoundRobin },
    sent("default", include_str!("../../rules/default.yaml")),
    sent(
        "least in flight",
        "{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{type: active-request-scorer}]}",
    ),
    sent("token-aware", include_str!("../../rules/optimized-baseline.yaml")),
    sent("token-aware, tuned", include_str!("../../rules/token-aware.yaml")),
    sent("lmetric", include_str!("../../rules/lmetric.yaml")),
    sent("expected latency", EXPECTED_LATENCY),
    exact("expected latency, exact contents", EXPECTED_LATENCY),
    by_events("expected latency, events", EXPECTED_LATENCY_BY_EVENTS),
    sent("default, capacity in tokens", default_with!("capacityInTokens: true")),
    sent("default, blocks of 16", default_with!("minBlockSizeTokens: 16, capacityInTokens: true")),
    sent("default, learning", default_with!("learnFromUsage: true")),
    sent("expected latency, blocks of 16", latency_with!("minBlockSizeTokens: 16, capacityInTokens: true")),
    sent("expected latency, learning", latency_with!("capacityInTokens: true, learnFromUsage: true")),
    switched("expected latency, limits", EXPECTED_LATENCY, "latency-limits"),
    sent("agentic-serving", include_str!("../../rules/agentic-serving.yaml")),
    sent("session admission", include_str!("../../rules/session-admission.yaml")),
    Variant { name: "omniscient", way: Way::Omniscient },
];

/// The recommended rules.
pub const RECOMMENDED: &str = "expected latency";

/// The simple ways, by variant and name in the table. *optimized-baseline* is llm-d's guide, with the EPP's
/// defaults; *tuned* has the throughput and the limits of our example in their place.
pub const SIMPLE: [(&str, &str); 6] = [
    ("default", "default"),
    ("token-aware", "optimized-baseline"),
    ("token-aware, tuned", "tuned"),
    ("lmetric", "LMetric"),
    ("least in flight", "least in flight"),
    ("round robin", "round robin"),
];

impl Variant {
    /// How it picks.
    pub(crate) fn mechanism(&self) -> Mechanism {
        let Way::Rules { config, switch, contents } = self.way else {
            return if matches!(self.way, Way::RoundRobin) {
                Mechanism::RoundRobin
            } else {
                Mechanism::Omniscient
            };
        };
        let config = match switch {
            Some(switch) => config.replace(&format!("\n#{switch} "), "\n"),
            None => config.to_owned(),
        };
        let policy = rules::read(Path::new(self.name), config.as_bytes());
        let policy = policy.unwrap_or_else(|problems| panic!("the configuration: {problems}")).unwrap();
        Mechanism::Rules { policy: Box::new(policy), contents }
    }

    /// Variant with which the others are compared: the EPP's default.
    pub const DEFAULT: &'static Self = &VARIANTS[1];

    /// The variant of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIANTS.iter().find(|variant| variant.name == name)
    }
}
