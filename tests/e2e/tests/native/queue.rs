//! Requests wait in the proxy while the pool is saturated.

use anyhow::{Context, ensure};
use endpoint_picker_e2e::fixture::{CHAT, DROPPED_REASON, fresh_chat};
use endpoint_picker_e2e::statistics::until_counted;
use endpoint_picker_harness::client::{self, Ending};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{BEHAVE, ModelServer};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

const URGENT: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: { name: urgent }
spec:
  poolRef: { name: default }
  priority: 10
";

const SECRET: &str = "0123456789abcdef";

/// A pool of one server that takes one request at a time.
fn builder(flow_control: &str) -> Builder {
    let picker = format!(
        r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
  - type: active-request-scorer
  - type: concurrency-detector
    parameters: {{ maxConcurrency: 1 }}
flowControl:
  saturationDetector: {{ pluginRef: concurrency-detector }}
{flow_control}
"
    );
    let manifests = [&picker, URGENT, objectives::MANIFEST].join("---");
    let explain = json!({"header": "x-why", "secret": SECRET});
    Stack::builder().servers(1).manifests(&manifests).picker_field("explain", explain)
}

fn sends(stack: &Stack, headers: &[(&str, &str)]) -> JoinHandle<Response> {
    let mut request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    tokio::spawn(async move { request.send().await.unwrap() })
}

/// A request that occupies the server until it is dropped.
async fn occupies(stack: &Stack) -> JoinSet<Response> {
    stack.servers()[0].take_requests();
    let mut request = JoinSet::new();
    let hangs = client::http1().post(stack.url(CHAT)).header(BEHAVE, "hang").json(&fresh_chat()).send();
    request.spawn(async move { hangs.await.unwrap() });
    eventually("the server is occupied", async || match stack.servers()[0].requests().len() {
        0 => Err(0),
        _ => Ok(()),
    })
    .await;
    request
}

/// Checks that nothing waits and nothing is in flight.
async fn until_idle(stack: &Stack) {
    until_counted(stack, "queued", 0).await;
    until_counted(stack, "in_flight", 0).await;
    eventually("Envoy has no request", async || {
        let active = stack.envoy().stat("http.inference.downstream_rq_active").await?;
        anyhow::ensure!(active == 0, "{active} requests are not over");
        anyhow::Ok(())
    })
    .await;
}

/// Waits until the agent's metric of the queue has this value for the tenants `a` and `b` in each of the
/// bands 10, 0 and -1.
async fn until_exported(stack: &Stack, metric: &str, labels: &str, value: &str) {
    let url = format!("http://{}/metrics", stack.agent_address());
    eventually(metric, async || {
        let text = client::http1().get(&url).send().await?.text().await?;
        for (tenant, priority) in ["a", "b"].into_iter().flat_map(|it| [10, 0, -1].map(|band| (it, band))) {
            let begin = format!(
                r#"llm_d_epp_flow_control_{metric}{{fairness_id="{tenant}",priority="{priority}"{labels}"#
            );
            let found = text.lines().find(|line| line.starts_with(&begin));
            ensure!(found.is_some_and(|line| line.ends_with(value)), "{begin}: {found:?}");
        }
        anyhow::Ok(())
    })
    .await;
}

async fn assert_dropped(answer: Response, status: StatusCode, reason: &str, message: &str) {
    assert_eq!(answer.status(), status);
    assert_eq!(answer.headers()[DROPPED_REASON], reason);
    let body: Value = answer.json().await.unwrap();
    assert_eq!(body["error"]["message"], message);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_on_in_the_order_of_their_priorities() {
    let stack = builder("").start().await;
    let occupied = occupies(&stack).await;
    let header = objectives::HEADER;
    let objectives = [objectives::SHEDDABLE, "none", "urgent", objectives::SHEDDABLE, "none", "urgent"];
    let tenants = ["a", "a", "a", "b", "b", "b"].map(|tenant| ("x-llm-d-inference-fairness-id", tenant));
    let requests = tenants.into_iter().zip(objectives);
    let requests: Vec<_> =
        requests.map(|(tenant, objective)| sends(&stack, &[tenant, (header, objective)])).collect();
    until_counted(&stack, "queued", 6).await;
    until_exported(&stack, "queue_size", "", " 1.0").await;
    stack.servers()[0].take_requests();
    drop(occupied);
    for request in requests {
        assert_eq!(request.await.unwrap().status(), StatusCode::OK);
    }
    let received = stack.servers()[0].take_requests();
    let served: Vec<_> = received.iter().filter_map(|request| request.header(header)).collect();
    assert_eq!(served, ["urgent", "urgent", "none", "none", "batch", "batch"]);
    let dispatched = r#",outcome="Dispatched""#;
    until_exported(&stack, "request_queue_duration_seconds_count", dispatched, " 1").await;
    until_exported(&stack, "queue_size", "", " 0.0").await;
    until_idle(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_too_long_is_429_and_503_without_endpoints() {
    let stack = builder("  defaultRequestTTL: 300ms\n  noEndpointRequestTTL: 100ms").start().await;
    let occupied = occupies(&stack).await;
    let answer = sends(&stack, &[("x-why", SECRET)]).await.unwrap();
    let waited: u64 = answer.headers()["x-llm-d-queue-wait-ms"].to_str().unwrap().parse().unwrap();
    assert!(waited >= 300, "{waited} ms");
    let message = "request timed out in queue: request evicted from queue: request TTL expired";
    assert_dropped(answer, StatusCode::TOO_MANY_REQUESTS, "rejected-ttl-expired", message).await;
    stack.set_endpoints(&[]);
    eventually("the pool has no endpoint", async || {
        match sends(&stack, &[]).await.unwrap() {
            answer if answer.status() == StatusCode::SERVICE_UNAVAILABLE => {
                let message = "request timed out in queue and no endpoints are available: request evicted from queue: request TTL expired";
                assert_dropped(answer, StatusCode::SERVICE_UNAVAILABLE, "rejected-no-endpoints", message).await;
                Ok(())
            }
            answer => Err(answer.status()),
        }
    })
    .await;
    stack.set_endpoints(&[stack.servers()[0].address()]);
    drop(occupied);
    eventually("the server is back", async || match sends(&stack, &[]).await.unwrap().status() {
        StatusCode::OK => Ok(()),
        status => Err(status),
    })
    .await;
    until_idle(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_before_the_upload() {
    let stack = builder("  maxRequests: 1").start().await;
    let occupied = occupies(&stack).await;
    let waits = sends(&stack, &[]);
    until_counted(&stack, "queued", 1).await;
    for expect in ["", "expect: 100-continue\r\n"] {
        // The body never comes.
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: a\r\n{expect}content-length: 10000000\r\nconnection: close\r\n\r\n"
        );
        let answer = client::raw(stack.envoy().listener(), head.as_bytes(), Ending::KeepOpen).await.unwrap();
        assert!(answer.contains("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("rejected-saturated") && answer.contains("queue at capacity"), "{answer}");
    }
    drop(occupied);
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
    until_idle(&stack).await;
    // Now it is known how fast requests are dispatched.
    let occupied = occupies(&stack).await;
    let waits = sends(&stack, &[]);
    until_counted(&stack, "queued", 1).await;
    let answer = sends(&stack, &[]).await.unwrap();
    let retry_after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after} s");
    drop(occupied);
    assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_while_they_wait_leave_nothing() {
    let stack = builder("").workers(4).start().await;
    let occupied = occupies(&stack).await;
    let (stay, leave): (Vec<_>, Vec<_>) =
        (0..200).map(|n| (n % 2 == 0, sends(&stack, &[]))).partition(|(stays, _)| *stays);
    until_counted(&stack, "queued", 200).await;
    for (_, request) in &leave {
        request.abort();
    }
    until_counted(&stack, "queued", 100).await;
    drop(occupied);
    for (_, request) in stay {
        assert_eq!(request.await.unwrap().status(), StatusCode::OK);
    }
    until_idle(&stack).await;
    let received = stack.servers().iter().map(|server| ModelServer::requests(server).len()).sum::<usize>();
    assert_eq!(received, 101);
    let status = format!("http://{}/v1/pools/default", stack.agent_address());
    eventually("the agent shows how all waits have ended", async || {
        let status: Value = client::http1().get(&status).send().await?.json().await?;
        let bands = status["queue"]["bands"].as_array().context("no queue")?;
        let band = bands.iter().find(|band| band["priority"] == 0).context("no band 0")?;
        let expected = json!({"Dispatched": 101, "EvictedContextCancelled": 100});
        ensure!(band["outcomes"] == expected && band["requests"] == 0, "{band}");
        ensure!(status["queue"]["in_flight"] == 0, "{status}");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sheddable_request_in_flight_makes_room() {
    let stack = builder("  enableEviction: true").start().await;
    let header = objectives::HEADER;
    let batch = sends(&stack, &[(BEHAVE, "hang"), (header, objectives::SHEDDABLE)]);
    eventually("the server is occupied", async || match stack.servers()[0].take_requests().len() {
        0 => Err(0),
        _ => Ok(()),
    })
    .await;
    let urgent = sends(&stack, &[(header, "urgent")]);
    assert_dropped(
        batch.await.unwrap(),
        StatusCode::TOO_MANY_REQUESTS,
        "evicted",
        "request evicted by flow control",
    )
    .await;
    assert_eq!(urgent.await.unwrap().status(), StatusCode::OK);
    until_idle(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sheddable_answer_that_has_begun_breaks_off_to_make_room() {
    let stack = builder("  enableEviction: true").start().await;
    let mut chat = fresh_chat();
    (chat["stream"], chat["max_tokens"]) = (true.into(), 100_000.into());
    let batch = client::http1().post(stack.url(CHAT)).header(BEHAVE, "slow").json(&chat);
    let mut batch = batch.header(objectives::HEADER, objectives::SHEDDABLE).send().await.unwrap();
    assert!(batch.chunk().await.unwrap().is_some());
    let urgent = sends(&stack, &[(objectives::HEADER, "urgent")]);
    assert_eq!(urgent.await.unwrap().status(), StatusCode::OK);
    // The end is an error, so that no client takes what it has for the whole response.
    while let Ok(chunk) = batch.chunk().await {
        assert!(chunk.is_some(), "the answer looks complete");
    }
    until_idle(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_2_mib_waits_with_its_body() {
    let stack = builder("").start().await;
    let occupied = occupies(&stack).await;
    let mut chat = fresh_chat();
    chat["padding"] = json!("x".repeat(2 << 20));
    let request = client::http1().post(stack.url(CHAT)).json(&chat);
    let long = tokio::spawn(async move { request.send().await.unwrap() });
    until_counted(&stack, "queued", 1).await;
    stack.servers()[0].take_requests();
    drop(occupied);
    assert_eq!(long.await.unwrap().status(), StatusCode::OK);
    let received = stack.servers()[0].take_requests();
    assert_eq!(serde_json::from_slice::<Value>(&received[0].body).unwrap(), chat);
    until_idle(&stack).await;
}
