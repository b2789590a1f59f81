//! Connections of Envoy Gateway: few and long.

use core::time::Duration;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::Watcher;
use metrics_agent_support::credentials::{CredentialError, File, Watched, Watching};
use metrics_agent_support::runtime::connections::{Accepted, Place, Places};
use s2n_tls::callbacks::VerifyHostNameCallback;
use s2n_tls::config::Config;
use s2n_tls::enums::ClientAuthType;
use s2n_tls::security;
use s2n_tls_tokio::TlsAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::service::HookService;
use super::status::SharedStatus;
use super::{ServerSettings, TlsFiles};
use crate::settings::HookSettings;

/// Maximum number of connections, and of those of one address. Each replica of Envoy Gateway has one.
const PLACES: Places = Places { max: 64, max_per_peer: 32, flags: "of the extension server" };

/// Maximum number of calls that a connection has in flight.
const MAX_CALLS: u32 = 16;

/// Maximum time for a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Maximum time, in seconds, for which a failed handshake waits before it ends, so that its duration tells
/// nothing of the keys. It is below [`HANDSHAKE_LIMIT`], so that the reason is logged.
const MAX_BLINDING: u32 = 3;

/// A silent connection is tested after this time, and closed when it does not respond within the same time.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How much a client may send before it waits for the server: messages have megabytes.
const WINDOW: u32 = 1024 * 1024;

impl TlsFiles {
    /// Reads the files now, and again whenever they change.
    pub async fn watch(self, watching: Watching<'_>) -> Result<Watched<Config>, CredentialError> {
        let files = vec![self.certificate, self.key, self.client_authorities];
        Watched::read(files, Some(watching), config).await
    }
}

/// Every client whose certificate is of a trusted authority may call, whatever its name.
struct AnyName;

impl VerifyHostNameCallback for AnyName {
    fn verify_host_name(&self, _: &str) -> bool {
        true
    }
}

/// `files` are the certificate, its key, and the authorities of clients, which all need a certificate.
///
/// TLS by s2n-tls, because Envoy Gateway names the server with its port, which rustls refuses.
fn config(files: &[File]) -> Result<Config, CredentialError> {
    let [certificate, key, authorities] = files else { unreachable!("as many as were named") };
    let refuse = |file: &File, error: s2n_tls::error::Error| CredentialError::new(&file.0, error.message());
    let mut config = Config::builder();
    let of_server = |error| refuse(certificate, error);
    config.with_system_certs(false).map_err(of_server)?;
    config.set_security_policy(&security::DEFAULT_TLS13).map_err(of_server)?;
    config.set_max_blinding_delay(MAX_BLINDING).map_err(of_server)?;
    config.set_application_protocol_preference([b"h2"]).map_err(of_server)?;
    config.set_client_auth_type(ClientAuthType::Required).map_err(of_server)?;
    config.set_verify_host_callback(AnyName).map_err(of_server)?;
    config.trust_pem(&authorities.1).map_err(|error| refuse(authorities, error))?;
    config.load_pem(&certificate.1, &key.1).map_err(|error| {
        let problem = format!("and {} are no certificate and its key: {}", key.0.display(), error.message());
        CredentialError::new(&certificate.0, problem)
    })?;
    config.build().map_err(of_server)
}

/// Serves until `closing` is cancelled, and then until every call in flight is complete.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Watched<Config>>,
    settings: Arc<HookSettings>,
    status: SharedStatus,
    closing: CancellationToken,
) {
    let serve = |accepted| {
        let tls = tls.as_ref().map(|tls| Config::clone(&tls.now()));
        connection(accepted, tls, Arc::clone(&settings), status.clone())
    };
    PLACES.serve(listener, closing, serve).await;
}

async fn connection(
    Accepted { stream, place, watcher, .. }: Accepted,
    tls: Option<Config>,
    settings: Arc<HookSettings>,
    status: SharedStatus,
) {
    match tls {
        None => calls(stream, place, settings, status, watcher).await,
        Some(tls) => match timeout(HANDSHAKE_LIMIT, TlsAcceptor::new(tls).accept(stream)).await {
            Ok(Ok(stream)) => {
                // The client has a certificate.
                place.keep();
                calls(stream, place, settings, status, watcher).await;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "a TLS handshake at the extension server failed");
                status.update(|status| status.failed_handshake = Some(error.to_string()));
            }
            Err(_) => tracing::debug!("a TLS handshake at the extension server took too long"),
        },
    }
}

async fn calls(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    place: Place,
    settings: Arc<HookSettings>,
    status: SharedStatus,
    watcher: Watcher,
) {
    tracing::info!("Envoy Gateway is connected");
    let _connected = status.connected();
    let service = HookService::new(settings, status);
    let service = service_fn(move |request: Request<Incoming>| {
        // Without TLS any client on this host is trusted that calls.
        place.keep();
        service.clone().call(request)
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CALLS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), service);
    match watcher.watch(connection).await {
        Ok(()) => tracing::info!("Envoy Gateway is not connected any more"),
        Err(error) => tracing::info!(%error, "Envoy Gateway is not connected any more"),
    }
}

impl ServerSettings {
    /// Binds the listener.
    pub async fn bind(&self) -> Result<TcpListener, String> {
        let address = self.address;
        let bound = TcpListener::bind(address).await;
        bound.map_err(|error| format!("cannot listen on {address} (--extension-server): {error}"))
    }
}
