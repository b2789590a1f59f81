//! Bodies of answers.

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) fn json_body(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = body("application/json", value.to_string());
    *response.status_mut() = status;
    response
}

pub(crate) fn body(content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An error in the shape of the OpenAI API.
pub(crate) fn error(status: StatusCode, message: &str) -> Response<Body> {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    json_body(
        status,
        &json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_u16()}}),
    )
}

/// The same body in pieces of at most `size` bytes, with a pause before each.
pub(crate) fn cut(mut body: Body, size: usize, pause: Duration) -> Body {
    let (mut sender, receiver) = Channel::new(1);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let mut data = frame.into_data().unwrap_or_default();
            while !data.is_empty() {
                tokio::time::sleep(pause).await;
                if sender.send_data(data.split_to(size.min(data.len()))).await.is_err() {
                    return;
                }
            }
        }
    });
    receiver.boxed_unsync()
}

/// The first bytes of the same body; it ends when `end` does.
pub(crate) fn until(
    mut body: Body,
    mut bytes: usize,
    end: impl Future<Output = ()> + Send + 'static,
) -> Body {
    let (mut sender, receiver) = Channel::new(1);
    tokio::spawn(async move {
        while bytes > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            let mut data = frame.into_data().unwrap_or_default();
            data.truncate(bytes);
            bytes -= data.len();
            if sender.send_data(data).await.is_err() {
                return;
            }
        }
        end.await;
    });
    receiver.boxed_unsync()
}
