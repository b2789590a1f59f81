//! The last minutes of every endpoint, so that a page shows them as soon as it is opened.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use metrics_agent_status::pool::{EndpointState, EndpointStatus, PoolStatus};
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::time::MissedTickBehavior;

use super::build;
use super::state_times::StateTimes;
use crate::api::reports::Reports;
use crate::publish::Pools;

/// Time between two points.
const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of points: five minutes.
const MAX_POINTS: usize = 150;

/// Maximum number of endpoints of a pool, the first ones: 3 MB.
const MAX_ENDPOINTS: usize = 1000;

/// The points of all pools.
#[derive(Debug)]
pub struct History {
    clock: Clock,
    pools: Mutex<HashMap<String, PoolHistory>>,
    /// Every state is read every two seconds at least.
    state_times: StateTimes,
}

#[derive(Debug, Default)]
struct PoolHistory {
    times: VecDeque<Duration>,
    endpoints: BTreeMap<String, EndpointColumns>,
    /// Requests that wait in the proxies' queues, by priority.
    queued: BTreeMap<i32, NumberColumn>,
}

/// One number for each of [`PoolHistory::times`]; NaN, and null in JSON, where there was no value.
type NumberColumn = VecDeque<f32>;

/// The columns of an endpoint, in the order of [`SERIES`].
#[derive(Clone, Debug)]
struct EndpointColumns([NumberColumn; SERIES.len()]);

/// A series of an endpoint: its name in JSON, and its newest value.
type Series = (&'static str, fn(&EndpointStatus) -> Option<f64>);

/// The series of an endpoint.
const SERIES: [Series; 5] = [
    ("waiting", |it| ready(it)?.waiting.map(|count| count as f64)),
    ("running", |it| ready(it)?.running.map(|count| count as f64)),
    ("kv_usage", |it| ready(it)?.kv_usage),
    ("in_flight", |it| it.sent.as_ref().map(|sent| sent.requests as f64)),
    ("picks_per_second", |it| it.sent.as_ref()?.picks_per_second),
];

/// The JSON of one pool, the oldest point first.
#[derive(Serialize)]
struct HistoryJson<'a> {
    ages_ms: Vec<u128>,
    endpoints: &'a BTreeMap<String, EndpointColumns>,
    queued: &'a BTreeMap<i32, NumberColumn>,
}

impl History {
    /// No points.
    pub fn new(clock: Clock) -> Self {
        Self { clock, pools: Mutex::default(), state_times: StateTimes::default() }
    }

    /// Adds a point every two seconds, forever.
    pub async fn record(self: Arc<Self>, pools: Arc<Pools>, reports: Arc<Reports>) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let statuses = pools.publishers().into_iter();
            let now = self.clock.now();
            let status = |publisher: &_| build::of_pool(publisher, &reports, &self.state_times, now);
            let statuses = statuses.filter_map(|(_, publisher)| status(&publisher));
            self.add(&statuses.collect::<Vec<_>>());
        }
    }

    /// Adds a point to each of these pools and removes other pools.
    fn add(&self, statuses: &[PoolStatus]) {
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        let is_served = |name: &str| statuses.iter().any(|status| status.pool == name);
        pools.retain(|name, _| is_served(name));
        self.state_times.retain(is_served);
        for status in statuses {
            pools.entry(status.pool.clone()).or_default().add(status, now);
        }
    }

    /// How long endpoints have been in their states.
    pub(in crate::api) fn state_times(&self) -> &StateTimes {
        &self.state_times
    }

    /// One pool's points as JSON.
    #[expect(clippy::missing_panics_doc, reason = "numbers under text keys are always JSON")]
    pub fn json(&self, pool: &str) -> String {
        let now = self.clock.now();
        let pools = self.pools.lock();
        let empty = PoolHistory::default();
        let history = pools.get(pool).unwrap_or(&empty);
        let ages_ms = history.times.iter().map(|at| now.saturating_sub(*at).as_millis()).collect();
        let json = HistoryJson { ages_ms, endpoints: &history.endpoints, queued: &history.queued };
        serde_json::to_string(&json).expect("numbers under text keys are always JSON")
    }
}

impl PoolHistory {
    fn add(&mut self, status: &PoolStatus, now: Duration) {
        let before = self.times.len();
        self.times.push_back(now);
        for endpoint in status.endpoints.iter().take(MAX_ENDPOINTS) {
            let made = || EndpointColumns(core::array::from_fn(|_| unknown(before)));
            let EndpointColumns(columns) = self.endpoints.entry(endpoint.name.clone()).or_insert_with(made);
            for (column, (_, value)) in columns.iter_mut().zip(SERIES) {
                column.push_back(thousandths(value(endpoint)));
            }
        }
        // Endpoints without a new point have left.
        self.endpoints.retain(|_, EndpointColumns([first, ..])| first.len() == before + 1);
        for band in status.queue.iter().flat_map(|queue| &queue.bands) {
            let queued = self.queued.entry(band.priority).or_insert_with(|| unknown(before));
            queued.push_back(band.requests as f32);
        }
        self.queued.retain(|_, queued| queued.len() == before + 1);
        if self.times.len() > MAX_POINTS {
            self.times.pop_front();
            let columns = self.endpoints.values_mut().flat_map(|EndpointColumns(columns)| columns);
            columns.chain(self.queued.values_mut()).for_each(|column| _ = column.pop_front());
        }
    }
}

/// The endpoint, unless it is not ready: then its last values are out of date.
fn ready(endpoint: &EndpointStatus) -> Option<&EndpointStatus> {
    (endpoint.state != EndpointState::NotReady).then_some(endpoint)
}

impl Serialize for EndpointColumns {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(SERIES.iter().map(|(name, _)| name).zip(&self.0))
    }
}

fn unknown(points: usize) -> NumberColumn {
    core::iter::repeat_n(f32::NAN, points).collect()
}

/// As exact as a chart needs, and short in JSON.
#[expect(clippy::cast_possible_truncation, reason = "a chart needs no more")]
fn thousandths(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| ((value * 1000.0).round() / 1000.0) as f32)
}

#[cfg(test)]
mod tests {
    use metrics_agent_status::pool::TrafficStatus;
    use metrics_agent_status::queues::status::{BandStatus, QueueStatus};

    use super::*;

    fn endpoint(name: &str, waiting: u64) -> EndpointStatus {
        EndpointStatus {
            name: name.to_owned(),
            address: String::new(),
            labels: BTreeMap::new(),
            state: EndpointState::Ready,
            reason: None,
            since_ms: None,
            age_ms: Some(0),
            waiting: Some(waiting),
            running: None,
            kv_usage: Some(0.123_456),
            engine: None,
            kv_usage_metric: None,
            unseen_queue: None,
            lora: None,
            block_size: None,
            num_blocks: None,
            cache_tokens: None,
            attributes: BTreeMap::new(),
            kv_events: None,
            sent: Some(TrafficStatus {
                requests: 3,
                picks_per_second: Some(2.5),
                ..TrafficStatus::default()
            }),
        }
    }

    fn pool(endpoints: Vec<EndpointStatus>) -> PoolStatus {
        PoolStatus { pool: "p".to_owned(), endpoints, ..PoolStatus::default() }
    }

    fn parsed(history: &History) -> serde_json::Value {
        serde_json::from_str(&history.json("p")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_joins_later_has_no_earlier_values_and_one_that_left_is_removed() {
        let history = History::new(Clock::start());
        history.add(&[pool(vec![endpoint("a", 1)])]);
        tokio::time::advance(INTERVAL).await;
        history.add(&[pool(vec![endpoint("a", 2), endpoint("b", 7)])]);
        let json = parsed(&history);
        assert_eq!(json["ages_ms"], serde_json::json!([2000, 0]));
        assert_eq!(json["endpoints"]["a"]["waiting"], serde_json::json!([1.0, 2.0]));
        assert_eq!(json["endpoints"]["b"]["waiting"], serde_json::json!([null, 7.0]));
        assert_eq!(json["endpoints"]["b"]["running"], serde_json::json!([null, null]));
        assert_eq!(json["endpoints"]["a"]["kv_usage"], serde_json::json!([0.123, 0.123]));
        assert_eq!(json["endpoints"]["a"]["in_flight"], serde_json::json!([3.0, 3.0]));
        assert_eq!(json["endpoints"]["a"]["picks_per_second"], serde_json::json!([2.5, 2.5]));
        history.add(&[pool(vec![endpoint("b", 8)])]);
        assert!(parsed(&history)["endpoints"].get("a").is_none());
        history.add(&[]);
        assert_eq!(parsed(&history), serde_json::json!({"ages_ms": [], "endpoints": {}, "queued": {}}));
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_kept_by_priority_as_long_as_there_is_one() {
        let history = History::new(Clock::start());
        let queue = |bands: &[(i32, u64)]| {
            let band = |&(priority, requests): &_| BandStatus { priority, requests, ..BandStatus::default() };
            let queue = QueueStatus { bands: bands.iter().map(band).collect(), ..QueueStatus::default() };
            PoolStatus { queue: Some(queue), ..pool(vec![]) }
        };
        history.add(&[queue(&[(0, 7)])]);
        history.add(&[queue(&[(10, 2), (0, 8)])]);
        assert_eq!(parsed(&history)["queued"], serde_json::json!({"0": [7.0, 8.0], "10": [null, 2.0]}));
        for _ in 0..MAX_POINTS {
            history.add(&[queue(&[(0, 9)])]);
        }
        let queued = &parsed(&history)["queued"];
        assert_eq!(
            (queued["0"].as_array().unwrap().len(), &queued["10"]),
            (MAX_POINTS, &serde_json::Value::Null)
        );
        history.add(&[pool(vec![])]);
        assert_eq!(parsed(&history)["queued"], serde_json::json!({}));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_is_not_ready_has_no_values() {
        let history = History::new(Clock::start());
        let gone = EndpointStatus { state: EndpointState::NotReady, running: Some(4), ..endpoint("a", 1) };
        history.add(&[pool(vec![gone])]);
        let line = &parsed(&history)["endpoints"]["a"];
        let unknown = serde_json::json!([null]);
        assert_eq!([&line["waiting"], &line["running"], &line["kv_usage"]], [&unknown; 3]);
        assert_eq!(line["in_flight"], serde_json::json!([3.0]), "traffic of proxies is still counted");
    }

    #[tokio::test(start_paused = true)]
    async fn history_is_limited_to_five_minutes_and_a_thousand_endpoints() {
        let history = History::new(Clock::start());
        let many: Vec<_> = (0..MAX_ENDPOINTS + 5).map(|n| endpoint(&n.to_string(), 1)).collect();
        for _ in 0..MAX_POINTS + 5 {
            history.add(&[pool(many.clone())]);
        }
        let json = parsed(&history);
        assert_eq!(json["ages_ms"].as_array().unwrap().len(), MAX_POINTS);
        let endpoints = json["endpoints"].as_object().unwrap();
        assert_eq!(endpoints.len(), MAX_ENDPOINTS);
        assert_eq!(endpoints["0"]["running"].as_array().unwrap().len(), MAX_POINTS);
    }
}
