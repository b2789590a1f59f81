//! Models that take the place of the clients' models: by rewrite rules and headers, and by the models of the
//! early API.

use hashbrown::HashMap;

use super::split::{Split, Target};
use crate::headers::Headers;
use crate::rng::Rng;

/// The header in which an earlier filter names the model, and its older spelling.
pub const REWRITE_HEADERS: [&str; 2] = ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];

/// A rule of an `InferenceModelRewrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteRule {
    /// The name of the object that has the rule.
    pub resource: String,
    /// The client's models that the rule applies to; empty: every model, also a missing one.
    pub models: Vec<String>,
    /// The models that take their place, by weight; a target without a weight has weight 0. If all weights
    /// are 0, all targets are equal. Without targets, the request has no model.
    pub targets: Vec<Target>,
}

/// The rewrite rules of a pool, by model: of the rules for one model the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    rules: Vec<CompiledRule>,
    by_model: HashMap<String, usize>,
    for_others: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CompiledRule {
    resource: String,
    split: Split,
}

/// A model in the place of the client's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rewritten<'a> {
    /// Empty: the rule has no targets, or one without a name.
    pub(super) model: &'a str,
    /// The object with the rule; `None`: a header named the model.
    pub(super) resource: Option<&'a str>,
}

impl Rewrites {
    /// From rules in their order of precedence.
    pub fn new(rules: impl IntoIterator<Item = RewriteRule>) -> Self {
        let mut rewrites = Self::default();
        for (index, rule) in rules.into_iter().enumerate() {
            if rule.models.is_empty() {
                rewrites.for_others.get_or_insert(index);
            }
            for model in rule.models {
                rewrites.by_model.entry(model).or_insert(index);
            }
            rewrites
                .rules
                .push(CompiledRule { resource: rule.resource, split: Split::or_even(rule.targets) });
        }
        rewrites
    }

    /// The client's models that have a rule of their own.
    pub(super) fn models(&self) -> impl Iterator<Item = &str> {
        self.by_model.keys().map(String::as_str)
    }

    /// Whether any client's model may be replaced.
    pub(super) fn may_apply(&self, headers: Headers<'_>) -> bool {
        !self.rules.is_empty() || headers.get_either(REWRITE_HEADERS).is_some()
    }

    /// Whether the client's model `asked` is replaced.
    pub(super) fn applies(&self, headers: Headers<'_>, asked: &str) -> bool {
        self.by_model.contains_key(asked)
            || self.for_others.is_some()
            || headers.get_either(REWRITE_HEADERS).is_some_and(|named| named != asked)
    }

    /// The model that takes the place of the client's model `asked`: by the rule for it, else by the rule for
    /// every model, else by header.
    pub(super) fn target<'a>(
        &'a self,
        headers: Headers<'a>,
        asked: &str,
        rng: &mut dyn Rng,
    ) -> Option<Rewritten<'a>> {
        let Some(rule) = self.by_model.get(asked).copied().or(self.for_others) else {
            return headers.get_either(REWRITE_HEADERS).map(|model| Rewritten { model, resource: None });
        };
        let CompiledRule { resource, split } = self.rules.get(rule)?;
        Some(Rewritten { model: split.draw(rng).unwrap_or_default(), resource: Some(resource) })
    }
}

/// An `InferenceModel` of the early API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceModel {
    /// The clients' name of the model.
    pub name: String,
    /// The priority of its criticality; below zero: sheddable.
    pub priority: i32,
    /// The models that serve it, by weight; all are equal if the first has no weight. Empty: the model
    /// itself.
    pub targets: Vec<Target>,
}

/// The models that exist, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceModels(HashMap<String, ModelPolicy>);

/// Priority and targets of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelPolicy {
    priority: i32,
    /// `None`: the model itself.
    targets: Option<Split>,
}

impl InferenceModels {
    /// From models, oldest first: the first of several with one name counts.
    pub fn new(models: impl IntoIterator<Item = InferenceModel>) -> Self {
        let mut by_name = HashMap::new();
        for InferenceModel { name, priority, targets } in models {
            let targets = (!targets.is_empty()).then(|| Split::weighted_unless_first_is_not(targets));
            by_name.entry(name).or_insert(ModelPolicy { priority, targets });
        }
        Self(by_name)
    }

    /// The priorities of all models.
    pub(super) fn priorities(&self) -> impl Iterator<Item = i32> {
        self.0.values().map(ModelPolicy::priority)
    }

    /// The names of all models.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether targets serve this model.
    pub(super) fn may_rename(&self, model: &str) -> bool {
        self.get(model).is_some_and(|entry| entry.targets.is_some())
    }

    pub(super) fn get(&self, model: &str) -> Option<&ModelPolicy> {
        self.0.get(model)
    }
}

impl ModelPolicy {
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    /// The model that serves requests for `asked`; `None` if all targets have weight 0, or the drawn target
    /// has no name.
    pub(super) fn target<'a>(&'a self, asked: &'a str, rng: &mut dyn Rng) -> Option<&'a str> {
        match &self.targets {
            Some(targets) => targets.draw(rng).filter(|target| !target.is_empty()),
            None => Some(asked),
        }
    }
}
