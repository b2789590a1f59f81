//! Objects of a cluster, of which each is valid by itself.

pub(crate) mod fixture;
mod follow;
mod hostile;

use endpoint_picker_wire::v1;
use fixture::{
    Fixture, OLD, Update, YOUNG, cluster, config, config_map, model, named, object, objective, pool, rewrite,
    settings,
};
use metrics_agent_catalogue::cluster::{CatalogueSettings, ClusterCatalogue};
use metrics_agent_catalogue::plan::members::Members;
use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::kubernetes::MAX_OBJECTS;
use serde_json::json;

use crate::reading::options;

fn policy<'a>(plan: &'a Plan, pool: &str) -> &'a v1::Policy {
    &plan.pools.iter().find(|it| it.name == pool).unwrap_or_else(|| panic!("{pool} in {plan:?}")).policy
}

fn objectives(plan: &Plan, pool: &str) -> Vec<(String, i32)> {
    policy(plan, pool).objectives.iter().map(|it| (it.name.clone(), it.priority)).collect()
}

#[test]
fn pools_of_one_name_in_two_namespaces_are_two_pools() {
    let mut fixture = Fixture::default();
    let Update { plan, refusals } = fixture.set([
        pool("team-a", "llama", OLD),
        pool("team-b", "llama", OLD),
        objective("team-b", "o", "llama", 7),
    ]);
    assert_eq!(named(&plan), ["team-a/llama", "team-b/llama"]);
    assert_eq!((objectives(&plan, "team-a/llama"), objectives(&plan, "team-b/llama").len()), (vec![], 1));
    let Members::Selected { namespace, .. } = &plan.pools[1].members else { panic!("{plan:?}") };
    assert_eq!((namespace.as_str(), refusals.len()), ("team-b", 0));
}

#[test]
fn fields_that_the_api_server_adds_are_read() {
    let mut pool = pool("n", "llama", OLD);
    let metadata = pool.json["metadata"].as_object_mut().unwrap();
    metadata.insert("managedFields".to_owned(), json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]));
    metadata.insert("uid".to_owned(), json!("u"));
    metadata.insert("generation".to_owned(), json!(3));
    metadata.insert("resourceVersion".to_owned(), json!("77"));
    metadata.insert("ownerReferences".to_owned(), json!([{"kind": "X"}]));
    metadata.insert("finalizers".to_owned(), json!(["x"]));
    metadata
        .insert("annotations".to_owned(), json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"}));
    pool.json["status"] = json!({"parents": [{"parentRef": {"name": "g"}, "conditions": []}]});
    pool.json["spec"]["endpointPickerRef"] = json!({"group": "", "kind": "Service", "name": "epp", "port": {"number": 9002}, "failureMode": "FailOpen"});
    let Update { plan, refusals } = Fixture::default().set([pool]);
    assert_eq!(policy(&plan, "n/llama").failure_mode(), v1::FailureMode::FailOpen);
    assert_eq!(refusals, []);
}

#[test]
fn fields_of_a_newer_schema_are_left_out_with_a_warning() {
    let known = pool("n", "llama", OLD);
    let before = Fixture::default().set([known.clone()]).plan;
    let mut newer = known;
    newer.json["spec"]["a~b/c"] = json!({"x": [1]});
    newer.json["spec"]["targetPorts"][0]["protocol"] = json!("h2c");
    let Update { plan, refusals } = Fixture::default().set([newer]);
    assert_eq!((&plan.pools, refusals), (&before.pools, vec![]));
    let mut warnings: Vec<_> = plan.warnings.iter().map(ToString::to_string).collect();
    warnings.sort();
    let fields = ["spec.a~b/c", "spec.targetPorts[0].protocol"];
    assert_eq!(warnings.len(), fields.len(), "{warnings:?}");
    for (warning, field) in warnings.iter().zip(fields) {
        assert!(
            warning.starts_with(&format!("InferencePool n/llama: {field}: unknown field; ")),
            "{warning}"
        );
    }
}

#[test]
fn an_invalid_object_is_left_out_with_its_reasons_and_everything_else_stays() {
    let mut bad = objective("n", "bad", "llama", 0);
    bad.json["spec"] = json!({"priority": "high", "poolRef": {"name": "llama"}, "extra": 1});
    let Update { plan, refusals } =
        Fixture::default().set([pool("n", "llama", OLD), objective("n", "good", "llama", 1), bad]);
    assert_eq!(objectives(&plan, "n/llama"), [("good".to_owned(), 1)]);
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(refusal.source.to_string(), "InferenceObjective n/bad");
    let mut reasons = refusal.reasons.clone();
    reasons.sort();
    let expected = [
        "spec.extra: unknown field; allowed: priority, poolRef",
        "spec.priority: \"high\" is a string; allowed is a whole number",
    ];
    assert_eq!(reasons, expected);
    assert!(!refusal.earlier_in_force);
}

#[test]
fn the_last_valid_version_of_the_same_object_stays_in_force() {
    let mut fixture = Fixture::default();
    let pool = pool("n", "llama", OLD);
    let good = objective("n", "o", "llama", 1);
    fixture.set([pool.clone(), good.clone()]);
    let mut bad = good.clone();
    bad.json["spec"]["priority"] = json!(1e12);
    bad.generation = Some(2);
    let Update { plan, refusals } = fixture.set([pool.clone(), bad.clone()]);
    assert_eq!(objectives(&plan, "n/llama"), [("o".to_owned(), 1)]);
    assert!(refusals[0].earlier_in_force);
    assert!(refusals[0].to_string().ends_with("; its last valid version stays in force"), "{}", refusals[0]);
    // Created again: another object of the same name.
    bad.uid = "other".to_owned();
    let Update { plan, refusals } = fixture.set([pool.clone(), bad]);
    assert_eq!((objectives(&plan, "n/llama"), refusals[0].earlier_in_force), (vec![], false));
    let Update { plan, refusals } = fixture.set([pool.clone(), good]);
    assert_eq!((objectives(&plan, "n/llama").len(), refusals.len()), (1, 0));
    let Update { plan, .. } = fixture.set([pool]);
    assert_eq!(objectives(&plan, "n/llama"), [], "a deleted object has no last version");
}

#[test]
fn an_invalid_pool_keeps_its_last_valid_version_with_all_its_objects() {
    let mut fixture = Fixture::default();
    let good = pool("n", "llama", OLD);
    let before = fixture.set([good.clone(), objective("n", "o", "llama", 1)]).plan;
    let mut bad = good;
    bad.json["spec"]["targetPorts"] = json!([{"number": 99_999}]);
    bad.generation = Some(2);
    let Update { plan, refusals } = fixture.set([bad, objective("n", "o", "llama", 1)]);
    assert_eq!(plan.pools, before.pools);
    assert_eq!(refusals.len(), 1);
}

#[test]
fn an_annotation_counts_without_a_new_version_of_the_specification() {
    let mut fixture = Fixture::default();
    let fallback = |update: &Update| policy(&update.plan, "n/p").fallback.clone();
    let before = fixture.set([pool("n", "p", OLD), pool("n", "spare", OLD)]);
    assert!(fallback(&before).is_empty());
    let mut annotated = pool("n", "p", OLD);
    annotated.json["metadata"]["annotations"] = json!({"endpoint-picker/fallback": "spare"});
    let after = fixture.set([annotated, pool("n", "spare", OLD)]);
    assert_eq!(fallback(&after), ["n/spare"]);
    let removed = fixture.set([pool("n", "p", OLD), pool("n", "spare", OLD)]);
    assert!(fallback(&removed).is_empty());
}

#[test]
fn a_copy_of_the_object_in_an_annotation_is_no_change() {
    let mut catalogue = ClusterCatalogue::new(settings());
    let mut set = |annotations| {
        let mut annotated = pool("n", "p", OLD);
        annotated.json["metadata"]["annotations"] = annotations;
        catalogue.set_objects(&cluster([annotated]))
    };
    assert!(set(json!({"a": "1"})));
    assert!(!set(json!({"a": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"})));
    assert!(set(json!({"a": "2", "kubectl.kubernetes.io/last-applied-configuration": "{}"})));
}

#[test]
fn of_objects_that_contradict_each_other_the_younger_is_refused() {
    let alpha = |created| {
        let spec = json!({"selector": {"app": "alpha"}, "targetPortNumber": 9000});
        object("inference.networking.x-k8s.io/v1alpha2", "InferencePool", "n", "llama", created, &spec)
    };
    for (stable, experimental, port) in [(OLD, YOUNG, 8000), (YOUNG, OLD, 9000)] {
        let Update { plan, refusals } =
            Fixture::default().set([pool("n", "llama", stable), alpha(experimental)]);
        let Members::Selected { target_ports, .. } = &plan.pools[0].members else { panic!("{plan:?}") };
        assert_eq!((target_ports[0].get(), plan.pools.len()), (port, 1));
        assert!(refusals[0].reasons[0].contains("is a second object of its kind"), "{refusals:?}");
    }
    let models = [model("n", "b", "llama", "m", "young", YOUNG), model("n", "c", "llama", "m", "old", OLD)];
    let Update { plan, refusals } =
        Fixture::default().set([pool("n", "llama", OLD)].into_iter().chain(models));
    let [decided] = &policy(&plan, "n/llama").inference_models[..] else { panic!("{plan:?}") };
    assert_eq!(decided.targets[0].model, "old");
    assert_eq!(refusals[0].source.to_string(), "InferenceModel n/b");
    // Equally old: by name, as in the EPP.
    let models = [model("n", "b", "llama", "m", "b", OLD), model("n", "a", "llama", "m", "a", OLD)];
    let Update { refusals, .. } = Fixture::default().set([pool("n", "llama", OLD)].into_iter().chain(models));
    assert_eq!(refusals[0].source.to_string(), "InferenceModel n/b");
}

#[test]
fn an_object_of_an_unknown_pool_is_refused_until_the_pool_exists() {
    let mut fixture = Fixture::default();
    let rule = rewrite("n", "r", "later", "x");
    let Update { refusals, .. } = fixture.set([pool("n", "llama", OLD), rule.clone()]);
    let expected = "spec.poolRef: unknown pool \"later\" in namespace \"n\"; the object has no effect";
    assert_eq!(refusals[0].reasons, [expected]);
    let Update { plan, refusals } = fixture.set([pool("n", "llama", OLD), pool("n", "later", OLD), rule]);
    assert_eq!((policy(&plan, "n/later").rewrite_rules.len(), refusals.len()), (1, 0));
}

#[test]
fn configurations_of_a_config_map_apply_to_the_pools_that_they_name() {
    let data = [
        ("all.yaml", config("", "queue-scorer")),
        ("named.yaml", config("metadata: {name: llama}", "random-picker")),
        (
            "elsewhere.json",
            json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
            "metadata": {"name": "llama", "namespace": "m"}, "plugins": [{"type": "max-score-picker"}]})
            .to_string(),
        ),
        ("README.md", "no manifest".to_owned()),
    ];
    let pools = [pool("n", "llama", OLD), pool("n", "other", OLD), pool("m", "llama", OLD)];
    let Update { plan, refusals } =
        Fixture::default().set(pools.into_iter().chain([config_map("n", "picker", &data)]));
    let plugin = |pool: &str| policy(&plan, pool).picker_config.as_ref().unwrap().plugins[0].r#type.clone();
    assert_eq!(
        [plugin("n/llama"), plugin("n/other"), plugin("m/llama")],
        ["random-picker", "queue-scorer", "max-score-picker"]
    );
    assert_eq!(refusals, []);
}

#[test]
fn each_key_of_a_config_map_is_valid_by_itself() {
    let mut fixture = Fixture::default();
    let pools = || [pool("n", "a", OLD), pool("n", "b", OLD)];
    let data = |of_a: &str, of_b: &str| {
        [("a.yaml", config("metadata: {name: a}", of_a)), ("b.yaml", config("metadata: {name: b}", of_b))]
    };
    let plugin = |plan: &Plan, pool: &str| {
        policy(plan, pool).picker_config.as_ref().map(|config| config.plugins[0].r#type.clone())
    };
    fixture.set(pools().into_iter().chain([config_map(
        "n",
        "picker",
        &data("queue-scorer", "queue-scorer"),
    )]));
    let mut changed = config_map("n", "picker", &data("no-such-scorer", "random-picker"));
    changed.resource_version = "2".to_owned();
    let Update { plan, refusals } = fixture.set(pools().into_iter().chain([changed]));
    assert_eq!(plugin(&plan, "n/a").as_deref(), Some("queue-scorer"));
    assert_eq!(plugin(&plan, "n/b").as_deref(), Some("random-picker"));
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(refusal.source.to_string(), "key a.yaml of ConfigMap n/picker");
    assert!(refusal.reasons[0].starts_with("document 1: plugins[0].type: "), "{refusal:?}");
    assert!(refusal.earlier_in_force);
}

#[test]
fn a_second_configuration_and_one_of_an_unknown_pool_are_refused() {
    let data = [
        ("a.yaml", config("metadata: {name: llama}", "queue-scorer")),
        ("b.yaml", config("metadata: {name: llama}", "random-picker")),
        ("c.yaml", config("metadata: {name: none}", "random-picker")),
    ];
    let objects = [pool("n", "llama", OLD), pool("secret", "x", OLD), config_map("n", "picker", &data)];
    let Update { plan, refusals } = Fixture::default().set(objects);
    assert_eq!(policy(&plan, "n/llama").picker_config.as_ref().unwrap().plugins[0].r#type, "queue-scorer");
    let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reasons.join("; ")).collect();
    let second = "document 1: metadata.name: is a second configuration of pool \"n/llama\"; the first is document 1 of key a.yaml of ConfigMap n/picker";
    let unknown = "document 1: metadata.name: unknown pool \"n/none\"; allowed are n/llama, or no metadata for all pools";
    assert_eq!(reasons, [second, unknown]);
}

#[test]
fn a_configuration_that_needs_tls_is_refused_without_the_flags_for_it() {
    for plugins in [
        "plugins: [{type: metrics-data-source, parameters: {scheme: https, insecureSkipVerify: true}}, {type: queue-scorer}]",
        "plugins: [{type: models-data-source, parameters: {scheme: https}}, {type: models-data-extractor}, {type: served-model-filter}]\n\
         dataLayer: {sources: [{pluginRef: models-data-source, extractors: [{pluginRef: models-data-extractor}]}]}",
    ] {
        let text = format!("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{plugins}");
        let objects = || [pool("n", "llama", OLD), config_map("n", "picker", &[("a.yaml", text.clone())])];
        let options = Options { allow_experimental_plugins: true, ..options() };
        let of =
            |has_tls| Fixture::new(CatalogueSettings { has_tls, options: options.clone(), ..settings() });
        let Update { plan, refusals } = of(false).set(objects());
        assert_eq!(policy(&plan, "n/llama").picker_config, None);
        assert!(refusals[0].reasons[0].contains("requires --scrape-ca"), "{refusals:?}");
        assert_eq!(of(true).set(objects()).refusals, []);
    }
}

#[test]
fn with_the_name_of_a_pool_all_others_and_their_objects_are_ignored() {
    for name in ["llama", "n/llama"] {
        let mut fixture = Fixture::new(CatalogueSettings { pool: Some(name.to_owned()), ..settings() });
        let mut bad = objective("n", "bad", "other", 0);
        bad.json["spec"]["priority"] = json!("x");
        let data = [("a.yaml", config("metadata: {name: other}", "queue-scorer"))];
        let objects = [
            pool("n", "llama", OLD),
            pool("n", "other", OLD),
            pool("m", "llama", OLD),
            objective("n", "own", "llama", 1),
            objective("m", "foreign", "llama", 1),
            bad,
            config_map("n", "picker", &data),
        ];
        let Update { plan, refusals } = fixture.set(objects);
        assert_eq!((named(&plan), objectives(&plan, "n/llama").len()), (vec!["n/llama"], 1));
        assert_eq!(refusals, []);
    }
}

#[test]
fn an_object_that_is_being_deleted_counts_as_deleted() {
    let mut leaving = pool("n", "llama", OLD);
    leaving.json["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let Update { plan, refusals } = Fixture::default().set([leaving]);
    assert_eq!((plan.pools.len(), refusals.len()), (0, 0));
}

#[test]
fn a_namespace_with_too_many_objects_loses_its_youngest_and_others_none() {
    let many = (0..=MAX_OBJECTS).map(|number| objective("n", &format!("{number:04}"), "llama", 1));
    let others = [pool("n", "llama", OLD), pool("m", "llama", OLD), objective("m", "d", "llama", 1)];
    let Update { plan, refusals } = Fixture::default().set(many.chain(others));
    assert_eq!(objectives(&plan, "n/llama").len(), MAX_OBJECTS);
    assert_eq!(objectives(&plan, "m/llama").len(), 1);
    let [refusal] = &refusals[..] else { panic!("{refusals:?}") };
    assert_eq!(refusal.source.to_string(), format!("InferenceObjective n/{MAX_OBJECTS}"));
    assert!(refusal.reasons[0].contains("limit of 4096"), "{refusal:?}");
}

#[test]
fn reasons_are_bounded() {
    let mut huge = pool("n", "llama", OLD);
    let ports: Vec<_> = (0..1000).map(|index| json!({"number": "x".repeat(1000 + index)})).collect();
    huge.json["spec"]["targetPorts"] = ports.into();
    let labels = (0..100).map(|index| (format!("{}{index}", "k".repeat(5000)), json!(1)));
    huge.json["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
    let Update { refusals, .. } = Fixture::default().set([huge]);
    assert_eq!(refusals[0].reasons.len(), 11);
    assert!(refusals[0].reasons[10].starts_with("and 1"), "{:?}", refusals[0].reasons[10]);
    assert!(refusals[0].to_string().len() < 10_000);
}
