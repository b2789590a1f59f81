//! Servers, a Gateway with a listener for each way to them, and the routes.

use crate::proxy::{Proxy, pin};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::{eventually, within};
use endpoint_picker_kube::{Extension, PROXIES};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";
const METRICS: &str = include_str!("../../../../metrics-agent/benches/short.prom");
const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"demo-model","choices":[{"index":0,"#,
    r#""message":{"role":"assistant","content":"Four."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":512,"completion_tokens":2,"total_tokens":514}}"#,
);
const SERVERS: usize = 4;
const POOL: &str = "chat";
const GATEWAY: &str = "inference";
/// The header of the servers' responses with the pick of a request.
const PICKED: &str = "x-picked";
/// From an object to its effect in the proxy.
const IN_FORCE: Duration = Duration::from_secs(120);

/// How a route leads to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Service,
    Pool,
    OriginalDst,
}

/// A Gateway whose proxy has a processor of its own.
pub(crate) struct Fixture {
    address: Ipv4Addr,
    pub(crate) proxy: Proxy,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Service, Self::Pool, Self::OriginalDst];

    /// The name of its listener and its route.
    fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Pool => "pool",
            Self::OriginalDst => "original-dst",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Service => 80,
            Self::Pool => 81,
            Self::OriginalDst => 82,
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Service => "a Service",
            Self::Pool => "an `InferencePool`: the module's cluster",
            Self::OriginalDst => "the same pick, and an `ORIGINAL_DST` cluster",
        }
    }

    /// Its listener, in the pod: Envoy Gateway adds 10 000 to ports that only root may use.
    fn address(self, pod: Ipv4Addr) -> SocketAddr {
        SocketAddr::from((pod, 10_000 + self.port()))
    }

    /// Checks that requests are served, and by which endpoint the header says.
    async fn check(self, pod: Ipv4Addr) -> Result<()> {
        for number in 0..8 {
            let body = client::chat(&format!("prompt {number}"));
            let request = client::http1().post(format!("http://{}{CHAT}", self.address(pod))).json(&body);
            let response = request.send().await?;
            let status = response.status();
            let picked =
                response.headers().get(PICKED).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let is_picked = picked.parse::<SocketAddr>().is_ok();
            ensure!(
                status.is_success() && is_picked == (self != Self::Service),
                "{status}, picked {picked:?}"
            );
        }
        Ok(())
    }
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let extension = Extension::shared().await;
        let module = module(extension).await.unwrap();
        let source = json!({"type": "Local", "local": {"path": module}});
        // The module by name is for the route with the ORIGINAL_DST cluster, which the extension server does
        // not make.
        let modules = json!([{"name": "endpoint-picker", "doNotClose": true, "source": source}]);
        let values = json!({"gateway": {"proxy": {"concurrency": 1, "dynamicModules": modules}}});
        extension.upgrade(&values).await.unwrap();
        let namespace = extension.cluster().create_namespace("cost").await.unwrap();
        for object in objects(extension, &namespace).await.unwrap() {
            extension.cluster().apply(&namespace, &object.to_string()).await.unwrap();
        }
        extension.address(&namespace, GATEWAY).await.unwrap();
        let address = eventually("the proxy has a pod", async || pod(extension).await).await;
        for way in Way::ALL {
            let served = within(IN_FORCE, async || way.check(address).await).await;
            served.unwrap_or_else(|reason| panic!("{way:?}: {reason}"));
        }
        let proxies = Proxy::with_argument(&format!("{namespace}/{GATEWAY}")).unwrap();
        let [proxy] = proxies.try_into().unwrap();
        proxy.pin(0).unwrap();
        pin(std::process::id(), 1).unwrap();
        for server in Proxy::with_argument("direct_response").unwrap() {
            server.pin(1).unwrap();
        }
        Self { address, proxy }
    }

    /// The listener of a way.
    pub(crate) fn address(&self, way: Way) -> SocketAddr {
        way.address(self.address)
    }
}

/// The path of the module's file in proxies.
async fn module(extension: &Extension) -> Result<String> {
    let get = ["get", "deployment", "endpoint-picker", "--namespace=inference", "--output=json"];
    let deployment: Value = serde_json::from_str(&extension.cluster().kubectl(get).await?)?;
    let arguments =
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().context("arguments")?;
    let module = arguments.iter().find_map(|argument| argument.as_str()?.strip_prefix("--extension-module="));
    Ok(module.context("no --extension-module")?.to_owned())
}

/// The module's way to the agents, as routes to pools have it.
async fn agent(extension: &Extension) -> Result<Value> {
    let get = ["get", "configmaps", "--namespace=inference", "--output=json"];
    let maps: Value = serde_json::from_str(&extension.cluster().kubectl(get).await?)?;
    let maps = maps["items"].as_array().context("ConfigMaps")?;
    let text = maps.iter().find_map(|map| map["data"]["filter.json"].as_str()).context("no filter.json")?;
    Ok(serde_json::from_str::<Value>(text)?["agent"].clone())
}

/// The address of the ready pod of the proxy.
async fn pod(extension: &Extension) -> Result<Ipv4Addr> {
    let selector = format!("--selector=gateway.envoyproxy.io/owning-gateway-name={GATEWAY}");
    let get = ["get", "pods", "--namespace", PROXIES, &selector, "--output=json"];
    let pods: Value = serde_json::from_str(&extension.cluster().kubectl(get).await?)?;
    let [pod] = pods["items"].as_array().context("pods")?.as_slice() else { anyhow::bail!("{pods}") };
    Ok(pod["status"]["podIP"].as_str().context("no address")?.parse()?)
}

/// Everything in the namespace.
async fn objects(extension: &Extension, namespace: &str) -> Result<Vec<Value>> {
    let listener = |way: Way| json!({"name": way.name(), "protocol": "HTTP", "port": way.port()});
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": GATEWAY},
        "spec": {"gatewayClassName": extension.class(), "listeners": Way::ALL.map(listener)},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": POOL},
        "spec": {"clusterIP": "None", "selector": {"app": POOL}, "ports": [{"port": 8000}]},
    });
    let pool = json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": POOL},
        "spec": {"selector": {"matchLabels": {"app": POOL}}, "targetPorts": [{"number": 8000}]},
    });
    let mut objects = vec![servers(), service, pool, gateway];
    objects.extend(Way::ALL.map(route));
    objects.extend(original_dst(namespace, &agent(extension).await?));
    Ok(objects)
}

/// Envoys that respond by themselves, which takes less processor time than any other server here.
fn servers() -> Value {
    let respond = |path: &str, text: &str, kind: &str| {
        let header = |name: &str, value: &str| json!({"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
        json!({
            "match": {"prefix": path},
            "direct_response": {"status": 200, "body": {"inline_string": text}},
            "response_headers_to_add": [
                header("content-type", kind), header(PICKED, "%REQ(x-gateway-destination-endpoint)%"),
            ],
        })
    };
    let routes =
        [respond("/metrics", METRICS, "text/plain; version=0.0.4"), respond("/", ANSWER, "application/json")];
    let manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let router = json!({"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}});
    let manager = json!({
        "@type": manager, "stat_prefix": "server", "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
    });
    let address = json!({"socket_address": {"address": "0.0.0.0", "port_value": 8000}});
    let filters = json!([{"name": "manager", "typed_config": manager}]);
    let listeners = json!([{"name": "server", "address": address, "filter_chains": [{"filters": filters}]}]);
    let config = json!({"static_resources": {"listeners": listeners}}).to_string();
    let container = json!({
        "name": "server", "image": "envoy", "args": ["--config-yaml", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"],
        "ports": [{"containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": 8000}, "periodSeconds": 1},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": POOL},
        "spec": {
            "replicas": SERVERS, "selector": {"matchLabels": {"app": POOL}},
            "template": {"metadata": {"labels": {"app": POOL}}, "spec": {"containers": [container]}},
        },
    })
}

/// The route of a listener.
fn route(way: Way) -> Value {
    let backend = match way {
        Way::Service | Way::OriginalDst => json!({"name": POOL, "port": 8000}),
        Way::Pool => json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": POOL}),
    };
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": way.name()},
        "spec": {
            "parentRefs": [{"name": GATEWAY, "sectionName": way.name()}],
            "rules": [{"backendRefs": [backend]}],
        },
    })
}

/// The module on the route to the Service, whose cluster connects to the address in the module's header.
fn original_dst(namespace: &str, agent: &Value) -> [Value; 2] {
    const CLUSTER: &str = "picked-address";
    let name = Way::OriginalDst.name();
    let module = json!({
        "name": "endpoint-picker", "filterName": "endpoint-picker",
        "config": {"pool": format!("{namespace}/{POOL}"), "agent": agent, "failureMode": "FailClose"},
    });
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name});
    let policy = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyExtensionPolicy", "metadata": {"name": name},
        "spec": {"targetRefs": [target], "dynamicModule": [module]},
    });
    let cluster = json!({
        "name": CLUSTER, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "1s",
        "original_dst_lb_config": {"use_http_header": true, "http_header_name": "x-gateway-destination-endpoint"},
    });
    let patches = json!([
        {
            "type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": CLUSTER,
            "operation": {"op": "add", "path": "", "value": cluster},
        },
        {
            "type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            "name": format!("{namespace}/{GATEWAY}/{name}"),
            "operation": {
                "op": "replace", "path": "cluster", "value": CLUSTER,
                "jsonPath": format!("..routes[?(@.route.cluster=='httproute/{namespace}/{name}/rule/0')].route"),
            },
        },
    ]);
    let target = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": GATEWAY});
    let patch = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyPatchPolicy", "metadata": {"name": name},
        "spec": {"targetRef": target, "type": "JSONPatch", "jsonPatches": patches},
    });
    [policy, patch]
}
