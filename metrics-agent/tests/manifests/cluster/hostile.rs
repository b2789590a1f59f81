//! An object that is refused changes nothing for the others.

use metrics_agent_sources::kubernetes::ClusterObject;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::fixture::{Fixture, OLD, Update, YOUNG, model, object, objective, pool, rewrite};

/// A namespace of another team: its objects never belong to the team that is checked.
const FOREIGN: &str = "foreign";

fn own() -> Vec<ClusterObject> {
    vec![
        pool("n", "a", OLD),
        pool("n", "b", OLD),
        objective("n", "o", "a", 3),
        rewrite("n", "r", "b", "x"),
        model("n", "m", "a", "chat", "chat-v1", OLD),
    ]
}

fn json_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        ".{0,20}".prop_map(Json::from),
        prop_oneof![Just("a"), Just("b"), Just("chat")].prop_map(Json::from),
    ];
    let key = prop_oneof![
        Just("poolRef"),
        Just("name"),
        Just("rules"),
        Just("targets"),
        Just("modelName"),
        Just("priority"),
        Just("selector"),
        Just("matchLabels"),
        Just("targetPorts"),
        Just("number"),
        Just("weight"),
        Just("group"),
        Just("x"),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Json::from),
            vec((key.clone(), inner), 0..5).prop_map(|fields| fields
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

fn kind() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        Just(("inference.networking.k8s.io/v1", "InferencePool")),
        Just(("inference.networking.x-k8s.io/v1alpha2", "InferencePool")),
        Just(("llm-d.ai/v1alpha2", "InferenceObjective")),
        Just(("llm-d.ai/v1alpha2", "InferenceModelRewrite")),
        Just(("inference.networking.x-k8s.io/v1alpha2", "InferenceModel")),
    ]
}

fn foreign_object() -> impl Strategy<Value = ClusterObject> {
    let name = prop_oneof![Just("a".to_owned()), Just("o".to_owned()), "[a-z]{1,3}", ".{0,9}"];
    let created = prop_oneof![Just(OLD), Just(YOUNG), Just("yesterday"), Just("0001-01-01T00:00:00Z")];
    (kind(), name, created, json_value()).prop_map(|((version, kind), name, created, spec)| {
        object(version, kind, FOREIGN, &name, created, &spec)
    })
}

/// A younger object in the same namespace, which contradicts an older one or names no pool.
fn contradiction() -> impl Strategy<Value = ClusterObject> {
    let alpha = json!({"selector": {"app": "z"}, "targetPortNumber": 1});
    prop_oneof![
        Just(object("inference.networking.x-k8s.io/v1alpha2", "InferencePool", "n", "a", YOUNG, &alpha)),
        Just(model("n", "zz", "a", "chat", "stolen", YOUNG)),
        Just(objective("n", "zz", "nowhere", -5)),
        Just(rewrite("n", "zz", FOREIGN, "x")),
        Just(object(
            "inference.networking.x-k8s.io/v1alpha2",
            "InferenceObjective",
            "n",
            "o",
            YOUNG,
            &json!({"priority": -100, "poolRef": {"name": "a"}})
        )),
    ]
}

proptest! {
    #[test]
    fn objects_of_another_namespace_do_not_change_a_pool(objects in vec(foreign_object(), 0..8)) {
        let before = Fixture::default().set(own()).plan;
        let Update { plan, refusals } = Fixture::default().set(own().into_iter().chain(objects));
        for pool in &before.pools {
            prop_assert!(plan.pools.contains(pool), "{:?} is not in {:?}", pool, plan.pools);
        }
        let own_refusals = refusals.iter().filter(|refusal| !refusal.source.to_string().contains(FOREIGN));
        prop_assert_eq!(own_refusals.count(), 0);
        for refusal in &refusals {
            prop_assert!(refusal.reasons.iter().all(|reason| !reason.is_empty()) && refusal.to_string().len() < 20_000);
        }
    }

    #[test]
    fn younger_contradictions_change_nothing(objects in vec(contradiction(), 0..4)) {
        let before = Fixture::default().set(own()).plan;
        let mut objects = objects;
        objects.sort_by(|a, b| a.id.cmp(&b.id));
        objects.dedup_by(|a, b| a.id == b.id);
        let count = objects.len();
        let Update { plan, refusals } = Fixture::default().set(own().into_iter().chain(objects));
        prop_assert_eq!(plan.pools, before.pools);
        prop_assert_eq!(refusals.len(), count);
    }

    #[test]
    fn an_object_that_becomes_invalid_changes_nothing(index in 0_usize..5, spec in json_value()) {
        let mut fixture = Fixture::default();
        let before = fixture.set(own()).plan;
        let mut changed = own();
        // A list is the specification of no kind.
        changed[index].json["spec"] = json!([spec]);
        changed[index].generation = Some(2);
        let Update { plan, refusals } = fixture.set(changed);
        prop_assert_eq!(plan, before);
        prop_assert!(refusals.len() == 1 && refusals[0].earlier_in_force);
    }

    #[test]
    fn the_order_of_updates_does_not_matter(objects in vec(foreign_object(), 0..5), first in 0_usize..5) {
        let mut at_once = own();
        at_once.extend(objects.iter().cloned());
        at_once.dedup_by(|a, b| a.id == b.id);
        let mut fixture = Fixture::default();
        fixture.set(own());
        fixture.set(at_once.iter().take(first + 3).cloned());
        let later = fixture.set(at_once.clone()).plan;
        prop_assert_eq!(later, Fixture::default().set(at_once).plan);
    }
}
