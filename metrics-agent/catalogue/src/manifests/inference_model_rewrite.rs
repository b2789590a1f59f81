//! `InferenceModelRewrite`: replaces the model of requests.

use deserr::Deserr;
use endpoint_picker_wire::v1;

use super::fault::{Faults, quoted};
use super::fields::{Model, PoolRef, Weight};

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct InferenceModelRewrite {
    pub(crate) pool_ref: PoolRef,
    rules: Vec<RewriteRuleSpec>,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
struct RuleFields {
    #[deserr(default)]
    matches: Vec<RewriteMatch>,
    #[deserr(default)]
    targets: Option<Targets>,
    /// The name of `targets` in the API's proposal.
    #[deserr(default)]
    split: Option<Targets>,
}

/// A rule without models applies to all models.
#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, try_from(RuleFields) = Self::new -> String)]
struct RewriteRuleSpec {
    models: Vec<String>,
    targets: Vec<RewriteTarget>,
}

impl RewriteRuleSpec {
    fn new(rule: RuleFields) -> Result<Self, String> {
        let models = rule.matches.into_iter().map(|entry| entry.model.value.0).collect();
        match (rule.targets, rule.split) {
            (Some(targets), None) | (None, Some(targets)) => Ok(Self { models, targets: targets.0 }),
            (Some(_), Some(_)) => Err("has both targets and split; allowed is one of them".to_owned()),
            (None, None) => Err("has no targets; at least one is required".to_owned()),
        }
    }
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
struct RewriteMatch {
    model: ModelMatch,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
struct ModelMatch {
    #[deserr(default, rename = "type")]
    _type: Option<MatchType>,
    value: Model,
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults)]
enum MatchType {
    Exact,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, try_from(Vec<RewriteTarget>) = Self::new -> String)]
struct Targets(Vec<RewriteTarget>);

impl Targets {
    fn new(targets: Vec<RewriteTarget>) -> Result<Self, String> {
        if targets.is_empty() {
            return Err("is empty; at least one target is required".to_owned());
        }
        let bare = targets.iter().position(|target| target.weight.is_none());
        if let Some(index) = bare.filter(|_| targets.iter().any(|target| target.weight.is_some())) {
            let model = quoted(&targets[index].model_rewrite.0);
            return Err(format!(
                "target {index}, {model}, has no weight, but another target has one; allowed is a weight for each target or for none"
            ));
        }
        Ok(Self(targets))
    }
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct RewriteTarget {
    model_rewrite: Model,
    #[deserr(default)]
    weight: Option<Weight>,
}

impl InferenceModelRewrite {
    /// The rules in order; `resource` is the object's name.
    pub(crate) fn rules(&self, resource: &str) -> impl Iterator<Item = v1::RewriteRule> {
        self.rules.iter().map(move |rule| v1::RewriteRule {
            resource: resource.to_owned(),
            models: rule.models.clone(),
            targets: rule
                .targets
                .iter()
                .map(|target| v1::Target {
                    model: target.model_rewrite.0.clone(),
                    weight: target.weight.map(|weight| weight.0),
                })
                .collect(),
        })
    }
}
