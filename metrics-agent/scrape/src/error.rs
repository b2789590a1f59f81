//! Why a scrape failed.

use core::fmt;
use core::time::Duration;
use std::io::{self, ErrorKind};

use hyper::StatusCode;
use metrics_agent_catalogue::dialect::TRTLLM_SERVE_PATH;
use metrics_agent_catalogue::scraping::Scheme;
use metrics_agent_support::client::ConnectionError;
use metrics_agent_support::credentials::tls_fault::{TlsFault, TlsFlags};

const FLAGS: TlsFlags = TlsFlags {
    authorities: "--scrape-ca",
    server_name: "--scrape-server-name",
    certificate: "--scrape-cert and --scrape-key",
};

/// Why a scrape gave no values.
#[derive(Debug)]
pub enum ScrapeError {
    /// No connection, or no complete response.
    Connection(ConnectionError),
    /// The status is not 200.
    Status(StatusCode),
    /// A response to plain HTTP as from a server that speaks TLS, or none.
    MaybeTls(Box<Self>),
    /// The text has more than this number of series.
    TooManySeries(usize),
    /// It took longer than this.
    Timeout(Duration),
    /// A redirect to this location, which is not followed.
    Redirect(StatusCode, String),
    /// The body has this content encoding, which is not read.
    Encoding(String),
    /// The body is not the gzip that its head announces.
    Gzip(io::Error),
    /// The body has none of the metrics of the endpoint's engine.
    NoMetrics(UnreadResponse),
}

/// A body without metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadResponse {
    /// The engines whose metrics were looked for.
    pub engines: String,
    /// Whether the endpoint or its configuration names the engine.
    pub is_named: bool,
    /// The content type of the body.
    pub content_type: Option<String>,
}

impl UnreadResponse {
    /// The content type, if it is not that of a metrics text.
    fn other_type(&self) -> Option<&str> {
        self.content_type
            .as_deref()
            .filter(|it| !it.trim_start().to_ascii_lowercase().starts_with("text/plain"))
    }
}

/// [`ScrapeError`] without its details: the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in `ScrapeError`")]
pub enum Reason {
    Refused,
    Unreachable,
    Connect,
    Tls,
    Http,
    Status,
    TooLarge,
    TooManySeries,
    Timeout,
    Encoding,
    NoMetrics,
}

impl ScrapeError {
    /// The failure in a few words, for the cell of a table.
    pub fn brief(&self) -> String {
        match self {
            Self::Connection(error) if is_refused(error) => "connection refused".to_owned(),
            Self::Connection(ConnectionError::Http(error)) => format!("HTTP failed: {error}"),
            Self::Connection(ConnectionError::Tls(error)) => {
                TlsFault::of(error).map_or_else(|| self.to_string(), |fault| fault.brief().to_owned())
            }
            Self::Status(status) => format!("status {status}"),
            Self::MaybeTls(error) => format!("{}; does the server speak TLS?", error.brief()),
            Self::Timeout(limit) => format!("no response within {limit:?}"),
            Self::Redirect(status, location) => format!("status {status} to {location:?}"),
            Self::Encoding(name) => format!("content encoding {name:?}"),
            Self::Gzip(_) => "broken gzip".to_owned(),
            Self::NoMetrics(body) => match body.other_type() {
                Some(other) => format!("content type {other:?} instead of metrics"),
                None => "no metric of its engine".to_owned(),
            },
            Self::Connection(_) | Self::TooManySeries(_) => self.to_string(),
        }
    }

    /// The failure of a request with this scheme, before a response or by its status.
    #[must_use]
    pub(crate) fn with_scheme(self, scheme: Scheme) -> Self {
        let is_as_of_tls = match &self {
            Self::Connection(error) => error.is_not_http(),
            Self::Status(status) => *status == StatusCode::BAD_REQUEST,
            Self::MaybeTls(_)
            | Self::TooManySeries(_)
            | Self::Timeout(_)
            | Self::Redirect(..)
            | Self::Encoding(_)
            | Self::Gzip(_)
            | Self::NoMetrics(_) => false,
        };
        if scheme == Scheme::Http && is_as_of_tls { Self::MaybeTls(Box::new(self)) } else { self }
    }

    /// Whether the response is as of another server than the model server that had metrics at this address.
    pub fn is_of_another_server(&self) -> bool {
        match self {
            Self::Status(status) => status.is_client_error() || status.is_redirection(),
            Self::Redirect(..) | Self::NoMetrics(_) => true,
            Self::MaybeTls(error) => error.is_of_another_server(),
            Self::Connection(_)
            | Self::TooManySeries(_)
            | Self::Timeout(_)
            | Self::Encoding(_)
            | Self::Gzip(_) => false,
        }
    }

    /// The kind of failure.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Connection(error) => match error {
                ConnectionError::Connect(_) if is_refused(error) => Reason::Refused,
                ConnectionError::Connect(error) if is_unreachable(error.kind()) => Reason::Unreachable,
                ConnectionError::Connect(_) => Reason::Connect,
                ConnectionError::Tls(_) => Reason::Tls,
                ConnectionError::Http(_) => Reason::Http,
                ConnectionError::LongHead(_) | ConnectionError::TooLarge(_) => Reason::TooLarge,
            },
            Self::Status(_) | Self::Redirect(..) => Reason::Status,
            Self::Encoding(_) | Self::Gzip(_) => Reason::Encoding,
            Self::MaybeTls(error) => error.reason(),
            Self::TooManySeries(_) => Reason::TooManySeries,
            Self::Timeout(_) => Reason::Timeout,
            Self::NoMetrics(_) => Reason::NoMetrics,
        }
    }
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 11] = [
        Self::Refused,
        Self::Unreachable,
        Self::Connect,
        Self::Tls,
        Self::Http,
        Self::Status,
        Self::TooLarge,
        Self::TooManySeries,
        Self::Timeout,
        Self::Encoding,
        Self::NoMetrics,
    ];

    /// The value of a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::TooManySeries => "too_many_series",
            Self::Timeout => "timeout",
            Self::Encoding => "encoding",
            Self::NoMetrics => "no_metrics",
        }
    }

    /// Whether such a scrape uses up a limit on time or size.
    pub fn is_costly(self) -> bool {
        matches!(self, Self::TooLarge | Self::TooManySeries | Self::Timeout)
    }
}

impl fmt::Display for ScrapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => match error.tls_fault() {
                Some(fault) => write!(f, "{error}; {}", fault.advice(&FLAGS)),
                None => error.fmt(f),
            },
            Self::MaybeTls(error) => write!(
                f,
                "{error}; if the server speaks TLS, set --model-server-metrics-scheme https, or scheme: https in the pool's \
                 metrics-data-source"
            ),
            Self::Status(status) => write!(f, "the response has status {status}; allowed is 200"),
            Self::TooManySeries(max) => write!(f, "the text has more than {max} series"),
            Self::Timeout(limit) => write!(f, "no complete response within {limit:?} (--timeout)"),
            Self::Redirect(status, location) => write!(
                f,
                "the response has status {status} with the location {location:?}; one redirect to the same scheme, host and port is \
                 followed: set {PATH} or the port of a metrics-data-source"
            ),
            Self::Encoding(name) => write!(
                f,
                "the body has the content encoding {name:?}; allowed are none and gzip, and the agent asks for none: the server, or a \
                 proxy in front of it, must not compress {PATH}"
            ),
            Self::Gzip(error) => write!(f, "the body is not the gzip that its head announces: {error}"),
            Self::NoMetrics(body) => body.fmt(f),
        }
    }
}

/// Flag and parameter of the metrics' path.
const PATH: &str = "--metrics-path, the path of a metrics-data-source,";

impl fmt::Display for UnreadResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engines = &self.engines;
        if let Some(other) = self.other_type() {
            return write!(
                f,
                "the body has the content type {other:?} and none of the metrics of {engines}; allowed is the text format of Prometheus \
                 (text/plain): set {PATH} to the path of the metrics, which trtllm-serve has at {TRTLLM_SERVE_PATH}"
            );
        }
        write!(f, "the text has none of the metrics of {engines}; ")?;
        if self.is_named {
            write!(f, "the endpoint's label llm-d.ai/engine-type may be wrong")
        } else {
            write!(f, "other engines need an entry in engineConfigs of a core-metrics-extractor")
        }
    }
}

impl core::error::Error for ScrapeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Connection(error) => Some(error),
            Self::MaybeTls(error) => Some(error),
            Self::Gzip(error) => Some(error),
            Self::Status(_)
            | Self::TooManySeries(_)
            | Self::Timeout(_)
            | Self::Redirect(..)
            | Self::Encoding(_)
            | Self::NoMetrics(_) => None,
        }
    }
}

impl From<ConnectionError> for ScrapeError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

fn is_refused(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::Connect(error) if error.kind() == ErrorKind::ConnectionRefused)
}

/// Whether the host or its network has not responded to an attempt to connect.
fn is_unreachable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_host_that_does_not_respond_is_unreachable() {
        let reason =
            |code| ScrapeError::from(ConnectionError::Connect(io::Error::from_raw_os_error(code))).reason();
        for code in [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ETIMEDOUT] {
            assert_eq!(reason(code), Reason::Unreachable);
        }
        assert_eq!(reason(libc::ECONNREFUSED), Reason::Refused);
        assert_eq!(reason(libc::EACCES), Reason::Connect);
    }

    #[test]
    fn a_client_error_or_a_text_without_metrics_is_as_of_another_server() {
        let status = |status: u16| ScrapeError::Status(StatusCode::from_u16(status).unwrap());
        for other in [
            status(404),
            status(301),
            status(401).with_scheme(Scheme::Http),
            ScrapeError::NoMetrics(UnreadResponse::default()),
        ] {
            assert!(other.is_of_another_server(), "{other}");
        }
        for own in [status(500), status(503), ScrapeError::Timeout(Duration::from_secs(1))] {
            assert!(!own.is_of_another_server(), "{own}");
        }
    }
}
