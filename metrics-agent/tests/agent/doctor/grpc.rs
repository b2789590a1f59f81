//! Pools whose clients call methods of gRPC.

use core::time::Duration;
use std::net::SocketAddr;

use metrics_agent::agent::Settings;
use metrics_agent_catalogue::watch;
use metrics_agent_doctor::doctor::ServerHealth;
use metrics_agent_doctor::doctor::Severity::{Error, Warning};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::command::{Admin, doctor};
use super::fixture::Recorded;
use crate::harness::{Agent, eventually, options_for, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// An Envoy before servers of gRPC.
fn recorded() -> Recorded {
    let mut envoy = Recorded::native();
    envoy.grpc_reads_metrics = Some(false);
    protocol(&mut envoy)["explicit_http_config"] = json!({"http2_protocol_options": {}});
    envoy
}

/// The options of the cluster for HTTP.
fn protocol(envoy: &mut Recorded) -> &mut Value {
    let options = &mut envoy.cluster("model-servers")["typed_extension_protocol_options"];
    &mut options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
}

#[test]
fn a_cluster_that_speaks_http_1() {
    let mut envoy = recorded();
    envoy.assert_is_ok();
    protocol(&mut envoy)["explicit_http_config"] = json!({"http_protocol_options": {}});
    let problem = "the vllmgrpc-parser of pool default reads gRPC, and the cluster speaks HTTP/1.1 to the servers: calls fail";
    envoy.assert_finds(Error, problem, "cluster model-servers", "http2_protocol_options");
    for (field, value) in [("use_downstream_protocol_config", json!({})), ("auto_config", json!({}))] {
        let mut other = envoy.clone();
        protocol(&mut other)[field] = value;
        other.assert_is_ok();
    }
    let mut older = envoy.clone();
    older.cluster("model-servers")["http2_protocol_options"] = json!({});
    older.assert_is_ok();
    envoy.grpc_reads_metrics = None;
    envoy.assert_is_ok();
}

#[test]
fn servers_without_metrics() {
    let mut envoy = recorded();
    envoy.reason = Some("status 415");
    envoy.pools.get_mut("default").unwrap()[1].1 = "no_reading";
    envoy.assert_is_ok();
    // Whether it has ever been ready is not known.
    envoy.pools.get_mut("default").unwrap()[1].1 = "not_ready";
    envoy.assert_is_ok();
    envoy.pools.get_mut("default").unwrap()[1].1 = "no_reading";
    envoy.grpc_reads_metrics = Some(true);
    let fix = "give a metrics-data-source the port with the server's metrics";
    envoy.assert_finds(Warning, "never read the server's metrics", "endpoint 127.0.0.1:18002", fix);
}

#[test]
fn servers_that_do_not_serve() {
    let mut envoy = recorded();
    envoy.health = Some(ServerHealth::Serving);
    assert!(envoy.assert_is_ok().passed().contains(&"gRPC servers serve"));
    for (health, severity, problem) in [
        (ServerHealth::NotServing, Error, "the server does not serve, by grpc.health.v1"),
        (ServerHealth::NotGrpc("no".to_owned()), Error, "the endpoint does not speak gRPC without TLS: no"),
        (ServerHealth::Unknown("Internal: no".to_owned()), Warning, "grpc.health.v1 returns Internal: no"),
        (ServerHealth::Unreachable("no".to_owned()), Warning, "it cannot be reached from here: no"),
    ] {
        envoy.health = Some(health);
        envoy.assert_finds(severity, problem, "pool default, endpoint 127.0.0.1:18001", "");
    }
}

/// A server of tonic with the health service.
async fn health_server() -> (SocketAddr, HealthReporter, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (reporter, service) = tonic_health::server::health_reporter();
    let serving =
        Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
    (address, reporter, AbortOnDropHandle::new(tokio::spawn(async { serving.await.unwrap() })))
}

/// The output of the command about an agent with the manifest of examples/grpc and one server.
async fn printed(server: SocketAddr) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("picker.yaml");
    std::fs::write(&path, include_str!("../../../../examples/grpc/picker.yaml")).unwrap();
    let manifests = Some(watch::ManifestSettings { path, options: options_for("default") });
    let mut settings = Settings { manifests, ..scraping(&[server]) };
    // After three refused connections a server is not ready, and not asked.
    settings.scrape.interval = Duration::from_secs(3600);
    let agent = Agent::start(settings).await;
    eventually("the pool", async || {
        let status = agent.get("/v1/pools/default").await.text();
        status.contains(r#""grpc":{"parser":"vllmgrpc-parser","reads_metrics":false}"#).then_some(())
    })
    .await;
    let mut envoy = recorded();
    envoy.hosts("model-servers").truncate(1);
    envoy.hosts("model-servers")[0]["address"]["socket_address"]["port_value"] = server.port().into();
    let admin = Admin::of(&envoy).await;
    let output = doctor(&admin.address.to_string(), &agent.address.to_string()).await;
    String::from_utf8(output.stdout).unwrap()
}

/// The first output that has this text: on a busy machine a server may not respond within the command's 2 s.
async fn prints(server: SocketAddr, expected: &str) -> String {
    eventually(expected, async || Some(printed(server).await).filter(|text| text.contains(expected))).await
}

#[tokio::test]
async fn the_health_of_a_server_is_its_own_account_of_it() {
    let (address, reporter, _serving) = health_server().await;
    let text = prints(address, "\nok       gRPC servers serve\n").await;
    assert!(text.ends_with("\nno mistakes found\n"), "{text}");
    reporter.set_service_status("", ServingStatus::NotServing).await;
    let text = prints(address, "error    the server does not serve, by grpc.health.v1").await;
    assert!(text.contains(&format!("at:  pool default, endpoint {address}\n")), "{text}");
}

#[tokio::test]
async fn a_server_of_http_1_is_not_one_of_grpc() {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 7))).await;
    prints(server.address(), "error    the endpoint does not speak gRPC without TLS: ").await;
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named() {
    // Bound without listening, it refuses connections, and no other test gets its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let text = "warning  whether the server serves is not known: it cannot be reached from here: ";
    prints(socket.local_addr().unwrap(), text).await;
}
