//! One request and its response, on a separate connection.

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::commands::client_credentials::ClientCredentials;
use crate::credentials::tls_fault::{TlsFault, TlsFlags};

const FLAGS: TlsFlags = TlsFlags {
    authorities: "--agent-ca",
    server_name: "--agent-server-name",
    certificate: "--agent-cert and --agent-key",
};

/// Longest time for the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest response or file, in bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Sends a GET request, and returns the status and the body of at most [`MAX_BYTES`]. The error does not name the server.
pub(super) async fn get(
    url: &Uri,
    credentials: &ClientCredentials,
    path: &str,
) -> Result<(StatusCode, Bytes), String> {
    let exchange = tokio::time::timeout(TIMEOUT, exchange(url, credentials, path)).await;
    exchange.map_err(|_| format!("no response within {TIMEOUT:?}"))?
}

async fn exchange(
    url: &Uri,
    credentials: &ClientCredentials,
    path: &str,
) -> Result<(StatusCode, Bytes), String> {
    let text = |error: hyper::Error| error.to_string();
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(if credentials.tls.is_some() { 443 } else { 80 });
    let bare_host = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((bare_host, port)).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    let stream = match &credentials.tls {
        None => Either::Left(stream),
        Some(tls) => Either::Right(secured(stream, Arc::clone(tls), bare_host, credentials).await?),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let mut request = Request::get(path)
        .header(HOST, format!("{host}:{port}"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    request.headers_mut().extend(credentials.authorization.clone().map(|value| (AUTHORIZATION, value)));
    let is_plain = credentials.tls.is_none();
    let response = async {
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| match TlsFault::of(&error) {
            Some(fault) => format!("{error}; {}", fault.advice(&FLAGS)),
            None if is_plain && (error.is_parse() || error.is_incomplete_message()) => {
                format!("{error}; if it is an agent with TLS, use https:// and --agent-ca")
            }
            None => error.to_string(),
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let connection = async {
        // The sender reports the end of the connection too.
        let _ = connection.await;
        core::future::pending().await
    };
    tokio::select! {
        response = response => response,
        never = connection => never,
    }
}

async fn secured(
    stream: TcpStream,
    tls: Arc<ClientConfig>,
    host: &str,
    credentials: &ClientCredentials,
) -> Result<TlsStream<TcpStream>, String> {
    let name = match &credentials.server_name {
        Some(name) => name.clone(),
        None => ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?,
    };
    let connected = TlsConnector::from(tls).connect(name, stream).await;
    connected.map_err(|error| match TlsFault::of(&error) {
        Some(fault) => format!("no TLS connection: {error}; {}", fault.advice(&FLAGS)),
        None => format!("no TLS connection: {error} (--agent-ca names the trusted authorities)"),
    })
}
