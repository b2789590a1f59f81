//! Responses and conversations that the server stores in its memory, as vLLM does.

use super::body::{Body, error, json_body};
use super::state::{State, lock};
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Stores a response or conversation under a new id with this prefix, and returns the id.
pub(crate) fn store(shared: &State, prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // As long as vLLM's, and different in the servers of one process.
    let id = format!("{prefix}_{:032x}", COUNT.fetch_add(1, Ordering::Relaxed));
    lock(&shared.stored).insert(id.clone());
    id
}

/// The refusal of a request that continues a response or conversation which this server does not store.
pub(crate) fn refusal(shared: &State, request: &Value) -> Option<Response<Body>> {
    let conversation = &request["conversation"];
    let named = [&request["previous_response_id"], conversation, &conversation["id"]];
    let mut ids = named.into_iter().filter_map(Value::as_str);
    ids.find(|id| !lock(&shared.stored).contains(*id)).map(not_found)
}

/// The id in the path of a request about a stored response or conversation; `None` for another path.
pub(crate) fn id_in(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1/responses/").or_else(|| path.strip_prefix("/v1/conversations/"))?;
    rest.split('/').next()
}

/// The response to a request about a stored response or conversation.
pub(crate) fn answer(shared: &State, method: &Method, path: &str) -> Response<Body> {
    let id = id_in(path).unwrap_or_default();
    let is_stored = match *method {
        Method::DELETE => lock(&shared.stored).remove(id),
        _ => lock(&shared.stored).contains(id),
    };
    if is_stored { json_body(StatusCode::OK, &json!({"id": id})) } else { not_found(id) }
}

fn not_found(id: &str) -> Response<Body> {
    error(StatusCode::NOT_FOUND, &format!("{id} is not stored here"))
}
