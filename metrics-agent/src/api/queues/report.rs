//! The queue of one proxy.

use std::collections::BTreeSet;

use endpoint_picker::flow_control::Outcome;
use endpoint_picker::flow_control::config::MAX_BANDS;
use endpoint_picker_wire::report::{Band, FlowControl};

use super::waits::Waits;
use crate::api::reports::ReportError;

/// The queue of one proxy, as of its last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// The pool's saturation by stage, from 0; those of stages without endpoints and those that are not finite are left out.
    pub saturations: Vec<(&'static str, f64)>,
    /// Most requests that may wait in all bands together; 0: unlimited.
    pub max_requests: u64,
    /// Most bytes that may wait in all bands together; 0: unlimited.
    pub max_bytes: u64,
    /// Dispatched requests that have not ended.
    pub in_flight: u64,
    /// Requests in flight that were aborted to make room, since the proxy started.
    pub evicted: u64,
    /// The highest priority first.
    pub bands: Vec<BandReport>,
}

/// The requests of one priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BandReport {
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
    /// Waits that ended since the proxy started, by the EPP's name of their end.
    pub outcomes: Vec<(&'static str, Waits)>,
}

/// The stage of the saturation that decides.
pub(super) const EFFECTIVE: &str = "effective";

impl QueueReport {
    /// Reads what a proxy sent. Unknown outcomes are left out: the proxy may be newer.
    pub(in crate::api) fn read(sent: &FlowControl) -> Result<Self, ReportError> {
        if sent.bands.len() > MAX_BANDS {
            return Err(ReportError::TooManyBands(sent.bands.len()));
        }
        let mut priorities = BTreeSet::new();
        if let Some(band) = sent.bands.iter().find(|band| !priorities.insert(band.priority)) {
            return Err(ReportError::RepeatedBand(band.priority));
        }
        let saturations = [
            ("prefill", sent.prefill_saturation),
            ("decode", sent.decode_saturation),
            (EFFECTIVE, Some(sent.saturation)),
        ];
        let known = |(stage, value): (_, Option<f64>)| Some((stage, value.filter(|it| it.is_finite())?));
        Ok(Self {
            saturations: saturations.into_iter().filter_map(known).collect(),
            max_requests: sent.max_requests,
            max_bytes: sent.max_bytes,
            in_flight: sent.in_flight,
            evicted: sent.evicted,
            bands: sent.bands.iter().map(BandReport::read).collect::<Result<_, _>>()?,
        })
    }
}

impl BandReport {
    fn read(sent: &Band) -> Result<Self, ReportError> {
        let mut outcomes = Vec::with_capacity(Outcome::ALL.len());
        for outcome in Outcome::ALL.map(Outcome::as_str) {
            if let Some(ended) = sent.outcomes.iter().find(|ended| ended.outcome == outcome) {
                outcomes.push((outcome, Waits::read(ended)?));
            }
        }
        Ok(Self {
            priority: sent.priority,
            requests: sent.requests,
            bytes: sent.bytes,
            max_requests: sent.max_requests,
            max_bytes: sent.max_bytes,
            outcomes,
        })
    }

    /// The waits of requests that went on.
    pub(super) fn dispatched(&self) -> Option<&Waits> {
        let found = self.outcomes.iter().find(|(outcome, _)| *outcome == Outcome::Dispatched.as_str());
        found.map(|(_, waits)| waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint_picker_wire::report::BandOutcome;

    #[test]
    fn known_outcomes_and_stages_are_read() {
        let outcome =
            |name: &str| BandOutcome { outcome: name.to_owned(), waits: vec![2], wait_seconds: 0.0 };
        let outcomes = vec![outcome("Dispatched"), outcome("Teleported"), outcome("EvictedTTL")];
        let sent = FlowControl {
            prefill_saturation: Some(f64::NAN),
            saturation: 0.5,
            bands: vec![Band { priority: -3, outcomes, ..Band::default() }],
            ..FlowControl::default()
        };
        let queue = QueueReport::read(&sent).unwrap();
        assert_eq!(queue.saturations, [("effective", 0.5)]);
        let [band] = &queue.bands[..] else { panic!("one band") };
        let counts: Vec<_> =
            band.outcomes.iter().map(|(outcome, waits)| (*outcome, waits.requests())).collect();
        assert_eq!((band.priority, counts), (-3, vec![("Dispatched", 2), ("EvictedTTL", 2)]));
    }

    #[test]
    fn too_many_and_repeated_bands_are_refused() {
        let refusal = |priorities: Vec<i32>| {
            let band = |priority| Band { priority, ..Band::default() };
            let sent =
                FlowControl { bands: priorities.into_iter().map(band).collect(), ..FlowControl::default() };
            QueueReport::read(&sent).err().map(|error| error.to_string())
        };
        assert_eq!(refusal((0..256).collect()), None);
        let bound = "the report has a queue of 257 bands; at most 256 are allowed";
        assert_eq!(refusal((0..257).collect()).as_deref(), Some(bound));
        assert_eq!(refusal(vec![1, 0, 1]).as_deref(), Some("the report has the band of priority 1 twice"));
    }
}
