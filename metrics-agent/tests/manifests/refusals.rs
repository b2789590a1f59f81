//! Refused manifests, with the exact messages.

use metrics_agent_catalogue::Plan;

use crate::reading::{POOL, file, options, refusal};

#[track_caller]
fn assert_refused(text: &str, expected: &[&str]) {
    let refusal = refusal(text);
    assert_eq!(refusal.lines().collect::<Vec<_>>(), expected, "{text}");
}

fn pool(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {metadata}\nspec: {spec}\n"
    )
}

#[test]
fn pools() {
    let good = "selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]";
    let name = "is not a valid name; allowed are 1 to 253 lower-case letters, digits, - and ., the first and the last a letter or digit";
    for (metadata, spec, expected) in [
        ("{}", good, vec!["document 1: metadata.name: is missing; it is required".to_owned()]),
        ("{name: A}", good, vec![format!("document 1: metadata.name: \"A\" {name}")]),
        ("{name: a/b}", good, vec![format!("document 1: metadata.name: \"a/b\" {name}")]),
        ("{name: a, namespace: a.}", good, vec![format!("document 1: metadata.namespace: \"a.\" {name}")]),
        (
            "{name: a, creationTimestamp: soon}",
            good,
            vec!["document 1: metadata.creationTimestamp: \"soon\" is not a time; allowed is RFC 3339, such as 2026-01-31T12:00:00Z".to_owned()],
        ),
        (
            "{name: a, labels: [x]}",
            good,
            vec!["document 1: metadata.labels: is a list; allowed is an object".to_owned()],
        ),
        (
            "{name: a, annotations: {x: 1}}",
            good,
            vec!["document 1: metadata.annotations.x: 1; allowed is a string".to_owned()],
        ),
        ("[]", good, vec!["document 1: metadata: is a list; allowed is an object".to_owned()]),
    ] {
        let refusal = refusal(&pool(metadata, &format!("{{{spec}}}")));
        assert_eq!(refusal.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn specs_of_pools() {
    let ports = "allowed are 1 to 8 different ports";
    let nine: Vec<_> = (1..10).map(|port| format!("{{number: {port}}}")).collect();
    for (spec, expected) in [
        ("{}", "selector: is missing; it is required".to_owned()),
        ("{selector: {matchLabels: {a: b}}}", "targetPorts: is missing; it is required".to_owned()),
        (
            "{selector: {}, targetPorts: [{number: 1}]}",
            "selector.matchLabels: is missing; it is required".to_owned(),
        ),
        (
            "{selector: {matchLabels: {}}, targetPorts: [{number: 1}]}",
            "selector.matchLabels: has 0 labels; allowed are 1 to 64".to_owned(),
        ),
        (
            "{selector: {matchLabels: {a: 1}}, targetPorts: [{number: 1}]}",
            "selector.matchLabels.a: 1; allowed is a string".to_owned(),
        ),
        (
            "{selector: {matchLabels: {a: b}, matchExpressions: []}, targetPorts: [{number: 1}]}",
            "selector.matchExpressions: unknown field; allowed: matchLabels".to_owned(),
        ),
        ("{selector: {matchLabels: {a: b}}, targetPorts: []}", format!("targetPorts: has 0 ports; {ports}")),
        (
            &format!("{{selector: {{matchLabels: {{a: b}}}}, targetPorts: [{}]}}", nine.join(",")),
            format!("targetPorts: has 9 ports; {ports}"),
        ),
        (
            "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 1}, {number: 1}]}",
            format!("targetPorts: 1 is given twice; {ports}"),
        ),
        (
            "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 65536}]}",
            "targetPorts[0].number: 65536 is not a port; allowed is 1 to 65535".to_owned(),
        ),
        (
            "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 1.5}]}",
            "targetPorts[0].number: 1.5; allowed is a whole number".to_owned(),
        ),
        (
            "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 1}], appProtocol: grpc}",
            "appProtocol: \"grpc\"; allowed: http, kubernetes.io/h2c".to_owned(),
        ),
        (
            "{selector: {matchLabels: {a: b}}, targetPorts: [{number: 1}], endpointPickerRef: {name: e, failureMode: x}}",
            "endpointPickerRef.failureMode: \"x\"; allowed: FailOpen, FailClose".to_owned(),
        ),
    ] {
        let refusal = refusal(&pool("{name: a}", spec));
        let first = refusal.lines().next().unwrap();
        assert_eq!(first, format!("document 1: spec.{expected}"), "{spec}");
    }
}

#[test]
fn an_older_pool_is_checked_by_its_own_fields() {
    assert_refused(
        "apiVersion: inference.networking.x-k8s.io/v1alpha2\nkind: InferencePool\nmetadata: {name: a}\n\
         spec: {selector: {a: b}, targetPorts: [{number: 1}]}",
        &[
            "document 1: spec.targetPorts: unknown field; allowed: selector, targetPortNumber, extensionRef",
            "document 1: spec.targetPortNumber: is missing; it is required",
        ],
    );
}

#[test]
fn kinds_and_versions() {
    for (head, expected) in [
        (
            "apiVersion: inference.networking.k8s.io/v2\nkind: InferencePool",
            "apiVersion: \"inference.networking.k8s.io/v2\" is not a version of InferencePool; allowed are \
             inference.networking.k8s.io/v1, inference.networking.x-k8s.io/v1alpha2",
        ),
        (
            "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjectiv",
            "kind: unknown kind \"InferenceObjectiv\"; allowed are InferencePool, EndpointPickerConfig, \
             InferenceObjective, InferenceModelRewrite, InferenceModel",
        ),
        ("kind: InferencePool", "apiVersion: is missing; it is required"),
        ("apiVersion: v1", "kind: is missing; it is required"),
        ("- a", "is a list; allowed is an object"),
        ("apiVersion: 1\nkind: x", "apiVersion: 1; allowed is a string"),
    ] {
        assert_refused(head, &[&format!("document 1: {expected}")]);
    }
}

#[test]
fn every_problem_of_every_document_of_every_file_is_reported() {
    let one = file("a.yaml", &pool("{name: a}", "{selector: {matchLabels: {}}, targetPorts: [{number: 0}]}"));
    let objective =
        "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: o}\nspec: {x: 1}";
    let two = file("b.yaml", &format!("{POOL}\n{objective}"));
    let problems = Plan::read(&[one, two], &options()).unwrap_err().to_string();
    assert_eq!(
        problems.lines().collect::<Vec<_>>(),
        [
            "a.yaml: document 1: spec.selector.matchLabels: has 0 labels; allowed are 1 to 64",
            "a.yaml: document 1: spec.targetPorts[0].number: 0 is not a port; allowed is 1 to 65535",
            "b.yaml: document 2: spec.x: unknown field; allowed: priority, poolRef",
            "b.yaml: document 2: spec.poolRef: is missing; it is required",
        ]
    );
}

#[test]
fn a_second_object_of_the_same_name_is_refused() {
    assert_refused(
        &format!("{POOL}{POOL}"),
        &[
            "document 2: metadata.name: \"default/p\" is a second object of its kind; the first is document 1 of m.yaml",
        ],
    );
    let elsewhere = POOL.replace("{name: p}", "{name: p, namespace: n}");
    assert_refused(
        &format!("{POOL}{elsewhere}"),
        &[
            "document 2: metadata.name: \"p\" is already the name of a pool in document 1 of m.yaml; pools are identified \
           by name alone",
        ],
    );
}
