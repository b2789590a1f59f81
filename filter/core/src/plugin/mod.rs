//! Plugins: the pieces a scheduling profile is put together from, under the EPP's type names.
//!
//! To add one: a file of its own with the parameters as a struct, its rule, and `impl Plugin` naming the roles it can
//! play; a line in [`registry`]; a section in `docs/rules.md`. A plugin that remembers something from request to request
//! also has a [`PluginState`] of its own and a [`Change`] for it.
//!
//! A parameter out of range falls back to its default where the EPP does so, and is refused otherwise.

mod active_request_scorer;
mod approx_prefix_cache_producer;
mod concurrency_detector;
mod context_length_aware;
mod data_layer;
mod data_parallel_profile_handler;
mod deciders;
mod disagg_headers_handler;
mod disagg_profile_handler;
mod endpoint_attribute_scorer;
mod header_label_affinity_scorer;
mod header_profile_handler;
mod inflight_load_producer;
mod kv_cache_utilization_scorer;
mod label_filters;
mod label_selector;
mod load_aware_scorer;
mod lora_affinity_scorer;
mod max_score_picker;
mod no_hit_lru_scorer;
mod parameter;
mod parsers;
mod pd_profile_handler;
mod plugin_ref;
mod prefix_cache_affinity_filter;
mod prefix_cache_scorer;
mod probabilistic_admitter;
mod queue_scorer;
mod random_picker;
pub mod registry;
mod role_filters;
mod routed;
mod running_requests_size_scorer;
mod session_affinity;
mod session_affinity_plugins;
mod session_bindings;
mod session_id_producer;
mod single_profile_handler;
mod token_load_scorer;
mod token_producer;
mod utilization_detector;
mod utilization_filter;
mod weighted_random_picker;

use core::fmt::Debug;

pub use active_request_scorer::ActiveRequestScorer;
pub use approx_prefix_cache_producer::ApproxPrefixCacheProducer;
pub use concurrency_detector::ConcurrencyDetector;
pub use context_length_aware::ContextLengthAware;
pub use data_layer::{
    CoreMetricsExtractor, CustomMetric, EngineConfig, FileDiscovery, MetricsDataSource, Scheme,
};
pub use data_parallel_profile_handler::DataParallelProfileHandler;
pub use deciders::{AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, PrefixBasedPdDecider};
pub use disagg_headers_handler::{DisaggHeadersHandler, PrefillHeaderHandler};
pub use disagg_profile_handler::DisaggProfileHandler;
pub use endpoint_attribute_scorer::EndpointAttributeScorer;
pub use header_label_affinity_scorer::HeaderLabelAffinityScorer;
pub use header_profile_handler::HeaderProfileHandler;
pub use inflight_load_producer::InflightLoadProducer;
pub use kv_cache_utilization_scorer::KvCacheUtilizationScorer;
pub use label_filters::{ByLabel, ByLabelSelector, LabelSelectorFilter};
pub use label_selector::LabelSelector;
pub use load_aware_scorer::LoadAwareScorer;
pub use lora_affinity_scorer::LoraAffinityScorer;
pub use max_score_picker::MaxScorePicker;
pub use no_hit_lru_scorer::{ColdOrder, NoHitLruScorer};
pub use parsers::{AnthropicParser, OpenaiParser, PassthroughParser, SglanghttpParser, VllmhttpParser};
pub use pd_profile_handler::PdProfileHandler;
pub use plugin_ref::{PluginRef, Role};
pub use prefix_cache_affinity_filter::PrefixCacheAffinityFilter;
pub use prefix_cache_scorer::PrefixCacheScorer;
pub use probabilistic_admitter::ProbabilisticAdmitter;
pub use queue_scorer::QueueScorer;
pub use random_picker::RandomPicker;
pub use role_filters::{DecodeFilter, EncodeFilter, PrefillFilter};
pub use routed::{Routed, Stage};
pub use running_requests_size_scorer::RunningRequestsSizeScorer;
pub use session_affinity_plugins::{SessionAffinityFilter, SessionAffinityScorer};
pub use session_bindings::SessionBindings;
pub use session_id_producer::SessionIdProducer;
pub use single_profile_handler::SingleProfileHandler;
pub use token_load_scorer::TokenLoadScorer;
pub use token_producer::TokenProducer;
pub use utilization_detector::UtilizationDetector;
pub use utilization_filter::UtilizationFilter;
pub use weighted_random_picker::WeightedRandomPicker;

use parameter::{LOAD_PRODUCER, PREFIX_PRODUCER, allow, list_length, or_default};
use routed::PREFILL;

use crate::body::Parser;
use crate::cycle::Cycle;
use crate::plugin_state::{Change, PluginState};
use crate::pool::Endpoint;
use crate::rejection::Rejection;
use crate::rng::Rng;
use crate::scheduler::{Schedule, Scheduler};

/// A configured plugin. Which roles it can play is its type's; which it plays is the configuration's.
pub trait Plugin: Debug {
    /// Refuses parameters that do not fit together or are out of range, saying which and what is allowed.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// As a filter of a profile.
    fn as_filter(&self) -> Option<&dyn Filter> {
        None
    }

    /// As a scorer of a profile.
    fn as_scorer(&self) -> Option<&dyn Scorer> {
        None
    }

    /// As the picker of a profile.
    fn as_picker(&self) -> Option<&dyn Picker> {
        None
    }

    /// As what decides which profiles run.
    fn as_profile_handler(&self) -> Option<&dyn ProfileHandler> {
        None
    }

    /// As the detector that admission asks.
    fn as_saturation_detector(&self) -> Option<&dyn SaturationDetector> {
        None
    }

    /// As one that may turn a request away.
    fn as_admitter(&self) -> Option<&dyn Admitter> {
        None
    }

    /// As what a disaggregating profile handler asks whether a stage is worth it.
    fn as_decider(&self) -> Option<&dyn Decider> {
        None
    }

    /// As one that remembers where requests went.
    fn as_recorder(&self) -> Option<&dyn Recorder> {
        None
    }

    /// As one that adds to the answer's headers.
    fn as_response_marker(&self) -> Option<&dyn ResponseMarker> {
        None
    }

    /// As what tells the session of a request.
    fn as_session_producer(&self) -> Option<&SessionIdProducer> {
        None
    }

    /// As what makes tokens of prompts.
    fn as_token_producer(&self) -> Option<&TokenProducer> {
        None
    }

    /// As what counts the load that requests put on endpoints.
    fn as_load_producer(&self) -> Option<&InflightLoadProducer> {
        None
    }

    /// The load producer whose counts it reads, by name.
    fn reads_load_of(&self) -> Option<&str> {
        None
    }

    /// As the producer of prefix matches.
    fn as_prefix_producer(&self) -> Option<&ApproxPrefixCacheProducer> {
        None
    }

    /// The prefix producer whose matches it reads, by name.
    fn reads_prefixes_of(&self) -> Option<&str> {
        None
    }

    /// The custom metric it reads, by the name an extractor publishes it under.
    fn reads_custom_metric(&self) -> Option<&str> {
        None
    }

    /// Whether the EPP counts it as experimental and wants that to be acknowledged.
    fn is_alpha(&self) -> bool {
        false
    }

    /// As the reader of request bodies.
    fn as_parser(&self) -> Option<Parser> {
        None
    }

    /// Other instances it needs, beyond the producers it reads.
    fn references(&self) -> Vec<PluginRef<'_>> {
        Vec::new()
    }
}

/// Drops candidates.
pub trait Filter {
    /// Keeps in `candidates` (endpoint indices) those that may be picked.
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng);
}

/// Rates candidates.
pub trait Scorer {
    /// Writes one score for each of `candidates` (endpoint indices) into `scores`, which has the same length and holds
    /// zeros. A score is 0..=1, higher is better; the profile clamps what is outside.
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]);

    /// Whether it goes by what the servers last said, so that it may be without an opinion of an endpoint.
    fn reads_readings(&self) -> bool {
        false
    }
}

/// Chooses among scored candidates.
pub trait Picker {
    /// The chosen endpoints, best first, at least one of `candidates` (endpoint indices, never empty). `totals[i]` is the
    /// weighted score of `candidates[i]`, never NaN.
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Vec<usize>;

    /// The most endpoints that it chooses.
    fn max_endpoints(&self) -> usize;

    /// Whether the first is always one of the highest total, and chance decides only among these.
    fn takes_the_highest(&self) -> bool {
        false
    }
}

/// Decides which profiles run, and which of them names the destination.
pub trait ProfileHandler {
    /// Runs profiles by name through `scheduler`.
    fn schedule(&self, scheduler: &mut Scheduler<'_>) -> Result<Schedule, Rejection>;

    /// Whether it can work with this many profiles; says what is allowed if not.
    fn check_profiles(&self, names: &[&str]) -> Result<(), String>;
}

/// Tells how close to its limits a set of endpoints is.
pub trait SaturationDetector {
    /// 0 when idle, 1 and above when saturated; 1 for no endpoints.
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> f64;
}

/// May turn a request away before it is scheduled.
pub trait Admitter {
    /// Why the request is turned away, if it is.
    fn admit(&self, cycle: &Cycle<'_>, candidates: &[usize], rng: &mut dyn Rng) -> Result<(), String>;
}

/// Tells whether a request is worth a stage of its own.
pub trait Decider {
    /// Whether the stage is to run for a request that `decode` will serve; `None`: not known yet.
    fn agrees(&self, cycle: &Cycle<'_>, decode: Option<usize>) -> bool;
}

/// Remembers where requests went.
pub trait Recorder {
    /// The memory of a new instance.
    fn new_state(&self) -> PluginState;

    /// What to remember of a request that was routed.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<Change>;
}

/// Tells the client an endpoint in the answer's headers.
pub trait ResponseMarker {
    /// The profile whose endpoint it tells; empty: the endpoint that answers.
    fn profile(&self) -> &str;

    /// The header that tells the endpoint.
    fn response_header(&self, endpoint: &Endpoint) -> (String, String);
}

/// The score of a load where less is better, relative to the other candidates: 1 for the least loaded, 0 for the most,
/// 1 for all when all are equal.
fn score_by_least(candidates: &[usize], scores: &mut [f64], load: impl Fn(usize) -> u64) {
    let (mut least, mut most) = (u64::MAX, u64::MIN);
    // The loads wait where the scores will be: looking at every endpoint again would cost more than the scoring.
    for (score, &endpoint) in scores.iter_mut().zip(candidates) {
        let load = load(endpoint);
        least = least.min(load);
        most = most.max(load);
        *score = load as f64;
    }
    if least >= most {
        scores.fill(1.0);
        return;
    }
    let range = (most - least) as f64;
    let most = most as f64;
    for score in scores {
        *score = (most - *score) / range;
    }
}

#[cfg(test)]
pub(crate) mod fixture;
