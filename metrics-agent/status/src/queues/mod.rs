//! The queues of flow control, as the proxies report them.

pub mod earlier;
pub mod status;
pub mod tenants;
pub mod waits;

use std::collections::BTreeSet;

use endpoint_picker::flow_control::MAX_BANDS;
use endpoint_picker::flow_control::{MAX_TENANTS, OTHER_TENANTS, Outcome};
use endpoint_picker_wire::report::{Band, BandOutcome, FlowControl};
use tenants::Tenants;
use waits::Waits;

use crate::report::ReportError;

/// The queue of one proxy, as of its last report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// The pool's saturation by stage, from 0; stages without endpoints and values that are not finite are
    /// left out.
    pub saturations: Vec<(&'static str, f64)>,
    /// The same by each detector that the policy's detector combines, in the order of the configuration.
    pub by_detector: Vec<DetectorSaturation>,
    /// Maximum number of requests that may wait in all bands together; 0: unlimited.
    pub max_requests: u64,
    /// Maximum number of bytes that may wait in all bands together; 0: unlimited.
    pub max_bytes: u64,
    /// Dispatched requests that have not ended.
    pub in_flight: u64,
    /// Requests in flight that were aborted to make room, since the proxy started.
    pub evicted: u64,
    /// The highest priority first.
    pub bands: Vec<BandReport>,
}

/// The saturation of a stage by one detector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DetectorSaturation {
    /// The detector's name in the configuration.
    pub detector: String,
    /// `prefill` or `decode`.
    pub stage: &'static str,
    /// From 0, finite.
    pub saturation: f64,
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
    /// Maximum number of requests that may wait.
    pub max_requests: u64,
    /// Maximum number of bytes that may wait.
    pub max_bytes: u64,
    /// Waits that ended since the proxy started.
    pub outcomes: Outcomes,
    /// Its tenants.
    pub tenants: Tenants,
}

/// Maximum number of tenants with figures of their own, over all proxies of a pool: the number of fairness
/// ids in the EPP's metrics.
const MAX_NAMED: usize = 1000;

/// Maximum number of detectors of a proxy with figures; the first ones count.
const MAX_DETECTORS: usize = 32;

/// Maximum length of a detector's name in bytes; longer ones have no figures.
const MAX_DETECTOR_BYTES: usize = 256;

/// The stage of the saturation that decides.
const EFFECTIVE: &str = "effective";

impl QueueReport {
    /// Reads what a proxy sent; [`Self::bound_tenants`] completes it.
    pub fn read(sent: &FlowControl) -> Result<Self, ReportError> {
        if sent.bands.len() > MAX_BANDS {
            return Err(ReportError::TooManyBands(sent.bands.len()));
        }
        let mut priorities = BTreeSet::new();
        if let Some(band) = sent.bands.iter().find(|band| !priorities.insert(band.priority)) {
            return Err(ReportError::RepeatedBand(band.priority));
        }
        let tenants = sent.bands.iter().flat_map(|band| &band.tenants);
        let named = tenants.filter(|tenant| tenant.fairness_id != OTHER_TENANTS).count();
        if named > MAX_TENANTS {
            return Err(ReportError::TooManyTenants(named));
        }
        let saturations = [
            ("prefill", sent.prefill_saturation),
            ("decode", sent.decode_saturation),
            (EFFECTIVE, Some(sent.saturation)),
        ];
        let known = |(stage, value): (_, Option<f64>)| Some((stage, value.filter(|it| it.is_finite())?));
        let detectors = sent.detectors.iter().filter(|it| it.detector.len() <= MAX_DETECTOR_BYTES);
        let by_detector = detectors.take(MAX_DETECTORS).flat_map(|sent| {
            let stages = [("prefill", sent.prefill), ("decode", sent.decode)].into_iter().filter_map(known);
            stages.map(|(stage, saturation)| {
                let detector = sent.detector.clone();
                DetectorSaturation { detector, stage, saturation }
            })
        });
        Ok(Self {
            by_detector: by_detector.collect(),
            saturations: saturations.into_iter().filter_map(known).collect(),
            max_requests: sent.max_requests,
            max_bytes: sent.max_bytes,
            in_flight: sent.in_flight,
            evicted: sent.evicted,
            bands: sent.bands.iter().map(BandReport::read).collect::<Result<_, _>>()?,
        })
    }

    /// Bounds the number of tenants with figures of their own. `others` are the last reports of the pool's
    /// other proxies, and `earlier` is this proxy's previous report.
    pub fn bound_tenants<'a>(&mut self, others: impl Iterator<Item = &'a Self>, earlier: Option<&Self>) {
        let taken: usize = others.flat_map(|queue| &queue.bands).map(|band| band.tenants.named()).sum();
        let before = |priority| earlier.and_then(|earlier| earlier.tenants_of(priority));
        let keep =
            |band: &BandReport| before(band.priority).map_or(0, |earlier| band.tenants.named_before(earlier));
        let kept: usize = self.bands.iter().map(keep).sum();
        let mut room = MAX_NAMED.saturating_sub(taken + kept);
        for band in &mut self.bands {
            let BandReport { priority, requests, bytes, .. } = *band;
            band.tenants.bound(requests, bytes, &mut room, before(priority));
        }
    }

    fn tenants_of(&self, priority: i32) -> Option<&Tenants> {
        self.bands.iter().find(|band| band.priority == priority).map(|band| &band.tenants)
    }
}

impl BandReport {
    fn read(sent: &Band) -> Result<Self, ReportError> {
        Ok(Self {
            priority: sent.priority,
            requests: sent.requests,
            bytes: sent.bytes,
            max_requests: sent.max_requests,
            max_bytes: sent.max_bytes,
            outcomes: Outcomes::read(&sent.outcomes)?,
            tenants: Tenants::read(sent)?,
        })
    }
}

/// Waits by the EPP's name of their end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes(Vec<(&'static str, Waits)>);

impl Outcomes {
    /// Reads what a proxy sent. Unknown outcomes are left out: the proxy may be newer.
    fn read(sent: &[BandOutcome]) -> Result<Self, ReportError> {
        let mut outcomes = Vec::new();
        for outcome in Outcome::ALL.map(Outcome::as_str) {
            if let Some(ended) = sent.iter().find(|ended| ended.outcome == outcome) {
                let waits = Waits::read(&ended.waits, ended.wait_seconds)?;
                let waits = match ended.longest_wait_seconds {
                    Some(longest) => waits.up_to(longest)?,
                    None => waits,
                };
                outcomes.push((outcome, waits));
            }
        }
        Ok(Self(outcomes))
    }

    /// The waits with each end.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Waits)> {
        self.0.iter().map(|(outcome, waits)| (*outcome, waits))
    }

    /// The waits of dispatched requests.
    fn dispatched(&self) -> Option<&Waits> {
        self.with(Outcome::Dispatched.as_str())
    }

    /// Adds the waits of another report that ended after the waits of `earlier`.
    fn add_since(&mut self, other: &Self, earlier: Option<&Self>) {
        for (outcome, waits) in &other.0 {
            let before = earlier.and_then(|earlier| earlier.with(outcome));
            let since = before.map_or_else(|| waits.clone(), |before| waits.without(before));
            match self.0.iter_mut().find(|(own, _)| own == outcome) {
                Some((_, sum)) => sum.add(&since),
                None => self.0.push((outcome, since)),
            }
        }
    }

    fn with(&self, outcome: &str) -> Option<&Waits> {
        self.0.iter().find(|(own, _)| *own == outcome).map(|(_, waits)| waits)
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::report::{self, BandOutcome, BandTenant};

    use super::*;

    #[test]
    fn known_outcomes_and_stages_are_read() {
        let outcome =
            |name: &str| BandOutcome { outcome: name.to_owned(), waits: vec![2], ..BandOutcome::default() };
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
            band.outcomes.iter().map(|(outcome, waits)| (outcome, waits.requests())).collect();
        assert_eq!((band.priority, counts), (-3, vec![("Dispatched", 2), ("EvictedTTL", 2)]));
    }

    #[test]
    fn saturations_by_detector_are_finite_and_bounded() {
        let sent = |detector: &str, prefill, decode| report::DetectorSaturation {
            detector: detector.to_owned(),
            prefill,
            decode,
        };
        let read = |detectors| {
            let sent = FlowControl { detectors, ..FlowControl::default() };
            let by_detector = QueueReport::read(&sent).unwrap().by_detector;
            by_detector.into_iter().map(|it| (it.detector, it.stage, it.saturation)).collect::<Vec<_>>()
        };
        let detectors = vec![
            sent("queue", Some(0.5), Some(1.5)),
            sent("load", None, Some(f64::INFINITY)),
            sent(&"x".repeat(257), Some(1.0), None),
        ];
        let queue = String::from("queue");
        assert_eq!(read(detectors), [(queue.clone(), "prefill", 0.5), (queue, "decode", 1.5)]);
        let many = (0..40).map(|number| sent(&number.to_string(), Some(0.0), None)).collect();
        assert_eq!(read(many).len(), 32);
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

    /// A band with this many tenants of the names that begin so.
    fn band_of(tenants: usize, prefix: &str) -> Band {
        let tenant = |n| BandTenant { fairness_id: format!("{prefix}{n}"), ..BandTenant::default() };
        Band { tenants: (0..tenants).map(tenant).collect(), ..Band::default() }
    }

    fn queue(bands: Vec<Band>) -> Result<QueueReport, ReportError> {
        QueueReport::read(&FlowControl { bands, ..FlowControl::default() })
    }

    #[test]
    fn more_tenants_than_a_proxy_names_are_refused() {
        let bands = |second| vec![band_of(60, "a"), Band { priority: 1, ..band_of(second, "b") }];
        assert!(queue(bands(40)).is_ok());
        assert_eq!(queue(bands(41)), Err(ReportError::TooManyTenants(101)));
    }

    #[test]
    fn the_tenants_of_all_proxies_are_bounded() {
        let mut proxies: Vec<QueueReport> = Vec::new();
        for _ in 0..11 {
            let mut next = queue(vec![band_of(96, "a")]).unwrap();
            next.bound_tenants(proxies.iter(), None);
            proxies.push(next);
        }
        let named: Vec<usize> = proxies.iter().map(|queue| queue.bands[0].tenants.named()).collect();
        assert_eq!(named, [vec![96; 10], vec![40]].concat());
        let mut again = queue(vec![band_of(96, "a")]).unwrap();
        let last = proxies.pop();
        again.bound_tenants(proxies.iter(), last.as_ref());
        assert_eq!(last, Some(again));
    }
}
