//! Objects that change under load.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::{Filter, client};
use endpoint_picker_kube::{GatewayGround, Installation, Load, POOL};
use endpoint_picker_model_server::SERVED_MODEL;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn objects_change_under_load_behind_the_wasm_filter() {
    objects_change_under_load(Filter::Wasm).await;
}

#[tokio::test]
async fn objects_change_under_load_behind_the_native_filter() {
    objects_change_under_load(Filter::Native).await;
}

fn rewrite(to: &str) -> Value {
    json!({
        "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceModelRewrite", "metadata": {"name": "canary"},
        "spec": {
            "poolRef": {"group": "inference.networking.k8s.io", "name": POOL},
            "rules": [{
                "matches": [{"model": {"type": "Exact", "value": "canary"}}],
                "targets": [{"modelRewrite": to, "weight": 1}],
            }],
        },
    })
}

fn objective(priority: i32) -> Value {
    json!({
        "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": "batch"},
        "spec": {"priority": priority, "poolRef": {"group": "inference.networking.k8s.io", "name": POOL}},
    })
}

/// A configuration that takes readings of this age for too old: with a tiny one every pod counts as
/// saturated, and requests of a negative priority are shed.
fn picker_config(max_age: &str) -> Value {
    let config = json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "queue-scorer"},
            {"type": "utilization-detector", "parameters": {"metricsStalenessThreshold": max_age}},
        ],
        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]}],
        "flowControl": {"saturationDetector": {"pluginRef": "utilization-detector"}},
    });
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "picker"},
        "data": {"config.yaml": config.to_string()},
    })
}

async fn objects_change_under_load(filter: Filter) {
    let ground = GatewayGround::shared().await;
    let values = json!({"pickerConfig": {"configMap": "picker"}});
    let installation = Installation::with_values(ground, filter, 2, &values).await;
    let load = Load::start(&installation.url("/v1/chat/completions"), 2, Duration::from_millis(10));

    // The response has the model of the request, and the server's own response has the rewrite's.
    for target in ["first", "second"] {
        installation.apply(&rewrite(target)).await;
        let until = format!("the model is rewritten to {target}");
        eventually(&until, async || {
            let seen = rewritten(&installation).await?;
            if seen == target { Ok(()) } else { Err(anyhow::anyhow!("rewritten to {seen}")) }
        })
        .await;
    }

    // An object that the agent refuses changes nothing, and an Event has the reason.
    let mut refused = rewrite("third");
    refused["spec"]["rules"][0]["targets"][0]["weight"] = json!(-1);
    installation.apply(&refused).await;
    eventually("an Event has the reason", async || {
        let events = installation.kubectl(&["get", "events", "--output=json"]).await?;
        let events: Value = serde_json::from_str(&events)?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let of_the_object = events.iter().find(|event| event["involvedObject"]["name"] == "canary");
        ensure!(of_the_object.is_some_and(|event| event.to_string().contains("weight")), "{events:?}");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(rewritten(&installation).await.unwrap(), "second");

    // Requests of an objective below 0 are shed under one configuration, and served under another or with
    // another priority.
    installation.apply(&objective(-1)).await;
    for (change, status) in [
        (picker_config("1ns"), StatusCode::TOO_MANY_REQUESTS),
        (picker_config("1h"), StatusCode::OK),
        (picker_config("1ns"), StatusCode::TOO_MANY_REQUESTS),
        (objective(0), StatusCode::OK),
    ] {
        installation.apply(&change).await;
        eventually(&format!("a request of the objective gets {status} after {change}"), async || {
            let request = client::http1().post(installation.url("/v1/completions"));
            let request = request.header("x-llm-d-inference-objective", "batch");
            let answer = request.json(&client::completion("hello")).send().await?;
            ensure!(answer.status() == status, "{answer:?}");
            anyhow::Ok(())
        })
        .await;
    }

    load.stop().await.assert_none_lost();
    installation.remove().await;
}

/// The model that the server sees for the model `canary`.
async fn rewritten(installation: &Installation<'_>) -> Result<String> {
    let mut body = client::completion("hello");
    body["model"] = json!("canary");
    let answer = client::http1().post(installation.url("/v1/completions")).json(&body).send().await?;
    ensure!(answer.status() == StatusCode::OK, "{answer:?}");
    let model = answer.headers().get(SERVED_MODEL).context("no model")?;
    Ok(model.to_str()?.to_owned())
}
