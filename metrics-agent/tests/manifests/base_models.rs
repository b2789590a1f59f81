//! `ConfigMap`s of base models.

use endpoint_picker_wire::models::BaseModel;
use metrics_agent_sources::kubernetes::ClusterObject;
use serde_json::json;

use crate::cluster::fixture::{Fixture, YOUNG, config_map, pool};
use crate::reading::{POOL, plan, refusal, warnings};

fn file(name: &str, data: &str) -> String {
    format!(
        "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{inference.networking.k8s.io/bbr-managed: \"true\"}}\n\
         immutable: true\ndata: {data}\n"
    )
}

fn base_model(name: &str, adapters: &[&str]) -> BaseModel {
    BaseModel { name: name.to_owned(), adapters: adapters.iter().map(|&name| name.to_owned()).collect() }
}

#[test]
fn a_config_map_with_the_label_names_a_base_model_and_its_adapters() {
    let text = [
        POOL.to_owned(),
        file("one", r#"{baseModel: " llama ", adapters: "- a\n- ' b '\n- ''\n"}"#),
        file("two", "{baseModel: qwen}"),
        file("three", r#"{baseModel: llama, adapters: "", other: x}"#),
    ];
    let expected = [base_model("llama", &["a", "b"]), base_model("qwen", &[]), base_model("llama", &[])];
    assert_eq!(plan(&text.concat()).base_models.base_models, expected);
}

#[test]
fn other_config_maps_are_skipped_and_malformed_ones_refused() {
    let other =
        format!("{POOL}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata: {{a: b}}\n");
    assert_eq!(plan(&other).base_models.base_models, []);
    assert!(warnings(&other)[0].contains("ConfigMap of v1 is not read"));
    for (data, part) in [
        ("{}", "data"),
        (r#"{baseModel: " "}"#, "data.baseModel"),
        (r#"{baseModel: llama, adapters: "a: b"}"#, "data.adapters: \"a: b\" is not a list"),
        ("{baseModel: llama, adapters: [a]}", "data.adapters"),
    ] {
        let refusal = refusal(&[POOL, &file("one", data)].concat());
        assert!(refusal.contains(part), "{refusal}");
    }
}

fn labelled(name: &str, version: &str, base_model: &str, adapters: &str) -> ClusterObject {
    let data = [("baseModel", base_model.to_owned()), ("adapters", adapters.to_owned())];
    let mut object = config_map("n", name, &data);
    object.json["metadata"]["labels"] = json!({"inference.networking.k8s.io/bbr-managed": "true"});
    object.json["metadata"]["resourceVersion"] = version.into();
    version.clone_into(&mut object.resource_version);
    object
}

#[test]
fn in_a_cluster_the_last_update_comes_last_and_a_refused_one_keeps_its_last_version() {
    let mut fixture = Fixture::default();
    let pool = || pool("n", "p", YOUNG);
    let objects = || [pool(), labelled("a", "12", "qwen", "- x"), labelled("b", "9", "llama", "- x\n- y")];
    let expected = [base_model("llama", &["x", "y"]), base_model("qwen", &["x"])];
    let update = fixture.set(objects());
    assert_eq!((update.plan.base_models.base_models, update.refusals), (expected.to_vec(), vec![]));

    let update = fixture.set([pool(), labelled("a", "13", "", ""), labelled("b", "14", "llama", "[]")]);
    assert_eq!(update.plan.base_models.base_models, [base_model("qwen", &["x"]), base_model("llama", &[])]);
    assert!(update.refusals[0].to_string().contains("data.baseModel"), "{:?}", update.refusals);

    // Without the label it is an ordinary ConfigMap, whose keys are read only if they end like manifests.
    let mut without = labelled("b", "15", "llama", "- x");
    without.json["metadata"]["labels"] = json!({});
    assert_eq!(fixture.set([pool(), without]).plan.base_models.base_models, []);
}

#[test]
fn a_config_map_with_the_label_brings_no_picker_configuration() {
    let mut object = labelled("a", "1", "llama", "");
    object.json["data"]["picker.yaml"] =
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: x}]".into();
    let update = Fixture::default().set([pool("n", "p", YOUNG), object]);
    assert_eq!(update.refusals, []);
    assert_eq!(update.plan.base_models.base_models, [base_model("llama", &[])]);
}
