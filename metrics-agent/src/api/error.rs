//! Errors as clients get them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};

/// An error as JSON: `{"error": "…"}`.
pub(super) fn error_response(status: StatusCode, problem: &str) -> Response {
    (status, Json(serde_json::json!({"error": problem}))).into_response()
}
