//! A VM that has missed changes gets them again.

use bytes::Bytes;
use endpoint_picker_e2e::fixture::{CHAT, RELOADS, fresh_chat, fresh_prompt, until_all_go_to};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::SERVED_BY;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A cached prompt outweighs a queue, and the index of each server holds all prompts of the test.
const PREFIX_BEFORE_QUEUE: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: approx-prefix-cache-producer
    parameters: {autoTune: false, blockSizeTokens: 64, lruCapacityPerServer: 31250}
  - type: prefix-cache-scorer
  - type: queue-scorer
  - type: max-score-picker
  - type: single-profile-handler
schedulingProfiles:
  - name: default
    plugins:
      - {pluginRef: prefix-cache-scorer, weight: 2}
      - {pluginRef: queue-scorer, weight: 1}
      - {pluginRef: max-score-picker}
";

/// One connection, and so one worker of Envoy.
struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    async fn to_worker(stack: &Stack, worker: u32) -> Self {
        // The port is the configured one, with which Envoy takes any that is free.
        let connections = format!("listener.127.0.0.1_0.worker_{worker}.downstream_cx_total");
        eventually(&format!("a connection to worker {worker}"), async || {
            let before = stack.envoy().stat(&connections).await.unwrap();
            let socket = TcpStream::connect(stack.envoy().listener()).await.unwrap();
            let (sender, connection) = handshake(TokioIo::new(socket)).await.unwrap();
            tokio::spawn(connection);
            let mut connection = Self(sender);
            connection.served(stack, &fresh_chat()).await;
            let accepted = stack.envoy().stat(&connections).await.unwrap() - before;
            if accepted == 1 { Ok(connection) } else { Err(format!("{accepted} more connections there")) }
        })
        .await
    }

    async fn post(&mut self, request: request::Builder, body: &Value) -> Response<Incoming> {
        let request = request.method("POST").uri(CHAT).header("host", "a");
        let request = request.header("content-type", "application/json");
        self.0.ready().await.unwrap();
        self.0.send_request(request.body(Full::from(body.to_string())).unwrap()).await.unwrap()
    }

    /// The server that responds to a request with this body.
    async fn served(&mut self, stack: &Stack, body: &Value) -> usize {
        let mut answer = self.post(Request::builder(), body).await;
        assert_eq!(answer.status(), StatusCode::OK);
        while let Some(frame) = answer.frame().await {
            frame.unwrap();
        }
        let server = &answer.headers()[SERVED_BY];
        stack.servers().iter().position(|one| server == one.endpoint().as_str()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_vm_gets_a_prompt_in_full_when_it_is_sent_again() {
    // The log keeps half a megabyte; a block of 256 bytes takes eight.
    const REQUESTS_THAT_FILL_THE_LOG: usize = 150;
    const LONGEST_PROMPT: usize = 512 * 256;
    let stack = Stack::builder().workers(2).can_trap().manifests(PREFIX_BEFORE_QUEUE).start().await;
    let mut one = Connection::to_worker(&stack, 0).await;
    let mut other = Connection::to_worker(&stack, 1).await;

    let prefer = async |best: usize| {
        for (index, server) in stack.servers().iter().enumerate() {
            server.update_metrics(|metrics| metrics.waiting = u64::from(index != best));
        }
        until_all_go_to(&stack, best).await;
    };
    prefer(1).await;
    let prompts: Vec<Value> = (0..200).map(|_| client::chat(&fresh_prompt().repeat(2))).collect();
    for prompt in &prompts {
        assert_eq!(one.served(&stack, prompt).await, 1);
    }
    // From now on only a worker that has them in its index prefers server 1.
    prefer(2).await;
    assert_eq!(one.served(&stack, &prompts[0]).await, 1, "the worker that sent it has it");
    assert_eq!(other.served(&stack, &prompts[0]).await, 1, "the other worker has it from the log");
    for _ in 0..REQUESTS_THAT_FILL_THE_LOG {
        let mut long = fresh_prompt();
        long = long.repeat(LONGEST_PROMPT / long.len());
        assert_eq!(one.served(&stack, &client::chat(&long)).await, 2);
    }

    let reloads = stack.envoy().stat(RELOADS).await.unwrap();
    let trap = Request::builder().header("x-test-trap", "1");
    assert_eq!(other.post(trap, &fresh_chat()).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let mut other = Connection::to_worker(&stack, 1).await;
    assert_eq!(stack.envoy().stat(RELOADS).await.unwrap(), reloads + 1);
    let mut prompts = prompts.iter().skip(1);
    assert_eq!(other.served(&stack, prompts.next().unwrap()).await, 2, "the new VM does not have it");

    // It has requested a resync: a worker that has the prompts now appends one in full when it is sent again.
    eventually("the new VM has a prompt that was sent again", async || {
        let prompt = prompts.next().expect("a prompt that was not sent again yet");
        assert_eq!(one.served(&stack, prompt).await, 1);
        if other.served(&stack, prompt).await == 1 { Ok(()) } else { Err("it does not have it") }
    })
    .await;
}
