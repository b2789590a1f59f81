//! Answers that begin before the request has ended: what comes is sent back as it comes.

use super::body::Body;
use super::protocol::SERVED_BY;
use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// Echoes the body of a request, or the bytes of the tunnel that it opens.
pub(crate) fn answer(server: &str, request: Request<Incoming>) -> Response<Body> {
    let upgrade = request.headers().get(UPGRADE).cloned();
    let mut response = match upgrade {
        None if request.method() != Method::CONNECT => Response::new(echoed(request.into_body())),
        upgrade => tunnel(request, upgrade),
    };
    let name = HeaderValue::from_str(server).expect("a server's name is fit for a header");
    response.headers_mut().insert(SERVED_BY, name);
    response
}

fn echoed(mut body: Incoming) -> Body {
    let (mut sender, receiver) = Channel::new(1);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            if sender.send_data(data).await.is_err() {
                return;
            }
        }
    });
    receiver.boxed_unsync()
}

fn tunnel(request: Request<Incoming>, upgrade: Option<HeaderValue>) -> Response<Body> {
    tokio::spawn(async move {
        if let Ok(tunnel) = hyper::upgrade::on(request).await {
            let (mut reader, mut writer) = tokio::io::split(TokioIo::new(tunnel));
            // An error is the client's way to end.
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        }
    });
    let mut response = Response::new(Empty::<Bytes>::new().boxed_unsync());
    if let Some(protocol) = upgrade {
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers_mut().insert(UPGRADE, protocol);
    }
    response
}
