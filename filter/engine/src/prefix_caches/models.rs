//! The models of a pool, and the prompts of each that can be matched.

use std::sync::Arc;

use endpoint_picker::cached_prefixes::{MatchedPrompts, PromptTexts};
use endpoint_picker::request::body::Api;
use endpoint_picker::request::cached_prompt::PromptKind;
use endpoint_picker_wire::prefixes::Model;
use hashbrown::HashMap;

/// A model as it is served under one name.
#[derive(Clone, Debug)]
pub struct ServedModel {
    root: Arc<str>,
    prompts: MatchedPrompts,
}

impl ServedModel {
    /// The name in the root keys of the model's cached prefixes: the first of a base model's names, or an
    /// adapter's own.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Its prompts that can be matched.
    pub fn prompts(&self) -> &MatchedPrompts {
        &self.prompts
    }
}

/// The models of a pool by the names under which they are served.
#[derive(Clone, Debug, Default)]
pub struct ServedModels {
    by_name: HashMap<String, Arc<ServedModel>>,
    /// The prompts of each base model.
    prompts: Vec<MatchedPrompts>,
}

impl ServedModels {
    /// The models whose prefixes are known, with keys that are made as here. Of two with one name the first
    /// counts.
    pub fn new(models: &[Model], texts_of: impl Fn(&Model) -> Arc<dyn PromptTexts>) -> Self {
        let mut served = Self::default();
        for model in models {
            let Some(first) = model.names.first() else { continue };
            let has_root = |kind: PromptKind, root| kind.root(first, None) == root;
            let has_texts = model.problem.is_empty() && has_root(PromptKind::Text, model.root);
            let prompts = MatchedPrompts {
                texts: has_texts.then(|| texts_of(model)),
                has_token_ids: model.token_ids_root.is_some_and(|root| has_root(PromptKind::TokenIds, root)),
            };
            if prompts.texts.is_none() && !prompts.has_token_ids {
                continue;
            }
            let of_root = |root: &str| Arc::new(ServedModel { root: root.into(), prompts: prompts.clone() });
            let base = of_root(first);
            for name in &model.names {
                served.by_name.entry(name.clone()).or_insert_with(|| Arc::clone(&base));
            }
            for name in &model.adapters {
                served.by_name.entry(name.clone()).or_insert_with(|| of_root(name));
            }
            served.prompts.push(prompts);
        }
        served
    }

    /// Whether prompts of requests to this API can be matched, for one model or more.
    pub(super) fn can_match(&self, api: Api) -> bool {
        self.prompts.iter().any(|prompts| prompts.can_match(api))
    }

    /// The model of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.by_name.get(name).cloned()
    }
}
