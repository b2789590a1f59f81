//! The models that servers serve, and the forms in which their prefixes have keys.

use std::sync::Arc;

use endpoint_picker::state::prefix::key;
use endpoint_picker_wire::Message as _;
use endpoint_picker_wire::prefixes::Model;
use metrics_agent_scrape::model_list::ListedModel;

use super::index::KeyedModel;
use super::tokenizer::{Tokenizer, Tokenizers};

/// Maximum number of names, and of adapters, of a model in a message.
const MAX_NAMES: usize = 1024;

/// Maximum size of the models of a message, in bytes. Further ones are left out.
const MAX_BYTES: usize = 1 << 20;

/// The base model of a server.
#[derive(Clone, Debug)]
pub(super) struct ServedModel {
    /// The names under which it is served, at least one.
    names: Vec<String>,
    /// The adapters that are loaded onto it.
    adapters: Vec<String>,
    /// Its tokenizer, or why there is none.
    pub(super) tokenizer: Result<Arc<Tokenizer>, String>,
    /// Whether its prefixes have keys by their token ids.
    pub(super) has_token_ids: bool,
}

impl ServedModel {
    /// The base model of a server's list; `None`: the list has none. The prefixes of the models
    /// `by_token_ids`, which are given by a name or by the path that servers give for it, have keys by their
    /// token ids.
    pub(super) async fn of_list(
        list: Vec<ListedModel>,
        tokenizers: &Tokenizers,
        by_token_ids: &[String],
    ) -> Option<Self> {
        let (base, adapters): (Vec<_>, Vec<_>) = list.into_iter().partition(|model| !model.is_adapter());
        let root = base.first()?.root.clone();
        let names: Vec<_> = base.into_iter().map(|model| model.id).collect();
        let adapters = adapters.into_iter().map(|model| model.id).collect();
        let tokenizer = tokenizers.of_model(&names, root.as_deref()).await;
        let has_token_ids =
            by_token_ids.iter().any(|name| names.contains(name) || root.as_ref() == Some(name));
        Some(Self { names, adapters, tokenizer, has_token_ids })
    }

    /// The model by which the prefixes of a cache have keys; `None`: they have none.
    pub(super) fn keyed(&self) -> Option<Arc<KeyedModel>> {
        let tokenizer = self.tokenizer.as_ref().ok().cloned();
        let has_keys = tokenizer.is_some() || self.has_token_ids;
        has_keys.then(|| Arc::new(KeyedModel::new(self.name(), tokenizer, self.has_token_ids)))
    }

    /// Whether readers get the same about it.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let tokenizer = |model: &Self| model.tokenizer.as_ref().ok().map(Arc::as_ptr);
        tokenizer(self) == tokenizer(other)
            && self.names == other.names
            && self.adapters == other.adapters
            && self.has_token_ids == other.has_token_ids
            && self.tokenizer.as_ref().err() == other.tokenizer.as_ref().err()
    }

    /// The order in which servers count, the same in each agent.
    fn order(&self) -> impl Ord {
        let tokenizer = self.tokenizer.as_ref().map(|tokenizer| (tokenizer.digest, &tokenizer.chat_template));
        (&self.names, tokenizer, &self.adapters)
    }

    /// The first name, by which servers and proxies agree about the root.
    fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    fn message(&self) -> Model {
        let model = Model {
            names: self.names.clone(),
            adapters: self.adapters.clone(),
            root: key::root(self.name(), None),
            token_ids_root: self.has_token_ids.then(|| key::root_of_token_ids(self.name(), None)),
            ..Model::default()
        };
        match &self.tokenizer {
            Ok(tokenizer) => Model {
                chat_template: tokenizer.chat_template.clone(),
                bos_token: tokenizer.bos_token.clone(),
                eos_token: tokenizer.eos_token.clone(),
                adds_bos: tokenizer.adds_bos,
                normalizes: tokenizer.normalizes,
                ..model
            },
            Err(problem) => Model { problem: problem.clone(), ..model },
        }
    }
}

/// The models of a pool's servers, whatever the order of the servers. Servers of one model together have all
/// its names and adapters; of different tokenizers one counts.
pub(super) fn of_pool<'a>(servers: impl Iterator<Item = &'a Arc<ServedModel>>) -> Vec<Model> {
    let mut different: Vec<&ServedModel> = Vec::new();
    for server in servers {
        if !different.iter().any(|other| other.is_same(server)) {
            different.push(server);
        }
    }
    different.sort_by(|one, other| one.order().cmp(&other.order()));
    let mut models: Vec<Model> = Vec::new();
    for served in different {
        let message = served.message();
        let Some(model) = models.iter_mut().find(|model| model.root == message.root) else {
            models.push(message);
            continue;
        };
        let (names, adapters) = (core::mem::take(&mut model.names), core::mem::take(&mut model.adapters));
        if message.problem.is_empty() && !model.problem.is_empty() {
            model.clone_from(&message);
        }
        model.token_ids_root = model.token_ids_root.or(message.token_ids_root);
        (model.names, model.adapters) = (union(names, message.names), union(adapters, message.adapters));
    }
    let mut bytes = 0;
    models.retain(|model| {
        let length = model.encoded_len();
        let fits = bytes + length <= MAX_BYTES;
        bytes += if fits { length } else { 0 };
        fits
    });
    models
}

fn union(mut names: Vec<String>, more: Vec<String>) -> Vec<String> {
    for name in more {
        if names.len() < MAX_NAMES && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

    fn served(names: &[&str], adapters: &[&str], digest: Option<u64>) -> Arc<ServedModel> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let tokenizer = |digest: u64| {
            Arc::new(Tokenizer {
                vocabulary: Vocabulary::new(LeadingSpace::Never),
                digest,
                chat_template: format!("template {digest}"),
                bos_token: String::new(),
                eos_token: String::new(),
                adds_bos: false,
                normalizes: false,
            })
        };
        Arc::new(ServedModel {
            names: owned(names),
            adapters: owned(adapters),
            tokenizer: digest.map(tokenizer).ok_or_else(|| "none".to_owned()),
            has_token_ids: digest.is_none(),
        })
    }

    #[test]
    fn the_order_of_servers_does_not_matter() {
        let servers = [
            served(&["m", "b"], &["y"], Some(2)),
            served(&["m", "a"], &["x"], None),
            served(&["m", "a"], &["x", "z"], Some(1)),
            served(&["other"], &[], None),
        ];
        let all = of_pool(servers.iter());
        let [model, other] = &all[..] else { panic!("{all:?}") };
        assert_eq!(model.names, ["m", "a", "b"]);
        assert_eq!(model.adapters, ["x", "z", "y"]);
        assert_eq!((model.chat_template.as_str(), model.problem.as_str()), ("template 1", ""));
        assert_eq!(model.token_ids_root, Some(key::root_of_token_ids("m", None)));
        assert_eq!((other.names[0].as_str(), other.problem.as_str()), ("other", "none"));
        for rotated in 1..servers.len() {
            let mut servers = servers.clone();
            servers.rotate_left(rotated);
            assert_eq!(of_pool(servers.iter()), all);
            servers.reverse();
            assert_eq!(of_pool(servers.iter()), all);
        }
    }
}
