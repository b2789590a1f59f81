//! The operator's policy for a pool: priorities, models in place of the clients' models, and which models
//! exist.
//!
//! Objects of two generations define it. They combine in this order, the newer generation first:
//!
//! - **Model.** The target of the [rewrite rule](RewriteRule) for the client's model; else the model that the
//!   header `x-llm-d-model-name-rewrite` names; else a target of the client's [`InferenceModel`]; else the
//!   client's model.
//! - **Existence.** With any [`InferenceModel`], the client's model or the one it became by rule or header
//!   must be one of them, otherwise the request is answered 404. Without any, every model exists.
//! - **Priority.** The priority of the objective that the header `x-llm-d-inference-objective` names; else
//!   the priority of the [`InferenceModel`]; else 0.

mod body;
mod models;
mod record;
mod split;

use core::time::Duration;

use hashbrown::HashMap;

use crate::decision::FailureMode;
use crate::decision::rejection::Rejection;
use crate::headers::Headers;
use crate::request::ModelResolution;
use crate::request::body::{Api, BodyError};
use crate::rng::Rng;
pub use body::{Member, name_model_in_form, with_members};
pub use models::{InferenceModel, InferenceModels, REWRITE_HEADERS, RewriteRule, Rewrites};
pub use record::{MAX_RECORDED_BLOCKS, RECORDED_BLOCK_TOKENS, RECORDED_PROMPT_BYTES, RecordSample};
pub use split::Target;

/// The operator's settings for a pool, in addition to the picker's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The treatment of requests without the data for a decision; `None`: as the proxy is configured.
    pub failure_mode: Option<FailureMode>,
    /// Priorities by name.
    pub objectives: Objectives,
    /// Models in place of the clients' models.
    pub rewrites: Rewrites,
    /// The models that exist.
    pub inference_models: InferenceModels,
    /// Whether a request without a model is rejected, as the EPP does, where its API has a model.
    pub requires_model: bool,
    /// Write the endpoints' scores to the request's metadata, for later filters.
    pub emit_endpoint_scores: bool,
    /// The time for which an endpoint is [avoided](crate::state::avoidance) after its first failure; zero: it
    /// is not avoided.
    pub avoid_failing: Duration,
    /// Reason for which every request is rejected; `None`: requests are decided.
    pub refusal: Option<String>,
    /// The names of other pools that take requests for which this pool has no room, in their order, where the
    /// proxy is not configured with such a list.
    pub fallback: Vec<String>,
    /// The requests that are recorded; `None`: none is.
    pub record: Option<RecordSample>,
}

impl Policy {
    /// The rejection of every request to a pool that is refused.
    pub fn refused(&self) -> Option<Rejection> {
        self.refusal.as_deref().map(Rejection::pool_refused)
    }

    /// The resolution of a request to an API whose bodies name models; its body names `asked`.
    ///
    /// Rejects with 400 without a model where one is required or there are [`InferenceModels`], and with 404
    /// if the model is not one of these. Else a server without a model in the request serves its own.
    pub fn resolve<'a>(
        &'a self,
        headers: Headers<'a>,
        asked: Option<&'a str>,
        rng: &mut dyn Rng,
    ) -> Result<ModelResolution<'a>, Rejection> {
        let asked = asked.unwrap_or_default();
        let rewritten = self.rewrites.target(headers, asked, rng);
        let model = rewritten.map_or(asked, |rewritten| rewritten.model);
        let rewrite = rewritten.and_then(|rewritten| rewritten.resource);
        if model.is_empty() && (self.requires_model || !self.inference_models.is_empty()) {
            return Err(Rejection::bad_request(BodyError::NoModel.to_string()));
        }
        let objective = self.objectives.priority(headers);
        if self.inference_models.is_empty() {
            return Ok(ModelResolution { model, priority: objective.unwrap_or(0), rewrite });
        }
        let entry = self.inference_models.get(asked).or_else(|| self.inference_models.get(model));
        let entry = entry.ok_or_else(|| Rejection::unknown_model(model))?;
        let model = match rewritten {
            Some(target) => target.model,
            None => entry.target(asked, rng).ok_or_else(|| Rejection::no_target_model(asked))?,
        };
        Ok(ModelResolution { model, priority: objective.unwrap_or(entry.priority()), rewrite })
    }

    /// The resolution of a request to any API. Without a model in the body, where the API does not require
    /// one, no model takes its place.
    pub fn resolve_at<'a>(
        &'a self,
        api: Api,
        headers: Headers<'a>,
        asked: Option<&'a str>,
        rng: &mut dyn Rng,
    ) -> Result<ModelResolution<'a>, Rejection> {
        if api.names_model() && (asked.is_some() || !api.may_lack_model()) {
            return self.resolve(headers, asked, rng);
        }
        let priority = self.objectives.priority(headers).unwrap_or(0);
        if api.takes_model_from_header() {
            let model = headers.get_either(REWRITE_HEADERS).unwrap_or_default();
            return Ok(ModelResolution { model, priority, rewrite: None });
        }
        Ok(ModelResolution { model: asked.unwrap_or_default(), priority, rewrite: None })
    }

    /// The resolution of a request that another picker has routed, and whose model it has named. Models that
    /// do not exist are not refused.
    pub fn resolve_routed<'a>(&'a self, headers: Headers<'a>, model: Option<&'a str>) -> ModelResolution<'a> {
        let model = model.unwrap_or_default();
        let of_model = || self.inference_models.get(model).map(models::ModelPolicy::priority);
        let priority = self.objectives.priority(headers).or_else(of_model).unwrap_or(0);
        ModelResolution { model, priority, rewrite: None }
    }

    /// The priority that [`Self::resolve_at`] will return, if the headers alone decide it.
    pub fn early_priority(&self, headers: Headers<'_>) -> Option<i32> {
        self.objectives.priority(headers).or_else(|| self.inference_models.is_empty().then_some(0))
    }

    /// The models that clients may name, in no order and maybe more than once: the models of rewrite rules
    /// and of [`InferenceModel`]s, and without the latter also the servers' models, `served`.
    pub fn listed_models<'a>(
        &'a self,
        served: impl Iterator<Item = &'a str>,
    ) -> impl Iterator<Item = &'a str> {
        let served = served.filter(|_| self.inference_models.is_empty());
        self.rewrites.models().chain(self.inference_models.names()).chain(served)
    }

    /// The priorities that requests may have, each as often as it is named.
    pub fn priorities(&self) -> impl Iterator<Item = i32> {
        self.objectives.priorities().chain(self.inference_models.priorities())
    }

    /// Whether the decision for a request needs its body. A body of which only the model is read is not
    /// needed if nothing depends on models.
    pub fn needs_body(&self, api: Api, headers: Headers<'_>) -> bool {
        if api.reads_only_model() {
            return self.depends_on_models(headers);
        }
        api != Api::Raw
    }

    /// Whether the decision for a request needs the model in its body, if there is one.
    pub fn needs_model(&self, api: Api, headers: Headers<'_>) -> bool {
        api.names_model() && (!api.may_lack_model() || self.depends_on_models(headers))
    }

    /// Whether a body that cannot be read is passed on as a body without a model. It is refused where models
    /// must exist or may be replaced, because the server might read a model that the picker cannot.
    pub fn passes_unread(&self, api: Api, headers: Headers<'_>) -> bool {
        api.may_lack_model() && !self.depends_on_models(headers)
    }

    fn depends_on_models(&self, headers: Headers<'_>) -> bool {
        !self.inference_models.is_empty() || self.rewrites.may_apply(headers)
    }

    /// Whether the model `asked` in a body may be replaced.
    pub fn may_rename(&self, headers: Headers<'_>, asked: &str) -> bool {
        self.rewrites.applies(headers, asked) || self.inference_models.may_rename(asked)
    }
}

/// The header that names an objective, and its older spelling.
const HEADERS: [&str; 2] = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];

/// The `InferenceObjective`s of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objectives(HashMap<String, i32>);

impl Objectives {
    /// From names and priorities; the first of several with one name counts.
    pub fn new(objectives: impl IntoIterator<Item = (String, i32)>) -> Self {
        let mut by_name = HashMap::new();
        for (name, priority) in objectives {
            by_name.entry(name).or_insert(priority);
        }
        Self(by_name)
    }

    /// The priorities of all objectives.
    fn priorities(&self) -> impl Iterator<Item = i32> {
        self.0.values().copied()
    }

    /// The priority of the objective that the headers name; `None` if they name none, or an unknown one.
    fn priority(&self, headers: Headers<'_>) -> Option<i32> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(headers.get_either(HEADERS)?).copied()
    }
}

#[cfg(test)]
mod tests;
