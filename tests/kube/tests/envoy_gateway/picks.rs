//! The chart's objects for Envoy Gateway: its own Envoy runs the filter, in both forms.

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::{Filter, client, tools};
use endpoint_picker_kube::{GatewayGround, Installation, POOL, Registry};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const POLICIES: &str =
    "envoyextensionpolicies,envoypatchpolicies,backendtrafficpolicies,clienttrafficpolicies";

#[tokio::test(flavor = "multi_thread")]
async fn the_wasm_filter_picks_in_the_envoy_of_envoy_gateway() {
    let installation = Installation::new(GatewayGround::shared().await, Filter::Wasm, 3).await;
    assert_policies(&installation, 4).await;
    assert_picks(&installation).await;
    installation.until_reported().await;
    installation.until_doctor_finds_nothing().await;
    installation.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_module_picks_in_the_envoy_of_envoy_gateway_without_a_patch() {
    let installation = Installation::new(GatewayGround::shared().await, Filter::Native, 3).await;
    assert_policies(&installation, 3).await;
    assert_picks(&installation).await;
    installation.until_reported().await;
    installation.until_doctor_finds_nothing().await;
    installation.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wasm_filters_address_is_used_where_no_policy_reads_the_header() {
    assert_picks_without_override(Filter::Wasm, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_modules_address_is_used_where_no_policy_reads_the_header() {
    assert_picks_without_override(Filter::Native, 3).await;
}

async fn assert_picks_without_override(filter: Filter, policies: usize) {
    let values = json!({"gateway": {"endpointOverride": false}});
    let installation = Installation::with_values(GatewayGround::shared().await, filter, 3, &values).await;
    assert_policies(&installation, policies).await;
    for policy in objects(&installation, "backendtrafficpolicies").await.unwrap() {
        assert!(policy["spec"]["loadBalancer"]["endpointOverride"].is_null(), "{policy}");
    }
    assert_picks(&installation).await;
    installation.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_match_no_listener_are_reported_and_requests_are_balanced_without_a_pick() {
    let ground = GatewayGround::shared().await;
    let installation = Installation::new(ground, Filter::Wasm, 1).await;
    let chart = tools::root().join("deploy/chart").display().to_string();
    let upgrade = ["upgrade", POOL, &chart, "--namespace", installation.namespace(), "--reuse-values"];
    let other = ["--set-json", r#"gateway.xdsListeners=["other/gateway/http"]"#];
    ground.cluster().helm(upgrade.iter().chain(&other)).await.unwrap();

    eventually("the patches are reported", async || {
        let policies = objects(&installation, "envoypatchpolicies").await?;
        let programmed = condition(policies.first().context("no policy")?, "Programmed")?;
        ensure!(
            programmed["status"] == "False" && programmed["reason"] == "ResourceNotFound",
            "{programmed}"
        );
        anyhow::Ok(())
    })
    .await;
    eventually("no request is picked", async || {
        let echo = echo(&installation).await?;
        ensure!(echo["headers"][DESTINATION].is_null(), "{echo}");
        anyhow::Ok(())
    })
    .await;
    // Without the patches' flag a filter that held a body would hold it until the request times out.
    served_by(&chat(&installation, "a prompt").await);
    installation.remove().await;
}

/// The image is put together as the Dockerfile describes it: from scratch, with plugin.wasm.
#[tokio::test]
async fn the_gateway_loads_the_wasm_module_from_its_image() {
    let ground = GatewayGround::shared().await;
    let registry = Registry::start(ground.cluster().logs()).await.unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let module = Filter::Wasm.module().unwrap();
    registry
        .push(&format!("inference/endpoint-picker-wasm:{version}"), &module, "plugin.wasm")
        .await
        .unwrap();
    let values = json!({
        "image": {"registry": format!("{}/inference", registry.address())},
        "gateway": {"module": {"url": "", "sha256": ""}},
    });
    let installation = Installation::with_values(ground, Filter::Wasm, 1, &values).await;
    installation.remove().await;
}

/// Checks that there are this many policies, and that Envoy Gateway has taken all of them.
async fn assert_policies(installation: &Installation<'_>, count: usize) {
    eventually("all policies are in force", async || {
        let policies = objects(installation, POLICIES).await?;
        ensure!(policies.len() == count, "{} policies: {policies:?}", policies.len());
        for policy in &policies {
            let is_patch = policy["kind"] == "EnvoyPatchPolicy";
            for kind in if is_patch { &["Accepted", "Programmed"][..] } else { &["Accepted"] } {
                ensure!(condition(policy, kind)?["status"] == "True", "{policy}");
            }
        }
        anyhow::Ok(())
    })
    .await;
}

async fn assert_picks(installation: &Installation<'_>) {
    let servers: BTreeSet<_> =
        installation.servers().await.into_iter().filter_map(|pod| pod.status?.pod_ip).collect();
    assert_eq!(servers.len(), 3);

    // A client's own choice is replaced by the picker's.
    let echo = echo(installation).await.unwrap();
    let picked = echo["headers"][DESTINATION].as_str().unwrap();
    assert!(
        picked.strip_suffix(":8000").is_some_and(|ip| servers.contains(ip)),
        "{picked} is none of {servers:?}"
    );

    // Round robin would spread requests with one prompt.
    let prompt = "the same beginning ".repeat(200);
    let first = served_by(&chat(installation, &prompt).await);
    for _ in 0..10 {
        assert_eq!(served_by(&chat(installation, &prompt).await), first);
    }
    // More than Envoy Gateway's own limit of 32 KiB, and more than the filter waits for. The servers simulate
    // work for prompts only.
    let mut large = client::chat("a short prompt");
    large["user"] = "x".repeat(5 << 20).into();
    served_by(&client::http1().post(installation.url(CHAT)).json(&large).send().await.unwrap());
}

/// Request as a server received it, in which the client names a destination.
async fn echo(installation: &Installation<'_>) -> Result<Value> {
    let request = client::http1().get(installation.url("/")).header(DESTINATION, "127.0.0.1:1");
    Ok(request.send().await?.error_for_status()?.json().await?)
}

async fn chat(installation: &Installation<'_>, prompt: &str) -> Response {
    let request = client::http1().post(installation.url(CHAT)).header(DESTINATION, "127.0.0.1:1");
    request.json(&client::chat(prompt)).send().await.unwrap()
}

fn served_by(response: &Response) -> String {
    assert_eq!(response.status(), StatusCode::OK);
    response.headers()["x-served-by"].to_str().unwrap().to_owned()
}

/// The objects of these kinds in the namespace of the installation.
async fn objects(installation: &Installation<'_>, kinds: &str) -> Result<Vec<Value>> {
    let list: Value = serde_json::from_str(&installation.kubectl(&["get", kinds, "--output=json"]).await?)?;
    Ok(list["items"].as_array().context("a list")?.clone())
}

fn condition<'a>(policy: &'a Value, kind: &str) -> Result<&'a Value> {
    let conditions = policy["status"]["ancestors"][0]["conditions"].as_array();
    let condition = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    condition.with_context(|| format!("no condition {kind} in {policy}"))
}
