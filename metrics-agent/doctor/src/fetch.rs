//! One request of a command to a running agent or Envoy, on a separate connection.

use core::fmt;
use core::time::Duration;

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode, Uri};
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::client::{Connection, ConnectionError, Get, GetError, Receiver};
use metrics_agent_support::credentials::tls_fault::TlsFlags;
use rustls::pki_types::ServerName;

const FLAGS: TlsFlags = TlsFlags {
    authorities: "--agent-ca",
    server_name: "--agent-server-name",
    certificate: "--agent-cert and --agent-key",
};

const ANY: HeaderValue = HeaderValue::from_static("*/*");

/// Maximum time for the response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a response or file, in bytes.
pub(crate) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Why nothing could be fetched.
#[derive(Debug)]
pub struct FetchError(pub(crate) String);

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FetchError {}

/// Sends a GET request, and returns the status and the body of at most [`MAX_BYTES`]. The error does not name
/// the server.
pub(crate) async fn get(
    url: &Uri,
    credentials: &ClientCredentials,
    path: &str,
) -> Result<(StatusCode, Bytes), String> {
    let response = tokio::time::timeout(TIMEOUT, send(url, credentials, path)).await;
    response.map_err(|_| format!("no response within {TIMEOUT:?}"))?
}

async fn send(url: &Uri, credentials: &ClientCredentials, path: &str) -> Result<(StatusCode, Bytes), String> {
    let host = url.host().unwrap_or_default();
    let bare_host = host.trim_matches(['[', ']']);
    let tls = match ServerName::try_from(bare_host.to_owned()) {
        Ok(name) => credentials.tls(name),
        Err(error) if credentials.has_tls() => return Err(format!("{host}: {error}")),
        Err(_) => None,
    };
    let is_plain = tls.is_none();
    let port = url.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let opened = Connection::open((bare_host, port), &format!("{host}:{port}"), tls).await;
    let mut connection = opened.map_err(|error| described(&error))?;
    let path = path.parse::<Uri>().map_err(|error| error.to_string())?;
    let authorization = credentials.authorization();
    let get = Get { path: &path, accept: ANY, authorization: authorization.as_deref(), max_bytes: MAX_BYTES };
    let mut whole = WholeResponse::default();
    match connection.get(get, &mut whole).await {
        Ok(()) => Ok((whole.status, whole.body.into())),
        Err(GetError::Response(error)) => Err(described(&error)),
        Err(GetError::BeforeResponse(error)) => {
            let error = ConnectionError::Http(error);
            let maybe_tls = is_plain && error.is_not_http();
            let advice =
                if maybe_tls { "; if it is an agent with TLS, use https:// and --agent-ca" } else { "" };
            Err(described(&error) + advice)
        }
    }
}

/// A response of any status, with its body.
#[derive(Default)]
struct WholeResponse {
    status: StatusCode,
    body: Vec<u8>,
}

impl Receiver<ConnectionError> for WholeResponse {
    fn head(&mut self, status: StatusCode, _: &HeaderMap) -> Result<(), ConnectionError> {
        self.status = status;
        Ok(())
    }

    fn chunk(&mut self, chunk: &[u8]) -> Result<(), ConnectionError> {
        self.body.extend_from_slice(chunk);
        Ok(())
    }
}

/// The error with advice that names the flags.
fn described(error: &ConnectionError) -> String {
    match (error.tls_fault(), error) {
        (Some(fault), _) => format!("{error}; {}", fault.advice(&FLAGS)),
        (None, ConnectionError::Tls(_)) => format!("{error} (--agent-ca names the trusted authorities)"),
        (None, _) => error.to_string(),
    }
}
