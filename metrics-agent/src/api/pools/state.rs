//! When an endpoint is saturated, and why an endpoint is in its state.

use endpoint_picker::plugin::UtilizationDetector;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker_wire::v1;

use super::status::{EndpointStatus, State};

/// Values from which an endpoint counts as saturated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Thresholds {
    /// Waiting requests.
    waiting: f64,
    /// Share of the KV cache in use.
    kv_usage: f64,
}

impl Thresholds {
    /// The thresholds of the policy's saturation detector, if it is a `utilization-detector`; otherwise that plugin's defaults.
    pub(super) fn of_policy(policy: Option<&v1::Policy>) -> Self {
        let config = policy.and_then(|policy| policy.picker_config.as_ref());
        let detector = config.and_then(|config| {
            let name = config.saturation_detector.as_ref()?;
            let plugin = config.plugins.iter().find(|plugin| plugin.name == *name)?;
            let has_thresholds = plugin.r#type == "utilization-detector";
            has_thresholds.then(|| serde_json::from_str::<UtilizationDetector>(&plugin.parameters).ok())?
        });
        let detector = detector.unwrap_or_default();
        Self { waiting: detector.queue_depth_threshold(), kv_usage: detector.kv_cache_util_threshold() }
    }

    pub(super) fn are_reached_by(self, reading: &Reading) -> bool {
        reading.waiting.is_some_and(|waiting| waiting as f64 >= self.waiting)
            || reading.kv_usage.is_some_and(|usage| usage >= self.kv_usage)
    }
}

/// Why an endpoint is in its state, in a few words; `None` for a ready endpoint. `failure` is why its last scrape failed.
pub(super) fn reason(
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
