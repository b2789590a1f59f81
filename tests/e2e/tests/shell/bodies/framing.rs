//! Bodies of every size and framing come through unchanged, and so do the responses.

use bytes::Bytes;
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, TEXT, forget_requests, fresh_chat};
use endpoint_picker_harness::client::{self, Ending};
use endpoint_picker_harness::eventually::SOON;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer, ReceivedRequest};
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::{Body, Client, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpStream;

const KIB: usize = 1024;

/// Prime, so that chunks end inside characters, and never where Envoy's buffers end.
const CHUNK: usize = 8191;

#[derive(Clone, Copy, Debug)]
enum Framing {
    ContentLength,
    Chunks,
}

/// A body of this API of exactly `size` bytes, with characters of one to four bytes.
fn body_of(path: &str, size: usize) -> Vec<u8> {
    let (mut start, end) = match path {
        "/v1/chat/completions" => {
            (r#"{"model":"m","messages":[{"role":"user","content":""#.to_owned(), r#""}]}"#)
        }
        "/v1/completions" => (r#"{"model":"m","prompt":""#.to_owned(), r#""}"#),
        _ => (String::new(), ""),
    };
    let room = size - start.len() - end.len();
    let text = "aé€😀 ";
    start.push_str(&text.repeat(room / text.len()));
    start.push_str(&"x".repeat(room % text.len()));
    start.push_str(end);
    assert_eq!(start.len(), size);
    start.into_bytes()
}

fn chunks(body: &[u8]) -> Vec<Bytes> {
    body.chunks(CHUNK).map(Bytes::copy_from_slice).collect()
}

/// Sends a body and gives the one request that arrived, at the server that answered.
async fn send(stack: &Stack, client: &Client, path: &str, framing: Framing, body: &[u8]) -> ReceivedRequest {
    let request = client.post(stack.url(path)).header("content-type", "application/json");
    let request = match framing {
        Framing::ContentLength => request.body(body.to_vec()),
        Framing::Chunks => {
            let chunks = chunks(body).into_iter().map(Ok::<_, Infallible>);
            request.body(Body::wrap_stream(stream::iter(chunks)))
        }
    };
    let response = request.send().await.unwrap();
    let served = stack.served_by(&response);
    response.bytes().await.unwrap();
    let mut arrived: Vec<_> = stack.servers().iter().map(ModelServer::take_requests).collect();
    assert_eq!(arrived.iter().map(Vec::len).sum::<usize>(), 1, "{path} arrived more than once");
    arrived[served].pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_size_and_framing_arrives_unchanged_and_picked() {
    let stack = Stack::builder().start().await;
    let cases: &[(&str, &[usize])] = &[
        ("/v1/chat/completions", &[58, KIB, 16 * KIB - 1, 64 * KIB + 1, KIB * KIB, 8 * KIB * KIB]),
        ("/v1/completions", &[27, KIB, 16 * KIB, 64 * KIB, KIB * KIB + 1, 8 * KIB * KIB]),
        // A body that the picker does not read.
        ("/v1/audio/transcriptions", &[1, 2, KIB, 8 * KIB * KIB]),
    ];
    for (path, sizes) in cases {
        for &size in *sizes {
            let body = body_of(path, size);
            for client in [client::http1(), client::h2c()] {
                for framing in [Framing::ContentLength, Framing::Chunks] {
                    let case = format!("{path} of {size} bytes, {framing:?}");
                    let received = send(&stack, &client, path, framing, &body).await;
                    assert!(received.body == body, "{case}: {} other bytes arrived", received.body.len());
                    assert!(received.header(DESTINATION).is_some(), "{case}");
                    if let Framing::ContentLength = framing {
                        assert_eq!(
                            received.header("content-length"),
                            Some(size.to_string().as_str()),
                            "{case}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_after_an_h2_body_do_not_keep_it_from_being_picked() {
    let stack = Stack::builder().start().await;
    for (path, size) in [("/v1/chat/completions", 100), ("/v1/completions", KIB * KIB), ("/v1/other", 1)] {
        let body = body_of(path, size);
        let trailers = HeaderMap::from_iter([("x-checksum".parse().unwrap(), "123".parse().unwrap())]);
        let frames = chunks(&body).into_iter().map(Frame::data).chain([Frame::trailers(trailers)]);
        let request = Request::post(stack.url(path)).version(Version::HTTP_2);
        let request = request.body(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)))).unwrap();

        let socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        let connection = tokio::spawn(connection);
        let response = tokio::time::timeout(SOON, sender.send_request(request)).await;
        response.expect("no hang").unwrap().into_body().collect().await.unwrap();
        drop(sender);
        connection.await.unwrap().unwrap();

        let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
        assert_eq!(received.len(), 1, "{path}");
        assert!(received[0].body == body, "{path}");
        assert!(received[0].header(DESTINATION).is_some(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_half_an_emoji_arrives_unchanged_and_picked() {
    let stack = Stack::builder().start().await;
    for length in [10, 2 * KIB * KIB] {
        let prompt = r"cut \ud83d".repeat(length / 10);
        let body = format!(r#"{{"model":"m","prompt":"{prompt}"}}"#);
        let received = send(&stack, &client::http1(), TEXT, Framing::ContentLength, body.as_bytes()).await;
        assert!(received.body == body.as_bytes(), "{length} bytes");
        assert!(received.header(DESTINATION).is_some(), "{length} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_bodies_at_once_do_not_get_mixed_up() {
    let stack = Stack::builder().start().await;
    let client = client::h2c();
    let requests = (0..24).map(|index| {
        let body = body_of("/v1/completions", 200 * KIB + index);
        let request = client.post(stack.url(&format!("/v1/completions?n={index}"))).body(body);
        async move { request.send().await.unwrap().status() }
    });
    let statuses = join_all(requests).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
    let mut received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    received.sort_by_key(|request| request.body.len());
    assert_eq!(received.len(), 24);
    for (index, request) in received.iter().enumerate() {
        assert_eq!(request.uri.to_string(), format!("/v1/completions?n={index}"));
        assert!(request.body == body_of("/v1/completions", 200 * KIB + index));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_byte_identical_to_the_servers_own() {
    let stack = Stack::builder().start().await;
    let stream = |mut body: Value, tokens: usize| {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        body["max_tokens"] = json!(tokens);
        body
    };
    let text = client::completion("tell me");
    let cases = [
        ("/v1/chat/completions", fresh_chat(), Behaviour::Answer),
        ("/v1/completions", text.clone(), Behaviour::Answer),
        ("/v1/chat/completions", stream(fresh_chat(), 30), Behaviour::SlowChunks(Duration::from_millis(2))),
        ("/v1/completions", stream(text.clone(), 30), Behaviour::SlowChunks(Duration::from_millis(2))),
        ("/v1/chat/completions", stream(fresh_chat(), 3000), Behaviour::Answer),
        ("/v1/completions", stream(text, 3000), Behaviour::Answer),
    ];
    for (path, body, behaviour) in cases {
        for server in stack.servers() {
            server.behave(behaviour);
        }
        let direct = format!("http://{}{path}", stack.servers()[0].endpoint());
        let direct = client::http1().post(direct).json(&body).send().await.unwrap();
        let content_type = direct.headers()["content-type"].clone();
        let expected = direct.bytes().await.unwrap();
        for client in [client::http1(), client::h2c()] {
            let response = client.post(stack.url(path)).json(&body).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["content-type"], content_type);
            let received = response.bytes().await.unwrap();
            assert!(received == expected, "{path}: {} bytes, expected {}", received.len(), expected.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_answer_begins_before_it_ends() {
    let stack = Stack::builder().start().await;
    for server in stack.servers() {
        server.behave(Behaviour::SlowChunks(Duration::from_millis(30)));
    }
    let mut body = fresh_chat();
    body["stream"] = json!(true);
    let mut response = stack.post("/v1/chat/completions", &body).await;
    let mut pieces = 0;
    while response.chunk().await.unwrap().is_some() {
        pieces += 1;
    }
    assert!(pieces > 5, "the answer came in {pieces} pieces");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_body_is_picked_and_answered() {
    let stack = Stack::builder().start().await;
    forget_requests(&stack);
    for client in [client::http1(), client::h2c()] {
        for attempt in 0..10 {
            let response = client.get(stack.url("/v1/models")).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "request {attempt}");
            let server = &stack.servers()[stack.served_by(&response)];
            let models: Value = response.json().await.unwrap();
            assert_eq!(models["data"][0]["object"], "model");
            let received = server.take_requests();
            assert_eq!(received[0].header(DESTINATION), Some(server.endpoint().as_str()));
            assert_eq!(received[0].body, "");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_http_10_are_served_with_and_without_a_host() {
    let stack = Stack::builder().start().await;
    for host in ["host: models\r\n", ""] {
        for is_streamed in [false, true] {
            let mut chat = fresh_chat();
            chat["stream"] = json!(is_streamed);
            let body = chat.to_string();
            let request = format!(
                "POST {CHAT} HTTP/1.0\r\n{host}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let response =
                client::raw(stack.envoy().listener(), request.as_bytes(), Ending::KeepOpen).await.unwrap();
            assert!(response.lines().next().unwrap().ends_with(" 200 OK"), "{response}");
            // HTTP/1.0 has no chunks: the connection's end is the body's.
            assert!(!response.to_lowercase().contains("transfer-encoding"), "{response}");
            let end = if is_streamed { "data: [DONE]\n\n" } else { "}" };
            assert!(response.trim_end_matches('\0').ends_with(end), "{response}");
        }
    }
    let requests: Vec<_> = stack.servers().iter().flat_map(ModelServer::requests).collect();
    let picked = requests.iter().filter(|request| request.header(DESTINATION).is_some());
    assert_eq!(picked.count(), 4, "the picker has chosen each server");
}
