//! The queues of all proxies together, as the page and `metrics-agent snapshot` show them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::earlier::EarlierWaits;
use super::report::{BandReport, EFFECTIVE, QueueReport};
use super::waits::Waits;

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
    /// Most requests that may wait.
    pub max_requests: u64,
    /// Most bytes that may wait.
    pub max_bytes: u64,
    /// How long requests waited that went on in the last half minute to minute; absent: none did.
    pub wait_ms: Option<WaitPercentiles>,
    /// Requests by the end of their wait, with the EPP's names, since the proxies started.
    pub outcomes: BTreeMap<String, u64>,
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
    pub(in crate::api) fn of<'a>(
        queues: impl Iterator<Item = (&'a QueueReport, &'a EarlierWaits)>,
    ) -> Option<Self> {
        let mut status: Option<Self> = None;
        let mut bands: BTreeMap<i32, (BandStatus, Waits)> = BTreeMap::new();
        for (queue, earlier) in queues {
            let sum = status.get_or_insert_default();
            let saturation = queue.saturations.iter().find(|(stage, _)| *stage == EFFECTIVE);
            sum.saturation = sum.saturation.into_iter().chain(saturation.map(|(_, it)| *it)).reduce(f64::max);
            sum.in_flight = sum.in_flight.saturating_add(queue.in_flight);
            sum.evicted = sum.evicted.saturating_add(queue.evicted);
            for band in &queue.bands {
                let (sum, recent) = bands.entry(band.priority).or_default();
                sum.priority = band.priority;
                sum.add(band);
                if let Some(waits) = band.dispatched() {
                    recent.add(&earlier.recent(band.priority, waits));
                }
            }
        }
        let mut status = status?;
        let finished =
            bands.into_values().map(|(band, recent)| BandStatus { wait_ms: percentiles(&recent), ..band });
        status.bands = finished.rev().collect();
        Some(status)
    }
}

impl BandStatus {
    fn add(&mut self, band: &BandReport) {
        let sums = [
            (&mut self.requests, band.requests),
            (&mut self.bytes, band.bytes),
            (&mut self.max_requests, band.max_requests),
            (&mut self.max_bytes, band.max_bytes),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        for (outcome, waits) in &band.outcomes {
            let sum = self.outcomes.entry((*outcome).to_owned()).or_default();
            *sum = sum.saturating_add(waits.requests());
        }
    }
}

fn percentiles(waits: &Waits) -> Option<WaitPercentiles> {
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|share| waits.percentile_ms(share));
    Some(WaitPercentiles { p50: p50?, p90: p90?, p99: p99? })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use endpoint_picker_wire::report::{Band, BandOutcome, FlowControl};

    use super::*;

    fn queue(saturation: f64, priority: i32, waiting: u64, dispatched: u64) -> (QueueReport, EarlierWaits) {
        let outcome = |dispatched| BandOutcome {
            outcome: "Dispatched".to_owned(),
            waits: vec![0, 0, dispatched],
            wait_seconds: 0.0,
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
        assert_eq!(QueueStatus::of(core::iter::empty()), None);
    }
}
