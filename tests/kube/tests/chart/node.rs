//! The test ground itself: without these, the other tests prove nothing.

use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Ground;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

async fn pods(ground: &Ground, namespace: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(ground.cluster().client().await.unwrap(), namespace);
    pods.list(&ListParams::default()).await.unwrap().items
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn deployment(replicas: u32) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "servers"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "servers"}},
            "template": {
                "metadata": {"labels": {"app": "servers"}},
                "spec": {"terminationGracePeriodSeconds": 10, "containers": [{
                    "name": "server", "image": "registry.example/endpoint-picker-model-server:1",
                    "args": ["--listen=0.0.0.0:8000", "--drain=0"],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}, "periodSeconds": 1},
                }]},
            },
        },
    })
    .to_string()
}

#[tokio::test]
async fn a_deployment_is_processes_behind_a_service() {
    let ground = Ground::shared().await;
    let cluster = ground.cluster();
    let namespace = cluster.create_namespace("servers").await.unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "servers"},
        "spec": {"clusterIP": "None", "selector": {"app": "servers"}, "ports": [{"port": 8000}]},
    });
    cluster.apply(&namespace, &service.to_string()).await.unwrap();
    cluster.apply(&namespace, &deployment(2)).await.unwrap();
    eventually("two pods are ready", async || {
        let pods = pods(ground, &namespace).await;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        if ready == 2 { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
    for pod in pods(ground, &namespace).await {
        let address = pod.status.unwrap().pod_ip.unwrap();
        let answer = client::http1().get(format!("http://{address}:8000/v1/models")).send().await.unwrap();
        assert_eq!(answer.headers()["x-served-by"], pod.metadata.name.unwrap());
    }
    let name = format!("http://servers.{namespace}.svc.cluster.local:8000/v1/models");
    eventually("the Service's name leads to a pod", async || {
        client::http1().get(&name).send().await?.error_for_status()
    })
    .await;
    assert!(
        ground.node().readiness_changes().iter().filter(|change| change.namespace == namespace).count() >= 2
    );

    cluster.apply(&namespace, &deployment(0)).await.unwrap();
    eventually("the pods are gone", async || {
        let left = pods(ground, &namespace).await.len();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    cluster.delete_namespace(&namespace).await.unwrap();
}

/// A pod's program, with the files, the environment and the rights that its specification gives it.
#[tokio::test]
async fn a_pod_has_what_its_specification_says() {
    let ground = Ground::shared().await;
    let cluster = ground.cluster();
    let namespace = cluster.create_namespace("pod").await.unwrap();
    let map = |text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a.yaml": text}}).to_string()
    };
    cluster.apply(&namespace, &map("one")).await.unwrap();
    // It prints facts of its own, then the settings whenever they change.
    let script = "id -u; hostname; echo $IP; touch /x && echo writable; cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; \
                  ls /image/usr/local/bin; [ -w /dev/stdout ] && echo may-open-stdout; \
                  while :; do new=$(cat /settings/a.yaml); [ \"$new\" = \"$old\" ] || echo \"settings $new\"; old=$new; sleep 0.1; done";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "facts"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 4711},
            "readinessGates": [{"conditionType": "test/gate"}],
            "containers": [{
                "name": "facts", "image": "metrics-agent", "command": ["/bin/sh", "-c", script],
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "securityContext": {"readOnlyRootFilesystem": true},
                "volumeMounts": [{"name": "settings", "mountPath": "/settings"}, {"name": "image", "mountPath": "/image"}],
            }],
            "volumes": [
                {"name": "settings", "configMap": {"name": "settings"}},
                {"name": "image", "image": {"reference": "registry.example/metrics-agent:1"}},
            ],
        },
    });
    cluster.apply(&namespace, &pod.to_string()).await.unwrap();
    let log = cluster.logs().join(format!("pod-{namespace}-facts-facts-0.log"));
    let printed = async |text: &str| {
        eventually(&format!("the pod prints {text:?}"), async || {
            let log = std::fs::read_to_string(&log).map_err(|reason| reason.to_string())?;
            if log.lines().any(|line| line == text) { Ok(()) } else { Err(log) }
        })
        .await;
    };
    for line in ["4711", "facts", &namespace, "metrics-agent", "may-open-stdout", "settings one"] {
        printed(line).await;
    }
    cluster.apply(&namespace, &map("two")).await.unwrap();
    printed("settings two").await;

    let facts = pods(ground, &namespace).await.remove(0);
    assert!(!is_ready(&facts), "its readiness gate does not hold yet");
    let address = facts.status.unwrap().pod_ip.unwrap();
    printed(&address).await;
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(!log.contains("writable"), "{log}");
    set_gate(ground, &namespace, "facts", true).await;
    eventually("the pod is ready", async || {
        let pod = pods(ground, &namespace).await.remove(0);
        if is_ready(&pod) { Ok(()) } else { Err(format!("{pod:?}")) }
    })
    .await;
    cluster.delete_namespace(&namespace).await.unwrap();
}

#[tokio::test]
async fn a_service_of_type_load_balancer_has_an_address_that_leads_to_ready_pods() {
    let ground = Ground::shared().await;
    let cluster = ground.cluster();
    let namespace = cluster.create_namespace("balancer").await.unwrap();
    let server = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server", "labels": {"app": "server"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "server", "image": "endpoint-picker-model-server", "ports": [{"name": "http", "containerPort": 8000}],
                "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}},
            }],
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": "server"}, "allocateLoadBalancerNodePorts": false,
            // Envoys of other tests listen on port 80 of all addresses.
            "ports": [{"name": "web", "port": 8123, "targetPort": "http"}],
        },
    });
    for object in [server, service] {
        cluster.apply(&namespace, &object.to_string()).await.unwrap();
    }
    let get = ["get", "service", "server", "--namespace", &namespace];
    let path = "--output=jsonpath={.status.loadBalancer.ingress[0].ip}";
    let status = async || -> anyhow::Result<u16> {
        let address: std::net::Ipv4Addr = cluster.kubectl(get.iter().chain(&[path])).await?.parse()?;
        let response = client::http1().get(format!("http://{address}:8123/metrics")).send().await?;
        Ok(response.status().as_u16())
    };
    let served = eventually("the Service's address is served", async || status().await).await;
    assert_eq!(served, 200);
    cluster.kubectl(["delete", "pod", "server", "--namespace", &namespace]).await.unwrap();
    eventually("connections without a ready pod end", async || match status().await {
        Err(_) => Ok(()),
        Ok(status) => Err(status),
    })
    .await;
    cluster.delete_namespace(&namespace).await.unwrap();
}

/// The pod's own `ServiceAccount` has the token's rights and no others.
#[tokio::test]
async fn a_pods_token_has_the_rights_of_its_account() {
    let ground = Ground::shared().await;
    let cluster = ground.cluster();
    let namespace = cluster.create_namespace("rights").await.unwrap();
    let manifests = [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
               "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
               "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}]}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reader"}, "spec": {
            "serviceAccountName": "reader", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "reader", "image": "metrics-agent", "command": ["/bin/sh", "-c",
                "cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; exec sleep 600"]}]}}),
    ];
    let manifests: Vec<_> = manifests.iter().map(Value::to_string).collect();
    cluster.apply(&namespace, &manifests.join("\n---\n")).await.unwrap();
    let log = cluster.logs().join(format!("pod-{namespace}-reader-reader-0.log"));
    let token = eventually("the pod prints its token", async || {
        let log = std::fs::read_to_string(&log).map_err(|reason| reason.to_string())?;
        log.lines().next().filter(|line| line.len() > 100).map(str::to_owned).ok_or(log)
    })
    .await;
    let token = format!("--token={token}");
    let server = format!("--server=https://{}", cluster.api_server());
    let authority = format!("--certificate-authority={}", cluster.authority().display());
    let can = async |resource: &str| {
        let user = [&token, &server, &authority, "--kubeconfig=/dev/null", "--namespace", &namespace];
        cluster.kubectl(["auth", "can-i", "list", resource].into_iter().chain(user)).await
    };
    assert_eq!(can("pods").await.unwrap().trim(), "yes");
    assert!(can("secrets").await.is_err());
    cluster.delete_namespace(&namespace).await.unwrap();
}

async fn set_gate(ground: &Ground, namespace: &str, pod: &str, holds: bool) {
    let status = if holds { "True" } else { "False" };
    let patch = json!({"status": {"conditions": [{"type": "test/gate", "status": status}]}}).to_string();
    let arguments =
        ["patch", "pod", pod, "--namespace", namespace, "--subresource=status", "--patch", &patch];
    ground.cluster().kubectl(arguments).await.unwrap();
}
