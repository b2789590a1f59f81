//! Scorers: plugins that rate candidates.

mod active_request_scorer;
mod context_length_aware;
mod endpoint_attribute_scorer;
mod expected_latency_scorer;
mod header_label_affinity_scorer;
mod kv_cache_utilization_scorer;
mod latency_scorer;
mod lmetric_scorer;
mod load_aware_scorer;
mod lora_affinity_scorer;
mod mm_embeddings_cache_scorer;
mod no_hit_lru_scorer;
mod precise_prefix_cache_scorer;
mod prefix_cache_scorer;
mod queue_scorer;
mod running_requests_size_scorer;
mod session_affinity_scorer;
mod token_load_scorer;
mod topology_affinity_scorer;

pub use active_request_scorer::ActiveRequestScorer;
pub use context_length_aware::ContextLengthAware;
pub use endpoint_attribute_scorer::EndpointAttributeScorer;
pub(super) use expected_latency_scorer::Costs;
pub use expected_latency_scorer::ExpectedLatencyScorer;
pub use header_label_affinity_scorer::HeaderLabelAffinityScorer;
pub use kv_cache_utilization_scorer::KvCacheUtilizationScorer;
pub use latency_scorer::LatencyScorer;
pub use lmetric_scorer::LmetricScorer;
pub use load_aware_scorer::LoadAwareScorer;
pub use lora_affinity_scorer::LoraAffinityScorer;
pub use mm_embeddings_cache_scorer::MmEmbeddingsCacheScorer;
pub use no_hit_lru_scorer::NoHitLruScorer;
pub use precise_prefix_cache_scorer::PrecisePrefixCacheScorer;
pub use prefix_cache_scorer::PrefixCacheScorer;
pub use queue_scorer::QueueScorer;
pub use running_requests_size_scorer::RunningRequestsSizeScorer;
pub use session_affinity_scorer::SessionAffinityScorer;
pub use token_load_scorer::TokenLoadScorer;
pub use topology_affinity_scorer::TopologyAffinityScorer;

use core::fmt::Debug;

use crate::input::cycle::Cycle;

/// Rates candidates.
pub trait Scorer: Debug + Send + Sync {
    /// Writes one score for each of `candidates` (endpoint indices in the pool's order) into `scores`, which
    /// has the same length and holds zeros. A score is 0..=1, higher is better; the profile clamps others.
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]);

    /// Terms of the score of one of `candidates`, for an explanation; `None`: the score says all.
    fn explain(&self, cycle: &Cycle<'_>, candidates: &[usize], endpoint: usize) -> Option<String> {
        let _ = (cycle, candidates, endpoint);
        None
    }

    /// Whether it scores by readings, so that an endpoint with an old reading may get a neutral score.
    fn reads_readings(&self) -> bool {
        false
    }

    /// Whether its type and the readings alone decide the scores, so that they are computed once for each
    /// snapshot.
    fn needs_only_readings(&self) -> bool {
        false
    }
}

/// Writes scores of a load where less is better, relative to the other candidates: 1 for the least loaded, 0
/// for the most, 1 for all when all are equal.
fn score_by_least(candidates: &[usize], scores: &mut [f64], load: impl Fn(usize) -> f64) {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    // The slots of the scores hold the loads until the range is found: reading every endpoint twice would
    // cost more than scoring.
    for (score, &endpoint) in scores.iter_mut().zip(candidates) {
        let load = load(endpoint);
        least = least.min(load);
        most = most.max(load);
        *score = load;
    }
    if least >= most {
        scores.fill(1.0);
        return;
    }
    let range = most - least;
    for score in scores {
        *score = (most - *score) / range;
    }
}
