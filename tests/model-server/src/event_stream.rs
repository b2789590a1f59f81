//! Events of a streamed response, as fast as the engine makes their tokens.

use super::agent;
use super::body::Body;
use super::engine::Work;
use super::protocol::MODEL;
use super::state::State;
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The streamed response to an agent's request.
pub(crate) fn agents(
    shared: Arc<State>,
    path: &str,
    request_json: &Value,
    pause: Duration,
) -> Response<Body> {
    let (events, tokens) = agent::events(path, request_json, &shared.name);
    let model = request_json["model"].as_str().unwrap_or(MODEL).to_owned();
    let prompt = request_json.to_string().into_bytes();
    let (sender, receiver) = Channel::new(1);
    tokio::spawn(async move {
        let mut work = shared.engine.as_ref().map(|engine| engine.submit(&model, &prompt, tokens as u64));
        send_events(events.into_iter(), &mut work, sender, pause).await;
    });
    let mut response = Response::new(receiver.boxed_unsync());
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Sends events as the engine makes their tokens, each after a pause.
pub(crate) async fn send_events(
    mut events: impl Iterator<Item = String>,
    work: &mut Option<Work>,
    mut sender: Sender<Bytes>,
    pause: Duration,
) {
    loop {
        // The timer counts in milliseconds: no pause would still be one.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        // Tokens that come together are written together; each comes by itself where no time passes.
        let count = match work {
            Some(work) => {
                work.tokens().await.map_or(usize::MAX, |new| usize::try_from(new).unwrap_or(usize::MAX))
            }
            None => 1,
        };
        let piece: String = events.by_ref().take(count).collect();
        if piece.is_empty() || sender.send_data(Bytes::from(piece)).await.is_err() {
            break;
        }
    }
}
