//! The agent's HTTP/1.1 client: for scrapes of model servers, and for commands that read a running agent or
//! Envoy; and connections to servers of gRPC ([`grpc`]).

pub mod credentials;
pub mod grpc;
mod head_limit;

use core::fmt;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use credentials::Tls;
use head_limit::{HeadLimit, LimitedStream};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::credentials::tls_fault::TlsFault;

/// Maximum number of bytes that a connection buffers, including the response head. Small, so that reading a
/// buffer does not delay other tasks.
const MAX_BUFFER: usize = 32 * 1024;

/// Maximum number of bytes before the head of a response is complete, including interim responses. The last
/// read of a head may include the start of the body, and hyper may read twice more before it returns the
/// head.
const MAX_HEAD: usize = 3 * MAX_BUFFER;

/// Bytes of a body after which other tasks may run.
const YIELD_BYTES: usize = 64 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("metrics-agent/", env!("CARGO_PKG_VERSION")));

type Stream = Either<TcpStream, TlsStream<TcpStream>>;
type Io = Pin<Box<http1::Connection<TokioIo<LimitedStream<Stream>>, Empty<Bytes>>>>;

/// A kept-alive connection. Its I/O runs within [`Connection::get`], so dropping that future stops
/// everything.
pub struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// `None` once the connection has ended: hyper reports the end to the sender only when this is dropped.
    io: Option<Io>,
    head_limit: HeadLimit,
    host: HeaderValue,
}

/// A GET request.
#[derive(Debug)]
pub struct Get<'a> {
    /// Path and query.
    pub path: &'a Uri,
    /// Content types that the client reads.
    pub accept: HeaderValue,
    /// The `authorization` header, if the server requires one.
    pub authorization: Option<&'a HeaderValue>,
    /// Maximum size of the response's body.
    pub max_bytes: usize,
}

/// Takes a response.
pub trait Receiver<E> {
    /// Takes the status and the headers.
    fn head(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<(), E>;

    /// Takes the next chunk of the body.
    fn chunk(&mut self, chunk: &[u8]) -> Result<(), E>;
}

impl Connection {
    /// Connects to an address, which the requests name as their host. Without `tls` the connection is plain.
    ///
    /// # Panics
    ///
    /// When `host` is not a legal header value.
    pub async fn open(
        address: impl ToSocketAddrs,
        host: &str,
        tls: Option<Tls>,
    ) -> Result<Self, ConnectionError> {
        let stream = TcpStream::connect(address).await.map_err(ConnectionError::Connect)?;
        stream.set_nodelay(true).map_err(ConnectionError::Connect)?;
        let stream = match tls {
            None => Either::Left(stream),
            Some(Tls { config, server_name }) => {
                let connecting = TlsConnector::from(config).connect(server_name, stream);
                Either::Right(connecting.await.map_err(ConnectionError::Tls)?)
            }
        };
        let head_limit = HeadLimit::new();
        let (sender, io) = http1::Builder::new()
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(LimitedStream::new(stream, head_limit.clone())))
            .await
            .map_err(ConnectionError::Http)?;
        let host =
            HeaderValue::try_from(host).expect("an address or the host of a URL is a legal header value");
        Ok(Self { sender, io: Some(Box::pin(io)), head_limit, host })
    }

    /// Sends a request, and gives the receiver the response as it arrives, until the receiver fails. After an
    /// error the connection must not be used again.
    pub async fn get<E: From<ConnectionError>>(
        &mut self,
        get: Get<'_>,
        receiver: &mut impl Receiver<E>,
    ) -> Result<(), GetError<E>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = get.path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(ACCEPT, get.accept);
        headers.insert(USER_AGENT, AGENT);
        headers.extend(get.authorization.map(|value| (AUTHORIZATION, value.clone())));
        let Self { sender, io, head_limit, .. } = self;
        let before_response = |error| {
            if head_limit.is_reached() {
                GetError::Response(ConnectionError::LongHead(MAX_HEAD).into())
            } else {
                GetError::BeforeResponse(error)
            }
        };
        head_limit.start(MAX_HEAD);
        let exchange = async {
            sender.ready().await.map_err(before_response)?;
            let response = sender.send_request(request).await.map_err(before_response)?;
            head_limit.stop();
            receiver.head(response.status(), response.headers()).map_err(GetError::Response)?;
            read(response, get.max_bytes, receiver).await.map_err(GetError::Response)
        };
        tokio::pin!(exchange);
        if let Some(open) = io {
            tokio::select! {
                // I/O is polled first, so that the exchange finds the bytes that have just arrived.
                biased;
                _ = open => *io = None,
                done = &mut exchange => return done,
            }
        }
        // The server may close the connection right after its response, which still has to be read.
        exchange.await
    }
}

async fn read<E: From<ConnectionError>>(
    response: Response<Incoming>,
    max_bytes: usize,
    receiver: &mut impl Receiver<E>,
) -> Result<(), E> {
    let mut body = response.into_body();
    let (mut received, mut next_yield) = (0_usize, YIELD_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ConnectionError::Http)?;
        let Some(data) = frame.data_ref() else { continue };
        received += data.len();
        if received > max_bytes {
            return Err(ConnectionError::TooLarge(max_bytes).into());
        }
        receiver.chunk(data)?;
        if received >= next_yield {
            next_yield = received + YIELD_BYTES;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Why a request failed.
pub enum GetError<E> {
    /// The connection ended before a response: the server may have closed the idle connection.
    BeforeResponse(hyper::Error),
    /// The response is not usable.
    Response(E),
}

/// Why there is no connection, or no complete response.
#[derive(Debug)]
pub enum ConnectionError {
    /// No connection.
    Connect(io::Error),
    /// No TLS connection, or one to a server that is not trusted.
    Tls(io::Error),
    /// The connection ended early, or the response is not HTTP.
    Http(hyper::Error),
    /// The head of the response has more than this number of bytes.
    LongHead(usize),
    /// The body has more than this number of bytes.
    TooLarge(usize),
}

impl ConnectionError {
    /// The fault of TLS behind the error, if its remedy is known.
    pub fn tls_fault(&self) -> Option<TlsFault> {
        match self {
            Self::Tls(error) => TlsFault::of(error),
            Self::Http(error) => TlsFault::of(error),
            Self::Connect(_) | Self::LongHead(_) | Self::TooLarge(_) => None,
        }
    }

    /// Whether the server's bytes are not HTTP, or it has closed the connection, as a server with TLS does.
    pub fn is_not_http(&self) -> bool {
        matches!(self, Self::Http(error) if error.is_parse() || error.is_incomplete_message())
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Tls(error) => write!(f, "no TLS connection: {error}"),
            Self::Http(error) => write!(f, "HTTP failed: {error}"),
            Self::LongHead(max) => write!(
                f,
                "the head of the response, including responses of status 1xx before it, has more than {max} bytes"
            ),
            Self::TooLarge(max) => write!(f, "the body of the response has more than {max} bytes"),
        }
    }
}

impl core::error::Error for ConnectionError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Connect(error) | Self::Tls(error) => Some(error),
            Self::Http(error) => Some(error),
            Self::LongHead(_) | Self::TooLarge(_) => None,
        }
    }
}
