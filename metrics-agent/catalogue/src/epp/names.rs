//! Names that not every release of the EPP has, and names that none has.
//!
//! `source` is a pull request of llm-d-router, or empty. Nothing else in the agent knows which release has
//! which name.

use core::fmt::Write;

use endpoint_picker::epp_rules::EppRules;
use serde_json::Value as Json;

use super::Release;

/// A name in a document.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    place: Place,
    /// The type, or the path of the field or parameter.
    pub(super) name: &'static str,
    life: Life,
    source: &'static str,
    /// Empty: nothing takes its place.
    replaced_by: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The type of a plugin.
    Type,
    /// A parameter of the plugins of this type.
    Parameter(&'static str),
    /// A value of a parameter of the plugins of this type.
    ValueOfParameter(&'static str, &'static str),
    /// A field of the document; `[]` stands for each element of a list.
    Field,
    /// A field of documents of this `apiVersion`.
    FieldOf(&'static str),
    /// A value of a field.
    ValueOfField(&'static str),
}

/// The releases that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// All, and one of them deprecates it.
    Deprecated,
    Since(Release),
    /// All before this release.
    Until(Release),
    /// All, in documents of another `apiVersion`.
    Elsewhere,
    /// None: its pull request is open, or its code was seen on a branch.
    Open,
    /// None: its pull request was closed.
    Closed,
}

use Life::{Closed, Deprecated, Elsewhere, Open};
use Place::{Field, FieldOf, Parameter, Type, ValueOfField, ValueOfParameter};

/// The two schemas that v0.11 reads.
const V1: &str = "llm-d.ai/v1";
const V1ALPHA1: &str = "llm-d.ai/v1alpha1";

const SINCE_V011: Life = Life::Since(Release::V011);
const UNTIL_V011: Life = Life::Until(Release::V011);

/// The names, each with its place, its life, its source and the name to use instead.
const NAMES: &[(Place, &str, Life, &str, &str)] = &[
    (Type, "by-label", UNTIL_V011, "#2859", "label-selector-filter"),
    (Type, "by-label-selector", UNTIL_V011, "#2865", "label-selector-filter"),
    (Type, "disagg-headers-handler", UNTIL_V011, "#2815", "disagg-profile-handler, which writes the headers"),
    (Type, "pd-profile-handler", UNTIL_V011, "#2493", "disagg-profile-handler"),
    (
        Type,
        "precise-prefix-cache-scorer",
        UNTIL_V011,
        "#2844",
        "precise-prefix-cache-producer, and prefix-cache-scorer with its name as prefixMatchInfoProducerName",
    ),
    (Type, "prefill-header-handler", UNTIL_V011, "#2815", "disagg-profile-handler, which writes the headers"),
    (Type, "tokenizer", UNTIL_V011, "#2869", "token-producer"),
    (Type, "data-parallel-profile-handler", Deprecated, "", "single-profile-handler"),
    (Type, "active-request-filter", SINCE_V011, "#2209", "utilization-filter"),
    (Type, "latency-observation-scorer-hub", SINCE_V011, "#2371", ""),
    (Type, "latency-observer-producer-hub", SINCE_V011, "#2371", ""),
    (Type, "max-saturation-detector", SINCE_V011, "#2827", ""),
    (Type, "outlen-bucket", SINCE_V011, "#2309", ""),
    (Type, "served-model-filter", SINCE_V011, "", ""),
    (Type, "sglanghttp-parser", SINCE_V011, "#2391", ""),
    (Field, "saturationDetector", UNTIL_V011, "#2838", "flowControl.saturationDetector"),
    (Field, "parser", UNTIL_V011, "#2838", "requestHandler.parsers"),
    (ValueOfField("apiVersion"), V1, SINCE_V011, "#975", V1ALPHA1),
    (Field, "requestHandler.propagatePriority", SINCE_V011, "#2265", ""),
    (Field, "flowControl.noEndpointRequestTTL", SINCE_V011, "#2284", ""),
    (Field, "dataLayer.discovery.endpoints", SINCE_V011, "#2434", "dataLayer.discovery.pluginRef"),
    (Field, "dataLayer.discovery.peers", SINCE_V011, "#2434", ""),
    (Field, "dataLayer.peerDiscovery", SINCE_V011, "#2434", ""),
    (Field, "dataLayer.crossReplica", SINCE_V011, "#2310", "dataLayer.crossReplicaSyncerPluginRef"),
    (FieldOf(V1ALPHA1), "dataLayer.crossReplica", Elsewhere, "", "crossReplicaSyncerPluginRef"),
    (FieldOf(V1), "dataLayer.crossReplicaPublishTimeout", Elsewhere, "", "crossReplica.publishTimeout"),
    (FieldOf(V1), "dataLayer.crossReplicaSyncInterval", Elsewhere, "", "crossReplica.syncInterval"),
    (FieldOf(V1), "dataLayer.crossReplicaSyncerPluginRef", Elsewhere, "", "crossReplica.syncerPluginRef"),
    (FieldOf(V1), "dataLayer.discovery.pluginRef", Elsewhere, "", "discovery.endpoints"),
    (FieldOf(V1), "dataLayer.peerDiscovery", Elsewhere, "", "discovery.peers"),
    (Parameter("endpoint-attribute-filter"), "producer", SINCE_V011, "#2190", "attribute: Name/producer"),
    (Parameter("endpoint-attribute-scorer"), "producer", SINCE_V011, "#2190", "attributeKey: Name/producer"),
    (Parameter("inflight-load-producer"), "outputRatio", UNTIL_V011, "#2309", ""),
    (
        Parameter("prefix-cache-affinity-filter"),
        "maxTokensInFlightPenalty",
        Life::Until(Release::V010),
        "#1547",
        "peakPrefillThroughput and maxTTFTPenaltyMs",
    ),
    (Parameter("program-aware-fairness"), "lasDecayFactor", UNTIL_V011, "#2120", "lasHalfLifeSeconds"),
    (Parameter("program-aware-fairness"), "turnPriorityInactivitySeconds", SINCE_V011, "#2116", ""),
    (Parameter("program-aware-fairness"), "turnPriorityTimeWeight", SINCE_V011, "#2116", ""),
    (ValueOfParameter("program-aware-fairness", "strategy"), "turn-priority", SINCE_V011, "#2116", "las"),
    (
        Parameter("precise-prefix-cache-producer"),
        "indexerConfig.tokenizersPoolConfig",
        UNTIL_V011,
        "#2512",
        "token-producer with vllm.url",
    ),
    (
        Parameter("precise-prefix-cache-producer"),
        "tokenProcessorConfig.hashAlgorithm",
        SINCE_V011,
        "#2237",
        "",
    ),
    (Parameter("token-producer"), "udsTokenizerConfig", UNTIL_V011, "#2512", "vllm.url"),
    (Parameter("utilization-detector"), "stalenessPolicy", SINCE_V011, "#2492", ""),
    // Names without a release.
    (
        Parameter("approx-prefix-cache-producer"),
        "prefixHashSource",
        Closed,
        "#1972",
        "body, the prompt itself",
    ),
    (Field, "schedulingProfiles[].fallbackProfile", Open, "#1139", "fallbackOnEmpty of the filters"),
    (
        Type,
        "accelerator-capability-aware",
        Open,
        "#1873",
        "context-length-aware with label: llm-d.ai/accelerator-capability-range",
    ),
    (Type, "compatibility-screener", Open, "#2463", "label-selector-filter"),
    (Type, "dp-rank-header-handler", Open, "", "precise-prefix-cache-producer with nameRank: true"),
    (Type, "endpoint-pin-screener", Open, "", "disagg-profile-handler"),
    (Type, "kv-cache-hint", Open, "", ""),
    (Type, "kv-cache-hint-v2", Open, "", ""),
    (Type, "kv-cache-retention", Open, "#2928", ""),
    (Type, "latency-observation-scorer", Closed, "#2371", "latency-scorer"),
    (Type, "latency-observer-producer", Closed, "#2371", "predicted-latency-producer"),
    (Type, "lora-load-state-scorer", Open, "#2792", "lora-affinity-scorer, or expected-latency-scorer"),
    (Type, "lora-residency-filter", Open, "", "lora-affinity-scorer, or expected-latency-scorer"),
    (Type, "model-affinity-filter", Open, "#2333", "served-model-filter"),
    (Type, "models-responder", Open, "#2308", "a route of GET /v1/models to one server"),
    (Type, "mrl-scorer-hub", Open, "", "latency-scorer"),
    (Type, "multicluster-topology-affinity-scorer", Open, "#2347", "topology-affinity-scorer"),
    (Type, "prefill-pin-screener", Open, "", "disagg-profile-handler"),
    (Type, "program-score", Open, "", "program-aware-fairness"),
    (Type, "reserve-endpoint", Open, "", "disagg-profile-handler"),
    (Type, "scoring-ordering-policy", Open, "#2422", "slo-deadline-ordering-policy"),
    (Type, "selective-kv-policy", Open, "", ""),
    (Type, "session-interturn-latency-producer", Open, "#2928", ""),
    (Type, "session-manager", Open, "#2852", "session-id-producer with session-affinity-scorer"),
    (Type, "session-prefix-cache-producer", Open, "#2716", "approx-prefix-cache-producer"),
    (Type, "session-state-producer", Open, "#2531", "session-id-producer"),
    (Type, "sojourn-time-observer-hub", Open, "", "predicted-latency-producer"),
    (Type, "thunder-agent", Open, "#2964", "program-aware-fairness with agent-identity"),
    (Type, "vtc", Open, "#1222", "program-aware-fairness"),
];

fn all() -> impl Iterator<Item = Name> {
    NAMES.iter().map(|&(place, name, life, source, replaced_by)| Name {
        place,
        name,
        life,
        source,
        replaced_by,
    })
}

/// Whether a release has a type that any has.
pub(super) fn has_type(release: Release, type_name: &str) -> bool {
    let known = all().find(|name| name.place == Type && name.name == type_name);
    known.is_none_or(|name| name.is_in(release))
}

/// A name that a document uses.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// Its path in the document.
    pub(crate) at: String,
    name: Name,
}

/// The names of the table that a document uses.
pub(crate) fn uses(document: &Json) -> Vec<Use> {
    let mut uses = Vec::new();
    for name in all() {
        let mut found = Vec::new();
        match name.place {
            Field => find(document, name.name, "", &mut |at, _| found.push(at)),
            FieldOf(version) if document["apiVersion"] != version => {}
            FieldOf(_) => find(document, name.name, "", &mut |at, _| found.push(at)),
            ValueOfField(field) => find(document, field, "", &mut |at, value| {
                found.extend((value == name.name).then_some(at));
            }),
            Type => find(document, "plugins[].type", "", &mut |at, value| {
                found.extend((value == name.name).then_some(at));
            }),
            Parameter(of) => find_parameter(document, of, name.name, &mut |at, _| found.push(at)),
            ValueOfParameter(of, parameter) => find_parameter(document, of, parameter, &mut |at, value| {
                found.extend((value == name.name).then_some(at));
            }),
        }
        uses.extend(found.into_iter().map(|at| Use { at, name }));
    }
    uses
}

/// Calls `found` for each value at the path, with its place.
fn find(value: &Json, path: &str, at: &str, found: &mut impl FnMut(String, &Json)) {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let (key, is_list) = first.strip_suffix("[]").map_or((first, false), |key| (key, true));
    let Some(inner) = value.get(key) else { return };
    let at = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    if is_list {
        for (index, element) in inner.as_array().into_iter().flatten().enumerate() {
            find(element, rest, &format!("{at}[{index}]"), found);
        }
    } else if rest.is_empty() {
        found(at, inner);
    } else {
        find(inner, rest, &at, found);
    }
}

/// The same for a parameter of the plugins of a type.
fn find_parameter(document: &Json, of: &str, path: &str, found: &mut impl FnMut(String, &Json)) {
    for (index, plugin) in document["plugins"].as_array().into_iter().flatten().enumerate() {
        if plugin["type"] == of {
            find(&plugin["parameters"], path, &format!("plugins[{index}].parameters"), found);
        }
    }
}

impl Name {
    fn is_in(&self, release: Release) -> bool {
        match self.life {
            Deprecated | Elsewhere => true,
            Life::Since(first) => release >= first,
            Life::Until(end) => release < end,
            Open | Closed => false,
        }
    }

    /// The name in quotes, if the path of its use does not have it.
    fn subject(&self) -> String {
        match self.place {
            Type | ValueOfField(_) | ValueOfParameter(..) => format!("{:?} ", self.name),
            Field | FieldOf(_) | Parameter(_) => String::new(),
        }
    }

    /// The name to use instead, as the end of a sentence.
    fn replacement(&self) -> String {
        if self.replaced_by.is_empty() { String::new() } else { format!("; use {}", self.replaced_by) }
    }

    fn in_source(&self) -> String {
        if self.source.is_empty() { String::new() } else { format!(" ({})", self.source) }
    }
}

impl Use {
    /// Why no release of the EPP that is known here has it; `None`: one does.
    pub(crate) fn unreleased(&self) -> Option<String> {
        let Self { name, .. } = self;
        let state = match name.life {
            Open => "is known, and not released in any version of the EPP",
            Closed => "was never released in a version of the EPP",
            Life::Until(Release::V010) => "was removed before v0.10 of the EPP",
            Deprecated | Elsewhere | Life::Since(_) | Life::Until(Release::V011) => return None,
        };
        Some(format!("{}{state}{}{}", name.subject(), name.in_source(), name.replacement()))
    }

    /// A warning where documents of all releases are read.
    pub(crate) fn warning(&self) -> Option<String> {
        let Self { name, .. } = self;
        let mut text = format!("{}is deprecated", name.subject());
        match name.life {
            Deprecated => {}
            Life::Until(end) => {
                let (end, source) = (end.as_str(), name.in_source());
                let _ = write!(text, ", and the EPP refuses it from {end} on{source}");
            }
            Elsewhere | Life::Since(_) | Open | Closed => return None,
        }
        Some(text + &name.replacement())
    }

    /// Why a pool with these rules refuses it; `None`: it does not.
    pub(crate) fn problem(&self, rules: EppRules) -> Option<String> {
        let Self { name, .. } = self;
        let release = Release::of(rules)?;
        // An earlier release has one schema, and refuses the other apiVersion.
        let is_elsewhere = name.life == Elsewhere && release >= Release::V011;
        if name.is_in(release) && !is_elsewhere {
            return None;
        }
        let (subject, source, replacement) = (name.subject(), name.in_source(), name.replacement());
        let reason = match name.life {
            Life::Since(first) => format!("is in the EPP since {}{source}", first.as_str()),
            Life::Until(end) => format!("is removed in {} of the EPP{source}", end.as_str()),
            Elsewhere => "is in the EPP's documents of another apiVersion".to_owned(),
            Deprecated | Open | Closed => return None,
        };
        let release = release.as_str();
        Some(format!(
            "{subject}{reason}, and this pool reads documents of {release} (--epp-rules own reads all){replacement}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_name_is_there_once_and_found_where_it_is() {
        let mut seen = HashSet::new();
        for name in all() {
            assert!(seen.insert(format!("{:?} {}", name.place, name.name)), "{name:?} twice");
            let nested = |path: &str, value: Json| {
                path.rsplit('.').fold(value, |inner, key| match key.strip_suffix("[]") {
                    Some(key) => json!({key: [inner]}),
                    None => json!({key: inner}),
                })
            };
            let plugin =
                |of: &str, parameters: Json| json!({"plugins": [{"type": of, "parameters": parameters}]});
            let document = match name.place {
                Type => plugin(name.name, json!({})),
                Field => nested(name.name, json!(1)),
                FieldOf(version) => {
                    let mut document = nested(name.name, json!(1));
                    let found = |document: &Json| {
                        let same = |it: &Use| it.name.place == name.place && it.name.name == name.name;
                        uses(document).iter().any(same)
                    };
                    assert!(!found(&document), "{name:?} in a document of another apiVersion");
                    document["apiVersion"] = json!(version);
                    assert!(found(&document), "{name:?}");
                    document
                }
                ValueOfField(field) => nested(field, json!(name.name)),
                Parameter(of) => plugin(of, nested(name.name, json!(1))),
                ValueOfParameter(of, parameter) => plugin(of, nested(parameter, json!(name.name))),
            };
            let uses = uses(&document);
            assert!(uses.iter().any(|it| it.name.name == name.name), "{name:?} in {document}");
            assert!(uses.iter().all(|it| !it.at.is_empty()));
        }
    }

    #[test]
    fn a_name_is_refused_by_the_releases_that_lack_it_with_its_replacement() {
        for name in all() {
            let it = Use { at: String::new(), name };
            assert_eq!(it.problem(EppRules::Own), None);
            let refusing = [EppRules::V010, EppRules::V011].map(|rules| it.problem(rules).is_some());
            let expected = match name.life {
                Deprecated | Open | Closed => [false, false],
                Elsewhere => [false, true],
                Life::Since(first) => Release::ALL.map(|release| release < first),
                Life::Until(end) => Release::ALL.map(|release| release >= end),
            };
            assert_eq!(refusing, expected, "{name:?}");
            let has_none = Release::ALL.into_iter().all(|release| !name.is_in(release));
            assert_eq!(it.unreleased().is_some(), has_none, "{name:?}");
            for text in [it.problem(EppRules::V011), it.unreleased(), it.warning()].into_iter().flatten() {
                assert!(text.contains(name.replaced_by) && text.contains(name.source), "{text}");
            }
        }
    }
}
