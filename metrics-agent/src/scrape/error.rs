//! Why a scrape failed.

use core::fmt;
use core::time::Duration;
use std::io;

use hyper::StatusCode;

use crate::catalogue::scraping::Scheme;
use crate::credentials::tls_fault::{TlsFault, TlsFlags};

const FLAGS: TlsFlags = TlsFlags {
    authorities: "--scrape-ca",
    server_name: "--scrape-server-name",
    certificate: "--scrape-cert and --scrape-key",
};

/// Why a scrape gave no values.
#[derive(Debug)]
pub enum ScrapeError {
    /// No connection.
    Connect(io::Error),
    /// No TLS connection, or one to a server that is not trusted.
    Tls(io::Error),
    /// The connection ended early, or the response is not HTTP.
    Http(hyper::Error),
    /// The status is not 200.
    Status(StatusCode),
    /// A response to plain HTTP as from a server that speaks TLS, or none.
    MaybeTls(Box<Self>),
    /// The head of the response has more than this number of bytes.
    LongHead(usize),
    /// The text has more than this number of bytes.
    TooLarge(usize),
    /// The text has more than this number of series.
    TooManySeries(usize),
    /// It took longer than this.
    Timeout(Duration),
    /// The text has none of the metrics of the endpoint's engine.
    NoMetrics,
}

/// [`ScrapeError`] without its details: the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in `ScrapeError`")]
pub enum Reason {
    Refused,
    Connect,
    Tls,
    Http,
    Status,
    TooLarge,
    TooManySeries,
    Timeout,
    NoMetrics,
}

impl ScrapeError {
    /// The failure in a few words, for the cell of a table.
    pub fn brief(&self) -> String {
        match self {
            Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                "connection refused".to_owned()
            }
            Self::Status(status) => format!("status {status}"),
            Self::MaybeTls(error) => format!("{}; does the server speak TLS?", error.brief()),
            Self::Timeout(limit) => format!("no response within {limit:?}"),
            Self::NoMetrics => "no metric of its engine".to_owned(),
            Self::Http(error) => format!("HTTP failed: {error}"),
            Self::Tls(error) => {
                TlsFault::of(error).map_or_else(|| self.to_string(), |fault| fault.brief().to_owned())
            }
            Self::Connect(_) | Self::LongHead(_) | Self::TooLarge(_) | Self::TooManySeries(_) => {
                self.to_string()
            }
        }
    }

    /// The failure of a request with this scheme, before a response or by its status.
    #[must_use]
    pub(super) fn with_scheme(self, scheme: Scheme) -> Self {
        let is_as_of_tls = match &self {
            Self::Http(error) => error.is_parse() || error.is_incomplete_message(),
            Self::Status(status) => *status == StatusCode::BAD_REQUEST,
            Self::Connect(_)
            | Self::Tls(_)
            | Self::MaybeTls(_)
            | Self::LongHead(_)
            | Self::TooLarge(_)
            | Self::TooManySeries(_)
            | Self::Timeout(_)
            | Self::NoMetrics => false,
        };
        if scheme == Scheme::Http && is_as_of_tls { Self::MaybeTls(Box::new(self)) } else { self }
    }

    /// The kind of failure.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => Reason::Refused,
            Self::Connect(_) => Reason::Connect,
            Self::Tls(_) => Reason::Tls,
            Self::Http(_) => Reason::Http,
            Self::Status(_) => Reason::Status,
            Self::MaybeTls(error) => error.reason(),
            Self::LongHead(_) | Self::TooLarge(_) => Reason::TooLarge,
            Self::TooManySeries(_) => Reason::TooManySeries,
            Self::Timeout(_) => Reason::Timeout,
            Self::NoMetrics => Reason::NoMetrics,
        }
    }
}

impl Reason {
    /// All reasons.
    pub(super) const ALL: [Self; 9] = [
        Self::Refused,
        Self::Connect,
        Self::Tls,
        Self::Http,
        Self::Status,
        Self::TooLarge,
        Self::TooManySeries,
        Self::Timeout,
        Self::NoMetrics,
    ];

    /// The value of a metric's label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::TooManySeries => "too_many_series",
            Self::Timeout => "timeout",
            Self::NoMetrics => "no_metrics",
        }
    }

    /// Whether such a scrape uses up a limit on time or size.
    pub(super) fn is_costly(self) -> bool {
        matches!(self, Self::TooLarge | Self::TooManySeries | Self::Timeout)
    }
}

impl fmt::Display for ScrapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::Tls(error) => {
                write!(f, "no TLS connection: {error}")?;
                advise(f, error)
            }
            Self::Http(error) => {
                write!(f, "HTTP failed: {error}")?;
                advise(f, error)
            }
            Self::MaybeTls(error) => write!(
                f,
                "{error}; if the server speaks TLS, set --model-server-metrics-scheme https, or scheme: https in the pool's \
                 metrics-data-source"
            ),
            Self::Status(status) => write!(f, "the response has status {status}; allowed is 200"),
            Self::LongHead(max) => {
                write!(
                    f,
                    "the head of the response, including responses of status 1xx before it, has more than {max} bytes"
                )
            }
            Self::TooLarge(max) => write!(f, "the text has more than {max} bytes (--max-metrics-bytes)"),
            Self::TooManySeries(max) => {
                write!(f, "the text has more than {max} series (--max-metrics-series)")
            }
            Self::Timeout(limit) => write!(f, "no complete response within {limit:?} (--timeout)"),
            Self::NoMetrics => write!(
                f,
                "the text has none of the metrics of this engine; the endpoint's label llm-d.ai/engine-type may be wrong"
            ),
        }
    }
}

/// Writes what to do about a TLS error, if that is known.
fn advise(f: &mut fmt::Formatter<'_>, error: &(dyn core::error::Error + 'static)) -> fmt::Result {
    match TlsFault::of(error) {
        Some(fault) => write!(f, "; {}", fault.advice(&FLAGS)),
        None => Ok(()),
    }
}

impl core::error::Error for ScrapeError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Connect(error) | Self::Tls(error) => Some(error),
            Self::Http(error) => Some(error),
            Self::MaybeTls(error) => Some(error),
            Self::Status(_)
            | Self::LongHead(_)
            | Self::TooLarge(_)
            | Self::TooManySeries(_)
            | Self::Timeout(_)
            | Self::NoMetrics => None,
        }
    }
}
