//! An external processor that returns headers and bodies as they came: the server of Envoy's `ext_proc`
//! filter, as far as a request needs it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::{Message, Oneof};
use std::convert::Infallible;
use std::future::ready;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// `envoy.service.ext_proc.v3.ProcessingRequest`, its phases of a request.
#[derive(Clone, PartialEq, Message)]
struct ProcessingRequest {
    #[prost(oneof = "Phase", tags = "2, 4, 6")]
    phase: Option<Phase>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Phase {
    #[prost(message, tag = "2")]
    Headers(Ignored),
    #[prost(message, tag = "4")]
    Body(BodyChunk),
    #[prost(message, tag = "6")]
    Trailers(Ignored),
}

/// A message whose fields do not matter.
#[derive(Clone, PartialEq, Message)]
struct Ignored {}

/// `HttpBody` and `StreamedBodyResponse`, which have the same fields.
#[derive(Clone, PartialEq, Message)]
struct BodyChunk {
    #[prost(bytes = "bytes", tag = "1")]
    body: Bytes,
    #[prost(bool, tag = "2")]
    end_of_stream: bool,
}

/// `envoy.service.ext_proc.v3.ProcessingResponse`.
#[derive(Clone, PartialEq, Message)]
struct ProcessingResponse {
    #[prost(oneof = "Answer", tags = "1, 3, 5")]
    answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Answer {
    #[prost(message, tag = "1")]
    Headers(Ignored),
    #[prost(message, tag = "3")]
    Body(BodyResponse),
    #[prost(message, tag = "5")]
    Trailers(Ignored),
}

#[derive(Clone, PartialEq, Message)]
struct BodyResponse {
    #[prost(message, optional, tag = "1")]
    response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
struct CommonResponse {
    #[prost(message, optional, tag = "3")]
    body_mutation: Option<BodyMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct BodyMutation {
    #[prost(message, optional, tag = "3")]
    streamed_response: Option<BodyChunk>,
}

impl From<Phase> for ProcessingResponse {
    fn from(phase: Phase) -> Self {
        let answer = match phase {
            Phase::Headers(_) => Answer::Headers(Ignored {}),
            Phase::Trailers(_) => Answer::Trailers(Ignored {}),
            Phase::Body(chunk) => {
                let body_mutation = Some(BodyMutation { streamed_response: Some(chunk) });
                Answer::Body(BodyResponse { response: Some(CommonResponse { body_mutation }) })
            }
        };
        Self { answer: Some(answer) }
    }
}

/// A running processor; it ends when dropped.
pub(super) struct Processor {
    address: SocketAddr,
    body_bytes: Arc<AtomicUsize>,
    _serving: AbortOnDropHandle<()>,
}

impl Processor {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let body_bytes = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&body_bytes);
        let serving = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let counted = Arc::clone(&counted);
                let service = service_fn(move |request| {
                    ready(Ok::<_, Infallible>(answer(request, Arc::clone(&counted))))
                });
                let connection =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        };
        Self { address, body_bytes, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The bytes of bodies that it has received since the last call.
    pub(super) fn take_body_bytes(&self) -> usize {
        self.body_bytes.swap(0, Ordering::SeqCst)
    }
}

/// One gRPC stream: the messages about one request.
fn answer(request: Request<Incoming>, body_bytes: Arc<AtomicUsize>) -> Response<Channel<Bytes>> {
    let (sender, body) = Channel::new(64);
    tokio::spawn(process(request.into_body(), sender, body_bytes));
    Response::builder().header("content-type", "application/grpc").body(body).unwrap()
}

async fn process(mut requests: Incoming, mut responses: Sender<Bytes>, body_bytes: Arc<AtomicUsize>) {
    let mut unread = BytesMut::new();
    while let Some(Ok(frame)) = requests.frame().await {
        unread.extend(frame.into_data().ok());
        while let Some(message) = next_message(&mut unread) {
            let Some(phase) = ProcessingRequest::decode(message).unwrap().phase else { continue };
            if let Phase::Body(chunk) = &phase {
                body_bytes.fetch_add(chunk.body.len(), Ordering::SeqCst);
            }
            // The stream has ended on Envoy's side.
            if responses.send_data(framed(&phase.into())).await.is_err() {
                return;
            }
        }
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
    let _ = responses.send_trailers(trailers).await;
}

/// A message of gRPC: one byte without compression, the length, the bytes.
fn framed(response: &ProcessingResponse) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(response.encoded_len().try_into().unwrap());
    response.encode(&mut framed).unwrap();
    framed.freeze()
}

fn next_message(unread: &mut BytesMut) -> Option<Bytes> {
    const PREFIX: usize = 5;
    let length = usize::try_from(unread.get(1..PREFIX)?.get_u32()).unwrap();
    if unread.len() < PREFIX + length {
        return None;
    }
    unread.advance(PREFIX);
    Some(unread.split_to(length).freeze())
}
