//! `metrics-agent explain`: decides a recorded request by the filter's rules and a snapshot.

mod replay;
mod result;
mod table;

use endpoint_picker::headers::Headers;
use endpoint_picker_wire::v1;

use self::replay::Replay;
pub use self::result::{ExplainError, ExplainResult, RecordedRequest};

/// Decides a request by a snapshot that has a topology.
pub fn explain(mut snapshot: v1::Snapshot, request: &RecordedRequest) -> Result<ExplainResult, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut replay = Replay::of(snapshot).map_err(ExplainError)?;
    let headers = request.headers.iter().map(|(name, value)| (name, value)).collect();
    let headers = Headers(&headers);
    for (body, endpoint) in &request.before {
        replay.record(request, headers, body, *endpoint)?;
    }
    let decision = replay.explain(request, headers);
    Ok(ExplainResult {
        path: request.path.clone(),
        seed: request.seed,
        kv_usage_metrics,
        pool: replay.pool().clone(),
        decision,
    })
}
