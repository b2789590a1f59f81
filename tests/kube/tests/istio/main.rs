//! Istio's control plane with the chart, installed by the command of docs/install/istio.md: it makes the
//! Envoys of a Gateway and their configuration, with the chart's `EnvoyFilter`. `make test-istio`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod installed;

use anyhow::ensure;
use endpoint_picker_harness::eventually::eventually;
use installed::{Installed, block_of_the_page, pool, route};
use serde_json::json;
use std::collections::BTreeSet;

/// The chart makes Gateway, route and pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_of_the_chart_picks_with_the_native_module() {
    let installed = Installed::new("native").await;
    let values = json!({
        "pools": [{"name": "chat", "selector": {"app": "chat"}, "targetPorts": [8000], "create": true}],
        "gateway": {"kind": "istio", "form": "native"},
    });
    installed.model_servers("chat", 3).await;
    installed.install(&values.to_string(), "endpoint-picker").await;
    assert_picks(&installed, "endpoint-picker").await;
    installed.remove().await;
}

/// The values of docs/install/istio.md, for a Gateway, a route and a pool that exist. The pool's EPP is
/// away, and another pool of the Gateway keeps its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_exists_picks_with_the_wasm_filter_by_the_values_of_the_page() {
    let installed = Installed::new("wasm").await;
    installed.model_servers("vllm-chat", 3).await;
    installed.model_servers("spare", 1).await;
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "inference"},
        "spec": {
            "gatewayClassName": "istio",
            "infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "endpoint-picker-gateway"}},
            "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}],
        },
    });
    let routes = [route("chat", "/"), route("spare", "/spare")];
    for object in routes.iter().chain(&[gateway, pool("chat", "vllm-chat"), pool("spare", "spare")]) {
        installed.apply(object).await;
    }
    installed.install(&block_of_the_page("yaml").unwrap(), "inference").await;
    assert_picks(&installed, "inference").await;
    assert!(installed.status("inference", "/spare").await.unwrap() >= 500, "its EPP is away, and closed");

    installed.uninstall().await;
    eventually("the EPP, which is away, is called again", async || {
        let status = installed.status("inference", "/").await?;
        ensure!(status >= 500, "{status}");
        anyhow::Ok(())
    })
    .await;
    installed.remove().await;
}

/// Checks that the picker decides, that Envoy has taken all of Istio's configuration, and that the chart's
/// settings are in it.
async fn assert_picks(installed: &Installed, gateway: &str) {
    // The prompt is always the same, so that the pool picks a server by what it has cached.
    let mut served = BTreeSet::new();
    for _ in 0..30 {
        served.insert(installed.chat(gateway).await.unwrap());
    }
    assert_eq!(served.len(), 1, "{served:?}");

    let rejected = installed.admin(gateway, "/stats?filter=update_rejected").await.unwrap();
    assert!(rejected.lines().count() > 0 && rejected.lines().all(|line| line.ends_with(": 0")), "{rejected}");
    let cluster = installed.cluster_of_the_pool(gateway).await.unwrap().to_string();
    for setting in [
        "envoy.load_balancing_policies.override_host",
        r#""connect_timeout":"1s""#,
        // By the chart's DestinationRule.
        r#""idle_timeout":"4s""#,
    ] {
        assert!(cluster.contains(setting), "no {setting} in {cluster}");
    }
    installed.until_reported().await;
    installed.until_doctor_finds_nothing(gateway).await;
}
