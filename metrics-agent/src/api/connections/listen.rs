//! Accepts and serves connections.

use core::convert::Infallible;
use core::time::Duration;
use std::net::IpAddr;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::deadline_body::DeadlineBody;
use super::limit::ConnectionLimit;
use crate::api::access::check::Peer;
use crate::credentials::Watched;

/// Pause after a failed accept, such as without free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Least value of [`Limits::max_header_bytes`]: the HTTP library needs a buffer of this size.
pub const MIN_HEADER_BYTES: usize = 8192;

/// Maximum time between two health checks on one connection, and for the head of one.
const HEALTH_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Limits on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections; more wait until one of them ends.
    pub max_connections: usize,
    /// Maximum number of connections of one address; more are closed at once.
    pub max_connections_per_peer: usize,
    /// Most bytes of a request line with its headers, at least [`MIN_HEADER_BYTES`]; above it the status is 431.
    pub max_header_bytes: usize,
    /// Longest time for a handshake, and for the headers of the next request; then the connection is closed.
    pub idle_timeout: Duration,
    /// Longest time in which a client reads nothing of a response; then the connection is closed.
    pub write_timeout: Duration,
    /// Longest time for a whole response; then the connection is closed.
    pub answer_timeout: Duration,
    /// Most bytes of a proxy's report; above it the status is 413.
    pub max_report_bytes: usize,
    /// Most proxies that may report on one pool; above it the status is 400.
    pub max_proxies: usize,
}

impl Limits {
    /// The limits of the listener for health checks. Each proxy keeps a connection open for them, and sends one a second.
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
    let mut open = JoinSet::new();
    let graceful = GracefulShutdown::new();
    let mut limit = ConnectionLimit::new(limits.max_connections, limits.max_connections_per_peer);
    loop {
        tokio::select! {
            () = closing.cancelled() => break,
            Some(ended) = open.join_next_with_id() => {
                limit.closed(ended.map_or_else(|panicked| panicked.id(), |(id, ())| id));
            }
            accepted = listener.accept(), if limit.allows_more() => match accepted {
                Ok((stream, peer)) => {
                    let peer = peer.ip().to_canonical();
                    if limit.allows(peer) {
                        let tls = tls.as_ref().map(|tls| TlsAcceptor::from(tls.now()));
                        let connection = connection(stream, peer, tls, router.clone(), limits, graceful.watcher());
                        limit.opened(open.spawn(connection).id(), peer);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    address: IpAddr,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: Limits,
    watcher: Watcher,
) {
    let own_address = match stream.local_addr() {
        Ok(address) => address.ip(),
        Err(error) => return tracing::debug!(%error, "a connection has no local address"),
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's delay");
    }
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
        let response = router.clone().call(request);
        async move {
            let response = response.await.unwrap_or_else(|never| match never {});
            Ok::<_, Infallible>(response.map(|body| DeadlineBody::new(body, limits.answer_timeout)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_buf_size(limits.max_header_bytes)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection failed");
    }
}
