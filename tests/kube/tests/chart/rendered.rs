//! The objects of deploy/rendered, as a real API server with the definitions of the gateways' projects checks
//! them.

use endpoint_picker_harness::tools;
use endpoint_picker_kube::Ground;
use serde_json::json;

#[tokio::test]
async fn an_api_server_accepts_the_rendered_objects() {
    let cluster = Ground::shared().await.cluster();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inference"}});
    cluster.apply("default", &namespace.to_string()).await.unwrap();
    for name in [
        "agent",
        "all-namespaces",
        "demo",
        "envoy-gateway-native",
        "envoy-gateway-wasm",
        "istio-native",
        "istio-wasm",
    ] {
        let file = tools::root().join(format!("deploy/rendered/{name}.yaml")).display().to_string();
        // Schemas and rules in CEL; unknown fields are errors.
        let check = ["apply", "--dry-run=server", "--validate=strict", "--filename", file.as_str()];
        let accepted = cluster.kubectl(check).await.unwrap();
        assert!(accepted.contains("(server dry run)"), "{file}: {accepted}");
    }
}
