//! Which of Envoy's limits end a request that waits, and what the readings do.

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, DROPPED_REASON, fresh_chat};
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CONNECTION_MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// Time to live in the queue.
const TTL: &str = "1s";

/// One that Envoy's limits end before, however slow the machine is.
const LONG_TTL: &str = "60s";

/// A limit of Envoy that is shorter than that.
const SHORT: &str = "0.300s";

/// A pool whose saturation the servers report.
fn builder(ttl: &str) -> Builder {
    Stack::builder().servers(1).manifests(&format!(
        r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{{ type: queue-scorer }}]
flowControl: {{ defaultRequestTTL: {ttl} }}
"
    ))
}

fn set_waiting(stack: &Stack, waiting: u64) {
    stack.servers()[0].update_metrics(|metrics| metrics.waiting = waiting);
}

/// A request that waits: requests of the moment before the readings say so are served. Returns its status,
/// its reason, and when it was answered.
async fn wait(stack: &Stack) -> (StatusCode, Option<String>, Duration) {
    set_waiting(stack, 100);
    eventually("a request waits", async || {
        let begin = Instant::now();
        let answer = stack.post(CHAT, &fresh_chat()).await;
        ensure!(answer.status() != StatusCode::OK, "it was served");
        let reason = answer.headers().get(DROPPED_REASON).map(|reason| reason.to_str().map(str::to_owned));
        Ok((answer.status(), reason.transpose()?, begin.elapsed()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_when_the_servers_report_room() {
    let stack = builder("60s").start().await;
    set_waiting(&stack, 100);
    let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
    let send = || tokio::spawn(request.try_clone().unwrap().send());
    let mut waits = send();
    eventually("a request waits", async || {
        if waits.is_finished() {
            // The readings of that moment had room.
            waits = send();
        }
        let queued = statistics(&stack).await.count(r#"queued{pool="default"}"#);
        if queued == 1 { Ok(()) } else { Err(queued) }
    })
    .await;
    set_waiting(&stack, 0);
    assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
    until_counted(&stack, "queued", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_requests_and_routes_do_not_count_the_wait() {
    let route = format!("{CONNECTION_MANAGER}/route_config/virtual_hosts/0/routes/0/route/timeout");
    let stack = builder(TTL).request_timeout(Duration::from_millis(300)).value_at(route.leak(), SHORT);
    let stack = stack.start().await;
    let (status, reason, after) = wait(&stack).await;
    assert_eq!((status, reason.as_deref()), (StatusCode::TOO_MANY_REQUESTS, Some("rejected-ttl-expired")));
    assert!(after >= Duration::from_secs(1), "{after:?}");
}

/// The connection manager's own limit of idle streams.
fn short_idle_stream(config: &mut Config) -> Result<()> {
    connection_manager(config)?["stream_idle_timeout"] = json!(SHORT);
    Ok(())
}

/// The longest time of a stream.
fn short_stream(config: &mut Config) -> Result<()> {
    connection_manager(config)?["common_http_protocol_options"] = json!({"max_stream_duration": SHORT});
    Ok(())
}

fn connection_manager(config: &mut Config) -> Result<&mut Value> {
    config.document().pointer_mut(CONNECTION_MANAGER).context("no connection manager")
}

async fn assert_ended_by_envoy(stack: Stack) {
    let (status, reason, _) = wait(&stack).await;
    assert_eq!((status, reason), (StatusCode::GATEWAY_TIMEOUT, None));
    until_counted(&stack, "queued", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routes_limit_of_idle_streams_ends_a_request_that_waits() {
    let route = format!("{CONNECTION_MANAGER}/route_config/virtual_hosts/0/routes/0/route/idle_timeout");
    assert_ended_by_envoy(builder(LONG_TTL).value_at(route.leak(), SHORT).start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_the_connection_manager_does_not_count_where_a_route_has_its_own() {
    let stack = builder(TTL).change(short_idle_stream).start().await;
    let (status, reason, _) = wait(&stack).await;
    assert_eq!((status, reason.as_deref()), (StatusCode::TOO_MANY_REQUESTS, Some("rejected-ttl-expired")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_time_of_a_stream_counts_the_wait() {
    assert_ended_by_envoy(builder(LONG_TTL).change(short_stream).start().await).await;
}
