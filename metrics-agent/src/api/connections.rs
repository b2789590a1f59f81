//! Connections of clients, each bounded in size and time.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_agent_support::credentials::Watched;
use metrics_agent_support::runtime::connections::{Accepted, Places};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::access::Peer;

/// Maximum number of bytes of a request line with its headers; above it the status is 431.
pub const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Maximum time between two health checks on one connection, and for the head of a health check.
const HEALTH_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections; for a new one the oldest of the busiest address is closed, unless its
    /// client may write.
    pub max_connections: usize,
    /// Maximum number of connections of one address; for a new one its oldest is closed, unless its client
    /// may write.
    pub max_connections_per_peer: usize,
    /// Maximum time for a handshake, and for the headers of the next request; then the connection is closed.
    pub idle_timeout: Duration,
    /// Maximum time in which a client reads nothing of a response; then the connection is closed.
    pub write_timeout: Duration,
    /// Maximum time for a whole response; then the connection is closed.
    pub answer_timeout: Duration,
    /// Maximum number of proxies that may report on one pool; above it the status is 400.
    pub max_proxies: usize,
}

impl Limits {
    /// The limits of the listener for health checks. Each proxy keeps a connection open for them, and sends
    /// one a second.
    pub(crate) fn of_health_checks(self) -> Self {
        Self { idle_timeout: self.idle_timeout.min(HEALTH_IDLE_TIMEOUT), ..self }
    }
}

/// Serves until `closing` is cancelled, and then until every request in flight is complete.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Watched<ServerConfig>>,
    limits: Limits,
    closing: CancellationToken,
) {
    let places = Places {
        max: limits.max_connections,
        max_per_peer: limits.max_connections_per_peer,
        flags: "--max-connections, --max-connections-per-peer",
    };
    let serve = |accepted| {
        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.now()));
        connection(accepted, tls, router.clone(), limits)
    };
    places.serve(listener, closing, serve).await;
}

async fn connection(
    Accepted { stream, peer: address, place, watcher }: Accepted,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
) {
    let own_address = match stream.local_addr() {
        Ok(address) => address.ip(),
        Err(error) => return tracing::debug!(%error, "a connection has no local address"),
    };
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(limits.write_timeout));
    let (stream, peer) = match tls {
        None => (Either::Left(stream), Peer { has_certificate: false, address, own_address }),
        Some(tls) => match timeout(limits.idle_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                (Either::Right(stream), Peer { has_certificate, address, own_address })
            }
            Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!("a TLS handshake took too long"),
        },
    };
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(place.clone());
        let response = router.clone().call(request);
        async move {
            let response = response.await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body| DeadlineBody::new(body, limits.answer_timeout)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection failed");
    }
}

/// Maximum size of a part that is sent at once, in bytes; the deadline is checked before each part.
const MAX_PART: usize = 64 * 1024;

/// A response body that fails when its client has not read all of it in time, which ends the connection.
///
/// The deadline is checked when the next part could be sent. A client that reads nothing at all runs into the
/// write timeout.
#[derive(Debug)]
struct DeadlineBody {
    body: Body,
    /// The rest of the last frame.
    rest: Bytes,
    deadline: Instant,
}

impl DeadlineBody {
    /// The body must be read within `limit` from now on.
    fn new(body: Body, limit: Duration) -> Self {
        Self { body, rest: Bytes::new(), deadline: Instant::now() + limit }
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if !self.is_end_stream() && Instant::now() >= self.deadline {
            let problem = "the client did not read the response in time (--answer-timeout)";
            return Poll::Ready(Some(Err(problem.into())));
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.rest = data,
                Some(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                None => return Poll::Ready(None),
            }
        }
        let part = self.rest.len().min(MAX_PART);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_read_in_time_arrives_in_parts() {
        let bytes: Vec<u8> = (0..=250).cycle().take(MAX_PART * 2 + 5).collect();
        let mut response = DeadlineBody::new(bytes.clone().into(), LIMIT);
        let (mut received, mut sizes) = (Vec::new(), Vec::new());
        while let Some(frame) = response.frame().await {
            let part = frame.unwrap().into_data().unwrap();
            sizes.push(part.len());
            received.extend_from_slice(&part);
            assert_eq!(response.size_hint().exact(), Some((bytes.len() - received.len()) as u64));
        }
        assert_eq!((received, sizes), (bytes, vec![MAX_PART, MAX_PART, 5]));
        assert!(response.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_fails_only_if_a_part_is_left_at_the_deadline() {
        let mut late = DeadlineBody::new(vec![0; MAX_PART + 1].into(), LIMIT);
        let mut complete = DeadlineBody::new(vec![0; MAX_PART].into(), LIMIT);
        assert!(late.frame().await.unwrap().is_ok() && complete.frame().await.unwrap().is_ok());
        tokio::time::advance(LIMIT).await;
        let error = late.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("--answer-timeout"), "{error}");
        assert!(complete.frame().await.is_none());
    }
}
