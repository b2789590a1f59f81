//! The models of the early API.

use hashbrown::HashMap;

use super::split::{Split, Target};
use crate::rng::Rng;

/// An `InferenceModel` of the early API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceModel {
    /// The clients' name of the model.
    pub name: String,
    /// The priority of its criticality; below zero: sheddable.
    pub priority: i32,
    /// The models that serve it, by weight; all are equal if the first has no weight. Empty: the model itself.
    pub targets: Vec<Target>,
}

/// The models that exist, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferenceModels(HashMap<String, Entry>);

/// Priority and targets of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
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
            by_name.entry(name).or_insert(Entry { priority, targets });
        }
        Self(by_name)
    }

    /// The priorities of all models.
    pub(super) fn priorities(&self) -> impl Iterator<Item = i32> {
        self.0.values().map(Entry::priority)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether targets serve this model.
    pub(super) fn may_rename(&self, model: &str) -> bool {
        self.get(model).is_some_and(|entry| entry.targets.is_some())
    }

    pub(super) fn get(&self, model: &str) -> Option<&Entry> {
        self.0.get(model)
    }
}

impl Entry {
    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    /// The model that serves requests for `asked`; `None` if all targets have weight 0, or the drawn target has no name.
    pub(super) fn target<'a>(&'a self, asked: &'a str, rng: &mut dyn Rng) -> Option<&'a str> {
        match &self.targets {
            Some(targets) => targets.draw(rng).filter(|target| !target.is_empty()),
            None => Some(asked),
        }
    }
}
