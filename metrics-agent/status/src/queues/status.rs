//! The queues of all proxies together, as the page and `metrics-agent snapshot` show them.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use endpoint_picker::flow_control::OTHER_TENANTS;
use endpoint_picker::plugin::DEFAULT_FLOW;
use serde::{Deserialize, Serialize};

use super::earlier::EarlierWaits;
use super::waits::Waits;
use super::{BandReport, EFFECTIVE, QueueReport};

/// Maximum number of tenants of a band that are shown.
const TENANTS_SHOWN: usize = 10;

/// The queues of all proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// The pool's saturation, the greatest that a proxy reports; from 1 on requests wait. Absent: unknown.
    pub saturation: Option<f64>,
    /// Dispatched requests that have not ended.
    pub in_flight: u64,
    /// Requests in flight that were aborted to make room, since the proxies started.
    pub evicted: u64,
    /// The highest priority first.
    pub bands: Vec<BandStatus>,
}

/// The requests of one priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BandStatus {
    /// The priority.
    pub priority: i32,
    /// Requests that wait.
    pub requests: u64,
    /// Lengths of their bodies.
    pub bytes: u64,
    /// Maximum number of requests that may wait.
    pub max_requests: u64,
    /// Maximum number of bytes that may wait.
    pub max_bytes: u64,
    /// Waits of the requests that were dispatched in the last 30 to 60 s; absent: none was.
    pub wait_ms: Option<WaitPercentiles>,
    /// Requests by the end of their wait, with the EPP's names, since the proxies started.
    pub outcomes: BTreeMap<String, u64>,
    /// The tenants with the most requests that wait or were dispatched lately; absent when requests name
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantStatus>,
}

/// The requests of one fairness id in a band.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantStatus {
    /// The fairness id, which clients choose; `other`: all tenants without figures of their own.
    pub fairness_id: String,
    /// Requests that wait.
    pub requests: u64,
    /// Lengths of their bodies.
    pub bytes: u64,
    /// Waits of the requests that were dispatched in the last 30 to 60 s; absent: none was.
    pub wait_ms: Option<WaitPercentiles>,
}

/// Percentiles of waits, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles by their names")]
pub struct WaitPercentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl QueueStatus {
    /// The sum of the proxies' queues; `None`: no proxy has one.
    pub fn of<'a>(queues: impl Iterator<Item = (&'a QueueReport, &'a EarlierWaits)>) -> Option<Self> {
        let mut status: Option<Self> = None;
        let mut bands: BTreeMap<i32, BandSum> = BTreeMap::new();
        for (queue, earlier) in queues {
            let sum = status.get_or_insert_default();
            let saturation = queue.saturations.iter().find(|(stage, _)| *stage == EFFECTIVE);
            sum.saturation = sum.saturation.into_iter().chain(saturation.map(|(_, it)| *it)).reduce(f64::max);
            sum.in_flight = sum.in_flight.saturating_add(queue.in_flight);
            sum.evicted = sum.evicted.saturating_add(queue.evicted);
            for band in &queue.bands {
                bands.entry(band.priority).or_default().add(band, earlier);
            }
        }
        let mut status = status?;
        status.bands = bands.into_values().rev().map(BandSum::finish).collect();
        Some(status)
    }
}

/// The sum of one band of all proxies.
#[derive(Debug, Default)]
struct BandSum {
    status: BandStatus,
    /// The recent waits of dispatched requests.
    recent: Waits,
    tenants: BTreeMap<String, (TenantStatus, Waits)>,
}

impl BandSum {
    fn add(&mut self, band: &BandReport, earlier: &EarlierWaits) {
        let status = &mut self.status;
        status.priority = band.priority;
        let sums = [
            (&mut status.requests, band.requests),
            (&mut status.bytes, band.bytes),
            (&mut status.max_requests, band.max_requests),
            (&mut status.max_bytes, band.max_bytes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (outcome, waits) in band.outcomes.iter() {
            let sum = status.outcomes.entry(outcome.to_owned()).or_default();
            *sum = sum.saturating_add(waits.requests());
        }
        if let Some(waits) = band.outcomes.dispatched() {
            self.recent.add(&earlier.of_band(band.priority, waits));
        }
        for tenant in band.tenants.iter() {
            let id = &tenant.fairness_id;
            let (sum, recent) = self.tenants.entry(id.clone()).or_default();
            sum.requests = sum.requests.saturating_add(tenant.requests);
            sum.bytes = sum.bytes.saturating_add(tenant.bytes);
            if let Some(waits) = tenant.outcomes.dispatched() {
                recent.add(&earlier.of_tenant(band.priority, id, waits));
            }
        }
    }

    fn finish(self) -> BandStatus {
        let names_tenants = self.tenants.keys().any(|id| id != DEFAULT_FLOW && id != OTHER_TENANTS);
        let mut tenants: Vec<_> = self.tenants.into_iter().filter(|_| names_tenants).collect();
        tenants.retain(|(_, (tenant, recent))| tenant.requests > 0 || recent.requests() > 0);
        tenants.sort_by_key(|(_, (tenant, recent))| Reverse((tenant.requests, recent.requests())));
        tenants.truncate(TENANTS_SHOWN);
        let tenants = tenants.into_iter().map(|(fairness_id, (tenant, recent))| TenantStatus {
            fairness_id,
            wait_ms: percentiles(&recent),
            ..tenant
        });
        BandStatus { wait_ms: percentiles(&self.recent), tenants: tenants.collect(), ..self.status }
    }
}

fn percentiles(waits: &Waits) -> Option<WaitPercentiles> {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| waits.percentile_ms(share));
    Some(WaitPercentiles { p50: p50?, p90: p90?, p99: p99? })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use endpoint_picker_wire::report::{Band, BandOutcome, BandTenant, FlowControl};

    use super::*;

    fn queue(saturation: f64, priority: i32, waiting: u64, dispatched: u64) -> (QueueReport, EarlierWaits) {
        let outcome = |dispatched| BandOutcome {
            outcome: "Dispatched".to_owned(),
            waits: vec![0, 0, dispatched],
            ..BandOutcome::default()
        };
        let report = |dispatched| {
            let band = Band {
                priority,
                requests: waiting,
                max_requests: 10,
                outcomes: vec![outcome(dispatched)],
                ..Band::default()
            };
            let sent = FlowControl { saturation, in_flight: 2, bands: vec![band], ..FlowControl::default() };
            QueueReport::read(&sent).unwrap()
        };
        (report(dispatched), EarlierWaits::begin(&report(1), Duration::ZERO))
    }

    #[test]
    fn the_queues_of_proxies_are_added_up_band_by_band() {
        let queues = [queue(0.4, 0, 3, 5), queue(1.5, 0, 4, 1), queue(0.2, 10, 0, 1)];
        let status = QueueStatus::of(queues.iter().map(|(report, earlier)| (report, earlier))).unwrap();
        assert_eq!((status.saturation, status.in_flight), (Some(1.5), 6));
        let [high, low] = &status.bands[..] else { panic!("{:?}", status.bands) };
        assert_eq!((high.priority, high.requests, high.wait_ms), (10, 0, None));
        assert_eq!((low.priority, low.requests, low.max_requests), (0, 7, 20));
        assert_eq!(low.outcomes["Dispatched"], 6);
        // Four recent waits of 0.5 to 1 ms.
        let expected = WaitPercentiles { p50: 0.75, p90: 0.95, p99: 0.995 };
        assert_eq!(low.wait_ms, Some(expected));
        assert_eq!(low.tenants, [], "requests name none");
        assert_eq!(QueueStatus::of(core::iter::empty()), None);
    }

    /// A queue of one band with these tenants: requests that wait, and requests that went on before and since
    /// the first report.
    fn tenants(tenants: &[(&str, u64, u64, u64)]) -> (QueueReport, EarlierWaits) {
        let report = |is_first: bool| {
            let outcome = |&(_, _, before, since): &(&str, u64, u64, u64)| BandOutcome {
                outcome: "Dispatched".to_owned(),
                waits: vec![0, 0, if is_first { before } else { before + since }],
                ..BandOutcome::default()
            };
            let tenant = |it: &(&str, u64, u64, u64)| BandTenant {
                fairness_id: it.0.to_owned(),
                requests: it.1,
                bytes: it.1 * 10,
                outcomes: vec![outcome(it)],
            };
            let requests = tenants.iter().map(|it| it.1).sum();
            let tenants = tenants.iter().map(tenant).collect();
            let bands = vec![Band { requests, bytes: requests * 10, tenants, ..Band::default() }];
            let mut queue = QueueReport::read(&FlowControl { bands, ..FlowControl::default() }).unwrap();
            queue.bound_tenants(core::iter::empty(), None);
            queue
        };
        (report(false), EarlierWaits::begin(&report(true), Duration::ZERO))
    }

    fn shown(queues: &[(QueueReport, EarlierWaits)]) -> Vec<(String, u64, Option<f64>)> {
        let status = QueueStatus::of(queues.iter().map(|(report, earlier)| (report, earlier))).unwrap();
        let tenants = status.bands[0].tenants.iter();
        tenants.map(|it| (it.fairness_id.clone(), it.requests, it.wait_ms.map(|wait| wait.p50))).collect()
    }

    #[test]
    fn tenants_of_all_proxies_are_added_up_and_the_busiest_are_shown() {
        let one = tenants(&[("a", 1, 5, 4), ("idle", 0, 9, 0), ("other", 2, 0, 0)]);
        let two = tenants(&[("b", 0, 0, 2), ("a", 3, 0, 0)]);
        let row = |id: &str, requests, p50| (id.to_owned(), requests, p50);
        let expected = [row("a", 4, Some(0.75)), row("other", 2, None), row("b", 0, Some(0.75))];
        assert_eq!(shown(&[one, two]), expected);
        let ids: Vec<String> = (10..30).map(|n| format!("t{n}")).collect();
        let many: Vec<_> = ids.iter().zip(1..).map(|(id, waiting)| (id.as_str(), waiting, 0, 0)).collect();
        let busiest = shown(&[tenants(&many)]);
        assert_eq!(
            (busiest.len(), &busiest[0], &busiest[9]),
            (10, &row("t29", 20, None), &row("t20", 11, None))
        );
    }

    #[test]
    fn requests_that_name_no_tenant_are_the_bands() {
        assert_eq!(shown(&[tenants(&[("default-flow", 3, 0, 4), ("other", 1, 0, 0)])]), []);
    }
}
