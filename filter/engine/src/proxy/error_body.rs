//! Rejections as the JSON error objects that OpenAI clients read.

use endpoint_picker::decision::rejection::{Code, Rejection};
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

/// The JSON error object of a rejection.
pub(crate) fn error_body(rejection: &Rejection) -> Vec<u8> {
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
        Code::BadRequest | Code::NotFound | Code::PreconditionFailed | Code::PayloadTooLarge => {
            "invalid_request_error"
        }
        Code::ServiceUnavailable => "server_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_depends_on_the_status() {
        for (code, r#type) in [
            (Code::BadRequest, "invalid_request_error"),
            (Code::NotFound, "invalid_request_error"),
            (Code::PreconditionFailed, "invalid_request_error"),
            (Code::PayloadTooLarge, "invalid_request_error"),
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
