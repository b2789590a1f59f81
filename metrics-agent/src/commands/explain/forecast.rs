//! What a request would meet in the queues of the proxies.

use endpoint_picker::flow_control::FALLBACK_PRIORITY;

use crate::api::queues::status::{BandStatus, QueueStatus};

/// What a request of this priority would meet, as the proxies have reported; `None`: it would go on at once.
pub(super) fn forecast(queue: &QueueStatus, priority: i32) -> Option<String> {
    let band_of = |priority: i32| queue.bands.iter().find(|band| band.priority == priority);
    let band = band_of(priority).or_else(|| band_of(FALLBACK_PRIORITY))?;
    if band.requests >= band.max_requests {
        let BandStatus { priority, requests, .. } = band;
        return Some(format!(
            "would be rejected: the {requests} requests that may wait in band {priority} do"
        ));
    }
    let is_ahead = |other: &&BandStatus| other.priority > band.priority && other.requests > 0;
    let mut ahead: Vec<&BandStatus> = queue.bands.iter().filter(is_ahead).collect();
    let is_saturated = queue.saturation.is_some_and(|saturation| saturation >= 1.0);
    if ahead.is_empty() && band.requests == 0 && !is_saturated {
        return None;
    }
    ahead.push(band);
    let ahead = ahead.iter().map(|band| format!("{} of band {}", band.requests, band.priority));
    Some(format!("would wait behind {}", ahead.collect::<Vec<_>>().join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with this many waiting requests in the bands 5, 0 and -1, of which each may have 20.
    fn queue(saturation: f64, waiting: [u64; 3]) -> QueueStatus {
        let band = |(priority, requests)| BandStatus {
            priority,
            requests,
            max_requests: 20,
            ..BandStatus::default()
        };
        QueueStatus {
            saturation: Some(saturation),
            bands: [5, 0, -1].into_iter().zip(waiting).map(band).collect(),
            ..QueueStatus::default()
        }
    }

    #[track_caller]
    fn assert_forecast(queue: &QueueStatus, priority: i32, expected: &str) {
        assert_eq!(forecast(queue, priority).unwrap_or_default(), expected);
    }

    #[test]
    fn a_request_waits_behind_its_band_and_higher_ones() {
        let full = queue(1.2, [3, 12, 20]);
        assert_forecast(&full, 5, "would wait behind 3 of band 5");
        assert_forecast(&full, 0, "would wait behind 3 of band 5 and 12 of band 0");
        assert_forecast(&full, 7, "would wait behind 3 of band 5 and 12 of band 0");
        assert_forecast(&full, -1, "would be rejected: the 20 requests that may wait in band -1 do");
    }

    #[test]
    fn while_nothing_waits_only_a_saturated_pool_holds_a_request() {
        assert_forecast(&queue(0.9, [0, 0, 4]), 0, "");
        assert_forecast(&queue(1.0, [0, 0, 0]), 0, "would wait behind 0 of band 0");
        assert_forecast(&QueueStatus::default(), 0, "");
    }
}
