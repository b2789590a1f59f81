//! A connection to a server of gRPC.

use core::pin::Pin;
use core::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

/// A connection over HTTP/2, on which [`tonic`]'s clients call methods. It ends when it is dropped.
#[derive(Debug)]
pub struct GrpcConnection {
    sender: http2::SendRequest<Body>,
    _connection: AbortOnDropHandle<()>,
}

impl GrpcConnection {
    /// Opens HTTP/2 over a stream.
    pub async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, hyper::Error> {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // Calls return the errors of the connection.
        let connection = AbortOnDropHandle::new(tokio::spawn(async { drop(connection.await) }));
        sender.ready().await?;
        Ok(Self { sender, _connection: connection })
    }
}

impl tower_service::Service<Request<Body>> for GrpcConnection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
