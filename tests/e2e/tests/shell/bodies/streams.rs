//! Requests that the picker decides by their headers: nothing of them is held, in either direction.

use bytes::Bytes;
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, TEXT};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::SOON;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use hyper::client::conn::http2;
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A stack whose servers send back what they get.
async fn echoing(builder: Builder) -> Stack {
    let stack = builder.start().await;
    for server in stack.servers() {
        server.behave(Behaviour::Echo);
    }
    stack
}

/// The only request that arrived was picked.
fn assert_picked(stack: &Stack, what: &str) {
    let requests: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    assert_eq!(requests.len(), 1, "{what}");
    assert!(requests[0].header(DESTINATION).is_some(), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_each_reply_before_it_goes_on_is_not_held() {
    let stack = echoing(Stack::builder()).await;
    let socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
    let (mut client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let request = Request::post(stack.url("/inference.GRPCInferenceService/ModelStreamInfer"))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let conversation = async {
        sender.send_data(Bytes::from_static(b"message 0")).await.unwrap();
        let mut answer = client.send_request(request.body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        for n in 0..5 {
            let reply = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(reply, format!("message {n}"));
            sender.send_data(format!("message {}", n + 1).into()).await.unwrap();
        }
        drop(sender);
        answer.into_body().collect().await.unwrap();
    };
    timeout(SOON, conversation).await.expect("every message is answered");
    drop(client);
    connection.await.unwrap().unwrap();
    assert_picked(&stack, "gRPC");
}

/// Sends the head of a request, reads the response's head, and then sends and gets back two messages.
async fn talk_through_tunnel(stack: &Stack, head: &str, status: &str) {
    let mut socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
    let conversation = async {
        socket.write_all(head.as_bytes()).await.unwrap();
        let answer = read_head(&mut socket).await;
        assert!(answer.starts_with(status), "{head}{answer}");
        for message in [b"first", b"other"] {
            socket.write_all(message).await.unwrap();
            let mut reply = [0; 5];
            socket.read_exact(&mut reply).await.unwrap();
            assert_eq!(&reply, message);
        }
    };
    timeout(SOON, conversation).await.expect(head);
    assert_picked(stack, head);
}

async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_socket_is_not_held_whatever_its_path() {
    let stack = echoing(Stack::builder()).await;
    for path in ["/v1/realtime?model=m", "/v1/responses", CHAT] {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        talk_through_tunnel(&stack, &head, "HTTP/1.1 101 ").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_not_held_where_envoy_allows_connect() {
    let stack = echoing(Stack::builder().accepts_connect()).await;
    talk_through_tunnel(&stack, "CONNECT h:443 HTTP/1.1\r\nhost: h:443\r\n\r\n", "HTTP/1.1 200 ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_100_continue_gets_it() {
    let stack = Stack::builder().start().await;
    for (path, status) in [(TEXT, "HTTP/1.1 200 "), ("/v1/audio/transcriptions", "HTTP/1.1 404 ")] {
        let mut socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
        let conversation = async {
            let body = client::completion("hi").to_string();
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            assert_eq!(read_head(&mut socket).await, "HTTP/1.1 100 Continue\r\n\r\n", "{path}");
            socket.write_all(body.as_bytes()).await.unwrap();
            let answer = read_head(&mut socket).await;
            assert!(answer.starts_with(status), "{path}: {answer}");
        };
        timeout(SOON, conversation).await.expect(path);
        assert_picked(&stack, path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_without_an_api_is_refused_before_its_body_has_come() {
    const ONLY_OPENAI: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{ type: queue-scorer }, { type: openai-parser }]
requestHandler: { parsers: [{ pluginRef: openai-parser }] }
";
    let stack = Stack::builder().manifests(ONLY_OPENAI).start().await;
    let mut socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
    let conversation = async {
        let head = "POST /v1/nothing HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{";
        socket.write_all(head.as_bytes()).await.unwrap();
        let answer = read_head(&mut socket).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    };
    timeout(SOON, conversation).await.expect("an answer");
}
