//! From the manifests that the agent reads to what requests meet.

use endpoint_picker_e2e::fixture::{TEXT, forget_requests, until_every_worker, until_picked};
use endpoint_picker_e2e::policy_fixture::model_of;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

const REWRITE: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: { name: canary }
spec:
  poolRef: { name: default }
  rules:
    - matches: [{ model: { type: Exact, value: llama } }]
      targets: [{ modelRewrite: llama-canary }]
";

const MODEL: &str = r"
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModel
metadata: { name: early }
spec:
  modelName: known
  criticality: Critical
  poolRef: { name: default }
  targetModels: [{ name: known-v1, weight: 1 }]
";

async fn ask(stack: &Stack, model: &str, objective: &str) -> Response {
    let request = client::http1().post(stack.url(TEXT)).header(objectives::HEADER, objective);
    request.json(&json!({"model": model, "prompt": "hi"})).send().await.unwrap()
}

/// The model in the one request that the servers have received.
fn received_model(stack: &Stack) -> String {
    let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    assert_eq!(received.len(), 1, "{received:?}");
    model_of(&received[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn rewrites_objectives_and_models_are_in_force_and_change_with_the_file() {
    let stack = Stack::builder().manifests(&[REWRITE, objectives::MANIFEST].join("---")).start().await;
    let answer = ask(&stack, "llama", "").await;
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "llama");
    assert_eq!(received_model(&stack), "llama-canary");

    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 100);
    }
    eventually("a saturated pool sheds what has a negative priority", async || {
        match ask(&stack, "llama", objectives::SHEDDABLE).await.status() {
            StatusCode::TOO_MANY_REQUESTS => Ok(()),
            status => Err(status),
        }
    })
    .await;
    assert_eq!(ask(&stack, "llama", "other").await.status(), StatusCode::OK);

    stack.set_manifests(&[MODEL, objectives::MANIFEST].join("---"));
    until_every_worker("refuses models that the manifests do not name", async || {
        let status = ask(&stack, "llama", "").await.status();
        if status == StatusCode::NOT_FOUND { Ok(()) } else { Err(status) }
    })
    .await;
    forget_requests(&stack);
    let answer = ask(&stack, "known", "").await;
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "known");
    assert_eq!(received_model(&stack), "known-v1");
}

/// Two pools, as `kubectl get -o yaml` writes them, with a rewrite for each.
const POOLS: &str = r"
apiVersion: v1
kind: List
items:
- apiVersion: inference.networking.k8s.io/v1
  kind: InferencePool
  metadata: { name: default }
  spec: { selector: { matchLabels: { side: left } }, targetPorts: [{ number: 8000 }] }
- apiVersion: inference.networking.k8s.io/v1
  kind: InferencePool
  metadata: { name: second }
  spec: { selector: { matchLabels: { side: right } }, targetPorts: [{ number: 8000 }] }
- apiVersion: llm-d.ai/v1alpha2
  kind: InferenceModelRewrite
  metadata: { name: of-default }
  spec: { poolRef: { name: default }, rules: [{ targets: [{ modelRewrite: of-default }] }] }
- apiVersion: llm-d.ai/v1alpha2
  kind: InferenceModelRewrite
  metadata: { name: of-second }
  spec: { poolRef: { name: second }, rules: [{ targets: [{ modelRewrite: of-second }] }] }
";

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_of_the_manifests_have_their_own_endpoints_and_policies_in_one_envoy() {
    let builder = Stack::builder().servers(4).second_pool("second", "/second/").manifests(POOLS);
    let stack = builder.start().await;
    until_picked(&stack, "/second/picking").await;
    forget_requests(&stack);
    for (path, model, side) in
        [("/v1/completions", "of-default", 0), ("/second/v1/completions", "of-second", 1)]
    {
        for _ in 0..20 {
            let answer = stack.post(path, &client::completion("hi")).await;
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            assert_eq!(stack.served_by(&answer) % 2, side, "{path}");
        }
        let received = stack.servers().iter().flat_map(ModelServer::take_requests);
        assert_eq!(received.map(|request| model_of(&request)).collect::<Vec<_>>(), [model; 20], "{path}");
    }
}
