//! The extension server, called as Envoy Gateway calls it.

use std::net::SocketAddr;
use std::path::Path;

use bytes::Bytes;
use hyper::Uri;
use metrics_agent_gateway::schema::{
    PostEndpointsModifyRequest, PostEndpointsModifyResponse, PostRouteModifyRequest, PostRouteModifyResponse,
    PostTranslateModifyRequest, PostTranslateModifyResponse,
};
use metrics_agent_gateway::wire::{Builder, WireMessage};
use metrics_agent_support::client::grpc::GrpcConnection;
use s2n_tls::callbacks::VerifyHostNameCallback;
use s2n_tls::config::Config;
use s2n_tls::enums::ClientAuthType;
use s2n_tls_tokio::{TlsConnector, TlsStream};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::timeout;
use tonic::Code;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::authority::{Authority, CertificateFiles};
use crate::harness::DEADLINE;
use crate::process::{command, refusal};

/// An agent that is an extension server.
struct Server {
    child: Child,
    _folder: TempDir,
    address: SocketAddr,
}

fn filter_config(folder: &Path) -> String {
    let file = folder.join("filter.json");
    std::fs::write(&file, json!({"agent": {"addresses": ["http://10.0.0.1:9095"]}}).to_string()).unwrap();
    file.display().to_string()
}

impl Server {
    async fn start(address: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = filter_config(folder.path());
        let flags = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1", "--extension-server", address];
        let flags = [&flags[..], &["--extension-filter-config", &file], more].concat();
        let mut child = command(&flags).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        lines.next_line().await.unwrap().unwrap();
        let line = lines.next_line().await.unwrap().unwrap();
        let address = line.strip_prefix("extension server on ").unwrap_or_else(|| panic!("{line}"));
        Self { address: address.parse().unwrap(), child, _folder: folder }
    }

    async fn connect(&self) -> Grpc<GrpcConnection> {
        client(TcpStream::connect(self.address).await.unwrap()).await
    }
}

async fn client(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Grpc<GrpcConnection> {
    let connection = GrpcConnection::open(stream).await.unwrap();
    Grpc::with_origin(connection, Uri::from_static("http://agent"))
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX)
}

/// Calls a hook.
async fn call<Q, A>(client: &mut Grpc<GrpcConnection>, hook: &str, request: Q) -> Result<A, Code>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    client.ready().await.map_err(|_| Code::Unavailable)?;
    let path = format!("/envoygateway.extension.EnvoyGatewayExtension/{hook}").parse().unwrap();
    let response = client.unary(tonic::Request::new(request), path, ProstCodec::default()).await;
    response.map(tonic::Response::into_inner).map_err(|status| status.code())
}

/// A `PostRouteExtensionContext` with these pools.
fn context(pools: &[&str]) -> Builder {
    let resource = |name: &&str| Builder::default().bytes(1, pool(name).to_string());
    pools.iter().map(resource).fold(Builder::default(), |context, resource| context.bytes(1, resource))
}

fn pool(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": {"name": name, "namespace": "team"}, "spec": {},
    })
}

/// A rule's route, marked by the first hook.
async fn marked_route(client: &mut Grpc<GrpcConnection>) -> Vec<u8> {
    let route = Builder::default().bytes(2, Builder::default().bytes(1, "httproute/team/r/rule/0"));
    let request = PostRouteModifyRequest {
        route: route.into_bytes().into(),
        post_route_context: context(&["chat", "code"]).into_bytes().into(),
    };
    let response: PostRouteModifyResponse = call(client, "PostRouteModify", request).await.unwrap();
    response.route.unwrap().to_vec()
}

/// The weights that a translation of a rule with two pools ends with.
async fn translated_weights(client: &mut Grpc<GrpcConnection>, route: &[u8]) -> Vec<u64> {
    let host = Builder::default().bytes(3, route);
    let configuration = Builder::default().bytes(1, "routes").bytes(2, host);
    let request = PostTranslateModifyRequest {
        routes: vec![configuration.into_bytes().into()],
        secrets: vec!["secret".into()],
        ..PostTranslateModifyRequest::default()
    };
    let response: PostTranslateModifyResponse = call(client, "PostTranslateModify", request).await.unwrap();
    assert_eq!((response.secrets.len(), response.clusters.len()), (1, 2));
    let first =
        |bytes: &[u8], number| WireMessage::read(bytes).unwrap().message(number).unwrap().into_owned();
    let weighted =
        [2, 3, 2, 3].into_iter().fold(response.routes[0].to_vec(), |bytes, number| first(&bytes, number));
    let weighted = WireMessage::read(&weighted).unwrap();
    weighted
        .all(1)
        .map(|entry| WireMessage::read(entry).unwrap().wrapped_number(2).unwrap().unwrap())
        .collect()
}

async fn send_weights(client: &mut Grpc<GrpcConnection>, weights: [u32; 2]) {
    let mut assignment = Builder::default().bytes(1, "httproute/team/r/rule/0");
    for (index, weight) in weights.into_iter().enumerate() {
        let name = Builder::default().bytes(1, format!("httproute/team/r/rule/0/backend/{index}"));
        assignment.put_bytes(2, Builder::default().bytes(1, name).wrapped_number(3, weight).as_ref());
    }
    let request = PostEndpointsModifyRequest { load_assignment: assignment.into_bytes().into() };
    let response: PostEndpointsModifyResponse = call(client, "PostEndpointsModify", request).await.unwrap();
    assert_eq!(response.load_assignment, None, "endpoints stay as they are");
}

#[tokio::test]
async fn weights_count_for_the_translation_of_their_connection() {
    let server = Server::start("127.0.0.1:0", &[]).await;
    let [mut one, mut other] = [server.connect().await, server.connect().await];
    let route = marked_route(&mut one).await;
    assert_eq!(marked_route(&mut other).await, route);
    send_weights(&mut one, [70, 30]).await;
    assert_eq!(translated_weights(&mut one, &route).await, [70, 30]);
    assert_eq!(translated_weights(&mut other, &route).await, [1, 1]);
    send_weights(&mut one, [1, 3]).await;
    assert_eq!(translated_weights(&mut one, &route).await, [1, 3]);
}

struct AnyName;

impl VerifyHostNameCallback for AnyName {
    fn verify_host_name(&self, _: &str) -> bool {
        true
    }
}

/// Connects over TLS as Envoy Gateway does, whose handshake names the server with its port.
async fn connect_as_envoy_gateway(
    address: SocketAddr,
    authority: &Authority,
    files: &CertificateFiles,
) -> TlsStream<TcpStream> {
    let read = |path: &Path| std::fs::read(path).unwrap();
    let mut config = Config::builder();
    config.with_system_certs(false).unwrap().trust_pem(&read(&authority.certificate())).unwrap();
    config.load_pem(&read(&files.certificate), &read(&files.key)).unwrap();
    config.set_client_auth_type(ClientAuthType::Optional).unwrap();
    config.set_verify_host_callback(AnyName).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::new(config.build().unwrap());
    connector.connect("endpoint-picker-agent.inference.svc:9096", stream).await.unwrap()
}

#[tokio::test]
async fn a_client_needs_a_certificate_of_the_named_authority() {
    let (own, stranger) = (Authority::new(), Authority::new());
    let (server, client_files) = (own.issue("127.0.0.1"), own.issue("envoy-gateway"));
    let path = |path: &Path| path.display().to_string();
    let [cert, key, authority] =
        [&server.certificate, &server.key, &own.certificate()].map(|file| path(file));
    let flags = ["--extension-cert", &cert, "--extension-key", &key, "--extension-client-ca", &authority];
    // Not a loopback address to the flags, although it is reached by one.
    let server = Server::start("0.0.0.0:0", &flags).await;
    let address = SocketAddr::from(([127, 0, 0, 1], server.address.port()));

    let mut accepted = client(connect_as_envoy_gateway(address, &own, &client_files).await).await;
    let route = marked_route(&mut accepted).await;
    send_weights(&mut accepted, [2, 5]).await;
    assert_eq!(translated_weights(&mut accepted, &route).await, [2, 5]);

    let foreign = stranger.issue("envoy-gateway");
    for files in [None, Some(&foreign)] {
        // With TLS 1.3 a client learns of the refusal when it reads.
        let refused = async {
            let stream = own.connect(address, files).await.ok()?;
            let connection = GrpcConnection::open(stream).await.ok()?;
            let mut client = Grpc::with_origin(connection, Uri::from_static("http://agent"));
            let request = PostRouteModifyRequest::default();
            call::<_, PostRouteModifyResponse>(&mut client, "PostRouteModify", request).await.ok()
        };
        assert_eq!(refused.await, None);
    }
}

#[tokio::test]
async fn hostile_calls_end_alone() {
    let server = Server::start("127.0.0.1:0", &[]).await;
    let mut client = server.connect().await;
    // Above the limit of 64 MiB.
    let routes = vec![vec![0; 65 * 1024 * 1024].into()];
    let request = PostTranslateModifyRequest { routes, ..PostTranslateModifyRequest::default() };
    let refused = call::<_, PostTranslateModifyResponse>(&mut client, "PostTranslateModify", request).await;
    assert_eq!(refused.unwrap_err(), Code::OutOfRange);
    // Another message than the hook's.
    let request = PostTranslateModifyResponse {
        clusters: vec![context(&["chat"]).into_bytes().into()],
        ..PostTranslateModifyResponse::default()
    };
    let answer = call::<_, PostRouteModifyResponse>(&mut client, "PostRouteModify", request.clone()).await;
    assert_eq!(answer.unwrap().route, None);
    let refused = call::<_, PostRouteModifyResponse>(&mut client, "PostVirtualHostModify", request).await;
    assert_eq!(refused.unwrap_err(), Code::Unimplemented);
    // What cannot be read stays as it came.
    let garbage = PostTranslateModifyRequest {
        clusters: vec!["\u{1}garbage".into()],
        listeners: vec![vec![0xff; 100_000].into()],
        routes: vec![Builder::default().bytes(2, [0xff]).into_bytes().into()],
        ..PostTranslateModifyRequest::default()
    };
    let answer: PostTranslateModifyResponse =
        call(&mut client, "PostTranslateModify", garbage.clone()).await.unwrap();
    assert_eq!(
        (answer.clusters, answer.listeners, answer.routes),
        (garbage.clusters, garbage.listeners, garbage.routes)
    );
    assert!(!marked_route(&mut client).await.is_empty(), "the connection serves on");
}

#[tokio::test]
async fn silent_connections_do_not_keep_envoy_gateway_out() {
    let server = Server::start("127.0.0.1:0", &[]).await;
    let mut early = server.connect().await;
    let route = marked_route(&mut early).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    let late = async { marked_route(&mut server.connect().await).await };
    assert_eq!(timeout(DEADLINE, late).await.expect("a response"), route);
    assert_eq!(marked_route(&mut early).await, route, "its connection stays");
}

/// The most memory that the server has had, in bytes.
fn peak_memory(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id().unwrap())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_call_of_many_tiny_fields_takes_a_small_multiple_of_its_bytes() {
    const BYTES: usize = 4 << 20;
    let server = Server::start("127.0.0.1:0", &[]).await;
    let mut client = server.connect().await;
    let route = marked_route(&mut client).await;
    let before = peak_memory(&server);
    let tiny: Bytes = [5 << 3, 0].repeat(BYTES / 2).into();
    // Each hook alone: a field of a route, of endpoints and of everything of a Gateway.
    let request = PostRouteModifyRequest { route: tiny.clone(), post_route_context: tiny.clone() };
    let answer: PostRouteModifyResponse = call(&mut client, "PostRouteModify", request).await.unwrap();
    assert_eq!(answer.route, None);
    let request = PostEndpointsModifyRequest { load_assignment: tiny.clone() };
    let _: PostEndpointsModifyResponse = call(&mut client, "PostEndpointsModify", request).await.unwrap();
    let request = PostTranslateModifyRequest {
        routes: vec![tiny.clone()],
        listeners: vec![tiny.clone()],
        ..PostTranslateModifyRequest::default()
    };
    let _: PostTranslateModifyResponse = call(&mut client, "PostTranslateModify", request).await.unwrap();
    // Two of them are in the largest message, which is received, edited and sent back.
    let grown = peak_memory(&server).saturating_sub(before);
    assert!(grown < 8 * 2 * BYTES, "{grown} bytes of memory for {} of a message", 2 * BYTES);
    let request = PostTranslateModifyRequest {
        clusters: vec![Bytes::new(); 100_001],
        ..PostTranslateModifyRequest::default()
    };
    let refused = call::<_, PostTranslateModifyResponse>(&mut client, "PostTranslateModify", request).await;
    assert_eq!(refused.unwrap_err(), Code::ResourceExhausted);
    assert_eq!(marked_route(&mut client).await, route, "the connection serves on");
}

#[test]
fn flags_without_tls_on_other_addresses_or_without_a_filter_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = filter_config(folder.path());
    let with =
        |more: &[&str]| refusal(&[&["--endpoint", "127.0.0.1:1", "--listen", "127.0.0.1:0"], more].concat());
    let open = with(&["--extension-server", "0.0.0.0:9096", "--extension-filter-config", &file]);
    assert!(open.contains("requires --extension-cert") && open.contains("loopback"), "{open}");
    let bare = with(&["--extension-server", "127.0.0.1:0"]);
    assert!(bare.contains("--extension-filter-config"), "{bare}");
    let alone = with(&["--extension-pool", "team/chat"]);
    assert!(alone.contains("--extension-server"), "{alone}");
    let server = ["--extension-server", "127.0.0.1:0", "--extension-filter-config", &file];
    let unnamed = with(&[&server[..], &["--extension-pool", "chat"]].concat());
    assert!(unnamed.contains("allowed is NAMESPACE/NAME"), "{unnamed}");
    std::fs::write(&file, "{}").unwrap();
    let empty = with(&server);
    assert!(empty.contains("agent is missing"), "{empty}");
}
