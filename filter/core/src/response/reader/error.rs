//! Errors in the bodies of responses that have begun with status 200.

use crate::json::{self, Number, Object, Pass, Reader, Str, key, value};

/// The side whose fault an error in the body of a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    /// The server's, or an unknown one's.
    Server,
    /// The client's: the error names a status from 400 to 499, or a type that servers send with one.
    Client,
}

/// Types of errors that servers send with a status from 400 to 499, and in a stream without any. vLLM's and
/// SGLang's, OpenAI's and Anthropic's.
const CLIENTS_TYPES: [&str; 9] = [
    "BadRequestError",
    "NotFoundError",
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "rate_limit_exceeded",
];

/// Reads the object of an error. By its `code`, if that is a number, it is the client's or the server's, and
/// otherwise by its `type`.
pub(super) fn read_error(object: &[u8]) -> ResponseError {
    let text = core::str::from_utf8(object).unwrap_or_default();
    json::read(text, ErrorFields).unwrap_or(ResponseError::Server)
}

struct ErrorFields;

impl<'a> Reader<'a> for ErrorFields {
    type Value = ResponseError;

    fn other(self) -> ResponseError {
        ResponseError::Server
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<ResponseError> {
        let (mut status, mut has_clients_type) = (None, false);
        while let Some(name) = key(&mut object)? {
            match &*name {
                "code" => status = value(&mut object, HttpStatus)?,
                "type" => has_clients_type = value(&mut object, ClientsType)?,
                _ => value(&mut object, Pass)?,
            }
        }
        let is_clients = status.map_or(has_clients_type, |status| (400.0..500.0).contains(&status));
        Ok(if is_clients { ResponseError::Client } else { ResponseError::Server })
    }
}

/// A status of HTTP; also in a string.
struct HttpStatus;

impl<'a> Reader<'a> for HttpStatus {
    type Value = Option<f64>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, number: Number) -> Self::Value {
        Some(number.as_f64())
    }

    fn string(self, text: Str<'a, '_>) -> Self::Value {
        text.parse().ok()
    }
}

struct ClientsType;

impl<'a> Reader<'a> for ClientsType {
    type Value = bool;

    fn other(self) -> bool {
        false
    }

    fn string(self, text: Str<'a, '_>) -> bool {
        CLIENTS_TYPES.contains(&&*text)
    }
}
