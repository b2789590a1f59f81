//! One kept-alive HTTP/1.1 connection to one endpoint.

use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
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

use super::credentials::Credentials;
use super::error::ScrapeError;
use super::head_limit::{HeadLimit, HeadLimited};
use crate::catalogue::scraping::Scheme;

/// Most that one connection buffers, its response head included. A task that reads a buffer does not hold up others for long.
const MAX_BUFFER: usize = 32 * 1024;

/// Bytes before the head of an answer is complete, interim answers included. The last read of a head may hold the beginning of the
/// body, and hyper may read twice more before it hands over the head.
const MAX_HEAD: usize = 3 * MAX_BUFFER;

/// After so much of a body, other tasks have their turn.
const TURN_BYTES: usize = 64 * 1024;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("metrics-agent/", env!("CARGO_PKG_VERSION")));
const PROMETHEUS_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

type Stream = Either<TcpStream, TlsStream<TcpStream>>;
type Io = Pin<Box<http1::Connection<TokioIo<HeadLimited<Stream>>, Empty<Bytes>>>>;

/// A connection. Its I/O runs within [`Connection::get`], so dropping that future stops everything.
pub(super) struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    /// `None` once the connection has ended. hyper tells the sender so only when this is dropped.
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
            .handshake(TokioIo::new(HeadLimited::new(stream, head_limit.clone())))
            .await
            .map_err(ScrapeError::Http)?;
        let host = HeaderValue::try_from(address.to_string()).expect("an address is a legal header value");
        Ok(Self { sender, io: Some(Box::pin(io)), head_limit, host })
    }

    /// Asks for `path` and hands over the body as it comes, until `each` refuses. After an error the connection is not to be used again.
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
        headers.extend(authorization.map(|shown| (AUTHORIZATION, shown.clone())));
        let Self { sender, io, head_limit, .. } = self;
        let before_answer = |error| {
            if head_limit.is_reached() {
                GetError::Answered(ScrapeError::LongHead(MAX_HEAD))
            } else {
                GetError::BeforeAnswer(error)
            }
        };
        head_limit.start(MAX_HEAD);
        let exchange = async {
            sender.ready().await.map_err(before_answer)?;
            let answer = sender.send_request(request).await.map_err(before_answer)?;
            head_limit.stop();
            read(answer, max_bytes, each).await.map_err(GetError::Answered)
        };
        tokio::pin!(exchange);
        if let Some(open) = io {
            tokio::select! {
                biased;
                _ = open => *io = None,
                done = &mut exchange => return done,
            }
        }
        // The server may close right after its answer, which is then still to be read.
        exchange.await
    }
}

async fn secured(
    stream: TcpStream,
    address: SocketAddr,
    credentials: &Credentials,
) -> Result<TlsStream<TcpStream>, ScrapeError> {
    let config = credentials.tls.as_ref().expect("no plan asks for https without whom to trust").now();
    let name = credentials.server_name.clone().unwrap_or(ServerName::IpAddress(address.ip().into()));
    TlsConnector::from(config).connect(name, stream).await.map_err(ScrapeError::Tls)
}

/// Tells a server that had closed a kept-alive connection from one that answers badly.
pub(super) enum GetError {
    BeforeAnswer(hyper::Error),
    Answered(ScrapeError),
}

async fn read(
    answer: Response<Incoming>,
    max_bytes: usize,
    mut each: impl FnMut(&[u8]) -> Result<(), ScrapeError>,
) -> Result<(), ScrapeError> {
    if answer.status() != StatusCode::OK {
        return Err(ScrapeError::Status(answer.status()));
    }
    let mut body = answer.into_body();
    let (mut received, mut next_turn) = (0_usize, TURN_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ScrapeError::Http)?;
        let Some(data) = frame.data_ref() else { continue };
        received += data.len();
        if received > max_bytes {
            return Err(ScrapeError::TooLarge(max_bytes));
        }
        each(data)?;
        if received >= next_turn {
            next_turn = received + TURN_BYTES;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
