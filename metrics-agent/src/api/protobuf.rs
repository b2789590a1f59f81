//! Reads the Protobuf messages that proxies send.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use endpoint_picker_wire::Message;

use super::state::ApiState;

/// The type of the messages.
pub(super) const PROTOBUF: &str = "application/x-protobuf";

/// The status and the problem of an error response.
pub(super) type Refusal = (StatusCode, String);

/// Reads the message in a request's body. Errors call it `name`; `limit` is the most bytes that its route allows, with the flag that sets them.
pub(super) async fn read<M: Message + Default>(
    state: &ApiState,
    request: Request,
    name: &str,
    limit: &str,
) -> Result<M, Refusal> {
    // A browser does not let a web page send this type to another origin without a CORS preflight, which the agent never allows.
    let is_protobuf = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == PROTOBUF);
    let body = tokio::time::timeout(state.body_timeout, Bytes::from_request(request, &())).await;
    if !is_protobuf {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content-type must be {PROTOBUF}")));
    }
    let body = body.map_err(|_| {
        let limit = state.body_timeout;
        let problem = format!("the {name} was not complete within {limit:?} (--idle-timeout)");
        (StatusCode::REQUEST_TIMEOUT, problem)
    })?;
    let body = body.map_err(|rejection| match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            (status, format!("the {name} is larger than the allowed {limit}"))
        }
        status => (status, rejection.body_text()),
    })?;
    M::decode(body).map_err(|error| (StatusCode::BAD_REQUEST, format!("the {name} is malformed: {error}")))
}
