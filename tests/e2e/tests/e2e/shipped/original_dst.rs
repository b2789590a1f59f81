//! The shipped example with an `ORIGINAL_DST` cluster, which knows no hosts but the picker's.

use crate::fixture::{CHAT, DESTINATION, TEXT, forget_requests, fresh_chat, prefer};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::{Value, json};

async fn stack() -> Stack {
    Stack::builder().config("examples/original-dst.yaml").start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_best_server_and_header_and_upstream_agree() {
    let stack = stack().await;
    for best in [2, 0, 1] {
        prefer(&stack, best).await;
        let endpoint = stack.servers()[best].endpoint();
        for (index, client) in [client::http1(), client::h2c()].iter().enumerate() {
            for path in [CHAT, TEXT] {
                let path = format!("{path}?best={best}&client={index}");
                let body = if path.starts_with(CHAT) { fresh_chat() } else { client::completion("hello") };
                let response = client.post(stack.url(&path)).json(&body).send().await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                let served = &stack.servers()[stack.served_by(&response)];
                let received = served.take_requests();
                assert_eq!(received[0].header(DESTINATION), Some(served.endpoint().as_str()));
                assert_eq!(received[0].body, body.to_string());
                let entry = stack.logged(&path).await;
                assert_eq!(entry["header"], served.endpoint(), "{entry}");
                assert_eq!(entry["metadata"], served.endpoint(), "{entry}");
                assert_eq!(entry["upstream"], served.endpoint(), "{entry}");
                if path.starts_with(CHAT) {
                    assert_eq!(served.endpoint(), endpoint);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_answers_bodiless_requests_and_new_endpoints_work() {
    let stack = stack().await;
    let mut body = fresh_chat();
    body["stream"] = json!(true);
    let answer = stack.post(CHAT, &body).await.text().await.unwrap();
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");

    let models = client::http1().get(stack.url("/v1/models")).send().await.unwrap();
    assert_eq!(models.json::<Value>().await.unwrap()["object"], "list");

    forget_requests(&stack);
    let extra = ModelServer::start().unwrap();
    stack.set_endpoints(&[extra.address()]);
    eventually("the new endpoint serves", async || {
        let response = stack.post(CHAT, &fresh_chat()).await;
        let served = response.headers()["x-served-by"].clone();
        if served == extra.endpoint() { Ok(()) } else { Err(format!("{served:?} does")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_endpoint_of_a_list_serves() {
    const CONFIG: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - { type: queue-scorer }
  - { type: max-score-picker, parameters: { maxNumOfEndpoints: 3 } }
";
    let builder = Stack::builder().config("examples/original-dst.yaml").manifests(CONFIG);
    let stack = builder.start().await;
    prefer(&stack, 1).await;
    let path = format!("{CHAT}?list");
    let response = stack.post(&path, &fresh_chat()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.served_by(&response), 1);
    let entry = stack.logged(&path).await;
    let list: Vec<_> = entry["header"].as_str().unwrap().split(',').collect();
    assert_eq!((list.len(), list[0]), (3, stack.servers()[1].endpoint().as_str()), "{entry}");
    assert_eq!(entry["metadata"], entry["header"], "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_connections_is_left_once_the_agent_has_seen_it() {
    let stack = stack().await;
    prefer(&stack, 1).await;
    stack.servers()[1].refuse().await.unwrap();
    eventually("another server serves", async || {
        let status = stack.post(CHAT, &fresh_chat()).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
}
