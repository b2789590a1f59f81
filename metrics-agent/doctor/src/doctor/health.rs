//! The health of servers of gRPC, by `grpc.health.v1`.

use core::time::Duration;
use std::error::Error;
use std::net::SocketAddr;

use hyper::Uri;
use metrics_agent_support::client::grpc::GrpcConnection;
use tokio::net::TcpStream;
use tonic::{Code, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Maximum time for the response of one server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The health of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerHealth {
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

impl ServerHealth {
    /// Asks the server at an address.
    pub(super) async fn of(address: SocketAddr) -> Self {
        let late = || Self::Unreachable(format!("no response within {TIMEOUT:?}"));
        tokio::time::timeout(TIMEOUT, ask(address)).await.unwrap_or_else(|_| late())
    }
}

async fn ask(address: SocketAddr) -> ServerHealth {
    let stream = match TcpStream::connect(address).await {
        Ok(stream) => stream,
        Err(error) => return ServerHealth::Unreachable(error.to_string()),
    };
    let connection = match GrpcConnection::open(stream).await {
        Ok(connection) => connection,
        Err(error) => return ServerHealth::NotGrpc(described(&error)),
    };
    let mut client = HealthClient::with_origin(connection, Uri::from_static("http://server"));
    // An empty service is the whole server.
    match client.check(HealthCheckRequest::default()).await.map(Response::into_inner) {
        Ok(response) if response.status() == ServingStatus::Serving => ServerHealth::Serving,
        Ok(_) => ServerHealth::NotServing,
        Err(status) => of_status(&status),
    }
}

fn of_status(status: &Status) -> ServerHealth {
    match (status.code(), status.source()) {
        (_, Some(source)) => ServerHealth::NotGrpc(described(source)),
        (Code::Unimplemented, None) => ServerHealth::Serving,
        (code, None) => ServerHealth::Unknown(format!("{code:?}: {}", status.message())),
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
