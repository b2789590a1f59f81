//! The EPP's metrics of flow control under its names, one series for each proxy.

use metrics_agent_status::pool::PoolStatus;
use metrics_agent_status::queues::{BandReport, DetectorSaturation, QueueReport};
use prometheus_client::registry::Registry;

use super::{Distribution, Families};

/// Registers the metrics of all queues.
pub(super) fn register(registry: &mut Registry, pools: &[PoolStatus]) {
    let mut families = Families(registry);
    let size = families.gauge("flow_control_queue_size", "Requests that wait");
    let bytes = families.gauge("flow_control_queue_bytes", "Lengths of the bodies of requests that wait");
    let saturation = families.gauge("flow_control_pool_saturation", "Saturation of the pool by stage");
    let by_detector = families
        .gauge("flow_control_detector_saturation", "Saturation of the pool by detector, where several count");
    let use_of_requests =
        families.gauge("flow_control_capacity_utilization_requests", "Share of the requests that may wait");
    let use_of_bytes =
        families.gauge("flow_control_capacity_utilization_bytes", "Share of the bytes that may wait");
    let all_requests = families.gauge(
        "flow_control_global_capacity_utilization_requests",
        "Share of the requests that may wait in all bands; absent without a limit",
    );
    let all_bytes = families.gauge(
        "flow_control_global_capacity_utilization_bytes",
        "Share of the bytes that may wait in all bands; absent without a limit",
    );
    let requests = families.counter("flow_control_requests", "Requests by the end of their wait");
    let evicted = families
        .counter("flow_control_revocations_issued", "Requests in flight that were aborted to make room");
    let mut waits = Vec::new();
    for (pool, proxy, queue) in queues(pools) {
        let labels = |more: &[(&'static str, String)]| {
            let own = [("inference_pool", pool.to_owned()), ("proxy", proxy.to_owned())];
            [more, &own[..]].concat()
        };
        for (stage, value) in &queue.saturations {
            saturation.get_or_create(&labels(&[("stage", (*stage).to_owned())])).set(*value);
        }
        for DetectorSaturation { detector, stage, saturation } in &queue.by_detector {
            let own = [("detector", detector.clone()), ("stage", (*stage).to_owned())];
            by_detector.get_or_create(&labels(&own)).set(*saturation);
        }
        evicted.get_or_create(&labels(&[])).inc_by(queue.evicted);
        let sum =
            |figure: fn(&BandReport) -> u64| queue.bands.iter().map(figure).fold(0, u64::saturating_add);
        if let Some(share) = share(sum(|band| band.requests), queue.max_requests) {
            all_requests.get_or_create(&labels(&[])).set(share);
        }
        if let Some(share) = share(sum(|band| band.bytes), queue.max_bytes) {
            all_bytes.get_or_create(&labels(&[])).set(share);
        }
        for band in &queue.bands {
            let priority = ("priority", band.priority.to_string());
            let of_band = labels(core::slice::from_ref(&priority));
            if let Some(share) = share(band.requests, band.max_requests) {
                use_of_requests.get_or_create(&of_band).set(share);
            }
            if let Some(share) = share(band.bytes, band.max_bytes) {
                use_of_bytes.get_or_create(&of_band).set(share);
            }
            for (outcome, ended) in band.outcomes.iter() {
                let of_outcome = labels(&[priority.clone(), ("outcome", outcome.to_owned())]);
                requests.get_or_create(&of_outcome).inc_by(ended.requests());
            }
            for tenant in band.tenants.iter() {
                let of_tenant = [("fairness_id", tenant.fairness_id.clone()), priority.clone()];
                size.get_or_create(&labels(&of_tenant)).set(tenant.requests as f64);
                bytes.get_or_create(&labels(&of_tenant)).set(tenant.bytes as f64);
                for (outcome, ended) in tenant.outcomes.iter() {
                    let outcome = ("outcome", outcome.to_owned());
                    let distribution = Distribution {
                        sum: ended.seconds(),
                        count: ended.requests(),
                        buckets: ended.buckets(),
                    };
                    waits.push((labels(&[&of_tenant[..], &[outcome]].concat()), distribution));
                }
            }
        }
    }
    families.histogram(
        "flow_control_request_queue_duration_seconds",
        "How long requests waited, by the end of their wait",
        waits,
    );
}

fn queues(pools: &[PoolStatus]) -> impl Iterator<Item = (&str, &str, &QueueReport)> {
    pools.iter().flat_map(|pool| {
        let proxies = pool.proxies.iter();
        proxies.filter_map(|proxy| Some((pool.pool.as_str(), proxy.proxy.as_str(), proxy.queue.as_ref()?)))
    })
}

/// The part of a limit that is in use; `None` without a limit.
fn share(used: u64, limit: u64) -> Option<f64> {
    (limit > 0).then(|| used as f64 / limit as f64)
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::report::{self, Band, BandOutcome, BandTenant, FlowControl};
    use metrics_agent_status::pool::ProxyStatus;
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn pool(sent: &FlowControl) -> PoolStatus {
        let mut queue = QueueReport::read(sent).unwrap();
        queue.bound_tenants(core::iter::empty(), None);
        let proxy = ProxyStatus { proxy: "envoy".to_owned(), queue: Some(queue), ..ProxyStatus::default() };
        PoolStatus { pool: "p".to_owned(), proxies: vec![proxy], ..PoolStatus::default() }
    }

    #[test]
    fn queues_are_reported_under_the_names_of_the_epp() {
        let outcome = |waits, wait_seconds| BandOutcome {
            outcome: "Dispatched".to_owned(),
            waits,
            wait_seconds,
            ..BandOutcome::default()
        };
        let tenant =
            |id: &str, outcomes| BandTenant { fairness_id: id.to_owned(), requests: 7, bytes: 90, outcomes };
        let band = Band {
            priority: -1,
            requests: 30,
            bytes: 600,
            max_requests: 40,
            max_bytes: 0,
            outcomes: vec![outcome(vec![0, 2, 0, 1], 0.25)],
            // A client chooses such a name.
            tenants: vec![
                tenant("a\"}\n", vec![outcome(vec![0, 2], 0.05)]),
                tenant("other", vec![outcome(vec![0, 0, 0, 1], 0.2)]),
            ],
        };
        let sent = FlowControl {
            decode_saturation: Some(0.5),
            saturation: 1.5,
            max_requests: 120,
            evicted: 3,
            bands: vec![band],
            detectors: vec![report::DetectorSaturation {
                detector: "pool-queue".to_owned(),
                prefill: None,
                decode: Some(0.25),
            }],
            ..FlowControl::default()
        };
        let mut registry = Registry::default();
        register(registry.sub_registry_with_prefix("llm_d_epp"), &[pool(&sent)]);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let own = r#"inference_pool="p",proxy="envoy""#;
        let duration = "llm_d_epp_flow_control_request_queue_duration_seconds";
        let a = r#"fairness_id="a\"}\n",priority="-1""#;
        let other = r#"fairness_id="other",priority="-1""#;
        for line in [
            format!("llm_d_epp_flow_control_queue_size{{{a},{own}}} 7.0"),
            format!("llm_d_epp_flow_control_queue_size{{{other},{own}}} 23.0"),
            format!("llm_d_epp_flow_control_queue_bytes{{{a},{own}}} 90.0"),
            format!("llm_d_epp_flow_control_queue_bytes{{{other},{own}}} 510.0"),
            format!(r#"llm_d_epp_flow_control_pool_saturation{{stage="decode",{own}}} 0.5"#),
            format!(r#"llm_d_epp_flow_control_pool_saturation{{stage="effective",{own}}} 1.5"#),
            format!(
                r#"llm_d_epp_flow_control_detector_saturation{{detector="pool-queue",stage="decode",{own}}} 0.25"#
            ),
            format!(r#"llm_d_epp_flow_control_capacity_utilization_requests{{priority="-1",{own}}} 0.75"#),
            format!("llm_d_epp_flow_control_global_capacity_utilization_requests{{{own}}} 0.25"),
            format!(r#"llm_d_epp_flow_control_requests_total{{priority="-1",outcome="Dispatched",{own}}} 3"#),
            format!("llm_d_epp_flow_control_revocations_issued_total{{{own}}} 3"),
            format!("# TYPE {duration} histogram"),
            format!(r#"{duration}_bucket{{le="0.0001",{a},outcome="Dispatched",{own}}} 0"#),
            format!(r#"{duration}_bucket{{le="0.0005",{a},outcome="Dispatched",{own}}} 2"#),
            format!(r#"{duration}_bucket{{le="60.0",{a},outcome="Dispatched",{own}}} 2"#),
            format!(r#"{duration}_bucket{{le="+Inf",{a},outcome="Dispatched",{own}}} 2"#),
            format!(r#"{duration}_sum{{{a},outcome="Dispatched",{own}}} 0.05"#),
            format!(r#"{duration}_count{{{a},outcome="Dispatched",{own}}} 2"#),
            format!(r#"{duration}_sum{{{other},outcome="Dispatched",{own}}} 0.2"#),
            format!(r#"{duration}_count{{{other},outcome="Dispatched",{own}}} 1"#),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("flow_control_capacity_utilization_bytes{"), "no limit:\n{text}");
    }

    #[test]
    fn without_a_queue_there_are_no_series() {
        let mut registry = Registry::default();
        register(&mut registry, &[PoolStatus { pool: "p".to_owned(), ..PoolStatus::default() }]);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(!text.contains("flow_control"), "{text}");
    }
}
