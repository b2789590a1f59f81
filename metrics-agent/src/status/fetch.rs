//! Where `metrics-agent snapshot` gets a pool from.

use core::fmt;
use core::time::Duration;
use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{PoolStatus, of_snapshot};

/// How long the agent may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Largest answer, or file, that is read.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Reads a pool from a file that holds what the agent answered to `/v1/pools/{pool}` or `/v1/pools/{pool}/snapshot`.
pub fn from_file(path: &Path) -> Result<PoolStatus, FetchError> {
    let refused = |problem: String| FetchError(format!("{}: {problem}", path.display()));
    let length = path.metadata().map_err(|error| refused(error.to_string()))?.len();
    if length > MAX_BYTES as u64 {
        return Err(refused(format!("the file has {length} bytes; at most {MAX_BYTES} are read")));
    }
    let bytes = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    // No protobuf of ours begins with this byte: it would be field 15.
    if bytes.first() == Some(&b'{') {
        return serde_json::from_slice(&bytes).map_err(|error| {
            refused(format!("no status of a pool, as /v1/pools/{{pool}} answers: {error}"))
        });
    }
    let snapshot = endpoint_picker_wire::decode(&bytes).map_err(|error| refused(error.to_string()))?;
    if snapshot.topology.is_none() {
        return Err(refused("the snapshot has no topology; record it without ?topology=".to_owned()));
    }
    of_snapshot(snapshot).map_err(|error| refused(error.to_string()))
}

/// Asks an agent for a pool; without a name for the only one it has.
pub async fn from_agent(agent: &Uri, pool: Option<&str>) -> Result<PoolStatus, FetchError> {
    let name = match pool {
        Some(name) => name.to_owned(),
        None => only_pool(agent).await?,
    };
    let bytes = get(agent, &format!("/v1/pools/{}", in_path(&name))).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        FetchError(format!("{agent} answered no status of a pool: {error}; is it an agent of this version?"))
    })
}

async fn only_pool(agent: &Uri) -> Result<String, FetchError> {
    #[derive(serde::Deserialize)]
    struct List {
        pools: Vec<String>,
    }
    let bytes = get(agent, "/v1/pools").await?;
    let list: List = serde_json::from_slice(&bytes)
        .map_err(|error| FetchError(format!("{agent} answered no list of pools: {error}")))?;
    match <[String; 1]>::try_from(list.pools) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => Err(FetchError(format!("{agent} has no pools yet"))),
        Err(names) => Err(FetchError(format!("--pool is needed; allowed: {}", names.join(", ")))),
    }
}

async fn get(agent: &Uri, path: &str) -> Result<Bytes, FetchError> {
    let failed = |problem: String| FetchError(format!("{agent} (--agent): {problem}"));
    let exchange = tokio::time::timeout(TIMEOUT, exchange(agent, path)).await;
    let (status, body) =
        exchange.map_err(|_| failed(format!("no answer within {TIMEOUT:?}")))?.map_err(failed)?;
    if status == StatusCode::OK {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body);
    let error = serde_json::from_slice::<serde_json::Value>(&body).ok();
    let reason = error.as_ref().and_then(|error| error["error"].as_str()).unwrap_or(text.trim());
    Err(failed(format!("{path} was answered {status}: {reason}")))
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

/// A pool's name as one segment of a path.
fn in_path(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(escape).collect()
}

/// Why there is nothing to print.
#[derive(Debug)]
pub struct FetchError(String);

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FetchError {}
