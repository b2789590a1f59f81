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
use endpoint_picker_wire::Message as _;
use serde::Deserialize;

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
    match &*state.plans.borrow() {
        Ok(plan) if version == Some(plan.base_models.version) => StatusCode::NO_CONTENT.into_response(),
        Ok(plan) => ([(header::CONTENT_TYPE, PROTOBUF)], plan.base_models.encode_to_vec()).into_response(),
        Err(problem) => error_response(StatusCode::SERVICE_UNAVAILABLE, &problem.to_string()),
    }
}
