//! From a request and a view of the pool to a decision.

use core::time::Duration;

use crate::cycle::{Cycle, NOTHING_SAID, Request, View};
use crate::decision::{Decision, Outcome};
use crate::explanation::Exclusion;
use crate::plugin::{
    ApproxPrefixCacheProducer, KvCacheUtilizationScorer, MaxScorePicker, PrefixCacheScorer, QueueScorer,
    SaturationDetector, UtilizationDetector,
};
use crate::prefix::{PrefixIndex, PrefixMatch};
use crate::profile::{Instance, Profile};
use crate::prompt::{BlockHashes, block_hashes};
use crate::reading::Reading;
use crate::rejection::Rejection;
use crate::rng::Rng;

/// Everything that decides for one pool, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    pub(crate) plugins: Vec<Instance>,
    pub(crate) profile: Profile,
    detector: UtilizationDetector,
    prefix_producer: ApproxPrefixCacheProducer,
    stale_after: Duration,
}

impl Default for Pipeline {
    /// The reference's configuration when none is given: `queue-scorer` 2, `kv-cache-utilization-scorer` 2,
    /// `prefix-cache-scorer` 3, `max-score-picker`.
    fn default() -> Self {
        Self::with_picker(MaxScorePicker::default())
    }
}

impl Pipeline {
    /// The default configuration with another picker.
    pub fn with_picker(picker: MaxScorePicker) -> Self {
        let plugins = vec![
            Instance::unnamed(QueueScorer {}),
            Instance::unnamed(KvCacheUtilizationScorer {}),
            Instance::unnamed(PrefixCacheScorer::default()),
            Instance::unnamed(picker),
        ];
        let scorers = vec![(0, 2.0), (1, 2.0), (2, 3.0)];
        Self {
            plugins,
            profile: Profile { name: "default".to_owned(), filters: vec![], scorers, picker: 3 },
            detector: UtilizationDetector::default(),
            prefix_producer: ApproxPrefixCacheProducer::default(),
            stale_after: Duration::from_secs(10),
        }
    }

    /// Bytes of a prompt that can matter to a decision; what lies beyond need not be kept.
    pub fn max_prompt_bytes(&self) -> usize {
        self.prefix_producer.max_prompt_bytes()
    }

    /// Decides for a request with a body.
    ///
    /// The order is the reference's: admission, candidates, prefix lookup, profile. Admission sheds a request of
    /// negative priority while the candidates are saturated.
    pub fn decide(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let candidates = candidates(request, view);
        let readings = self.usable_readings(view, now);
        if request.priority < 0 {
            let no_prefix = PrefixMatch::default();
            let cycle = Cycle::new(request, view.pool, readings, &no_prefix, now);
            if self.detector.saturation(&cycle, &candidates) >= 1.0 {
                return Decision::without_run(Outcome::Reject(Rejection::shed()));
            }
        }
        let Some(&first) = candidates.first() else {
            return Decision::without_run(Outcome::Reject(Rejection::no_candidates()));
        };
        let (hashes, prefix) =
            self.look_up_prompt(request, view, readings.get(first).unwrap_or(&NOTHING_SAID));
        let cycle = Cycle::new(request, view.pool, readings, &prefix, now);
        let run = self.profile.run(&self.plugins, &cycle, candidates, rng);
        let outcome = if run.picked.is_empty() {
            Outcome::Reject(Rejection::filtered_out())
        } else {
            Outcome::Route(run.picked.clone())
        };
        Decision { outcome, run: Some(run), prefix, hashes }
    }

    /// Decides for a request without a body: any candidate, at random. The subset hint holds here too, unlike in the
    /// reference.
    pub fn decide_without_body(&self, request: &Request<'_>, view: &View<'_>, rng: &mut dyn Rng) -> Decision {
        let candidates = candidates(request, view);
        let outcome = if candidates.is_empty() {
            Outcome::Reject(Rejection::no_candidates())
        } else {
            Outcome::Route(vec![candidates[rng.below(candidates.len())]])
        };
        Decision::without_run(outcome)
    }

    /// Remembers in `prefixes` which endpoint a routed prompt goes to. `readings` are those of the view.
    pub fn remember(&self, decision: &Decision, readings: &[Reading], prefixes: &mut PrefixIndex) {
        if let Some(endpoint) = decision.destination() {
            let capacity = self.prefix_producer.capacity(readings.get(endpoint).unwrap_or(&NOTHING_SAID));
            prefixes.add(endpoint, decision.hashes.all(), capacity);
        }
    }

    /// The readings, unless the agent has been silent for so long that they would mislead.
    fn usable_readings<'a>(&self, view: &View<'a>, now: Duration) -> &'a [Reading] {
        let stale = now.saturating_sub(view.readings_arrived) > self.stale_after;
        if stale { &[] } else { view.readings }
    }

    fn look_up_prompt(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        first: &Reading,
    ) -> (BlockHashes, PrefixMatch) {
        let Some(prompt) = request.prompt else { return Default::default() };
        let block_size = self.prefix_producer.block_size(first);
        let max_blocks = self.prefix_producer.max_blocks(block_size);
        let hashes = block_hashes(prompt, request.model, request.cache_salt, block_size as usize, max_blocks);
        let mut matched = vec![0; view.pool.endpoints().len()];
        for chain in hashes.lists() {
            view.prefixes.count_matches(chain, &mut matched);
        }
        let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
        (hashes, PrefixMatch { matched, total, block_size })
    }
}

/// Indices of the endpoints that may be picked at all.
fn candidates(request: &Request<'_>, view: &View<'_>) -> Vec<usize> {
    (0..view.pool.endpoints().len())
        .filter(|&endpoint| exclusion(request, view, endpoint).is_none())
        .collect()
}

/// Why an endpoint is no candidate; `None` if it is one.
pub(crate) fn exclusion(request: &Request<'_>, view: &View<'_>, endpoint: usize) -> Option<Exclusion> {
    if !view.readings.get(endpoint).is_none_or(|reading| reading.ready) {
        return Some(Exclusion::NotReady);
    }
    if !request.subset.allows(&view.pool.endpoints()[endpoint]) {
        return Some(Exclusion::OutsideSubset);
    }
    None
}
