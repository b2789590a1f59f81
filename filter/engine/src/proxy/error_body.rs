//! Rejections as responses: the JSON error objects that OpenAI clients read, and the statuses that clients of
//! gRPC read.

use endpoint_picker::decision::rejection::{Code, Rejection};
use serde::Serialize;

use super::headers;

/// The header with the status of a finished call of gRPC.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// A rejection as a response, without the headers that do not depend on the protocol.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    /// The header by which clients read the response: the content type, or the status of gRPC.
    pub(crate) header: (&'static str, String),
    /// The body. Envoy turns that of a response to a gRPC request into `grpc-message`.
    pub(crate) body: Vec<u8>,
}

impl ErrorResponse {
    /// The response to a request that is one of gRPC or not.
    pub(crate) fn new(rejection: &Rejection, is_grpc: bool) -> Self {
        if is_grpc {
            let status = rejection.code.grpc_status().0.to_string();
            return Self { header: (GRPC_STATUS, status), body: rejection.message.as_bytes().to_vec() };
        }
        Self { header: ("content-type", "application/json".to_owned()), body: error_body(rejection) }
    }
}

/// The headers of a rejection that do not depend on the protocol: its reason, and the time after which the
/// client may retry.
pub(crate) fn further_headers(rejection: &Rejection) -> Vec<(&'static str, String)> {
    let reason = rejection.reason.map(|reason| (headers::DROPPED_REASON, reason.as_str().to_owned()));
    // Whole seconds, rounded up: a client that comes too early is rejected again.
    let seconds = rejection.retry_after.map(|after| after.as_nanos().div_ceil(1_000_000_000).max(1));
    let retry_after = seconds.map(|seconds| (headers::RETRY_AFTER, seconds.to_string()));
    reason.into_iter().chain(retry_after).collect()
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

/// The JSON error object of a rejection.
fn error_body(rejection: &Rejection) -> Vec<u8> {
    let error = Error {
        message: &rejection.message,
        r#type: error_type(rejection.code),
        param: None,
        code: rejection.code.name(),
    };
    serde_json::to_vec(&Envelope { error }).unwrap_or_default()
}

/// OpenAI's name for the kind of error.
fn error_type(code: Code) -> &'static str {
    match code {
        Code::ResourceExhausted => "rate_limit_error",
        Code::BadRequest
        | Code::NotFound
        | Code::PreconditionFailed
        | Code::PayloadTooLarge
        | Code::UnsupportedMediaType => "invalid_request_error",
        Code::ServiceUnavailable => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_grpc_get_a_status_and_the_message() {
        for (code, status) in [
            (Code::BadRequest, "3"),
            (Code::NotFound, "5"),
            (Code::PreconditionFailed, "9"),
            (Code::PayloadTooLarge, "8"),
            (Code::UnsupportedMediaType, "3"),
            (Code::ResourceExhausted, "8"),
            (Code::ServiceUnavailable, "14"),
        ] {
            let response = ErrorResponse::new(&Rejection::new(code, "a \"b\""), true);
            assert_eq!(response.header, ("grpc-status", status.to_owned()));
            assert_eq!(response.body, b"a \"b\"");
        }
    }

    #[test]
    fn the_type_depends_on_the_status() {
        for (code, r#type) in [
            (Code::BadRequest, "invalid_request_error"),
            (Code::NotFound, "invalid_request_error"),
            (Code::PreconditionFailed, "invalid_request_error"),
            (Code::PayloadTooLarge, "invalid_request_error"),
            (Code::UnsupportedMediaType, "invalid_request_error"),
            (Code::ResourceExhausted, "rate_limit_error"),
            (Code::ServiceUnavailable, "server_error"),
        ] {
            let body = error_body(&Rejection::new(code, "a \"b\""));
            let name = code.name();
            let expected = format!(
                r#"{{"error":{{"message":"a \"b\"","type":"{type}","param":null,"code":"{name}"}}}}"#
            );
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        }
    }
}
