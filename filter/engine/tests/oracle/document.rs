//! Random configurations, as documents that both sides read.

use core::time::Duration;

use endpoint_picker::config::{PickerConfig, ProfileConfig, ProfilePlugin};
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::{TYPES, read_plugin};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::catalog::{
    AGENTS, BURSTS, OWN_PREFIXES, SESSIONS, detectors, filters, pickers, producers, spoken_of,
    topology_extractor,
};
use crate::rules::scorers::scorers;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// The profile handler.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// Nothing at all is configured.
    Nothing,
    /// Plugins without profiles.
    NoProfiles,
    Single,
    ByHeader,
    DecodeFirst,
    PrefillFirst,
}

/// A plugin, its weight, and which of the profiles have it.
type Member = (Value, Option<f64>, [bool; 3]);

/// Documents of the kind `EndpointPickerConfig`.
pub(crate) fn documents() -> impl Strategy<Value = Value> {
    use Shape::{ByHeader, DecodeFirst, NoProfiles, Nothing, PrefillFirst, Single};
    let shapes = vec![
        Nothing,
        NoProfiles,
        Single,
        Single,
        Single,
        Single,
        ByHeader,
        DecodeFirst,
        DecodeFirst,
        PrefillFirst,
    ];
    let weights = || select(vec![None, Some(1.0), Some(2.0), Some(3.0), Some(0.5), Some(0.0), Some(-1.5)]);
    let member = |plugins: Vec<Value>| (select(plugins), weights(), any::<[bool; 3]>());
    let deciders = select(vec![
        json!({"type": "always-disagg-pd-decider"}),
        json!({"type": "always-disagg-multimodal-decider"}),
        json!({"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 70}}),
        json!({"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 1, "promptTokens": 300}}),
        json!({"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 1}}),
        json!({"type": "prefix-based-pd-decider"}),
    ]);
    (
        select(shapes),
        prop::collection::vec(member(scorers()), 0..6),
        prop::collection::vec(member(filters()), 0..3),
        prop::collection::vec(select(pickers()), 0..3),
        prop::collection::vec(select(producers()), 0..3),
        prop::option::of(select(detectors())),
        prop::collection::vec(deciders, 2),
        any::<prop::sample::Index>(),
        (prop::option::weighted(0.3, select(vec![100, 1_000, 6_000])), any::<bool>()),
    )
        .prop_map(
            |(
                shape,
                scorers,
                filters,
                pickers,
                producers,
                detector,
                deciders,
                order,
                (no_opinion, is_v011),
            )| {
                let mut members = [scorers, filters].concat();
                let order = order.index(members.len() + 1);
                members.rotate_left(order);
                let mut document =
                    Draft::default().fill(shape, &members, &pickers, &producers, detector, &deciders);
                document[NO_OPINION_AFTER_MS] = no_opinion.into();
                document[HAS_RULES_OF_V011] = is_v011.into();
                document
            },
        )
}

/// A flag of the agent's, written next to what the operator configures.
const NO_OPINION_AFTER_MS: &str = "noOpinionAfterMs";

/// Another: whether the rules of the EPP's v0.11 decide.
pub(crate) const HAS_RULES_OF_V011: &str = "hasRulesOfV011";

pub(crate) fn epp_rules(document: &Value) -> EppRules {
    if document[HAS_RULES_OF_V011] == true { EppRules::V011 } else { EppRules::V010 }
}

/// The age from which readings give neutral scores.
pub(crate) fn neutral_score_after(document: &Value) -> Option<Duration> {
    document[NO_OPINION_AFTER_MS].as_u64().map(Duration::from_millis)
}

#[derive(Default)]
struct Draft {
    plugins: Vec<Value>,
    profiles: Vec<Value>,
}

impl Draft {
    fn fill(
        mut self,
        shape: Shape,
        members: &[Member],
        pickers: &[Value],
        producers: &[Value],
        detector: Option<Value>,
        deciders: &[Value],
    ) -> Value {
        if shape == Shape::Nothing {
            return json!({});
        }
        let names: Vec<String> = members.iter().map(|(plugin, ..)| self.declare(plugin)).collect();
        let allowed = if shape == Shape::NoProfiles { 1 } else { pickers.len() };
        let pickers: Vec<String> = pickers.iter().take(allowed).map(|picker| self.declare(picker)).collect();
        let all = self.plugins.iter().chain(producers).map(Value::to_string).collect::<String>();
        let reads_prompts = ["latency-", "-latency", "latencyPredictor", "slo-headroom-tier-filter"];
        let reads_prompts = reads_prompts.iter().any(|part| all.contains(part));
        for producer in producers {
            let counts_output = producer["parameters"]["addEstimatedOutputTokens"] == true;
            if self.plugins.iter().all(|plugin| plugin["type"] != producer["type"])
                && !(reads_prompts && counts_output)
            {
                self.declare(producer);
            }
        }
        // Without it, no endpoint is near another.
        let has_stages = matches!(shape, Shape::DecodeFirst | Shape::PrefillFirst);
        if has_stages && all.contains("topology-affinity") && !all.contains("topology-extractor") {
            self.declare(&topology_extractor());
        }
        let detector = detector.map(|detector| self.declare(&detector));
        let profiles: &[&str] = match shape {
            Shape::Nothing | Shape::NoProfiles => &[],
            Shape::Single => &["default"],
            Shape::ByHeader => &["other", "decode"],
            Shape::DecodeFirst | Shape::PrefillFirst => &["decode", "prefill", "encode"],
        };
        match shape {
            Shape::ByHeader => drop(self.declare(&json!({"type": "header-profile-handler"}))),
            Shape::DecodeFirst => {
                let [prefill, encode] = [0, 1].map(|n| self.declare(&deciders[n]));
                let deciders = json!({"prefill": prefill, "encode": encode});
                let parameters = json!({"deciders": deciders});
                self.declare(&json!({"type": "disagg-profile-handler", "parameters": parameters}));
            }
            Shape::PrefillFirst => {
                let encode = self.declare(&deciders[0]);
                let parameters = json!({"stageOrder": "prefill-first", "deciders": {"encode": encode}});
                self.declare(&json!({"type": "disagg-profile-handler", "parameters": parameters}));
            }
            _ => {}
        }
        for (at, profile) in profiles.iter().enumerate() {
            let is_member = |(_, (_, _, of)): &(_, &Member)| profiles.len() == 1 || of[at];
            let refs = names.iter().zip(members).filter(is_member);
            let refs = refs.map(|(name, (_, weight, _))| json!({"pluginRef": name, "weight": weight}));
            let picker = pickers.get(at).map(|picker| json!({"pluginRef": picker}));
            let refs: Vec<Value> = refs.chain(picker).collect();
            self.profiles.push(json!({"name": profile, "plugins": refs}));
        }
        let text = json!(self.plugins).to_string();
        for plugin in spoken_of() {
            let is_named = [OWN_PREFIXES, BURSTS, SESSIONS, AGENTS]
                .iter()
                .any(|name| plugin["name"] == *name && text.contains(name));
            if is_named {
                self.plugins.push(plugin);
            }
        }
        json!({
            "plugins": self.plugins,
            "schedulingProfiles": self.profiles,
            "flowControl": {"saturationDetector": {"pluginRef": detector}},
        })
    }

    /// Declares a plugin under its type's name, or another if that is taken. Returns the name.
    fn declare(&mut self, plugin: &Value) -> String {
        let kind = plugin["type"].as_str().unwrap();
        let is_taken = self.plugins.iter().any(|declared| declared["name"] == kind);
        let name = if is_taken { format!("{kind}-{}", self.plugins.len()) } else { kind.to_owned() };
        let parameters = plugin.get("parameters").cloned().unwrap_or_else(|| json!({}));
        self.plugins.push(json!({"name": name, "type": kind, "parameters": parameters}));
        name
    }
}

#[test]
fn every_scorer_is_tried() {
    // Deprecated: a producer, and the scorer of prefixes.
    let others = ["precise-prefix-cache-scorer"];
    let is_scorer = |name: &&str| read_plugin(name, "{}").unwrap().roles().scorer.is_some();
    let is_tried = |name: &str| others.contains(&name) || scorers().iter().any(|tried| tried["type"] == name);
    let lacking: Vec<_> = TYPES.iter().copied().filter(is_scorer).filter(|name| !is_tried(name)).collect();
    assert!(lacking.is_empty(), "the oracle lacks {lacking:?}");
}

/// The document as the core takes it.
pub(crate) fn for_core(document: &Value) -> PickerConfig {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value.as_str().unwrap().to_owned();
    let plugins = list(&document["plugins"]).into_iter().map(|plugin| {
        let read = read_plugin(&name(&plugin["type"]), &plugin["parameters"].to_string()).unwrap();
        Instance { name: name(&plugin["name"]), plugin: read }
    });
    let profiles = list(&document["schedulingProfiles"]).into_iter().map(|profile| {
        let refs = list(&profile["plugins"]).into_iter().map(|member| ProfilePlugin {
            name: name(&member["pluginRef"]),
            weight: member["weight"].as_f64(),
        });
        ProfileConfig { name: name(&profile["name"]), plugins: refs.collect() }
    });
    PickerConfig {
        plugins: plugins.collect(),
        profiles: profiles.collect(),
        saturation_detector: document["flowControl"]["saturationDetector"]["pluginRef"]
            .as_str()
            .map(str::to_owned),
        epp_rules: epp_rules(document),
        ..PickerConfig::default()
    }
}
