//! Calls of gRPC, with the shipped example: a client and a server on tonic, and both on grpcio.

mod peers;

use anyhow::ensure;
use bytes::Bytes;
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::eventually::{SOON, eventually};
use endpoint_picker_harness::program::ServerProcess;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use futures_util::stream;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use hyper::client::conn::http2;
use hyper::{Request, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fs;
use std::process::Command;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Code;

use self::peers::{Client, Part, Server, frame, request};

fn manifest() -> String {
    fs::read_to_string(tools::root().join("examples/grpc/picker.yaml")).unwrap()
}

/// The shipped example, whose endpoints are these servers.
async fn start(manifest: &str, servers: &[&Server]) -> Stack {
    let builder = Stack::builder().config("examples/grpc").servers(1).workers(1).manifests(manifest);
    // Longer than a test takes on a busy machine.
    let builder = builder.agent_flags(&["--avoid-failing", "60s"]);
    let stack = builder.picker_field("countTokens", true).start().await;
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    stack.set_endpoints(&addresses);
    // The picker and the cluster get them a moment after each other. Until both have them, calls are not
    // served where they are picked.
    if !addresses.is_empty() {
        let picks = |address| format!("picks{{pool=\"default\",endpoint=\"{address}\"}}");
        eventually("calls are picked for a server, and reach it", async || {
            Client::new(stack.envoy().listener()).generate("stream 1").await?;
            let statistics = statistics(&stack).await;
            ensure!(
                addresses.iter().any(|address| statistics.count(&picks(address)) > 0),
                "no call was picked"
            );
            anyhow::Ok(())
        })
        .await;
    }
    stack
}

/// The texts of all calls that the servers got.
fn texts(servers: &[&Server]) -> Vec<Vec<String>> {
    servers.iter().map(|server| server.take_texts()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stream_of_grpc_passes_in_order_and_its_tokens_are_counted() {
    const COUNT: u32 = 5000;
    let servers = [Server::start().await, Server::start().await];
    let servers = [&servers[0], &servers[1]];
    let stack = start(&manifest(), &servers).await;
    let started = texts(&servers).concat().len() as u64;

    let mut client = Client::new(stack.envoy().listener());
    let text = format!("stream {COUNT}");
    let messages = timeout(SOON, client.generate(&text)).await.expect("a whole response").unwrap();
    let numbers = messages.iter().filter_map(|message| match message.part.as_ref()? {
        Part::Chunk(chunk) => Some(chunk.completion_tokens),
        Part::Complete(_) => None,
    });
    assert!(numbers.eq(1..=COUNT));
    assert_eq!(messages.len(), COUNT as usize + 1);
    assert_eq!(texts(&servers).concat(), [text]);

    let counted = async || {
        let statistics = statistics(&stack).await;
        let [input, output] = ["input_tokens_total", "output_tokens_total"].map(|name| statistics.sum(name));
        let expected = (u64::from(peers::PROMPT_TOKENS) * (started + 1), u64::from(COUNT) + started);
        if (input, output) == expected { Ok(()) } else { Err(format!("{input} and {output}")) }
    };
    eventually("the tokens of all calls are counted", counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_grpc_is_decided_with_its_first_message_and_not_held() {
    let server = Server::start().await;
    let stack = start(&manifest(), &[&server]).await;
    let mut client = Client::new(stack.envoy().listener());
    let (sender, receiver) = mpsc::channel(1);
    let requests = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let conversation = async {
        sender.send(request("talk")).await.unwrap();
        let mut responses = client.call(requests, &[]).await.unwrap();
        for _ in 0..20 {
            assert!(responses.message().await.unwrap().is_some());
            sender.send(request(&"more ".repeat(2000))).await.unwrap();
        }
        drop(sender);
        while responses.message().await.unwrap().is_some() {}
    };
    timeout(SOON, conversation).await.expect("every message has a reply");
    until_counted(&stack, "in_flight", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_may_come_in_parts_while_the_request_stays_open() {
    let server = Server::start().await;
    let stack = start(&manifest(), &[&server]).await;
    let begun = server.begun();
    let socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
    let (mut client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    let _connection = tokio::spawn(connection);
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let head = Request::post(stack.url(peers::GENERATE))
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let response = tokio::spawn(client.send_request(head.body(body).unwrap()));
    let message = frame(&request("talk"));
    let last = message.len() - 1;
    for byte in 0..last {
        sender.send_data(message.slice(byte..=byte)).await.unwrap();
    }
    // The only worker of Envoy serves this call after it has read the bytes.
    Client::new(stack.envoy().listener()).generate("stream 1").await.unwrap();
    assert_eq!(server.begun(), begun + 1, "before the last byte only the other call is there");
    sender.send_data(message.slice(last..)).await.unwrap();
    let mut response = timeout(SOON, response).await.expect("a response").unwrap().unwrap();
    let first = timeout(SOON, response.body_mut().frame()).await.expect("a message").unwrap().unwrap();
    assert!(first.is_data());
    drop(sender);
    let rest = timeout(SOON, response.into_body().collect()).await.expect("the end").unwrap();
    assert_eq!(rest.trailers().unwrap()["grpc-status"], "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_aborts_a_stream_of_grpc_leaves_nothing_in_flight() {
    let server = Server::start().await;
    let stack = start(&manifest(), &[&server]).await;
    let mut client = Client::new(stack.envoy().listener());
    let mut responses = client.call(stream::iter([request("hang")]), &[]).await.unwrap();
    assert!(responses.message().await.unwrap().is_some());
    until_counted(&stack, "in_flight", 1).await;
    drop(responses);
    eventually("the server sees the abort", async || match server.cancelled() {
        1 => Ok(()),
        count => Err(count),
    })
    .await;
    until_counted(&stack, "in_flight", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_picker_are_responses_of_grpc() {
    let server = Server::start().await;
    let stack = start(&manifest(), &[&server]).await;
    server.take_texts();
    let mut client = Client::new(stack.envoy().listener());
    let refused = client.generate("").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert_eq!(refused.message(), "not supported request inputType");
    assert_eq!(server.take_texts(), [""; 0]);

    // No endpoint.
    stack.set_endpoints(&[]);
    eventually("no endpoint is left", async || match client.generate("stream 1").await {
        Err(status) if status.metadata().get("x-llm-d-request-dropped-reason").is_some() => {
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            let reason = status.metadata().get("x-llm-d-request-dropped-reason");
            assert_eq!(reason.unwrap(), "rejected-no-endpoints");
            assert_eq!(status.message(), "failed to find endpoint candidates for serving the request");
            Ok(())
        }
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_shed_is_resource_exhausted() {
    let objective = "
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: { name: batch }
spec: { priority: -1, poolRef: { name: default } }
";
    let limit = "
  - { type: concurrency-detector, parameters: { maxConcurrency: 1 } }
schedulingProfiles:";
    let detector = "
flowControl: { saturationDetector: { pluginRef: concurrency-detector } }
requestHandler:";
    let manifest = manifest().replace("\nschedulingProfiles:", limit).replace("\nrequestHandler:", detector);
    let server = Server::start().await;
    let stack = start(&(manifest + objective), &[&server]).await;
    let mut client = Client::new(stack.envoy().listener());
    let mut hanging = client.call(stream::iter([request("hang")]), &[]).await.unwrap();
    assert!(hanging.message().await.unwrap().is_some());
    let headers = [("x-llm-d-inference-objective", "batch")];
    let shed = client.call(stream::iter([request("stream 1")]), &headers).await.unwrap_err();
    assert_eq!(shed.code(), Code::ResourceExhausted, "{shed:?}");
    assert_eq!(shed.message(), "system saturated, sheddable request dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_calls_with_unavailable_is_avoided() {
    let servers = [Server::start().await, Server::start().await, Server::start().await];
    let servers = [&servers[0], &servers[1], &servers[2]];
    let stack = start(&manifest(), &servers).await;
    let mut client = Client::new(stack.envoy().listener());
    texts(&servers);
    // A beginning of several blocks, for which all calls would go to the first call's server.
    let beginning = "the same beginning ".repeat(200);
    let mut served = Vec::new();
    for (action, expected) in [
        ("stream 1", None),
        ("fail 14", Some(Code::Unavailable)),
        ("break 14", Some(Code::Unavailable)),
        ("stream 1", None),
        ("fail 3", Some(Code::InvalidArgument)),
        ("stream 1", None),
    ] {
        let result = client.generate(&format!("{beginning}|{action}")).await;
        assert_eq!(result.err().map(|status| status.code()), expected, "{action}");
        let calls = texts(&servers);
        served.push(calls.iter().position(|texts| !texts.is_empty()).unwrap());
    }
    let [first, failed, broken, last, refused, again] = served[..] else { unreachable!("six calls") };
    assert_eq!(failed, first);
    assert_ne!(broken, failed, "the status without a message counts");
    assert!(last != broken && last != failed, "the status behind a message counts");
    assert_eq!((refused, again), (last, last), "a status that is the client's fault does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_servers_on_grpcio_are_served_and_refused() {
    let first = Server::start().await;
    let (plugin, reference) = ("  - type: vllmgrpc-parser\n", "    - { pluginRef: vllmgrpc-parser }\n");
    let with_vertex = |line: &str| format!("{line}{}", line.replace("vllmgrpc", "vertexai"));
    let manifest = manifest();
    let manifest = manifest.replace(plugin, &with_vertex(plugin)).replace(reference, &with_vertex(reference));
    let stack = start(&manifest, &[&first]).await;
    let server = ServerProcess::grpc(&stack.path("grpc.log")).await.unwrap();
    stack.set_endpoints(&[server.address()]);
    eventually("the calls of grpcio have their results", async || {
        let output = Command::new(tools::grpc_python()?)
            .arg(tools::root().join("tests/grpc/peer.py"))
            .args(["call", &stack.envoy().listener().to_string()])
            .output()?;
        let lines = String::from_utf8(output.stdout)?;
        let results: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let result = |index: usize, field: &str| results.get(index).map(|result| result[field].clone());
        ensure!(result(0, "served_by") == Some(json!("grpcio")), "{lines}");
        for index in [0, 1] {
            assert_eq!(result(index, "status").unwrap(), "OK", "{lines}");
            assert_eq!(result(index, "messages").unwrap(), 4, "{lines}");
        }
        assert_eq!(result(4, "status").unwrap(), "OK", "{lines}");
        assert_eq!((result(4, "messages"), result(4, "served_by")), (Some(json!(2)), Some(json!("grpcio"))));
        for (index, message) in [
            (2, "not supported request inputType"),
            (3, "unmarshaling GenerateRequest: a field is longer than its message"),
            (5, "ChatCompletionsRequest has no HttpBody"),
        ] {
            assert_eq!(result(index, "status").unwrap(), "INVALID_ARGUMENT", "{lines}");
            assert_eq!(result(index, "details").unwrap(), message, "{lines}");
        }
        anyhow::Ok(())
    })
    .await;
}
