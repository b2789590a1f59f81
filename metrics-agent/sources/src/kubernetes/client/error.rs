//! Why a request to the API server failed.

use core::fmt;
use core::time::Duration;

use serde::Deserialize;

/// Maximum length of a message of an API server that is kept, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

/// Why a request to the API server failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// No connection, no credentials, or the connection ended early.
    Connection(String),
    /// No response, or no end of it, within this time.
    Timeout(Duration),
    /// The API server refused the request.
    Status {
        /// The HTTP status.
        code: u16,
        /// The API server's reason.
        message: String,
    },
    /// The response has more than this number of bytes.
    TooLarge(usize),
    /// The response is not what the API promises.
    Malformed(String),
}

/// [`ApiError`] without its details: the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "as in `ApiError`")]
pub enum Reason {
    Connection,
    Timeout,
    Unauthorized,
    Forbidden,
    NotFound,
    Expired,
    Status,
    TooLarge,
    Malformed,
}

/// The body of a failed request, and the object of a watch's last event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusBody {
    code: u16,
    message: String,
}

impl StatusBody {
    pub(crate) fn error(self) -> ApiError {
        ApiError::Status { code: self.code, message: cut(self.message) }
    }
}

impl ApiError {
    /// The error of a response with this HTTP status.
    #[cfg(any(feature = "kubernetes", test))]
    pub(super) fn of_response(code: u16, body: &[u8]) -> Self {
        let message = match serde_json::from_slice::<StatusBody>(body) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(body).into_owned(),
        };
        Self::Status { code, message: cut(message) }
    }

    /// The kind of failure.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Connection(_) => Reason::Connection,
            Self::Timeout(_) => Reason::Timeout,
            Self::Status { code: 401, .. } => Reason::Unauthorized,
            Self::Status { code: 403, .. } => Reason::Forbidden,
            Self::Status { code: 404, .. } => Reason::NotFound,
            Self::Status { code: 410, .. } => Reason::Expired,
            Self::Status { .. } => Reason::Status,
            Self::TooLarge(_) => Reason::TooLarge,
            Self::Malformed(_) => Reason::Malformed,
        }
    }
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Connection,
        Self::Timeout,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Expired,
        Self::Status,
        Self::TooLarge,
        Self::Malformed,
    ];

    /// The value of a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Expired => "expired",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
        }
    }
}

fn cut(mut text: String) -> String {
    let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(problem) => write!(f, "cannot reach the API server: {problem}"),
            Self::Timeout(limit) => write!(f, "no complete answer of the API server within {limit:?}"),
            Self::Status { code, message } => write!(f, "the API server answers {code}: {message}"),
            Self::TooLarge(max) => write!(f, "the API server's answer has more than {max} bytes"),
            Self::Malformed(problem) => write!(f, "the API server's answer is malformed: {problem}"),
        }
    }
}

impl core::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_gives_its_status_and_a_short_message() {
        let status = br#"{"kind":"Status","code":403,"message":"pods is forbidden","details":{}}"#;
        let error = ApiError::of_response(403, status);
        assert_eq!(error, ApiError::Status { code: 403, message: "pods is forbidden".to_owned() });
        assert_eq!(error.reason(), Reason::Forbidden);
        let text = "\u{e9}".repeat(MAX_MESSAGE_BYTES);
        let ApiError::Status { code: 502, message } = ApiError::of_response(502, text.as_bytes()) else {
            panic!()
        };
        assert_eq!(message.len(), MAX_MESSAGE_BYTES);
        assert_eq!(ApiError::of_response(410, b"").reason(), Reason::Expired);
    }
}
