//! `POST /v1/batch`: several requests of a proxy in one. A proxy with many pools sends it in place of a long
//! poll for each pool, so that it needs neither a connection nor a thread for each.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::batch::{self, Batch, Part, Responses};
use endpoint_picker_wire::{BATCH_FORMAT, MAX_BATCH_PARTS, Message};
use tower_service::Service;

use super::access::Peer;
use super::{ApiState, PROTOBUF, Rejection, check_format, error_response, read_message};

/// Maximum size of a batch, in bytes. A proxy sends at most half of it.
const MAX_BYTES: usize = 8 << 20;

/// Bytes of responses after which the batch's other polls get nothing: the next batch has them again. A proxy
/// reads up to 16 MiB.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Marks a part of a batch. It is answered at once, because the others would wait with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InBatch;

/// The route for batches, whose parts `parts` serves.
pub(super) fn routes(parts: Router) -> Router<Arc<ApiState>> {
    let receive = move |State(state): State<Arc<ApiState>>, request| receive(parts.clone(), state, request);
    Router::new().route("/v1/batch", post(receive)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

async fn receive(parts: Router, state: Arc<ApiState>, request: Request) -> Response {
    let caller = Caller::of(&request);
    let batch = read_message(&state, request, "batch", &format!("{MAX_BYTES} bytes")).await;
    match batch.and_then(check) {
        Ok(batch) => {
            let responses = caller.run(parts, batch).await.encode_to_vec();
            ([(header::CONTENT_TYPE, PROTOBUF)], responses).into_response()
        }
        Err((status, problem)) => error_response(status, &problem),
    }
}

/// Refuses a batch that the agent cannot read.
fn check(batch: Batch) -> Result<Batch, Rejection> {
    check_format("batch", batch.format, BATCH_FORMAT)?;
    let found = batch.parts.len();
    if found > MAX_BATCH_PARTS {
        let problem = format!("the batch has {found} requests; at most {MAX_BATCH_PARTS} are allowed");
        return Err((StatusCode::BAD_REQUEST, problem));
    }
    Ok(batch)
}

/// The part of the batch's own request that each part has too, for the checks of rights.
struct Caller {
    headers: HeaderMap,
    peer: Option<Peer>,
}

impl Caller {
    fn of(request: &Request) -> Self {
        let all = request.headers();
        let names = [header::HOST, header::AUTHORIZATION, header::CONTENT_TYPE];
        let headers = names
            .into_iter()
            .flat_map(|name| all.get_all(&name).iter().map(move |it| (name.clone(), it.clone())));
        Self { headers: headers.collect(), peer: request.extensions().get().copied() }
    }

    /// The responses to all parts, in their order.
    async fn run(&self, mut parts: Router, batch: Batch) -> Responses {
        let mut responses = Vec::with_capacity(batch.parts.len());
        let mut bytes = 0;
        for part in batch.parts {
            let is_left_out = bytes >= MAX_RESPONSE_BYTES && part.body.is_none();
            let response = if is_left_out {
                batch::Response { status: StatusCode::NO_CONTENT.as_u16().into(), body: Vec::new() }
            } else {
                self.run_part(&mut parts, part).await
            };
            bytes += response.body.len();
            responses.push(response);
        }
        Responses { format: BATCH_FORMAT, responses }
    }

    async fn run_part(&self, parts: &mut Router, part: Part) -> batch::Response {
        let response = match self.request_of(part) {
            Ok(request) => match parts.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(error) => {
                error_response(StatusCode::BAD_REQUEST, &format!("the part's path is malformed: {error}"))
            }
        };
        let status = response.status().as_u16().into();
        // The agent has made the body in memory, so reading it cannot fail.
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        batch::Response { status, body: body.into() }
    }

    fn request_of(&self, part: Part) -> Result<Request, axum::http::Error> {
        let Part { path, body } = part;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let body = body.map_or_else(Body::empty, Body::from);
        let mut request = Request::builder().method(method).uri(path).extension(InBatch).body(body)?;
        *request.headers_mut() = self.headers.clone();
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        Ok(request)
    }
}
