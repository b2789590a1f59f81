//! `metrics-agent explain`: decides a recorded request by the filter's rules and a snapshot.

mod result;
mod scene;
mod table;

use endpoint_picker::cycle::Headers;
use endpoint_picker_wire::v1;

pub use self::result::{ExplainError, ExplainResult, RecordedRequest};
use self::scene::Scene;

/// Decides a request by a snapshot that has a topology.
pub fn explain(mut snapshot: v1::Snapshot, request: &RecordedRequest) -> Result<ExplainResult, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut scene = Scene::of(snapshot).map_err(ExplainError)?;
    let headers = Headers(&request.headers);
    for (body, endpoint) in &request.before {
        scene.remember(request, headers, body, *endpoint)?;
    }
    let decision = scene.tell(request, headers);
    Ok(ExplainResult {
        path: request.path.clone(),
        seed: request.seed,
        kv_usage_metrics,
        pool: scene.pool,
        decision,
    })
}
