//! Requests with limits for the latency, before a server whose time to the first token is known.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::complete_statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::Behaviour;
use reqwest::{Response, StatusCode};
use serde_json::Value;
use std::time::Duration;

const CONFIG: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: predicted-latency-producer
    parameters: { streamingMode: true }
  - type: latency-scorer
  - type: latency-slo-admitter
";

/// Time to the first token, and between two of them.
const PAUSE: Duration = Duration::from_millis(150);

/// Sends a stream with a limit for the first token, and reads it.
async fn send(stack: &Stack, limit: &str, is_sheddable: bool) -> Response {
    let mut chat = fresh_chat();
    chat["stream"] = true.into();
    let mut request = client::http1().post(stack.url(CHAT)).header("x-llm-d-slo-ttft-ms", limit);
    if is_sheddable {
        request = request.header(objectives::HEADER, objectives::SHEDDABLE);
    }
    request.json(&chat).send().await.unwrap()
}

async fn status(stack: &Stack, limit: &str, is_sheddable: bool) -> StatusCode {
    let response = send(stack, limit, is_sheddable).await;
    let status = response.status();
    response.bytes().await.unwrap();
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_admitted_by_what_responses_took_and_limits_are_counted() {
    let manifests = [CONFIG, objectives::MANIFEST].join("---");
    let stack = Stack::builder().servers(1).manifests(&manifests).start().await;
    // An idle server gets any request.
    assert_eq!(status(&stack, "1", true).await, StatusCode::OK);
    stack.servers()[0].behave(Behaviour::SlowChunks(PAUSE));
    stack.servers()[0].update_metrics(|metrics| {
        metrics.running = 3;
        metrics.kv_cache_usage = 0.5;
    });
    let refused = eventually("a request is refused", async || match send(&stack, "1", true).await {
        refused if refused.status() == StatusCode::TOO_MANY_REQUESTS => Ok(refused),
        admitted => {
            let status = admitted.status();
            admitted.bytes().await.unwrap();
            Err(status)
        }
    })
    .await;
    assert_eq!(refused.headers()["retry-after"], "1");
    let body: Value = refused.json().await.unwrap();
    let message = "request cannot be admitted: no valid endpoint available to serve the request";
    assert_eq!(body["error"]["message"], message);
    // Limits below and above the time that the server takes: the predictor learns it from the responses.
    assert_eq!(status(&stack, "60000", true).await, StatusCode::OK);
    for _ in 0..10 {
        assert_eq!(status(&stack, "1", false).await, StatusCode::OK, "of priority 0");
    }
    assert_eq!(status(&stack, "75", true).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&stack, "60000", true).await, StatusCode::OK);
    let statistics = complete_statistics(&stack).await;
    let [admitted, refused, kept, missed] = ["admitted", "refused", "ttft_kept", "ttft_missed"]
        .map(|name| statistics.sum(&format!("slo_{name}")));
    // The requests that wait for the snapshot name no model.
    let expected = (statistics.sum("rejected"), statistics.sum("model_requests"));
    assert_eq!((refused, admitted), expected, "{statistics}");
    assert!(refused >= 2 && missed >= 10 && kept >= 2, "{statistics}");
    assert_eq!(kept + missed, admitted, "{statistics}");
}
