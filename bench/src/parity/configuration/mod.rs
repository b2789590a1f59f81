//! Configurations drawn from a seed, of the types of plugins that the compared versions of the EPP have.

mod filters;
mod others;
mod queue;
mod scorers;
mod stages;

use super::draw::Draw;
use endpoint_picker::epp_rules::EppRules;
use serde_json::{Value, json};

/// Blocks in the cache of a server: more than the cases of a start fill.
pub(super) const ROOM: u32 = 50_000;

/// Purpose of the profiles of a drawn configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One profile, or one of two by a header.
    Plain,
    /// Stages of disaggregated serving.
    Stages,
    /// Data-parallel ranks of servers.
    Ranks,
    /// Flow control, which only the native module has.
    Queue,
}

/// The configuration that is drawn by this seed. Equal seeds give equal configurations.
pub fn drawn(shape: Shape, rules: EppRules, seed: u64) -> Value {
    let mut draw = Draw::new(!seed);
    let mut draft = Draft::default();
    match shape {
        Shape::Plain => draft.plain(&mut draw, rules),
        Shape::Stages => draft.stages(&mut draw),
        Shape::Ranks => draft.ranks(&mut draw, rules),
        Shape::Queue => draft.queue(&mut draw, rules),
    }
    draft.document()
}

/// A configuration in the making.
#[derive(Debug, Default)]
struct Draft {
    plugins: Vec<Value>,
    profiles: Vec<Value>,
    /// Further sections of the document.
    sections: serde_json::Map<String, Value>,
    sources: Vec<Value>,
}

impl Draft {
    /// Declares a plugin, if none of its type is.
    fn declare(&mut self, plugin: Value) {
        if self.plugins.iter().all(|declared| declared["type"] != plugin["type"]) {
            self.plugins.push(plugin);
        }
    }

    /// Declares a plugin of a profile; returns its entry there.
    fn member(&mut self, plugin: Value, weight: Option<f64>) -> Value {
        let name = plugin["type"].clone();
        self.declare(plugin);
        match weight {
            Some(weight) => json!({"pluginRef": name, "weight": weight}),
            None => json!({"pluginRef": name}),
        }
    }

    fn profile(&mut self, name: &str, members: &[Value]) {
        self.profiles.push(json!({"name": name, "plugins": members}));
    }

    fn plain(&mut self, draw: &mut Draw, rules: EppRules) {
        let mut members = self.scored_by_cache();
        for filter in filters::drawn(draw, rules) {
            members.push(self.member(filter, None));
        }
        let has_filters = members.len() > 1;
        members.extend(self.scorers(draw, rules, has_filters));
        members.extend(self.picker(draw));
        match draw.below(5) {
            0 => {
                self.declare(json!({"type": "header-profile-handler"}));
                let mut other = self.scored_by_cache();
                other.push(self.member(json!({"type": "queue-scorer"}), Some(0.5)));
                self.profile("other", &other);
                self.profile("decode", &members);
            }
            1 => {
                self.declare(json!({"type": "single-profile-handler"}));
                self.profile("default", &members);
            }
            _ => self.profile("default", &members),
        }
        self.others(draw, rules);
    }

    fn ranks(&mut self, draw: &mut Draw, rules: EppRules) {
        self.declare(json!({
            "type": "data-parallel-profile-handler",
            "parameters": {"primaryPort": 8000},
        }));
        let mut members = self.scored_by_cache();
        members.extend(self.scorers(draw, rules, true));
        self.profile("default", &members);
    }

    /// The readings of servers and the scorer of every drawn profile: its values are so fine that few totals
    /// are equal.
    fn scored_by_cache(&mut self) -> Vec<Value> {
        self.declare(others::extractor());
        self.declare(json!({"type": "metrics-data-source"}));
        vec![self.member(json!({"type": "kv-cache-utilization-scorer"}), Some(1.25))]
    }

    fn document(mut self) -> Value {
        self.sources.push(json!({
            "pluginRef": "metrics-data-source",
            "extractors": [{"pluginRef": "core-metrics-extractor"}],
        }));
        let mut document = json!({
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
            "plugins": self.plugins,
            "dataLayer": {"sources": self.sources},
            "schedulingProfiles": self.profiles,
        });
        if let Some(sections) = document.as_object_mut() {
            sections.append(&mut self.sections);
        }
        document
    }
}
