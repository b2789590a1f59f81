//! One kept-alive HTTP/1.1 connection to one endpoint.

pub mod credentials;
mod head_limit;

use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use credentials::Credentials;
use head_limit::{HeadLimit, LimitedStream};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::catalogue::scraping::Scheme;
use crate::scrape::error::ScrapeError;

/// Most bytes that one connection buffers, including the response head. Small, so that reading a buffer does not delay other tasks.
const MAX_BUFFER: usize = 32 * 1024;

/// Most bytes before the head of a response is complete, including interim responses. The last read of a head may include the start
/// of the body, and hyper may read twice more before it returns the head.
const MAX_HEAD: usize = 3 * MAX_BUFFER;

/// Bytes of a body after which other tasks may run.
const YIELD_BYTES: usize = 64 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("metrics-agent/", env!("CARGO_PKG_VERSION")));
const PROMETHEUS_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

type Stream = Either<TcpStream, TlsStream<TcpStream>>;
type Io = Pin<Box<http1::Connection<TokioIo<LimitedStream<Stream>>, Empty<Bytes>>>>;

/// A connection. Its I/O runs within [`Connection::get`], so dropping that future stops everything.
pub(super) struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// `None` once the connection has ended: hyper reports the end to the sender only when this is dropped.
    io: Option<Io>,
    head_limit: HeadLimit,
    host: HeaderValue,
}

impl Connection {
    pub(super) async fn open(
        address: SocketAddr,
        scheme: Scheme,
        credentials: &Credentials,
    ) -> Result<Self, ScrapeError> {
        let stream = TcpStream::connect(address).await.map_err(ScrapeError::Connect)?;
        stream.set_nodelay(true).map_err(ScrapeError::Connect)?;
        let stream = match scheme {
            Scheme::Http => Either::Left(stream),
            Scheme::Https => Either::Right(secured(stream, address, credentials).await?),
        };
        let head_limit = HeadLimit::new();
        let (sender, io) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(LimitedStream::new(stream, head_limit.clone())))
            .await
            .map_err(ScrapeError::Http)?;
        let host = HeaderValue::try_from(address.to_string()).expect("an address is a legal header value");
        Ok(Self { sender, io: Some(Box::pin(io)), head_limit, host })
    }

    /// Requests `path` and calls `each` with the parts of the body as they arrive, until it fails. After an error the connection must
    /// not be used again.
    pub(super) async fn get(
        &mut self,
        path: &Uri,
        authorization: Option<&HeaderValue>,
        max_bytes: usize,
        each: impl FnMut(&[u8]) -> Result<(), ScrapeError>,
    ) -> Result<(), GetError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(ACCEPT, PROMETHEUS_TEXT);
        headers.insert(USER_AGENT, AGENT);
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        let Self { sender, io, head_limit, .. } = self;
        let before_response = |error| {
            if head_limit.is_reached() {
                GetError::Response(ScrapeError::LongHead(MAX_HEAD))
            } else {
                GetError::BeforeResponse(error)
            }
        };
        head_limit.start(MAX_HEAD);
        let exchange = async {
            sender.ready().await.map_err(before_response)?;
            let response = sender.send_request(request).await.map_err(before_response)?;
            head_limit.stop();
            read(response, max_bytes, each).await.map_err(GetError::Response)
        };
        tokio::pin!(exchange);
        if let Some(open) = io {
            tokio::select! {
                biased;
                _ = open => *io = None,
                done = &mut exchange => return done,
            }
        }
        // The server may close the connection right after its response, which still has to be read.
        exchange.await
    }
}

async fn secured(
    stream: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
) -> Result<TlsStream<TcpStream>, ScrapeError> {
    let config =
        credentials.tls.as_ref().expect("plans with https are refused without TLS credentials").now();
    let name = credentials.server_name.clone().unwrap_or(ServerName::IpAddress(address.ip().into()));
    TlsConnector::from(config).connect(name, stream).await.map_err(ScrapeError::Tls)
}

/// Why a request failed.
pub(super) enum GetError {
    /// The connection ended before a response: the server may have closed the idle connection.
    BeforeResponse(hyper::Error),
    /// The response is not usable.
    Response(ScrapeError),
}

async fn read(
    response: Response<Incoming>,
    max_bytes: usize,
    mut each: impl FnMut(&[u8]) -> Result<(), ScrapeError>,
) -> Result<(), ScrapeError> {
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status()));
    }
    let mut body = response.into_body();
    let (mut received, mut next_yield) = (0_usize, YIELD_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ScrapeError::Http)?;
        let Some(data) = frame.data_ref() else { continue };
        received += data.len();
        if received > max_bytes {
            return Err(ScrapeError::TooLarge(max_bytes));
        }
        each(data)?;
        if received >= next_yield {
            next_yield = received + YIELD_BYTES;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
