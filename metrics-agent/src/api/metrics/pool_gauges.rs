//! Gauges of pools and endpoints, computed from the pools for each request.
//!
//! Names of endpoints and proxies come from outside. A family has at most [`MAX_SERIES`] endpoints by name;
//! the others are added up under [`OTHER`].

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker_wire::statistics::{self, Field};
use metrics_agent_status::pool::{EndpointState, EndpointStatus, FRESH, PoolStatus, StreamState};
use metrics_agent_status::predictions::PredictionErrors;
use prometheus_client::registry::{Registry, Unit};

use super::{Counts, Distribution, Families, SeriesLabels, queue_metrics, raise};

/// Maximum number of endpoints by name in a family, as in the EPP.
pub(super) const MAX_SERIES: usize = 1000;

/// The label of all endpoints above the limit.
const OTHER: &str = "other";

type Value = fn(&EndpointStatus) -> Option<f64>;

/// All gauges of these pools.
pub(super) fn registry(pools: &[PoolStatus]) -> Registry {
    let mut registry = Registry::default();
    let epp = registry.sub_registry_with_prefix("llm_d_epp");
    register_epp(epp, pools);
    queue_metrics::register(epp, pools);
    register_endpoints(registry.sub_registry_with_prefix("metrics_agent"), pools);
    register_proxies(registry.sub_registry_with_prefix("endpoint_picker"), pools);
    register_sharing(&mut registry, pools);
    register_kv_events(registry.sub_registry_with_prefix("metrics_agent"), pools);
    registry
}

/// The EPP's pool metrics under its names. Without a fresh endpoint there are no averages, because averages
/// of old values would mislead.
fn register_epp(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry);
    let ready = families.gauge("ready_endpoints", "Ready endpoints whose values are at most 2 s old");
    let kinds: [(&str, &str, Value); 3] = [
        ("kv_cache_utilization", "share of the KV cache in use", |it| it.kv_usage),
        ("queue_size", "waiting requests", |it| it.waiting.map(|count| count as f64)),
        ("running_requests", "running requests", |it| it.running.map(|count| count as f64)),
    ];
    for (name, what, value) in kinds {
        let average = families.gauge(&format!("average_{name}"), &format!("Mean {what} of fresh endpoints"));
        let deviation =
            families.gauge(&format!("std_dev_{name}"), &format!("Sample standard deviation of the {what}"));
        for pool in pools {
            let values: Vec<f64> =
                pool.endpoints.iter().filter(|it| is_fresh(it)).map(|it| value(it).unwrap_or(0.0)).collect();
            if let Some((mean, sample)) = mean_and_deviation(&values) {
                average.get_or_create(&named(pool)).set(hundredths(mean));
                deviation.get_or_create(&named(pool)).set(hundredths(sample));
            }
        }
    }
    let queue = families.gauge("per_endpoint_queue_size", "Waiting requests of each endpoint");
    let mut budget = SeriesBudget::default();
    for pool in pools {
        let fresh = pool.endpoints.iter().filter(|it| is_fresh(it)).count();
        ready.get_or_create(&named(pool)).set(fresh as f64);
        for endpoint in &pool.endpoints {
            let labels =
                [("name", pool.pool.clone()), ("model_server_endpoint", budget.name(&endpoint.name))];
            queue.get_or_create(&labels.to_vec()).inc_by(endpoint.waiting.unwrap_or(0) as f64);
        }
    }
}

fn register_endpoints(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry);
    let age = families.gauge_of(
        "reading_age",
        "Age of an endpoint's values; those never scraped are left out",
        Some(Unit::Seconds),
    );
    let states = families.gauge("endpoint_states", "Endpoints of the pool by state");
    let mut budget = SeriesBudget::default();
    for pool in pools {
        for state in EndpointState::ALL {
            let count = pool.endpoints.iter().filter(|endpoint| endpoint.state == state).count();
            let labels = [("pool", pool.pool.clone()), ("state", state.name().to_owned())];
            states.get_or_create(&labels.to_vec()).set(count as f64);
        }
        for endpoint in &pool.endpoints {
            let labels = [("pool", pool.pool.clone()), ("endpoint", budget.name(&endpoint.name))];
            if let Some(age_ms) = endpoint.age_ms {
                raise(&age, &labels.to_vec(), age_ms as f64 / 1000.0);
            }
        }
    }
}

fn register_proxies(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry);
    let reporting = families.gauge("proxies", "Proxies that report on the pool");
    let info = families.gauge("proxy_info", "The version and the form of a proxy's filter");
    let age = families.gauge_of("report_age", "Age of a proxy's last report", Some(Unit::Seconds));
    register_counts(&mut families, pools);
    let picks = families.counter("picks", "Requests, or stages of requests, sent to an endpoint");
    let in_flight = families.gauge("in_flight_requests", "Requests in flight at an endpoint");
    let tokens = families.gauge("in_flight_tokens", "Tokens of the requests in flight at an endpoint");
    let help = "Tokens of prompts that an endpoint was predicted to have cached, of responses that report their cached tokens";
    let predicted = families.counter("index_predicted_tokens", help);
    let help = "Tokens of these prompts that the endpoint had cached";
    let cached = families.counter("index_cached_tokens", help);
    let help = "Responses whose cached tokens were predicted with an error of more than a block, by the source of the prediction";
    let wrong = families.counter("index_wrong_responses", help);
    let mut errors: BTreeMap<SeriesLabels, PredictionErrors> = BTreeMap::new();
    let mut budget = SeriesBudget::default();
    for pool in pools {
        reporting.get_or_create(&vec![("pool", pool.pool.clone())]).set(pool.proxies.len() as f64);
        for proxy in &pool.proxies {
            let own = [("pool", pool.pool.clone()), ("proxy", proxy.proxy.clone())];
            age.get_or_create(&own.to_vec()).set(proxy.age_ms as f64 / 1000.0);
            if let Some((version, form)) = proxy.version.clone().zip(proxy.form) {
                let build = [("version", version), ("form", form.name().to_owned())];
                info.get_or_create(&[own, build].concat()).set(1.0);
            }
        }
        for endpoint in &pool.endpoints {
            let Some(sent) = &endpoint.sent else { continue };
            let labels = vec![("pool", pool.pool.clone()), ("endpoint", budget.name(&endpoint.name))];
            picks.get_or_create(&labels).inc_by(sent.picks);
            in_flight.get_or_create(&labels).inc_by(sent.requests as f64);
            tokens.get_or_create(&labels).inc_by(sent.tokens as f64);
            // Most pools have no responses with cached tokens.
            let predictions = &sent.predictions;
            if predictions.predicted_cached_tokens > 0 || predictions.cached_tokens > 0 {
                predicted.get_or_create(&labels).inc_by(predictions.predicted_cached_tokens);
                cached.get_or_create(&labels).inc_by(predictions.cached_tokens);
            }
            for (source, by_source) in predictions.by_source() {
                if by_source.responses() > 0 {
                    let labels = [labels.as_slice(), &[("source", source.as_str().to_owned())]].concat();
                    wrong.get_or_create(&labels).inc_by(by_source.wrong());
                    errors.entry(labels).or_default().add(by_source);
                }
            }
        }
    }
    let distribution = |errors: &PredictionErrors| Distribution {
        sum: errors.tokens() as f64,
        count: errors.responses(),
        buckets: errors.buckets(),
    };
    families.histogram(
        "index_error_tokens",
        "Difference of predicted and cached tokens of responses that report them, by the source of the prediction",
        errors.into_iter().map(|(labels, errors)| (labels, distribution(&errors))).collect(),
    );
}

/// Registers the counts of proxies that the table of statistics publishes.
fn register_counts(families: &mut Families<'_>, pools: &[PoolStatus]) {
    let mut by_name: BTreeMap<&str, Counts> = BTreeMap::new();
    for (statistic, shown) in statistics::shown() {
        if let Field::Derived = shown.field {
            continue;
        }
        let (name, help, by, fixed) = match shown.shared {
            None => (statistic.name, statistic.help, shown.by, None),
            Some((metric, value)) => (metric.name, metric.help, metric.by, Some((metric.label, value))),
        };
        let family = by_name.entry(name).or_insert_with(|| families.counter(name, help));
        for (pool, proxy) in pools.iter().flat_map(|pool| pool.proxies.iter().map(move |it| (pool, it))) {
            for (value, count) in proxy.counts.by_value(statistic) {
                let own = [("pool", pool.pool.as_str()), ("proxy", &proxy.proxy)].into_iter();
                let labels = own.chain(fixed).chain(by.map(|label| (label, value)));
                let labels = labels.map(|(label, value)| (label, value.to_owned())).collect();
                family.get_or_create(&labels).inc_by(count);
            }
        }
    }
}

/// Registers the contents of endpoints' KV caches, and the extent to which they are known.
fn register_kv_events(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry);
    let help = "Endpoints whose KV-cache events are followed, by what is known about their caches";
    let states = families.gauge("kv_event_states", help);
    let help = "Age of the last message with events of an endpoint's KV cache";
    let age = families.gauge_of("kv_event_age", help, Some(Unit::Seconds));
    let tokens = families.gauge("kv_event_tokens", "Tokens that an endpoint has cached, by tier");
    let mut budget = SeriesBudget::default();
    for pool in pools {
        let followed = pool.endpoints.iter().filter_map(|it| Some((it, it.kv_events.as_ref()?)));
        for state in StreamState::ALL {
            let count = followed.clone().filter(|(_, events)| events.state == state).count();
            if followed.clone().next().is_some() {
                let labels = vec![("pool", pool.pool.clone()), ("state", state.name().to_owned())];
                states.get_or_create(&labels).set(count as f64);
            }
        }
        for (endpoint, events) in followed {
            let labels = vec![("pool", pool.pool.clone()), ("endpoint", budget.name(&endpoint.name))];
            if let Some(age_ms) = events.age_ms {
                raise(&age, &labels, age_ms as f64 / 1000.0);
            }
            for (tier, count) in &events.tokens {
                let labels = [labels.as_slice(), &[("tier", tier.clone())]].concat();
                tokens.get_or_create(&labels).inc_by(*count as f64);
            }
        }
    }
}

/// Registers how far behind proxies and agents are with shared changes. Of several proxies of one name, the
/// one that is furthest behind counts.
fn register_sharing(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry.sub_registry_with_prefix("endpoint_picker"));
    let help = "Time for which changes of others have waited to be read by a proxy";
    let behind = families.gauge_of("sharing_behind", help, Some(Unit::Seconds));
    let help = "Messages with changes of others that a proxy has not read";
    let unread = families.gauge("sharing_unread_messages", help);
    let help = "Messages with changes of others that were dropped before a proxy read them";
    let missed = families.counter("sharing_missed_messages", help);
    let mut families = Families(registry.sub_registry_with_prefix("metrics_agent"));
    let help = "Time for which changes of other agents may have waited to be read from the store";
    let read_behind = families.gauge_of("store_read_behind", help, Some(Unit::Seconds));
    let help = "Time for which changes of the agent's proxies have waited to be written to the store";
    let write_behind = families.gauge_of("store_write_behind", help, Some(Unit::Seconds));
    let help = "Messages of the agent's proxies that the store has not taken";
    let unwritten = families.gauge("store_unwritten_messages", help);
    let seconds = |ms: u64| ms as f64 / 1000.0;
    for pool in pools {
        let Some(sharing) = &pool.sharing else { continue };
        for proxy in &sharing.proxies {
            let labels = vec![("pool", pool.pool.clone()), ("proxy", proxy.proxy.clone())];
            raise(&behind, &labels, seconds(proxy.behind_ms));
            raise(&unread, &labels, proxy.unread as f64);
            missed.get_or_create(&labels).inc_by(proxy.missed);
        }
        let labels = vec![("pool", pool.pool.clone())];
        if let Some(store) = sharing.store {
            raise(&read_behind, &labels, seconds(store.read_behind_ms));
            raise(&write_behind, &labels, seconds(store.write_behind_ms));
            raise(&unwritten, &labels, store.unwritten as f64);
        }
    }
}

/// The names that a family may still have.
struct SeriesBudget {
    left: usize,
}

impl Default for SeriesBudget {
    fn default() -> Self {
        Self { left: MAX_SERIES }
    }
}

impl SeriesBudget {
    /// The label of the next endpoint.
    fn name(&mut self, endpoint: &str) -> String {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                endpoint.to_owned()
            }
            None => OTHER.to_owned(),
        }
    }
}

/// Whether an endpoint's values are current. An endpoint that is not ready keeps its last values, which are
/// out of date.
fn is_fresh(endpoint: &EndpointStatus) -> bool {
    endpoint.state != EndpointState::NotReady
        && endpoint.age_ms.is_some_and(|age_ms| Duration::from_millis(age_ms) <= FRESH)
}

fn named(pool: &PoolStatus) -> SeriesLabels {
    vec![("name", pool.pool.clone())]
}

/// Mean and sample standard deviation (n - 1; 0 for one value), as in the EPP; `None` without values.
fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
    Some((mean, deviation))
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests;
