//! The rights that the chart gives Envoy Gateway.

use endpoint_picker_kube::{Extension, PROXIES};

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
