//! One request and its answer, on a connection of its own.

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

use crate::commands::credentials::Shown;

/// How long the agent may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The answer to a GET, whatever its status. The error says what went wrong, but not with whom.
pub(super) async fn get(
    url: &Uri,
    credentials: &Shown,
    path: &str,
    max_bytes: usize,
) -> Result<(StatusCode, Bytes), String> {
    let exchange = tokio::time::timeout(TIMEOUT, exchange(url, credentials, path, max_bytes)).await;
    exchange.map_err(|_| format!("no answer within {TIMEOUT:?}"))?
}

async fn exchange(
    url: &Uri,
    shown: &Shown,
    path: &str,
    max_bytes: usize,
) -> Result<(StatusCode, Bytes), String> {
    let told = |error: hyper::Error| error.to_string();
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(if shown.tls.is_some() { 443 } else { 80 });
    let bare_host = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((bare_host, port)).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    let stream = match &shown.tls {
        None => Either::Left(stream),
        Some(tls) => Either::Right(secured(stream, Arc::clone(tls), bare_host, shown).await?),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let mut request = Request::get(path)
        .header(HOST, format!("{host}:{port}"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    request.headers_mut().extend(shown.authorization.clone().map(|shown| (AUTHORIZATION, shown)));
    let answer = async {
        let answer = sender.send_request(request).await.map_err(told)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), max_bytes).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    };
    let connection = async {
        // Its end is told to the sender as well.
        let _ = connection.await;
        core::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}

async fn secured(
    stream: TcpStream,
    tls: Arc<ClientConfig>,
    host: &str,
    shown: &Shown,
) -> Result<TlsStream<TcpStream>, String> {
    let name = match &shown.server_name {
        Some(name) => name.clone(),
        None => ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?,
    };
    let connected = TlsConnector::from(tls).connect(name, stream).await;
    connected.map_err(|error| format!("no TLS connection: {error} (--agent-ca says whom to trust)"))
}
