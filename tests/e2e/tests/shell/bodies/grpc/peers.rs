//! A client and a server of vLLM's gRPC service on tonic.

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message, Oneof};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Sender, channel};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::server::StreamingService;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

pub(super) const GENERATE: &str = "/vllm.grpc.engine.VllmEngine/Generate";

/// `vllm.grpc.engine.GenerateRequest`, the fields of these tests.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GenerateRequest {
    #[prost(string, tag = "1")]
    pub(super) request_id: String,
    #[prost(string, tag = "3")]
    pub(super) text: String,
    #[prost(bool, tag = "5")]
    pub(super) stream: bool,
}

/// `vllm.grpc.engine.GenerateResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GenerateResponse {
    #[prost(oneof = "Part", tags = "1, 2")]
    pub(super) part: Option<Part>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Part {
    #[prost(message, tag = "1")]
    Chunk(Chunk),
    #[prost(message, tag = "2")]
    Complete(Complete),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Chunk {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) token_ids: Vec<u32>,
    #[prost(uint32, tag = "2")]
    pub(super) prompt_tokens: u32,
    #[prost(uint32, tag = "3")]
    pub(super) completion_tokens: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Complete {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) output_ids: Vec<u32>,
    #[prost(uint32, tag = "3")]
    pub(super) prompt_tokens: u32,
    #[prost(uint32, tag = "4")]
    pub(super) completion_tokens: u32,
}

/// Tokens of the prompt in every response.
pub(super) const PROMPT_TOKENS: u32 = 9;

fn chunk(number: u32) -> GenerateResponse {
    let chunk = Chunk { token_ids: vec![number], prompt_tokens: PROMPT_TOKENS, completion_tokens: number };
    GenerateResponse { part: Some(Part::Chunk(chunk)) }
}

fn complete(number: u32) -> GenerateResponse {
    let output_ids = (1..=number).collect();
    let complete = Complete { output_ids, prompt_tokens: PROMPT_TOKENS, completion_tokens: number };
    GenerateResponse { part: Some(Part::Complete(complete)) }
}

#[derive(Debug, Default)]
struct Calls {
    begun: AtomicUsize,
    texts: Mutex<Vec<String>>,
    cancelled: AtomicUsize,
}

/// A running server; it ends when dropped. What it does follows the last `|` in the text of a request's first
/// message:
///
/// - `stream N`: N chunks, and the complete response.
/// - `talk`: a chunk for each message of the request.
/// - `hang`: one chunk, and then nothing until the client has gone.
/// - `fail CODE`: this status without a message.
/// - `break CODE`: one chunk, and this status.
#[derive(Debug)]
pub(super) struct Server {
    address: SocketAddr,
    calls: Arc<Calls>,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let calls = Arc::<Calls>::default();
        let shared = Arc::clone(&calls);
        let serving = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        };
        Self { address, calls, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls whose head has arrived.
    pub(super) fn begun(&self) -> usize {
        self.calls.begun.load(Ordering::SeqCst)
    }

    /// The texts of the calls since the last time.
    pub(super) fn take_texts(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.texts.lock().unwrap())
    }

    /// Calls of `hang` whose client has gone.
    pub(super) fn cancelled(&self) -> usize {
        self.calls.cancelled.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, calls: Arc<Calls>) {
    let service = service_fn(move |request: Request<Incoming>| {
        calls.begun.fetch_add(1, Ordering::SeqCst);
        let engine = Engine(Arc::clone(&calls));
        async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok::<_, Infallible>(grpc.streaming(engine, request).await)
        }
    });
    // Scrapes are HTTP/1.1, and end here with an error.
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

struct Engine(Arc<Calls>);

type Responses = Pin<Box<dyn Stream<Item = Result<GenerateResponse, Status>> + Send>>;

impl StreamingService<GenerateRequest> for Engine {
    type Response = GenerateResponse;
    type ResponseStream = Responses;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Responses>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<GenerateRequest>>) -> Self::Future {
        Box::pin(generate(request.into_inner(), Arc::clone(&self.0)))
    }
}

async fn generate(
    mut requests: Streaming<GenerateRequest>,
    calls: Arc<Calls>,
) -> Result<tonic::Response<Responses>, Status> {
    let first = requests.message().await?.ok_or_else(|| Status::invalid_argument("no message"))?;
    calls.texts.lock().unwrap().push(first.text.clone());
    let (_, action) = first.text.rsplit_once('|').unwrap_or(("", &first.text));
    if let Some(code) = action.strip_prefix("fail ") {
        return Err(status(code));
    }
    let (sender, receiver) = channel(16);
    tokio::spawn(respond(action.to_owned(), requests, sender, calls));
    let responses = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    Ok(tonic::Response::new(Box::pin(responses)))
}

fn status(code: &str) -> Status {
    Status::new(Code::from_bytes(code.as_bytes()), "as asked")
}

async fn respond(
    action: String,
    mut requests: Streaming<GenerateRequest>,
    responses: Sender<Result<GenerateResponse, Status>>,
    calls: Arc<Calls>,
) {
    let (name, value) = action.split_once(' ').unwrap_or((&action, ""));
    match name {
        "stream" => {
            let count = value.parse().unwrap();
            for number in 1..=count {
                if responses.send(Ok(chunk(number))).await.is_err() {
                    return;
                }
            }
            let _ = responses.send(Ok(complete(count))).await;
        }
        "talk" => {
            let mut number = 1;
            let _ = responses.send(Ok(chunk(number))).await;
            while let Ok(Some(_)) = requests.message().await {
                number += 1;
                let _ = responses.send(Ok(chunk(number))).await;
            }
        }
        "hang" => {
            let _ = responses.send(Ok(chunk(1))).await;
            responses.closed().await;
            calls.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        "break" => {
            let _ = responses.send(Ok(chunk(1))).await;
            let _ = responses.send(Err(status(value))).await;
        }
        _ => {
            let _ = responses.send(Err(Status::unimplemented(action))).await;
        }
    }
}

/// A client with a connection of its own.
pub(super) struct Client(Grpc<legacy::Client<HttpConnector, Body>>);

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self(Grpc::with_origin(client, format!("http://{address}").parse().unwrap()))
    }

    /// Calls with these messages and headers.
    pub(super) async fn call(
        &mut self,
        requests: impl Stream<Item = GenerateRequest> + Send + 'static,
        headers: &[(&'static str, &str)],
    ) -> Result<Streaming<GenerateResponse>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = tonic::Request::new(requests);
        for &(name, value) in headers {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        let codec = ProstCodec::<GenerateRequest, GenerateResponse>::default();
        let response = self.0.streaming(request, GENERATE.parse().unwrap(), codec).await;
        response.map(tonic::Response::into_inner)
    }

    /// Calls with one message; returns the messages of the response.
    pub(super) async fn generate(&mut self, text: &str) -> Result<Vec<GenerateResponse>, Status> {
        let mut responses = self.call(stream::iter([request(text)]), &[]).await?;
        let mut messages = Vec::new();
        while let Some(message) = responses.message().await? {
            messages.push(message);
        }
        Ok(messages)
    }
}

/// A request for a stream, with this text.
pub(super) fn request(text: &str) -> GenerateRequest {
    GenerateRequest { request_id: "1".to_owned(), text: text.to_owned(), stream: true }
}

/// A message in its frame.
pub(super) fn frame(message: &GenerateRequest) -> Bytes {
    let message = message.encode_to_vec();
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat().into()
}
