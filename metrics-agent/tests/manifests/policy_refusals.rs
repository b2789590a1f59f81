//! Refused objectives, rewrites and models, with the exact messages.

use crate::reading::refusal;

fn object(kind: &str, spec: &str) -> String {
    let version =
        if kind == "InferenceModel" { "inference.networking.x-k8s.io/v1alpha2" } else { "llm-d.ai/v1alpha2" };
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: o}}\nspec: {spec}")
}

#[test]
fn specs_of_policies() {
    let eleven = ["{name: m}"; 11].join(",");
    for (kind, spec, expected) in [
        ("InferenceObjective", "{priority: 1}", "poolRef: is missing; it is required"),
        (
            "InferenceObjective",
            "{priority: 3000000000, poolRef: {name: p}}",
            "priority: 3000000000 is out of range; allowed is -2147483648 to 2147483647",
        ),
        (
            "InferenceObjective",
            "{priority: high, poolRef: {name: p}}",
            "priority: \"high\" is a string; allowed is a whole number",
        ),
        (
            "InferenceObjective",
            "{poolRef: {name: p, kind: Service}}",
            "poolRef.kind: \"Service\"; allowed: InferencePool",
        ),
        (
            "InferenceObjective",
            "{poolRef: {name: p, group: x}}",
            "poolRef.group: \"x\"; allowed: inference.networking.k8s.io, inference.networking.x-k8s.io",
        ),
        ("InferenceModelRewrite", "{poolRef: {name: p}}", "rules: is missing; it is required"),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{}]}",
            "rules[0]: has no targets; at least one is required",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: []}]}",
            "rules[0].targets: is empty; at least one target is required",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: [{modelRewrite: a}, {modelRewrite: b, weight: 0}]}]}",
            "rules[0].targets[1].weight: 0 is not a weight; allowed is 1 to 1000000",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: [{modelRewrite: a, weight: 9}, {modelRewrite: b}]}]}",
            "rules[0].targets: target 1, \"b\", has no weight, but another target has one; allowed is a weight for each target or for none",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: [{weight: 1}]}]}",
            "rules[0].targets[0].modelRewrite: is missing; it is required",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: [{modelRewrite: ''}]}]}",
            "rules[0].targets[0].modelRewrite: \"\" has 0 bytes; allowed are 1 to 256",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{matches: [{model: {type: Prefix, value: a}}], targets: [{modelRewrite: a}]}]}",
            "rules[0].matches[0].model.type: \"Prefix\"; allowed: Exact",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{matches: [{}], targets: [{modelRewrite: a}]}]}",
            "rules[0].matches[0].model: is missing; it is required",
        ),
        (
            "InferenceModelRewrite",
            "{poolRef: {name: p}, rules: [{targets: [{modelRewrite: a}], split: [{modelRewrite: a}]}]}",
            "rules[0]: has both targets and split; allowed is one of them",
        ),
        (
            "InferenceModel",
            "{poolRef: {name: p}, modelName: m, criticality: High}",
            "criticality: \"High\"; allowed: Critical, Standard, Sheddable",
        ),
        (
            "InferenceModel",
            "{poolRef: {name: p}, modelName: m, targetModels: [{name: a, weight: 1}, {name: b}]}",
            "targetModels: some models have a weight; allowed is one for each of them or none at all",
        ),
        (
            "InferenceModel",
            &format!("{{poolRef: {{name: p}}, modelName: m, targetModels: [{eleven}]}}"),
            "targetModels: has 11 models; allowed are up to 10",
        ),
    ] {
        assert_eq!(refusal(&object(kind, spec)), format!("document 1: spec.{expected}"), "{spec}");
    }
}
