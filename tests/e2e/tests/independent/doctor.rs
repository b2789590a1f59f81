//! `metrics-agent doctor` reads a real Envoy with one mistake at a time. All mistakes share one agent and its
//! servers.

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_harness::config::{Config, EDS_FOLDER, Places};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::{Filter, client, tools};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket};

const LISTENER: &str = "/static_resources/listeners/0";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const FILTERS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
const ROUTE: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes/0/route";
const SERVERS: &str = "/static_resources/clusters/0";
const PROTOCOL: &str =
    "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const OVERRIDE_HOST: &str = "/load_balancing_policy/policies/0/typed_extension_config/typed_config";

/// A change to the configuration of this form, and the beginnings of the only finding and of its fix.
struct Mistake(Filter, fn(&mut Config) -> Result<()>, &'static str, &'static str);

/// The form of the filter matters only where it is wasm.
const MISTAKES: [Mistake; 25] = [
    Mistake(
        Filter::Wasm,
        |config| {
            at(config, FILTERS)?.as_array_mut().map(|filters| drop(filters.remove(1))).context("filters")
        },
        "error    the cluster reads the metadata envoy.lb / x-gateway-destination-endpoint, and no filter writes it",
        "put a header_to_metadata filter right behind the picker",
    ),
    Mistake(
        Filter::Wasm,
        |config| at(config, FILTERS)?.as_array_mut().map(|filters| filters.swap(0, 1)).context("filters"),
        "error    the filter destination-metadata copies x-gateway-destination-endpoint into metadata before the picker",
        "move destination-metadata behind the picker",
    ),
    Mistake(
        Filter::Wasm,
        |config| {
            remove(config, &format!("{FILTERS}/0/typed_config/config"), "allow_on_headers_stop_iteration")
        },
        "error    allow_on_headers_stop_iteration is missing: Envoy passes no body to the filter, so requests with one get 503",
        "add `allow_on_headers_stop_iteration: true`",
    ),
    Mistake(
        Filter::Wasm,
        |config| remove(config, LISTENER, "per_connection_buffer_limit_bytes"),
        "warning  the listener buffers 1048576 bytes, and the filter holds up to 33554432",
        "set per_connection_buffer_limit_bytes of the listener above 33554432",
    ),
    Mistake(
        Filter::Wasm,
        |config| config.set_picker_field("agentCluster", "metrics_agent".into()),
        "error    agentCluster names \"metrics_agent\", a cluster that Envoy does not have; did you mean \"metrics-agent\"?",
        "add a cluster that reaches the agent",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, SERVERS, "load_balancing_policy"),
        "error    the cluster has no override_host policy: Envoy balances by itself",
        "give it the load_balancing_policy envoy.load_balancing_policies.override_host",
    ),
    Mistake(
        Filter::Native,
        hint_behind_the_picker,
        "error    the filter hint sets the subset hint behind the picker",
        "move hint before the picker",
    ),
    Mistake(
        Filter::Native,
        wrong_cluster,
        "error    Envoy has no cluster \"model-server\": requests of this route get 503; did you mean \"model-servers\"?",
        "add the cluster",
    ),
    Mistake(
        Filter::Native,
        |config| config.set_picker_field("pool", "defualt".into()),
        "error    the agent has no pool \"defualt\": the filter never gets a snapshot; did you mean \"default\"?",
        "set \"pool\" of the filter's configuration to one of the agent's pools: default",
    ),
    Mistake(
        Filter::Native,
        |config| config.set_picker_field("agent", json!({"addresses": ["http://127.0.0.1:1"]})),
        "error    the filter has never had a snapshot: none of agent.addresses gives one (http://127.0.0.1:1)",
        "let agent.addresses name an agent that runs",
    ),
    Mistake(
        Filter::Native,
        |config| config.list_endpoints(&[SocketAddr::from(([127, 0, 0, 1], 1))]),
        "error    no endpoint of pool default is a host of the cluster: Envoy balances over other servers",
        "let the cluster have the endpoints of pool default as hosts",
    ),
    Mistake(
        Filter::Native,
        |config| set(config, SERVERS, "eds_cluster_config/service_name", "llama".into()),
        "error    the cluster has no hosts, and pool default has 2 endpoints: requests get 503",
        "start the agent with --eds-cluster llama: Envoy has refused its file",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, ROUTE, "retry_policy"),
        "warning  the route has no retry policy",
        "add retry_policy: {retry_on: \"connect-failure",
    ),
    Mistake(
        Filter::Native,
        Config::remove_path_normalization,
        "warning  paths are not normalized",
        "set normalize_path: true, merge_slashes: true, path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, MANAGER, "early_header_mutation_extensions"),
        "error    clients can set x-gateway-destination-endpoint",
        "add a HeaderMutation to early_header_mutation_extensions with mutations: [{remove: x-gateway-destination-endpoint}",
    ),
    Mistake(
        Filter::Wasm,
        |config| config.shut("proxy_http_call"),
        "error    allowed_capabilities lacks proxy_http_call, which the filter needs",
        "copy capability_restriction_config of envoy.yaml",
    ),
    Mistake(
        Filter::Wasm,
        |config| {
            at(config, &format!("{FILTERS}/0/typed_config/config"))?["failure_policy"] = "FAIL_OPEN".into();
            Ok(())
        },
        "warning  failure_policy is FAIL_OPEN: after a trap the worker's requests pass without the picker",
        "set failure_policy: FAIL_RELOAD",
    ),
    Mistake(
        Filter::Wasm,
        |config| remove(config, "", "stats_config"),
        "warning  stats_config has no stats_tags of the filter",
        "copy stats_config of envoy.yaml",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, ROUTE, "timeout"),
        "warning  the route has no timeout, so Envoy's holds: a response of more than 15 s",
        "set timeout: 0s and idle_timeout: 900s of the route",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, &format!("{ROUTE}/retry_policy"), "retry_host_predicate"),
        "warning  the route's retry policy has no retry_host_predicate",
        "add retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, SERVERS, "circuit_breakers"),
        "warning  circuit breakers have Envoy's defaults",
        "set circuit_breakers: {thresholds: [{max_connections: 65536",
    ),
    Mistake(
        Filter::Native,
        |config| remove(config, &format!("{SERVERS}{PROTOCOL}/common_http_protocol_options"), "idle_timeout"),
        "warning  idle connections to the servers stay open for 3600 s",
        "set common_http_protocol_options: {idle_timeout: 4s}",
    ),
    Mistake(
        Filter::Native,
        |config| {
            at(config, &format!("{SERVERS}{OVERRIDE_HOST}"))?["override_host_sources"][0]["metadata"]["key"] =
                "envoy.lbs".into();
            Ok(())
        },
        "error    the cluster reads the metadata envoy.lbs / x-gateway-destination-endpoint, and the picker's choice is in envoy.lb",
        "let the cluster read the metadata envoy.lb / x-gateway-destination-endpoint",
    ),
    Mistake(
        Filter::Native,
        hint_with_round_robin,
        "error    the fallback policy of override_host balances over all hosts: a request whose hinted endpoints fail leaves",
        "give override_host the fallback_policy of envoy.yaml",
    ),
    Mistake(
        Filter::Native,
        shadow_before_the_epp,
        "warning  the filter that shadows runs before epp, and does not see its choice: no request is compared",
        "move the filter behind epp",
    ),
];

/// A change to the cluster with which all requests fail with this status, and the transport in the finding.
struct Unreachable(fn(&mut Config) -> Result<()>, StatusCode, &'static str);

const UNREACHABLE: [Unreachable; 2] = [
    Unreachable(
        |config| {
            at(config, &format!("{SERVERS}{PROTOCOL}"))?["explicit_http_config"] =
                json!({"http2_protocol_options": {}});
            Ok(())
        },
        StatusCode::BAD_GATEWAY,
        "HTTP/2 without TLS",
    ),
    Unreachable(
        |config| {
            let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
            let tls = json!({"name": "envoy.transport_sockets.tls", "typed_config": {"@type": kind}});
            at(config, SERVERS)?["transport_socket"] = tls;
            Ok(())
        },
        StatusCode::SERVICE_UNAVAILABLE,
        "HTTP/1.1 over TLS",
    ),
];

fn at<'a>(config: &'a mut Config, place: &str) -> Result<&'a mut Value> {
    config.document().pointer_mut(place).with_context(|| format!("nothing at {place}"))
}

fn remove(config: &mut Config, place: &str, field: &str) -> Result<()> {
    let fields = at(config, place)?.as_object_mut();
    fields.and_then(|fields| fields.remove(field)).map(drop).with_context(|| format!("no {field} at {place}"))
}

/// Sets a field of a field.
fn set(config: &mut Config, place: &str, field: &str, value: Value) -> Result<()> {
    let (parent, field) = field.split_once('/').context("two fields")?;
    at(config, place)?[parent][field] = value;
    Ok(())
}

fn hint() -> Value {
    let target =
        json!({"metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"});
    json!({
        "name": "hint",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{"header": "x-hint", "on_header_present": target}],
        },
    })
}

fn insert_filter(config: &mut Config, place: usize, filter: Value) -> Result<()> {
    at(config, FILTERS)?.as_array_mut().map(|filters| filters.insert(place, filter)).context("filters")
}

fn hint_behind_the_picker(config: &mut Config) -> Result<()> {
    insert_filter(config, 1, hint())
}

fn hint_with_round_robin(config: &mut Config) -> Result<()> {
    let kind = "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";
    let policy =
        json!({"name": "envoy.load_balancing_policies.round_robin", "typed_config": {"@type": kind}});
    at(config, &format!("{SERVERS}{OVERRIDE_HOST}"))?["fallback_policy"] =
        json!({"policies": [{"typed_extension_config": policy}]});
    insert_filter(config, 0, hint())
}

fn shadow_before_the_epp(config: &mut Config) -> Result<()> {
    config.set_picker_field("mode", "shadow".into())?;
    let epp = json!({
        "name": "epp",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "model-servers"}},
        },
    });
    insert_filter(config, 1, epp)
}

/// Envoy checks the clusters of static routes when it starts, and not those that come by RDS.
fn wrong_cluster(config: &mut Config) -> Result<()> {
    at(config, MANAGER)?["route_config"]["validate_clusters"] = false.into();
    at(config, ROUTE)?["cluster"] = "model-server".into();
    Ok(())
}

/// Starts an Envoy with this module.
async fn start(mut config: Config, module: &Path, dir: &Path) -> Envoy {
    config.set_picker_module(module).unwrap();
    Envoy::start(&config, dir, 1).await.unwrap()
}

fn shipped(stack: &Stack, filter: Filter) -> Config {
    let eds = stack.path(EDS_FOLDER);
    let places = Places {
        port: 0,
        admin_port: 0,
        agent_port: stack.agent_address().port(),
        folder: eds.parent().unwrap(),
    };
    Config::shipped("envoy.yaml", filter, places).unwrap()
}

/// The output of the command, and whether it succeeded.
fn doctor(envoy: SocketAddr, agent: SocketAddr) -> (bool, String) {
    let mut command = Command::new(tools::metrics_agent().unwrap());
    command.args(["doctor", "--envoy-admin", &envoy.to_string(), "--agent", &agent.to_string()]);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// Waits until the command finds this and nothing else. Envoy has the filter's counters once a second.
async fn assert_finds(stack: &Stack, envoy: &Envoy, finding: &str, fix: &str) {
    eventually(&format!("doctor finds {finding:?}"), async || {
        let (success, text) = doctor(envoy.admin(), stack.agent_address());
        ensure!(!success && text.contains(&format!("\n{finding}")), "{text}");
        ensure!(text.contains(&format!("\n         fix: {fix}")), "{text}");
        ensure!(text.ends_with("\n1 error\n") || text.ends_with("\n1 warning\n"), "{text}");
        Ok(())
    })
    .await;
}

async fn assert_finds_nothing(stack: &Stack, envoy: &Envoy) {
    eventually("doctor finds nothing", async || {
        let (success, text) = doctor(envoy.admin(), stack.agent_address());
        ensure!(success && text.ends_with("\nno mistakes found\n"), "{text}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_mistake_and_nothing_else() {
    let stack = Stack::builder().servers(2).filter(Filter::Native).start().await;
    assert_finds_nothing(&stack, stack.envoy()).await;
    for Mistake(filter, change, finding, fix) in MISTAKES {
        let dir = TempDir::new().unwrap();
        let mut config = shipped(&stack, filter);
        change(&mut config).unwrap();
        let envoy = start(config, &filter.module().unwrap(), dir.path()).await;
        assert_finds(&stack, &envoy, finding, fix).await;
    }
}

/// Sends requests to an Envoy, which all get this status.
async fn send(envoy: &Envoy, status: StatusCode) {
    for _ in 0..4 {
        let request = client::http1().post(format!("http://{}{CHAT}", envoy.listener())).json(&fresh_chat());
        assert_eq!(request.send().await.unwrap().status(), status);
    }
}

/// Waits until an Envoy picks, which it does not before its first snapshot.
async fn until_it_picks(envoy: &Envoy) {
    eventually("the filter has a snapshot", async || {
        let text = envoy.admin_text("/stats?filter=endpoint_picker.*snapshots").await?;
        ensure!(text.lines().any(|line| line.contains("snapshots") && !line.ends_with(": 0")), "{text}");
        anyhow::Ok(())
    })
    .await;
}

/// A server of HTTP/1.1 alone, with metrics of vLLM.
async fn http1_server() -> SocketAddr {
    const METRICS: &str = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                    // HTTP/2 begins with `PRI * HTTP/2.0`.
                    let is_http1 = line.ends_with("\r\n\r\n") && line.starts_with("GET ");
                    if !is_http1 && !line.starts_with("PRI ") {
                        continue;
                    }
                    let (status, body) = if is_http1 { ("200 OK", METRICS) } else { ("400 Bad Request", "") };
                    let length = body.len();
                    let response = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    if stream.write_all(response.as_bytes()).await.is_err() || !is_http1 {
                        break;
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_servers_at_which_all_requests_fail() {
    let stack = Stack::builder().servers(2).filter(Filter::Native).start().await;
    stack.set_endpoints(&[http1_server().await, http1_server().await]);
    eventually("the agent has both servers", async || {
        let (_, text) = doctor(stack.envoy().admin(), stack.agent_address());
        ensure!(text.contains("ok       Envoy has the pool's endpoints as hosts\n"), "{text}");
        ensure!(text.contains("ok       the agent has read all endpoints\n"), "{text}");
        Ok(())
    })
    .await;
    for Unreachable(change, status, transport) in UNREACHABLE {
        let dir = TempDir::new().unwrap();
        let mut config = shipped(&stack, Filter::Native);
        change(&mut config).unwrap();
        let envoy = start(config, &Filter::Native.module().unwrap(), dir.path()).await;
        until_it_picks(&envoy).await;
        send(&envoy, status).await;
        let finding = format!(
            "error    no request has succeeded at 2 hosts of the cluster, to which Envoy speaks {transport}: "
        );
        assert_finds(&stack, &envoy, &finding, "let the servers run at these addresses and ports").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_ports_without_a_server() {
    let stack = Stack::builder().servers(1).filter(Filter::Native).start().await;
    // Bound without listening, they refuse connections, and no other test gets their ports.
    let sockets: Vec<_> = (0..2)
        .map(|_| {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            socket
        })
        .collect();
    let closed: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let fix = "start the server there, or correct the address or the port";
    stack.set_endpoints(&[stack.servers()[0].address(), closed[0]]);
    let finding = "warning  the endpoint has never been ready: ";
    assert_finds(&stack, stack.envoy(), finding, fix).await;

    stack.set_endpoints(&closed);
    let finding = "error    none of 2 endpoints of the pool is ready: requests get 503.";
    assert_finds(&stack, stack.envoy(), finding, fix).await;
    send(stack.envoy(), StatusCode::SERVICE_UNAVAILABLE).await;
    assert_finds(&stack, stack.envoy(), finding, fix).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reads_dynamic_listeners_and_what_happened_to_requests() {
    let stack = Stack::builder().filter(Filter::Wasm).listeners_in_file().start().await;
    assert_finds_nothing(&stack, stack.envoy()).await;

    // Envoy ignores the picks: its own counter shows it.
    let (module, dir) = (Filter::Wasm.module().unwrap(), TempDir::new().unwrap());
    let mut config = shipped(&stack, Filter::Wasm);
    remove(&mut config, SERVERS, "load_balancing_policy").unwrap();
    let envoy = start(config, &module, dir.path()).await;
    eventually("doctor finds requests that others served", async || {
        let url = format!("http://{}{CHAT}", envoy.listener());
        client::http1().post(url).json(&fresh_chat()).send().await?.error_for_status()?;
        let (_, text) = doctor(envoy.admin(), stack.agent_address());
        ensure!(text.contains(" requests were served by another server than the chosen one\n"), "{text}");
        anyhow::Ok(())
    })
    .await;
    drop(envoy);

    // A module of another version, made of the built module.
    let other = dir.path().join("other.wasm");
    let mut bytes = fs::read(module).unwrap();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let places: Vec<usize> = bytes
        .windows(version.len())
        .enumerate()
        .filter_map(|(place, window)| (window == version).then_some(place))
        .collect();
    for place in places {
        bytes[place] = b'9';
    }
    fs::write(&other, bytes).unwrap();
    let envoy = start(shipped(&stack, Filter::Wasm), &other, dir.path()).await;
    let finding =
        format!("warning  the filter has version 9{}, and the agent", &env!("CARGO_PKG_VERSION")[1..]);
    assert_finds(&stack, &envoy, &finding, "load the module of the agent's version").await;
}
