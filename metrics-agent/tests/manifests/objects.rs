//! Pools, and the objects that apply to them.

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::v1;

use crate::reading::{POOL, plan, policy, rewrite, warnings};

fn endpoint(name: &str, labels: &[(&str, &str)]) -> Endpoint {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Endpoint::new(name.to_owned(), "10.0.0.1:9000".parse().unwrap(), labels)
}

/// Name and address of the members of the one pool.
fn members(pool: &str, found: &[Endpoint]) -> Vec<(String, String)> {
    let members = plan(pool).pools[0].members.among(found);
    members.iter().map(|e| (e.name().to_owned(), e.printed_address().to_owned())).collect()
}

fn pair(name: &str, address: &str) -> (String, String) {
    (name.to_owned(), address.to_owned())
}

/// Copied from a gateway's integration guide.
const OF_THE_GUIDE: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferencePool
metadata:
  name: vllm-llama3-8b-instruct
spec:
  targetPortNumber: 8000
  selector:
    app: vllm-llama3-8b-instruct
  extensionRef:
    name: vllm-llama3-8b-instruct-epp
    port: 9002
    failureMode: FailClose
";

#[test]
fn the_pool_of_the_guide_is_accepted() {
    let plan = plan(OF_THE_GUIDE);
    assert_eq!(plan.pools[0].name, "vllm-llama3-8b-instruct");
    assert_eq!(plan.pools[0].policy.failure_mode(), v1::FailureMode::FailClose);
}

const TWO_PORTS: &str = "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p, namespace: n}
spec: {selector: {matchLabels: {app: a, tier: x}}, targetPorts: [{number: 8000}, {number: 8001}]}";

#[test]
fn a_member_has_all_labels_and_the_namespace_and_keeps_its_port() {
    let both = [("app", "a"), ("tier", "x")];
    let found = [
        endpoint("n/yes", &both),
        endpoint("n/one-label", &both[..1]),
        endpoint("n/other-value", &[("app", "a"), ("tier", "y")]),
        endpoint("other/namespace", &both),
        endpoint("n/more-labels", &[("app", "a"), ("tier", "x"), ("z", "z")]),
    ];
    let expected = [pair("n/yes", "10.0.0.1:9000"), pair("n/more-labels", "10.0.0.1:9000")];
    assert_eq!(members(TWO_PORTS, &found), expected);
}

#[test]
fn an_endpoint_that_names_active_ports_becomes_a_rank_for_each_of_them() {
    let with = |key: &str, ports: &str| [endpoint("n/e", &[("app", "a"), ("tier", "x"), (key, ports)])];
    let first = pair("n/e-rank-0", "10.0.0.1:8000");
    let second = pair("n/e-rank-1", "10.0.0.1:8001");
    for (key, ports, expected) in [
        ("llm-d.ai/active-ports", "8000,8001", vec![first.clone(), second.clone()]),
        ("llm-d.ai/active-ports", " 8001 , 8000 ", vec![first, second.clone()]),
        ("inference.networking.k8s.io/active-ports", "8001", vec![second.clone()]),
        ("llm-d.ai/active-ports", "8001,7,x", vec![second]),
        ("llm-d.ai/active-ports", "9000", vec![]),
        ("llm-d.ai/active-ports", "", vec![]),
    ] {
        assert_eq!(members(TWO_PORTS, &with(key, ports)), expected, "{key}: {ports}");
    }
}

#[test]
fn both_versions_of_a_pool_are_equivalent() {
    let old = "
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferencePool
metadata: {name: p}
spec:
  selector: {app: a}
  targetPortNumber: 8000
  extensionRef: {name: epp, failureMode: FailOpen}";
    let new = "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: p, labels: {x: y}, annotations: {z: w}, generation: 3, uid: u, creationTimestamp: null}
spec:
  selector: {matchLabels: {app: a}}
  targetPorts: [{number: 8000}]
  appProtocol: kubernetes.io/h2c
  endpointPickerRef: {group: '', kind: Service, name: epp, port: {number: 9002}, failureMode: FailOpen}
status: {parents: [anything]}";
    let (old, new) = (plan(old), plan(new));
    assert_eq!(old.pools[0].members, new.pools[0].members);
    assert_eq!(old.pools[0].policy, new.pools[0].policy);
    assert_eq!(old.pools[0].policy.failure_mode(), v1::FailureMode::FailOpen);
}

#[test]
fn a_failure_mode_that_is_not_given_is_the_apis_default_or_the_filters() {
    let with = |picker: &str| {
        let text = POOL.replace("8000}]}", &format!("8000}}]{picker}}}"));
        policy(text.trim_end_matches("---")).failure_mode()
    };
    assert_eq!(with(", endpointPickerRef: {name: epp}"), v1::FailureMode::FailClose);
    assert_eq!(with(""), v1::FailureMode::Unspecified);
}

#[test]
fn an_object_applies_only_to_the_pool_it_names_in_its_own_namespace() {
    let pool = |name: &str, namespace: &str| {
        POOL.replace("{name: p}", &format!("{{name: {name}, namespace: {namespace}}}"))
    };
    let object = |name: &str, namespace: &str, pool: &str| {
        rewrite(&format!("name: {name}, namespace: {namespace}"), "{targets: [{modelRewrite: z}]}")
            .replace("name: p}", &format!("{pool}}}"))
    };
    let text = pool("p", "n")
        + &pool("q", "n")
        + &object("for-p", "n", "name: p")
        + &object("for-q", "n", "name: q")
        + &object("elsewhere", "m", "name: p")
        + &object("other-group", "n", "name: p, group: inference.networking.x-k8s.io")
        + &object("nowhere", "n", "name: r");
    let plan = plan(&text);
    for pool in &plan.pools {
        let rules = &pool.policy.rewrite_rules;
        let resources: Vec<_> = rules.iter().map(|rule| rule.resource.as_str()).collect();
        assert_eq!(resources, [format!("for-{}", pool.name)]);
    }
    assert_eq!(plan.warnings.len(), 3, "{:?}", plan.warnings);
    assert_eq!(
        plan.warnings[1].to_string(),
        "m.yaml: document 7: spec.poolRef: unknown pool \"r\" in namespace \"n\"; the object has no effect"
    );
}

#[test]
fn without_a_pool_manifest_the_flags_pool_has_all_endpoints_and_the_policies_that_name_it() {
    let text = rewrite("name: r, namespace: any", "{targets: [{modelRewrite: z}]}")
        .replace("name: p", "name: default");
    let plan = plan(&text);
    assert_eq!(plan.pools[0].name, "default");
    let found = [endpoint("n/e", &[])];
    assert_eq!(plan.pools[0].members.among(&found), found);
    assert_eq!(plan.pools[0].policy.rewrite_rules.len(), 1);
}

#[test]
fn documents_of_other_apis_are_skipped_with_a_warning() {
    let text =
        format!("{POOL}\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\nspec: {{any: thing}}");
    assert_eq!(plan(&text).pools.len(), 1);
    assert_eq!(
        warnings(&text),
        ["m.yaml: document 2: kind: Deployment of apps/v1 is not read by the agent; the document is skipped"]
    );
}

#[test]
fn json_is_read_like_yaml_and_empty_documents_do_not_count() {
    let json = r#"{"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "p"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "targetPorts": [{"number": 8000}]}}"#;
    let yaml = format!("---\n---\n{POOL}\n---\n");
    assert_eq!(plan(json).pools[0].members, plan(&yaml).pools[0].members);
    assert_eq!(plan(&yaml).documents, 1);
}

#[test]
fn without_manifests_the_pool_is_that_of_the_flags() {
    let plan = plan("");
    assert_eq!((plan.documents, plan.pools.len(), plan.pools[0].name.as_str()), (0, 1, "default"));
}
