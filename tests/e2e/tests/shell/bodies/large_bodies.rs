//! Bodies that are longer than the part that the picker waits for.

use bytes::Bytes;
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, TEXT, openai_error, request_counts};
use endpoint_picker_e2e::statistics::{complete_statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{ModelServer, ReceivedRequest};
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use reqwest::{Body, Response, StatusCode};
use serde_json::json;
use std::convert::Infallible;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Looks at a body from 16 KiB on and holds 64 KiB at most.
fn small_limits(unread_body: &str) -> Builder {
    let limits = json!({"peekBytes": 16 * KIB, "maxHeldBytes": 64 * KIB, "unreadBody": unread_body});
    Stack::builder().picker_field("limits", limits)
}

fn model_first(prompt: usize) -> String {
    format!(r#"{{"model":"m","prompt":"{}","max_tokens":3}}"#, "é".repeat(prompt / 2))
}

/// As `OpenAI`'s own client for Python writes it.
fn model_last(prompt: usize) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"{}"}}],"model":"m"}}"#, "y".repeat(prompt))
}

async fn post(stack: &Stack, path: &str, body: String) -> Response {
    client::http1().post(stack.url(path)).body(body).send().await.unwrap()
}

fn only_request(stack: &Stack) -> ReceivedRequest {
    let mut requests: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_200_mib_is_picked_and_streams_through_with_little_memory() {
    let stack = Stack::builder().start().await;
    let before = stack.envoy().peak_memory().unwrap();
    for is_chunked in [false, true] {
        let body = Bytes::from(model_first(200 * MIB));
        let request = client::http1().post(stack.url(TEXT));
        let chunks = body.chunks(MIB).map(|chunk| Ok::<_, Infallible>(body.slice_ref(chunk)));
        let request = if is_chunked {
            let chunks: Vec<_> = chunks.collect();
            request.body(Body::wrap_stream(stream::iter(chunks)))
        } else {
            request.body(body.clone())
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "chunked: {is_chunked}");
        let served = stack.served_by(&response);
        let received = only_request(&stack);
        assert!(received.body == body, "{} bytes arrived", received.body.len());
        assert_eq!(received.header(DESTINATION), Some(stack.servers()[served].endpoint().as_str()));
    }
    let used = stack.envoy().peak_memory().unwrap() - before;
    // What the connections' buffer limit of 33 MiB lets wait for the server, here and there, for both bodies
    // if the memory of the first is not free yet; held, a body would take 200.
    assert!(used < 140 * MIB as u64, "Envoy used {used} bytes more than the {before} it had");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_model_comes_late_is_held_until_then() {
    let stack = small_limits("Reject").start().await;
    let body = model_last(40 * KIB);
    let response = post(&stack, CHAT, body.clone()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let received = only_request(&stack);
    assert!(received.body == body.as_bytes());
    assert!(received.header(DESTINATION).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_model_at_its_beginning_is_refused_or_left_to_envoy_as_configured() {
    let stack = small_limits("Reject").start().await;
    let response = post(&stack, CHAT, model_last(200 * KIB)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let message = openai_error(response.status(), &response.text().await.unwrap());
    assert!(message.contains("65536 bytes"), "{message}");
    assert_eq!(request_counts(&stack), [0, 0, 0]);

    let stack = small_limits("Abstain").start().await;
    let body = model_last(200 * KIB);
    assert_eq!(post(&stack, CHAT, body.clone()).await.status(), StatusCode::OK);
    let received = only_request(&stack);
    assert!(received.body == body.as_bytes());
    assert_eq!(received.header(DESTINATION), None);
    let statistics = complete_statistics(&stack).await;
    assert_eq!(statistics.count(r#"abstained{pool="default",reason="body_too_large"}"#), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_whose_model_is_rewritten_is_held_whole_or_refused() {
    const REWRITE: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: { name: m }
spec:
  poolRef: { name: default }
  rules:
    - matches: [{ model: { value: m } }]
      targets: [{ modelRewrite: other, weight: 1 }]
";
    let stack = small_limits("Abstain").manifests(REWRITE).start().await;
    assert_eq!(post(&stack, TEXT, model_first(40 * KIB)).await.status(), StatusCode::OK);
    let expected = model_first(40 * KIB).replacen(r#""m""#, r#""other""#, 1);
    assert!(only_request(&stack).body == expected.as_bytes());
    let response = post(&stack, TEXT, model_first(200 * KIB)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "it cannot go on under the client's name");
    assert_eq!(request_counts(&stack), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_does_not_hold_other_requests_up() {
    let stack = small_limits("Reject").start().await;
    let (send, chunks) = tokio::sync::mpsc::channel::<Result<Bytes, Infallible>>(1);
    let chunks = stream::unfold(chunks, async |mut chunks| Some((chunks.recv().await?, chunks)));
    let slow = client::http1().post(stack.url(TEXT)).body(Body::wrap_stream(chunks));
    let slow = tokio::spawn(async move { slow.send().await.unwrap().status() });
    let body = model_first(200 * KIB);
    for (n, chunk) in body.as_bytes().chunks(10 * KIB).enumerate() {
        send.send(Ok(Bytes::copy_from_slice(chunk))).await.unwrap();
        assert_eq!(
            post(&stack, TEXT, model_first(KIB)).await.status(),
            StatusCode::OK,
            "while chunk {n} is on its way"
        );
    }
    drop(send);
    assert_eq!(slow.await.unwrap(), StatusCode::OK);
    let sizes = stack.servers().iter().flat_map(ModelServer::take_requests).map(|it| it.body.len());
    assert_eq!(sizes.max(), Some(body.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_of_many_connections_are_held_within_the_room_for_all() {
    const CONNECTIONS: usize = 40;
    const BODY: usize = 3 * MIB;
    const ROOM: usize = 16 * MIB;
    let limits = json!({"maxHeldBytes": 8 * MIB, "maxHeldBytesInAll": ROOM});
    let stack = Stack::builder().workers(1).picker_field("limits", limits).start().await;
    let before = stack.envoy().peak_memory().unwrap();
    // All but the end of each body is sent: the model, and with it the decision, is missing.
    let (finish, finished) = tokio::sync::watch::channel(false);
    let body = Bytes::from(model_last(BODY));
    let post = |body: Bytes| {
        let (first, last) = (body.slice(..BODY), body.slice(BODY..));
        let mut finished = finished.clone();
        let last = stream::once(async move {
            let _ = finished.wait_for(|is_finished| *is_finished).await;
            Ok::<_, Infallible>(last)
        });
        let body = Body::wrap_stream(stream::iter([Ok(first)]).chain(last));
        let request = client::http1().post(stack.url(CHAT)).body(body).send();
        async { request.await.map(|response| response.status()) }
    };
    let mut requests: FuturesUnordered<_> = (0..CONNECTIONS).map(|_| post(body.clone())).collect();
    let held = ROOM / BODY;
    for _ in held..CONNECTIONS {
        // Envoy closes the connection of a client that still sends, which may then miss the response.
        if let Ok(status) = requests.next().await.unwrap() {
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    until_counted(&stack, "rejected_held_bodies", (CONNECTIONS - held) as u64).await;
    let used = stack.envoy().peak_memory().unwrap() - before;
    println!("{CONNECTIONS} bodies of {BODY} bytes took {used} bytes of Envoy");
    // Without the limit they would be 120 MiB.
    assert!(used < 72 * MIB as u64, "Envoy used {used} bytes more than the {before} it had");
    finish.send(true).unwrap();
    for _ in 0..held {
        assert_eq!(requests.next().await.unwrap().unwrap(), StatusCode::OK);
    }
    assert_eq!(post(body).await.unwrap(), StatusCode::OK, "there is room again");
    assert_eq!(request_counts(&stack).iter().sum::<usize>(), held + 1);
}
