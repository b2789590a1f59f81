//! Models that take the place of those asked for.

use hashbrown::HashMap;

use super::split::{Split, Target};
use crate::headers::Headers;
use crate::rng::Rng;

/// The header in which an earlier filter names the model, and its older spelling.
const HEADERS: [&str; 2] = ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];

/// A rule of an `InferenceModelRewrite`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteRule {
    /// The name of the object that has the rule.
    pub resource: String,
    /// The client's models it is for; none: every model, also a missing one.
    pub models: Vec<String>,
    /// What takes their place, by weight: out of the sum of all weights, a target without one having none. If that sum
    /// is 0, all targets are equal. Without targets, the request has no model.
    pub targets: Vec<Target>,
}

/// The rewrite rules of a pool, by model: of the rules for one model only the first ever counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    rules: Vec<Rule>,
    by_model: HashMap<String, usize>,
    for_others: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    resource: String,
    split: Split,
}

/// A model in the place of the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rewritten<'a> {
    /// Empty: a model without a name.
    pub(super) model: &'a str,
    /// The object whose rule it was; `None`: a header.
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
            rewrites.rules.push(Rule { resource: rule.resource, split: Split::or_even(rule.targets) });
        }
        rewrites
    }

    /// Whether there is a model whose place something takes.
    pub(super) fn may_apply(&self, headers: Headers<'_>) -> bool {
        !self.rules.is_empty() || headers.get_either(HEADERS).is_some()
    }

    /// Whether something takes the place of the model `asked`.
    pub(super) fn applies(&self, headers: Headers<'_>, asked: &str) -> bool {
        self.by_model.contains_key(asked)
            || self.for_others.is_some()
            || headers.get_either(HEADERS).is_some_and(|named| named != asked)
    }

    /// What takes the place of the model `asked`, if anything does: by the rule for it, else by the rule for every
    /// model, else by header.
    pub(super) fn target<'a>(
        &'a self,
        headers: Headers<'a>,
        asked: &str,
        rng: &mut dyn Rng,
    ) -> Option<Rewritten<'a>> {
        let Some(rule) = self.by_model.get(asked).copied().or(self.for_others) else {
            return headers.get_either(HEADERS).map(|model| Rewritten { model, resource: None });
        };
        let Rule { resource, split } = &self.rules[rule];
        Some(Rewritten { model: split.draw(rng).unwrap_or_default(), resource: Some(resource) })
    }
}
