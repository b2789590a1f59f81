//! Rejections as OpenAI clients read them.

use endpoint_picker::rejection::{Code, Rejection};
use serde::Serialize;

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

/// The JSON error object.
pub(crate) fn json(rejection: &Rejection) -> Vec<u8> {
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
    match code.status() {
        429 => "rate_limit_error",
        status if status < 500 => "invalid_request_error",
        _ => "server_error",
    }
}
