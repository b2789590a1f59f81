//! The status of endpoints by their readings: of a recorded snapshot, and of the agent's own.

use core::time::Duration;

use endpoint_picker::plugin::UtilizationDetector;
use endpoint_picker::pool::reading::{Lora, Reading};
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker_wire::{TopologyError, reading_into_core, topology_into_core, v1};

use crate::pool::{EndpointState, EndpointStatus, FRESH, LoraStatus, PoolStatus, TrafficStatus};

/// A pool from a recorded snapshot. Without a topology it has no endpoints.
pub fn of_snapshot(snapshot: v1::Snapshot) -> Result<PoolStatus, TopologyError> {
    let mut topology = snapshot.topology.unwrap_or_default();
    let policy = topology.policy.take();
    let thresholds = Thresholds::of_policy(policy.as_ref());
    let refusal = policy.and_then(|policy| policy.refusal);
    let pool = topology_into_core(topology)?;
    // Any time works that is larger than every age.
    let now = Duration::from_secs(u64::from(u32::MAX));
    let readings: Vec<_> =
        snapshot.readings.into_iter().map(|reading| reading_into_core(reading, now)).collect();
    let endpoints = endpoints(&pool, &readings, thresholds, |_| None, now);
    let pool = pool.name().to_owned();
    Ok(PoolStatus { pool, refusal, endpoints, is_of_snapshot: true, ..PoolStatus::default() })
}

/// The status of each endpoint of a pool by its reading, with its traffic by `sent`.
pub fn endpoints(
    pool: &Endpoints,
    readings: &[Reading],
    thresholds: Thresholds,
    sent: impl Fn(&Endpoint) -> Option<TrafficStatus>,
    now: Duration,
) -> Vec<EndpointStatus> {
    let each = pool.as_slice().iter().zip(readings);
    each.map(|(endpoint, reading)| of_endpoint(endpoint, reading, thresholds, sent(endpoint), now)).collect()
}

fn of_endpoint(
    endpoint: &Endpoint,
    reading: &Reading,
    thresholds: Thresholds,
    sent: Option<TrafficStatus>,
    now: Duration,
) -> EndpointStatus {
    let age = reading.age(now);
    let state = match age {
        _ if !reading.ready => EndpointState::NotReady,
        _ if sent.as_ref().is_some_and(|sent| sent.failing) => EndpointState::Failing,
        None => EndpointState::NoReading,
        Some(age) if age > FRESH => EndpointState::Stale,
        Some(_) if thresholds.are_reached_by(reading) => EndpointState::Saturated,
        Some(_) => EndpointState::Ready,
    };
    EndpointStatus {
        name: endpoint.name().to_owned(),
        address: endpoint.printed_address().to_owned(),
        labels: endpoint.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        state,
        reason: None,
        since_ms: None,
        age_ms: age.map(milliseconds),
        engine: None,
        waiting: reading.waiting,
        running: reading.running,
        kv_usage: reading.kv_usage,
        kv_usage_metric: None,
        unseen_queue: None,
        lora: reading.lora.as_ref().map(of_adapters),
        block_size: reading.block_size,
        num_blocks: reading.num_blocks,
        cache_tokens: reading.cache_tokens,
        attributes: reading.attributes.iter().cloned().collect(),
        sent,
        kv_events: None,
    }
}

/// LoRA adapters. A server lists a running adapter as waiting too, while further requests for it wait. Such
/// an adapter counts as running only.
fn of_adapters(lora: &Lora) -> LoraStatus {
    let only_waits = |name: &&String| !lora.running.contains(name);
    let waiting = lora.waiting.iter().filter(only_waits).cloned().collect();
    LoraStatus { running: lora.running.clone(), waiting, max: lora.max }
}

/// The time in milliseconds.
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Values from which an endpoint counts as saturated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Waiting requests.
    waiting: f64,
    /// Share of the KV cache in use.
    kv_usage: f64,
}

impl Thresholds {
    /// The thresholds of the policy's saturation detector, if it is a `utilization-detector`; otherwise that
    /// plugin's defaults.
    pub fn of_policy(policy: Option<&v1::Policy>) -> Self {
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

    /// Whether one of them is reached.
    pub fn are_reached_by(self, reading: &Reading) -> bool {
        reading.waiting.is_some_and(|waiting| waiting as f64 >= self.waiting)
            || reading.kv_usage.is_some_and(|usage| usage >= self.kv_usage)
    }
}

/// Why an endpoint is in its state, in a few words; `None` for a ready endpoint. `failure` is why its last
/// scrape failed.
pub fn reason(endpoint: &EndpointStatus, failure: Option<&str>, thresholds: Thresholds) -> Option<String> {
    let reason = match endpoint.state {
        EndpointState::NotReady | EndpointState::Stale => failure.unwrap_or("no new values").to_owned(),
        EndpointState::NoReading => failure.unwrap_or("not scraped yet").to_owned(),
        EndpointState::Failing => "requests fail".to_owned(),
        EndpointState::Saturated => saturation(endpoint, thresholds),
        EndpointState::Ready => return None,
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

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::Message;

    use super::*;

    /// A snapshot of a pool with an endpoint for each reading.
    fn snapshot(readings: Vec<v1::Reading>) -> v1::Snapshot {
        let endpoint = |n| v1::Endpoint {
            name: format!("default/{n}"),
            address: format!("10.0.0.{n}:8000"),
            labels: vec![v1::Label { key: "zone".to_owned(), value: "a".to_owned() }],
        };
        let endpoints = (0..readings.len()).map(endpoint).collect();
        let topology = v1::Topology { pool: "p".to_owned(), endpoints, policy: None };
        let format = endpoint_picker_wire::FORMAT;
        v1::Snapshot { format, topology: Some(topology), readings, ..v1::Snapshot::default() }
    }

    fn reading() -> v1::Reading {
        v1::Reading {
            ready: true,
            age_ms: Some(70),
            waiting: Some(3),
            kv_usage: Some(0.5),
            ..v1::Reading::default()
        }
    }

    #[test]
    fn an_adapter_that_runs_is_not_listed_as_waiting_too() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let lora = Lora { running: names(&["a", "b"]), waiting: names(&["b", "c", "a"]), max: 2 };
        let status = of_adapters(&lora);
        assert_eq!((status.running, status.waiting, status.max), (names(&["a", "b"]), names(&["c"]), 2));
    }

    #[test]
    fn a_recorded_snapshot_gives_the_same_status() {
        let lora = v1::Lora { running: vec!["sql".to_owned()], waiting: vec![], max: 4 };
        let readings = vec![v1::Reading { lora: Some(lora), ..reading() }, v1::Reading::default()];
        let bytes = snapshot(readings).encode_to_vec();
        let status = of_snapshot(endpoint_picker_wire::decode(&bytes).unwrap()).unwrap();
        assert_eq!((status.pool.as_str(), status.endpoints.len()), ("p", 2));
        let first = &status.endpoints[0];
        assert_eq!((first.name.as_str(), first.address.as_str()), ("default/0", "10.0.0.0:8000"));
        assert_eq!((first.state, first.age_ms, first.waiting), (EndpointState::Ready, Some(70), Some(3)));
        assert_eq!((first.kv_usage, first.running, first.sent.as_ref()), (Some(0.5), None, None));
        assert_eq!(first.labels["zone"], "a");
        assert_eq!(first.lora.as_ref().unwrap().running, ["sql"]);
        assert_eq!(status.endpoints[1].state, EndpointState::NotReady);
    }

    #[test]
    fn a_status_survives_a_round_trip_through_json() {
        let status = PoolStatus { is_of_snapshot: false, ..of_snapshot(snapshot(vec![reading()])).unwrap() };
        let json = serde_json::to_string(&status).unwrap();
        assert!(json.contains(r#""state":"ready""#), "{json}");
        assert_eq!(serde_json::from_str::<PoolStatus>(&json).unwrap(), status);
    }
}
