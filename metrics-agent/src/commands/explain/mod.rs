//! `metrics-agent explain`: decides a recorded request by the filter's rules and a snapshot.

mod forecast;
mod replay;
mod result;
mod table;

use endpoint_picker::headers::Headers;
use endpoint_picker_wire::v1;

use self::replay::Replay;
use self::result::DecisionReport;
pub use self::result::{ExplainError, ExplainResult, RecordedRequest};
use crate::api::queues::status::QueueStatus;

/// Decides a request by a snapshot that has a topology. `queue` is what waits in the proxies, if that is known.
pub fn explain(
    mut snapshot: v1::Snapshot,
    request: &RecordedRequest,
    queue: Option<&QueueStatus>,
) -> Result<ExplainResult, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut replay = Replay::of(snapshot).map_err(ExplainError)?;
    let headers = request.headers.iter().map(|(name, value)| (name, value)).collect();
    let headers = Headers(&headers);
    for (body, endpoint) in &request.before {
        replay.record(request, headers, body, *endpoint)?;
    }
    let decision = replay.explain(request, headers);
    let wait = |report: &DecisionReport| forecast::forecast(queue?, report.priority);
    Ok(ExplainResult {
        wait: decision.as_ref().ok().and_then(wait),
        path: request.path.clone(),
        seed: request.seed,
        kv_usage_metrics,
        pool: replay.pool().clone(),
        decision,
    })
}
