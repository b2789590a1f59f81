//! From the manifests that the agent reads to what requests meet.

use crate::policies::model_of;
use crate::scene::{TEXT, forget_requests};
use endpoint_picker_tests::client;
use endpoint_picker_tests::eventually::eventually;
use endpoint_picker_tests::model_server::ModelServer;
use endpoint_picker_tests::stack::{SOON, Stack};
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

const OBJECTIVE: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: { name: batch }
spec:
  poolRef: { name: default }
  priority: -1
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
    let request = client::http1().post(stack.url(TEXT)).header("x-llm-d-inference-objective", objective);
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
    let stack = Stack::builder().manifests(&[REWRITE, OBJECTIVE].join("---")).start().await;
    let answer = ask(&stack, "llama", "").await;
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "llama");
    assert_eq!(received_model(&stack), "llama-canary");

    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 100);
    }
    eventually("a saturated pool sheds what has a negative priority", SOON, async || {
        match ask(&stack, "llama", "batch").await.status() {
            StatusCode::TOO_MANY_REQUESTS => Ok(()),
            status => Err(status),
        }
    })
    .await;
    assert_eq!(ask(&stack, "llama", "other").await.status(), StatusCode::OK);

    stack.set_manifests(&[MODEL, OBJECTIVE].join("---"));
    eventually("models that the manifests do not name are unknown", SOON, async || {
        for _ in 0..20 {
            let status = ask(&stack, "llama", "").await.status();
            if status != StatusCode::NOT_FOUND {
                return Err(status);
            }
        }
        Ok(())
    })
    .await;
    forget_requests(&stack);
    let answer = ask(&stack, "known", "").await;
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "known");
    assert_eq!(received_model(&stack), "known-v1");
}
