//! `kind: List`, as `kubectl get -o yaml` writes it.

use crate::reading::{plan, refusal, warnings};

const LIST: &str = r"
apiVersion: v1
kind: List
metadata: {resourceVersion: ''}
items:
- apiVersion: inference.networking.k8s.io/v1
  kind: InferencePool
  metadata: {name: p, uid: 3c1e, managedFields: [{manager: kubectl}]}
  spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]}
  status: {parents: []}
- apiVersion: llm-d.ai/v1alpha2
  kind: InferenceObjective
  metadata: {name: batch}
  spec: {poolRef: {name: p}, priority: -1}
- {apiVersion: v1, kind: Service}
";

#[test]
fn items_are_documents_of_their_own() {
    let plan = plan(LIST);
    assert_eq!((plan.documents, plan.pools.len(), plan.pools[0].name.as_str()), (3, 1, "p"));
    assert_eq!(plan.pools[0].policy.objectives.len(), 1);
    let passed_over =
        "m.yaml: document 1: item 3: kind: Service of v1 is not read by the agent; the document is skipped";
    assert_eq!(warnings(LIST), [passed_over]);
}

#[test]
fn items_of_a_list_of_one_kind_need_not_repeat_the_kind() {
    let text = r"
apiVersion: inference.networking.k8s.io/v1
kind: InferencePoolList
items:
- metadata: {name: p}
  spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 8000}]}
- metadata: {name: q}
  spec: {selector: {matchLabels: {app: b}}, targetPorts: [{number: 8000}]}
";
    let plan = plan(text);
    assert_eq!(plan.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["p", "q"]);
}

#[test]
fn problems_name_the_item_of_the_list() {
    let wrong = LIST.replace("number: 8000", "number: 0").replace("priority: -1", "priority: low");
    assert_eq!(
        refusal(&format!("{LIST}---\n{wrong}")),
        "document 2: item 1: spec.targetPorts[0].number: 0 is not a port; allowed is 1 to 65535\n\
         document 2: item 2: spec.priority: \"low\" is a string; allowed is a whole number"
    );
    assert_eq!(
        refusal(&format!("{LIST}---\n{LIST}")).lines().next(),
        Some(
            "document 2: item 1: metadata.name: \"default/p\" is a second object of its kind; the first is item 1 of document 1 of m.yaml"
        )
    );
}

#[test]
fn invalid_and_nested_lists_are_refused() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: {items}");
    assert_eq!(refusal(&list("5")), "document 1: items: 5; allowed is a list");
    assert_eq!(
        refusal(&list("[{apiVersion: v1, kind: List, items: []}]")),
        "document 1: items[0]: is a list within a list; allowed are objects"
    );
    assert_eq!(refusal(&list("[5]")), "document 1: item 1: 5; allowed is an object");
    assert_eq!(
        refusal("apiVersion: inference.networking.k8s.io/v1\nkind: InferencePolList").lines().count(),
        1,
        "a kind of ours that is misspelt"
    );
}

#[test]
fn items_count_as_documents() {
    let items = "{apiVersion: v1, kind: Service},".repeat(4097);
    let text = format!("apiVersion: v1\nkind: List\nitems: [{items}]");
    let expected = "document 1: item 4097: exceeds the limit of 4096 manifests in all files together";
    assert_eq!(refusal(&text), expected);
}
