//! Parts that most tests of the picker share: requests, waiting, and checks.

use crate::statistics::statistics;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
pub use endpoint_picker_harness::configurations::LEAST_LOADED;
use endpoint_picker_harness::eventually::{SOON, eventually};
use endpoint_picker_harness::program::process_tree::processes;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use reqwest::{Client, Response, StatusCode};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The header with the picked endpoints.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The header of a response that says why the picker gave it.
pub const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// The path of chats.
pub const CHAT: &str = "/v1/chat/completions";
/// The path of completions.
pub const TEXT: &str = "/v1/completions";

/// The member of a chat's body that the picker needs in addition to the model.
pub const MESSAGES: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

/// Requests in a row that go to one server only because it is the best: with three servers and random choice
/// this happens once in 59 049 times.
const IN_A_ROW: usize = 10;

/// Envoy's counter of VMs that were restarted.
pub const RELOADS: &str = "wasm.endpoint-picker.vm_reload_success";

/// A prompt of about 600 bytes whose beginning no other request has: no server can have cached any of it.
pub fn fresh_prompt() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{:08} {}", COUNT.fetch_add(1, Ordering::Relaxed), "tell me more ".repeat(45))
}

/// A chat request with a [`fresh_prompt`].
pub fn fresh_chat() -> Value {
    client::chat(&fresh_prompt())
}

/// Gives all servers but one a queue and a fuller cache, and waits until requests go to it.
pub async fn prefer(stack: &Stack, best: usize) {
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| {
            metrics.waiting = if index == best { 0 } else { 5 };
            metrics.kv_cache_usage = if index == best { 0.1 } else { 0.6 };
        });
    }
    until_all_go_to(stack, best).await;
    forget_requests(stack);
}

/// Sends requests with fresh prompts, one after another, until ten in a row have gone to this server.
pub async fn until_all_go_to(stack: &Stack, best: usize) {
    let begin = Instant::now();
    let mut served = Vec::new();
    while begin.elapsed() < SOON {
        for _ in 0..IN_A_ROW {
            let response = stack.post("/v1/chat/completions", &fresh_chat()).await;
            assert_eq!(response.status(), StatusCode::OK);
            served.push(stack.served_by(&response));
            if served.last() != Some(&best) {
                break;
            }
        }
        if served.ends_with(&[best; IN_A_ROW]) {
            return;
        }
    }
    panic!("requests do not all go to server {best} within {SOON:?}; they went to {served:?}");
}

/// Waits until twenty requests in a row, each on a connection of its own, pass `meets`: one worker may have a
/// change a moment before another.
pub async fn until_every_worker<E: Display>(what: &str, mut meets: impl AsyncFnMut() -> Result<(), E>) {
    eventually(&format!("every worker {what}"), async || {
        for _ in 0..20 {
            meets().await?;
        }
        Ok::<_, E>(())
    })
    .await;
}

/// Waits until every worker picks for the pool of this path.
pub async fn until_picked(stack: &Stack, path: &str) {
    until_every_worker(&format!("picks for {path}"), async || {
        let answer = client::http1().get(stack.url(path)).send().await?;
        let echo: Value = answer.json().await?;
        anyhow::ensure!(echo["headers"][DESTINATION].is_string(), "a request was not picked");
        anyhow::Ok(())
    })
    .await;
}

/// Empties the servers' records.
pub fn forget_requests(stack: &Stack) {
    for server in stack.servers() {
        server.take_requests();
    }
}

/// How many requests each server has received since the records were emptied.
pub fn request_counts(stack: &Stack) -> Vec<usize> {
    stack.servers().iter().map(|server| server.requests().len()).collect()
}

/// Checks that the stack still does its work.
pub async fn assert_a_good_request_works(stack: &Stack, client: &Client) {
    let response = client.post(stack.url(CHAT)).json(&fresh_chat()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    stack.served_by(&response);
}

/// Checks an error in the shape of the OpenAI API and returns its message.
#[track_caller]
pub fn openai_error(status: StatusCode, body: &str) -> String {
    let error = serde_json::from_str::<Value>(body).map(|mut answer| answer["error"].take());
    let error = error.unwrap_or_else(|reason| panic!("{status} without JSON: {reason}: {body:?}"));
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    assert_eq!(error["type"], kind, "{status}: {body}");
    assert!(error.as_object().is_some_and(|error| error.contains_key("param")), "{status}: {body}");
    assert!(error["code"].is_string() || error["code"].is_u64(), "{status}: {body}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(!message.is_empty(), "{status}: {body}");
    message.to_owned()
}

/// The name of the stack's proxy in reports: the id of the node in the shipped configurations, or the names
/// of host and process, since Envoy does not give the id to a native module.
pub fn proxy_name(stack: &Stack) -> String {
    match stack.filter() {
        Filter::Wasm => "endpoint-picker".to_owned(),
        Filter::Native => {
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            // The last process is Envoy's own, below its launcher.
            let envoy = processes(stack.envoy().process_id()).unwrap().pop().unwrap();
            format!("{}-{envoy}", host.trim())
        }
    }
}

/// Checks that the picker answered 503 with the reason that no endpoint is eligible.
pub async fn assert_no_endpoints(response: Response, case: &str) {
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{case}");
    assert_eq!(response.headers()[DROPPED_REASON], "rejected-no-endpoints", "{case}");
    assert_eq!(response.headers()["content-type"], "application/json", "{case}");
    let message = openai_error(response.status(), &response.text().await.unwrap());
    assert_eq!(message, "failed to find endpoint candidates for serving the request", "{case}");
}

/// The faults that the filter has survived so far: in wasm, a trap ends a VM and the next request of its
/// worker starts another; the native module counts panics.
pub async fn faults(stack: &Stack) -> BTreeMap<&'static str, u64> {
    // Envoy does not reload a VM that is younger than a second, but counts that it was to be reloaded.
    let vms = [
        "wasm.envoy.wasm.runtime.v8.created",
        "wasm.envoy.wasm.runtime.v8.active",
        RELOADS,
        "wasm.endpoint-picker.vm_reload_backoff",
    ];
    let mut faults = BTreeMap::from([("panics", statistics(stack).await.sum("panics"))]);
    for name in vms {
        faults.insert(name, stack.envoy().stat(name).await.unwrap());
    }
    let has_vms = faults["wasm.envoy.wasm.runtime.v8.active"] > 0;
    assert_eq!(has_vms, stack.filter() == Filter::Wasm, "Envoy counts other VMs: {faults:?}");
    faults
}

/// A second Envoy with the agent and the model servers of this stack.
pub async fn second_envoy(one: &Stack) -> Stack {
    let two = Stack::builder().servers(0).own_agent(one.agent_address()).start().await;
    let servers: Vec<SocketAddr> = one.servers().iter().map(ModelServer::address).collect();
    two.set_endpoints(&servers);
    two.wait_until_picking().await;
    two
}
