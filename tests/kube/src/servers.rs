//! Model servers as pods.

use serde_json::{Value, json};

/// A Deployment of simulated model servers with this name, which is also their label `app`.
pub fn model_servers(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"set": name}},
            "template": {
                "metadata": {"labels": {"set": name, "app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "containers": [{
                        "name": "server", "image": "endpoint-picker-model-server",
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}, "periodSeconds": 1},
                    }],
                },
            },
        },
    })
}
