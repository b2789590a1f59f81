//! `GET /v1/models?version=<u64>`: the models that the agent knows, for body-based routing.
//!
//! The client names the version that it has. The response is 204 while it is the current one.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use endpoint_picker_wire::models::{BaseModel, Models};
use endpoint_picker_wire::{MODELS_FORMAT, Message as _};
use serde::Deserialize;
use xxhash_rust::xxh64::xxh64;

use super::{ApiState, PROTOBUF, error_response};

/// The version of the client.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelsQuery {
    version: Option<u64>,
}

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/v1/models", get(models))
}

async fn models(
    State(state): State<Arc<ApiState>>,
    query: Result<Query<ModelsQuery>, QueryRejection>,
) -> Response {
    let Query(ModelsQuery { version }) = match query {
        Ok(query) => query,
        Err(rejection) => {
            let problem = format!(
                "{}; allowed is version, decimal from 0 to 18446744073709551615",
                rejection.body_text()
            );
            return error_response(StatusCode::BAD_REQUEST, &problem);
        }
    };
    let models = match &*state.plans.borrow() {
        Ok(plan) => message(&plan.base_models),
        Err(problem) => return error_response(StatusCode::SERVICE_UNAVAILABLE, problem),
    };
    if version == Some(models.version) {
        return StatusCode::NO_CONTENT.into_response();
    }
    ([(header::CONTENT_TYPE, PROTOBUF)], models.encode_to_vec()).into_response()
}

/// The message with its version, which is equal for equal models in every agent.
fn message(base_models: &[BaseModel]) -> Models {
    let mut models = Models { format: MODELS_FORMAT, version: 0, base_models: base_models.to_vec() };
    models.version = xxh64(&models.encode_to_vec(), 0);
    models
}
