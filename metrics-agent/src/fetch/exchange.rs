//! One request and its answer, on a connection of its own.

use core::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::MAX_BYTES;

/// How long the agent may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The answer to a GET, whatever its status. The error says what went wrong, but not with whom.
pub(super) async fn get(agent: &Uri, path: &str) -> Result<(StatusCode, Bytes), String> {
    let exchange = tokio::time::timeout(TIMEOUT, exchange(agent, path)).await;
    exchange.map_err(|_| format!("no answer within {TIMEOUT:?}"))?
}

async fn exchange(agent: &Uri, path: &str) -> Result<(StatusCode, Bytes), String> {
    let told = |error: hyper::Error| error.to_string();
    let host = agent.host().unwrap_or_default();
    let port = agent.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(told)?;
    let request = Request::get(path)
        .header(HOST, format!("{host}:{port}"))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(told)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
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
