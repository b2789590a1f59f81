//! `served-model-filter`: endpoints that list the request's model.

use std::sync::Arc;

use serde::Deserialize;

use super::{Eligibility, OnMissing};
use crate::decision::{ServedModelOutcome, ServedModelRun};
use crate::input::cycle::Cycle;
use crate::input::slot::Slot;
use crate::plugin::{Filter, Need, NeedKind, Plugin, Roles};
use crate::pool::reading::{MODELS, ServedModel};
use crate::rng::Rng;

/// Keeps the endpoints whose list of models has the request's model.
///
/// An endpoint without a list passes by `on_missing`, unless a candidate lists the model as an adapter: then
/// it is known who has it. A request without a model keeps all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ServedModelFilter {
    on_missing: OnMissing,
    /// Keeps all rather than none.
    fallback_on_empty: bool,
}

impl Plugin for ServedModelFilter {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self.clone()), served_models: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need { parameter: "", name: MODELS, kind: NeedKind::CustomMetric }]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

/// The request's model in the list of an endpoint.
enum Listing<'a> {
    /// The endpoint has no list.
    Unknown,
    Absent,
    Listed(&'a ServedModel),
}

fn listing<'a>(cycle: &Cycle<'a>, endpoint: usize) -> Listing<'a> {
    let Some(models) = cycle.reading(endpoint).models.as_deref() else { return Listing::Unknown };
    let served = models.iter().find(|served| served.id == cycle.request.model);
    served.map_or(Listing::Absent, Listing::Listed)
}

impl Slot<ServedModelFilter> {
    /// The effect on these candidates, at least one.
    pub(crate) fn run(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> ServedModelRun {
        let plugin = self.name.clone();
        if cycle.request.model.is_empty() {
            let outcome = ServedModelOutcome::NotApplicable;
            return ServedModelRun { plugin, outcome, candidates: 0, unlisted: 0 };
        }
        let listings = || candidates.iter().map(|&endpoint| listing(cycle, endpoint));
        let count = |endpoints: usize| u32::try_from(endpoints).unwrap_or(u32::MAX);
        let unlisted = count(listings().filter(|listing| matches!(listing, Listing::Unknown)).count());
        let outcome = if listings().any(|listing| matches!(listing, Listing::Listed(_))) {
            ServedModelOutcome::Listed
        } else if self.plugin.on_missing == OnMissing::Pass && unlisted > 0 {
            ServedModelOutcome::Unlisted
        } else if self.plugin.fallback_on_empty {
            ServedModelOutcome::Fallback
        } else {
            ServedModelOutcome::Empty
        };
        ServedModelRun { plugin, outcome, candidates: count(candidates.len()), unlisted }
    }
}

impl Filter for ServedModelFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        if cycle.request.model.is_empty() {
            return;
        }
        let is_adapter = |&endpoint: &usize| match listing(cycle, endpoint) {
            Listing::Listed(served) => served.is_adapter,
            Listing::Unknown | Listing::Absent => false,
        };
        let passes_unknown = self.on_missing == OnMissing::Pass && !candidates.iter().any(is_adapter);
        let fits = |&endpoint: &usize| match listing(cycle, endpoint) {
            Listing::Listed(_) => true,
            Listing::Absent => false,
            Listing::Unknown => passes_unknown,
        };
        if !self.fallback_on_empty || candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }

    /// No endpoint would serve the model, however idle it is.
    fn eligibility(&self) -> Eligibility {
        Eligibility::Always
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::reading::Reading;
    use crate::test;
    use serde_json::{Value, json};

    /// Lists of models, each `name` or `name*` for an adapter; `None`: not known.
    fn kept(parameters: Value, model: &'static str, lists: &[Option<&[&str]>]) -> Vec<usize> {
        let served = |name: &&str| ServedModel {
            id: name.trim_end_matches('*').to_owned(),
            is_adapter: name.ends_with('*'),
        };
        let reading = |list: Option<&[&str]>| Reading {
            models: list.map(|list| list.iter().map(served).collect()),
            ..Reading::default()
        };
        let mut fixture = Fixture::with_readings(&lists.iter().copied().map(reading).collect::<Vec<_>>());
        fixture.request.model = model;
        let filter: ServedModelFilter = serde_json::from_value(parameters).unwrap();
        fixture.kept(&filter, 1)
    }

    const LISTS: [Option<&[&str]>; 4] = [Some(&["base", "lora*"]), Some(&["base"]), None, Some(&[])];

    #[test]
    fn endpoints_that_list_the_model_are_kept() {
        assert_eq!(kept(json!({}), "base", &LISTS), [0, 1, 2]);
        assert_eq!(kept(json!({"onMissing": "Fail"}), "base", &LISTS), [0, 1]);
        assert_eq!(kept(json!({}), "", &LISTS), [0, 1, 2, 3]);
    }

    #[test]
    fn an_endpoint_without_a_list_does_not_pass_where_another_one_has_the_adapter() {
        assert_eq!(kept(json!({}), "lora", &LISTS), [0]);
        assert_eq!(kept(json!({}), "lora", &LISTS[1..]), [1]);
    }

    #[test]
    fn none_is_left_unless_all_are_kept_instead() {
        assert_eq!(kept(json!({"onMissing": "Fail"}), "other", &LISTS), [0; 0]);
        let fallback = json!({"onMissing": "Fail", "fallbackOnEmpty": true});
        assert_eq!(kept(fallback, "other", &LISTS), [0, 1, 2, 3]);
    }
}
