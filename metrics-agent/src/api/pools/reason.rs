//! Why an endpoint is in its state.

use super::build::Thresholds;
use super::status::{EndpointStatus, State};

/// The reason in a few words; `None` for a ready endpoint. `failure` is why the endpoint's last scrape failed.
pub(super) fn of_state(
    endpoint: &EndpointStatus,
    failure: Option<&str>,
    thresholds: Thresholds,
) -> Option<String> {
    let reason = match endpoint.state {
        State::NotReady | State::Stale => failure.unwrap_or("no new values").to_owned(),
        State::NoReading => failure.unwrap_or("not scraped yet").to_owned(),
        State::Failing => "requests fail".to_owned(),
        State::Saturated => saturation(endpoint, thresholds),
        State::Ready => return None,
    };
    Some(reason)
}

/// The values that reach their thresholds.
fn saturation(endpoint: &EndpointStatus, Thresholds { waiting, kv_usage }: Thresholds) -> String {
    let full = endpoint.waiting.filter(|count| *count as f64 >= waiting);
    let full = full.map(|count| format!("{count} waiting, limit {waiting}"));
    let used = endpoint.kv_usage.filter(|usage| *usage >= kv_usage);
    let used = used.map(|usage| format!("KV cache {:.0} %, limit {:.0} %", usage * 100.0, kv_usage * 100.0));
    full.into_iter().chain(used).collect::<Vec<_>>().join("; ")
}
