//! A configuration with all its defaults filled in.

use core::time::Duration;

use serde_json::{Value, json};

use super::scorers::{BY_PREFIXES, BY_READINGS, scorers};
use crate::document::{HAS_RULES_OF_V011, epp_rules, neutral_score_after};

#[derive(Clone, Debug)]
pub(super) struct Plugin {
    pub(super) name: String,
    pub(super) kind: String,
    parameters: Value,
}

impl Plugin {
    fn new(document: &Value) -> Self {
        let kind = document["type"].as_str().unwrap();
        let name = document["name"].as_str().unwrap_or(kind);
        let parameters = document["parameters"].clone();
        Self { name: name.to_owned(), kind: kind.to_owned(), parameters }
    }

    pub(super) fn value(&self, parameter: &str) -> &Value {
        &self.parameters[parameter]
    }

    pub(super) fn number(&self, parameter: &str, default: f64) -> f64 {
        self.parameters[parameter].as_f64().unwrap_or(default)
    }

    pub(super) fn whole(&self, parameter: &str, default: u64) -> usize {
        usize::try_from(self.parameters[parameter].as_u64().unwrap_or(default)).unwrap()
    }

    pub(super) fn flag(&self, parameter: &str, default: bool) -> bool {
        self.parameters[parameter].as_bool().unwrap_or(default)
    }

    pub(super) fn text<'a>(&'a self, parameter: &str, default: &'a str) -> &'a str {
        self.parameters[parameter].as_str().filter(|text| !text.is_empty()).unwrap_or(default)
    }

    /// Producer whose prefix matches it reads.
    pub(super) fn prefixes(&self) -> &str {
        self.text("prefixMatchInfoProducerName", PREFIXES)
    }

    pub(super) fn is_filter(&self) -> bool {
        self.kind.ends_with("-filter")
            || self.kind == "legacy-filter-tree"
            || self.is_detector()
            || self.kind == "context-length-aware" && self.flag("enableFiltering", false)
    }

    pub(super) fn is_scorer(&self) -> bool {
        scorers().iter().any(|scorer| scorer["type"] == self.kind)
    }

    /// Whether it scores by readings.
    pub(super) fn goes_by_readings(&self) -> bool {
        BY_READINGS.contains(&self.kind.as_str())
            || self.kind == "endpoint-attribute-scorer"
                && self.text("producer", "core-metrics-extractor") != "inflight-load-producer"
    }

    fn is_picker(&self) -> bool {
        self.kind.ends_with("-picker")
    }

    fn is_detector(&self) -> bool {
        self.kind.ends_with("-detector")
    }

    fn reads_predictions(&self) -> bool {
        ["latency-scorer", "slo-headroom-tier-filter", "latency-slo-admitter"].contains(&self.kind.as_str())
            || self.text("ttftSource", "") == "latencyPredictor" && self.number("maxTTFTPenaltyMs", 1.0) > 0.0
    }

    fn reads_prefixes(&self) -> bool {
        let others =
            ["prefix-cache-affinity-filter", "disagg-profile-handler", "p2p-source-producer", PREDICTOR];
        BY_PREFIXES.iter().chain(&others).any(|reader| self.kind == *reader)
    }
}

/// The latency predictor that there is by default.
const PREDICTOR: &str = "predicted-latency-producer";

/// The prefix producer that there is by default.
pub(super) const PREFIXES: &str = "approx-prefix-cache-producer";

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) filters: Vec<Plugin>,
    pub(super) scorers: Vec<(Plugin, f64)>,
    pub(super) picker: Plugin,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) plugins: Vec<Plugin>,
    pub(super) profiles: Vec<Profile>,
    pub(super) handler: Plugin,
    pub(super) detector: Plugin,
    pub(super) load: Plugin,
    /// The age from which readings give neutral scores.
    pub(super) neutral_score_after: Option<Duration>,
    /// Whether the rules of the EPP's v0.11 decide.
    pub(super) is_v011: bool,
}

impl Plan {
    pub(super) fn of(document: &Value) -> Self {
        let (neutral_score_after, is_v011) = (neutral_score_after(document), epp_rules(document).is_v011());
        if document["plugins"].as_array().is_none_or(Vec::is_empty)
            && document["schedulingProfiles"].as_array().is_none_or(Vec::is_empty)
        {
            let mut default = without_configuration();
            default[HAS_RULES_OF_V011] = is_v011.into();
            return Self { neutral_score_after, ..Self::of(&default) };
        }
        let mut plugins: Vec<Plugin> =
            document["plugins"].as_array().unwrap().iter().map(Plugin::new).collect();
        let detector = document["flowControl"]["saturationDetector"]["pluginRef"].as_str();
        let detector = ensure(&mut plugins.clone(), detector.unwrap_or("utilization-detector"));
        let mut profiles: Vec<Profile> = Vec::new();
        for profile in document["schedulingProfiles"].as_array().unwrap() {
            let members = profile["plugins"].as_array().unwrap().iter().map(|member| {
                let name = &member["pluginRef"];
                let plugin = plugins.iter().find(|plugin| plugin.name == *name).unwrap();
                (plugin.clone(), member["weight"].as_f64().unwrap_or(1.0))
            });
            profiles.push(Self::profile(
                profile["name"].as_str().unwrap(),
                &members.collect::<Vec<_>>(),
                &plugins,
            ));
        }
        if profiles.is_empty() {
            let members: Vec<_> = plugins.iter().map(|plugin| (plugin.clone(), 1.0)).collect();
            profiles.push(Self::profile("default", &members, &plugins));
        }
        if is_v011 && ["utilization-detector", "concurrency-detector"].contains(&&*detector.kind) {
            for profile in &mut profiles {
                let has_own_rules =
                    profile.scorers.iter().any(|(it, _)| it.kind == "expected-latency-scorer");
                if !has_own_rules && profile.filters.iter().all(|filter| filter.name != detector.name) {
                    profile.filters.push(detector.clone());
                }
            }
        }
        let is_handler = |plugin: &&Plugin| plugin.kind.ends_with("-handler");
        let handler = plugins.iter().find(is_handler).cloned();
        let handler = handler.unwrap_or_else(|| Plugin::new(&json!({"type": "single-profile-handler"})));
        if plugins.iter().any(Plugin::reads_predictions) {
            ensure(&mut plugins, PREDICTOR);
        }
        let is_read = |plugin: &Plugin| plugin.reads_prefixes() && plugin.prefixes() == PREFIXES;
        if plugins.iter().any(is_read) {
            ensure(&mut plugins, PREFIXES);
        }
        if plugins.iter().any(|plugin| plugin.kind == "mm-embeddings-cache-scorer") {
            ensure(&mut plugins, "mm-embeddings-cache-producer");
        }
        let load = ensure(&mut plugins.clone(), "inflight-load-producer");
        Self { plugins, profiles, handler, detector, load, neutral_score_after, is_v011 }
    }

    fn profile(name: &str, members: &[(Plugin, f64)], declared: &[Plugin]) -> Profile {
        let filters = members.iter().map(|(plugin, _)| plugin).filter(|plugin| plugin.is_filter());
        let own = members.iter().map(|(plugin, _)| plugin).find(|plugin| plugin.is_picker());
        let picker = own.or_else(|| declared.iter().find(|plugin| plugin.is_picker())).cloned();
        Profile {
            name: name.to_owned(),
            filters: filters.cloned().collect(),
            scorers: members.iter().filter(|(plugin, _)| plugin.is_scorer()).cloned().collect(),
            picker: picker.unwrap_or_else(|| Plugin::new(&json!({"type": "max-score-picker"}))),
        }
    }
}

/// The plugin of this name; one of the type of this name if there is none.
fn ensure(plugins: &mut Vec<Plugin>, name: &str) -> Plugin {
    if plugins.iter().all(|plugin| plugin.name != name) {
        plugins.push(Plugin::new(&json!({"type": name})));
    }
    plugins.iter().find(|plugin| plugin.name == name).unwrap().clone()
}

fn without_configuration() -> Value {
    let scorers = [("queue-scorer", 2.0), ("kv-cache-utilization-scorer", 2.0), ("prefix-cache-scorer", 3.0)];
    let members = scorers.map(|(scorer, weight)| json!({"pluginRef": scorer, "weight": weight}));
    json!({
        "plugins": scorers.map(|(scorer, _)| json!({"type": scorer})),
        "schedulingProfiles": [{"name": "default", "plugins": members}],
    })
}
