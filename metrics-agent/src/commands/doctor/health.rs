//! The health of servers of gRPC, by `grpc.health.v1`.

use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::error::Error;
use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

/// Maximum time for the response of one server.
const TIMEOUT: Duration = Duration::from_secs(2);

const METHOD: &str = "/grpc.health.v1.Health/Check";

/// `grpc.health.v1.HealthCheckRequest`; an empty service is the whole server.
#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// `grpc.health.v1.HealthCheckResponse`
#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    /// A serving status.
    #[prost(int32, tag = "1")]
    status: i32,
}

/// `SERVING` of `grpc.health.v1.HealthCheckResponse.ServingStatus`
const SERVING: i32 = 1;

/// The health of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It serves, or has no service that returns its health.
    Serving,
    /// It returns that it does not serve.
    NotServing,
    /// It responds with an error of gRPC.
    Unknown(String),
    /// Its response is not one of gRPC without TLS.
    NotGrpc(String),
    /// It cannot be reached from here.
    Unreachable(String),
}

impl Health {
    /// Asks the server at an address.
    pub(super) async fn of(address: SocketAddr) -> Self {
        let late = || Self::Unreachable(format!("no response within {TIMEOUT:?}"));
        tokio::time::timeout(TIMEOUT, ask(address)).await.unwrap_or_else(|_| late())
    }
}

async fn ask(address: SocketAddr) -> Health {
    let stream = match TcpStream::connect(address).await {
        Ok(stream) => stream,
        Err(error) => return Health::Unreachable(error.to_string()),
    };
    let (sender, connection) = match http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await {
        Ok(opened) => opened,
        Err(error) => return Health::NotGrpc(described(&error)),
    };
    // The call returns the errors of the connection.
    let _connection = AbortOnDropHandle::new(tokio::spawn(async { drop(connection.await) }));
    let mut client = Grpc::with_origin(Connection(sender), Uri::from_static("http://server"));
    if let Err(error) = client.ready().await {
        return Health::NotGrpc(described(&error));
    }
    let request = tonic::Request::new(HealthCheckRequest::default());
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let response = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
    match response.map(tonic::Response::into_inner) {
        Ok(HealthCheckResponse { status: SERVING }) => Health::Serving,
        Ok(_) => Health::NotServing,
        Err(status) => of_status(&status),
    }
}

fn of_status(status: &Status) -> Health {
    match (status.code(), status.source()) {
        (_, Some(source)) => Health::NotGrpc(described(source)),
        (Code::Unimplemented, None) => Health::Serving,
        (code, None) => Health::Unknown(format!("{code:?}: {}", status.message())),
    }
}

/// An error with its causes.
fn described(error: &dyn Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.dedup();
    texts.join(": ")
}

/// A connection over HTTP/2.
struct Connection(http2::SendRequest<Body>);

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
