//! Envoy Gateway's rights and configuration, as the chart and the page make them.

use crate::fixture::GROUND;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Extension, PROXIES};
use serde_json::{Value, json};
use tokio::process::Command;

#[tokio::test]
async fn envoy_gateways_account_may_read_pools_and_not_change_them() {
    let cluster = Extension::shared().await.cluster();
    let account = format!("--as=system:serviceaccount:{PROXIES}:envoy-gateway");
    let can = async |verb: &str| {
        let ask = ["auth", "can-i", verb, "inferencepools.inference.networking.k8s.io", "--all-namespaces"];
        cluster.kubectl(ask.iter().chain(&[account.as_str()])).await
    };
    for verb in ["get", "list", "watch"] {
        assert_eq!(can(verb).await.unwrap().trim(), "yes", "{verb}");
    }
    assert!(can("patch").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_no_mistake_until_there_is_one() {
    // Alone, because pools of other tests have no status for a moment.
    let _ground = GROUND.write().await;
    let cluster = Extension::shared().await.cluster();
    let get = ["get", "configmap", "endpoint-picker-envoy-gateway", "--namespace", "inference"];
    let values =
        cluster.kubectl(get.into_iter().chain(["--output=jsonpath={.data.values\\.yaml}"])).await.unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    // As Envoy Gateway's chart writes it.
    let write = async |config: &Value| {
        let data = json!({"envoy-gateway.yaml": config.to_string()});
        let name = json!({"name": "envoy-gateway-config"});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data});
        cluster.apply(PROXIES, &object.to_string()).await.unwrap();
    };
    let check = async || {
        let mut command = Command::new(tools::metrics_agent().unwrap());
        command.env("KUBECONFIG", cluster.kubeconfig()).args([
            "check",
            "--cluster",
            "--kubernetes-namespace=*",
        ]);
        let output =
            command.arg(format!("--envoy-gateway={PROXIES}")).kill_on_drop(true).output().await.unwrap();
        let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        (output.status.success(), format!("{text}{errors}"))
    };
    let mut config = values["config"]["envoyGateway"].clone();
    write(&config).await;
    let (is_ok, text) = check().await;
    assert!(is_ok && text.ends_with("no mistakes found\n"), "{text}");
    let hooks = &mut config["extensionManagers"][0]["hooks"]["xdsTranslator"];
    hooks["translation"]["listener"] = json!({});
    write(&config).await;
    let (is_ok, text) = check().await;
    assert!(!is_ok && text.contains("the agents do not get the listeners"), "{text}");
}
