//! Objectives, rewrites and models.

use core::time::Duration;

use endpoint_picker_wire::v1;
use metrics_agent_catalogue::{Options, Plan};

use crate::reading::{POOL, file, options, policy, rewrite, warnings};

#[test]
fn an_objective_is_a_priority_of_its_pool() {
    let policy = policy(&format!(
        "{POOL}
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {{name: batch}}
spec: {{priority: -5, poolRef: {{name: p}}}}
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceObjective
metadata: {{name: plain}}
spec: {{poolRef: {{group: inference.networking.k8s.io, kind: InferencePool, name: p}}}}"
    ));
    let objective = |name: &str, priority| v1::Objective { name: name.to_owned(), priority };
    assert_eq!(policy.objectives, [objective("batch", -5), objective("plain", 0)]);
}

fn target(model: &str, weight: Option<u32>) -> v1::Target {
    v1::Target { model: model.to_owned(), weight }
}

#[test]
fn a_rewrite_keeps_its_models_targets_and_weights() {
    let rules = "
  {matches: [{model: {type: Exact, value: a}}, {model: {value: b}}],
   targets: [{modelRewrite: x, weight: 10}, {modelRewrite: y, weight: 90}]},
  {targets: [{modelRewrite: z}]}";
    let rules = policy(&(POOL.to_owned() + &rewrite("name: r", rules))).rewrite_rules;
    let expected = |models: &[&str], targets| v1::RewriteRule {
        resource: "r".to_owned(),
        models: models.iter().map(|model| (*model).to_owned()).collect(),
        targets,
    };
    let weighted = vec![target("x", Some(10)), target("y", Some(90))];
    assert_eq!(rules, [expected(&["a", "b"], weighted), expected(&[], vec![target("z", None)])]);
}

#[test]
fn targets_may_be_called_split() {
    for group in ["inference.networking.x-k8s.io/v1alpha1", "inference.networking.x-k8s.io/v1alpha2"] {
        let old = rewrite("name: r", "{split: [{modelRewrite: z}]}").replace("llm-d.ai/v1alpha2", group);
        assert_eq!(policy(&(POOL.to_owned() + &old)).rewrite_rules[0].targets, [target("z", None)]);
    }
}

#[test]
fn rules_are_ordered_by_the_age_of_their_resource_then_by_name() {
    let rule = "{targets: [{modelRewrite: z}]}";
    let text = POOL.to_owned()
        + &rewrite("name: young, creationTimestamp: 2026-02-01T00:00:00Z", rule)
        + &rewrite("name: old-b, creationTimestamp: '2026-01-01T01:00:00+01:00'", rule)
        + &rewrite("name: old-a, creationTimestamp: 2026-01-01T00:00:00Z", rule)
        + &rewrite("name: timeless", rule);
    let order: Vec<_> = policy(&text).rewrite_rules.into_iter().map(|rule| rule.resource).collect();
    assert_eq!(order, ["timeless", "old-a", "old-b", "young"]);
}

fn model(metadata: &str, spec: &str) -> String {
    format!(
        "
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModel
metadata: {{{metadata}}}
spec: {{poolRef: {{name: p}}, {spec}}}
---"
    )
}

#[test]
fn an_inference_model_has_a_criticality_and_targets() {
    let text = POOL.to_owned()
        + &model("name: a", "modelName: critical, criticality: Critical")
        + &model("name: b", "modelName: plain")
        + &model("name: c", "modelName: shed, criticality: Sheddable, targetModels: [{name: x, weight: 3}]");
    let models = policy(&text).inference_models;
    let seen: Vec<_> = models.iter().map(|model| (model.name.as_str(), model.priority.signum())).collect();
    assert_eq!(seen, [("critical", 1), ("plain", 0), ("shed", -1)]);
    assert_eq!(models[2].targets, [target("x", Some(3))]);
}

#[test]
fn of_two_inference_models_for_one_name_the_older_one_wins() {
    let text = POOL.to_owned()
        + &model("name: a, creationTimestamp: 2026-02-01T00:00:00Z", "modelName: m, criticality: Critical")
        + &model("name: b, creationTimestamp: 2026-01-01T00:00:00Z", "modelName: m, criticality: Sheddable");
    let models = policy(&text).inference_models;
    assert_eq!((models.len(), models[0].priority), (1, -1));
    assert_eq!(
        warnings(&text),
        ["m.yaml: document 2: spec.modelName: \"m\" is the model of an older object, which takes precedence"]
    );
}

#[test]
fn the_age_for_neutral_scores_is_that_of_the_flag() {
    let of = |options: &Options| {
        let plan =
            Plan::read(&[file("m.yaml", POOL)], options).unwrap_or_else(|problems| panic!("{problems}"));
        [&plan, &Plan::without_manifests(options)].map(|plan| plan.pools[0].policy.neutral_score_after_ms)
    };
    assert_eq!(of(&options()), [None; 2]);
    let neutral_score_after = Some(Duration::from_secs(2));
    assert_eq!(of(&Options { neutral_score_after, ..options() }), [Some(2000); 2]);
}

#[test]
fn scores_are_emitted_to_later_filters_if_the_flag_is_set() {
    let emitted = |text: &str, emit_endpoint_scores| {
        let options = Options { emit_endpoint_scores, ..options() };
        let plan =
            Plan::read(&[file("m.yaml", text)], &options).unwrap_or_else(|problems| panic!("{problems}"));
        plan.pools.iter().map(|pool| pool.policy.emit_endpoint_scores).collect::<Vec<_>>()
    };
    assert_eq!(emitted(POOL, true), [true]);
    assert_eq!(emitted(POOL, false), [false]);
    let without = Plan::without_manifests(&Options { emit_endpoint_scores: true, ..options() });
    assert!(without.pools[0].policy.emit_endpoint_scores);
}

#[test]
fn an_annotation_names_the_share_of_sessions_that_is_recorded() {
    let read = |value: &str| {
        let annotation = format!("annotations: {{endpoint-picker/record-sample: {value:?}}}, name");
        let plan = Plan::read(&[file("m.yaml", &POOL.replacen("name", &annotation, 1))], &options());
        plan.map(|plan| plan.pools[0].record_sample).map_err(|problems| problems.to_string())
    };
    assert_eq!(read("0.25"), Ok(Some(0.25)));
    assert_eq!(read("0"), Ok(Some(0.0)));
    for refused in ["1.5", "-1", "NaN", "all"] {
        let expected = format!("{refused:?} is refused; allowed is a number from 0 to 1");
        assert!(read(refused).unwrap_err().contains(&expected), "{:?}", read(refused));
    }
    let without = Plan::read(&[file("m.yaml", POOL)], &options()).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(without.pools[0].record_sample, None);
}
