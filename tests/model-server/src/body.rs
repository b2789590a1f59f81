//! Bodies of responses.

use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
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

/// The same body in chunks of at most `size` bytes, with a pause before each.
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

/// The first bytes of the same body. It ends when `end` does, which begins when the bytes are written.
pub(crate) fn until(body: Body, bytes: usize, end: impl Future<Output = ()> + Send + 'static) -> Body {
    Beginning { body, left: bytes, is_written: false, end: Box::pin(end) }.boxed_unsync()
}

/// The first bytes of a body.
struct Beginning {
    body: Body,
    left: usize,
    /// The connection has written all of them.
    is_written: bool,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl hyper::body::Body for Beginning {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left > 0 {
            let frame = ready!(hyper::body::Body::poll_frame(Pin::new(&mut self.body), context));
            if let Some(Ok(frame)) = frame {
                let mut data = frame.into_data().unwrap_or_default();
                data.truncate(self.left);
                self.left -= data.len();
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.left = 0;
        }
        // A connection writes what it has before it polls its body again.
        if !std::mem::replace(&mut self.is_written, true) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.end.as_mut().poll(context).map(|()| None)
    }
}
