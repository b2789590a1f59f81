//! Plugins: the pieces a scheduling profile is put together from, under the reference's type names.
//!
//! To add one: a file of its own with the parameters as a struct, its rule, and `impl Plugin` naming the roles it can
//! play; a line in [`registry`]; a section in `docs/rules.md`. A plugin that remembers something from request to request
//! also has a [`Memory`] of its own and a [`Change`] for it.

mod approx_prefix_cache_producer;
mod kv_cache_utilization_scorer;
mod max_score_picker;
mod no_hit_lru_scorer;
mod parsers;
mod prefix_cache_scorer;
mod queue_scorer;
pub mod registry;
mod running_requests_size_scorer;
mod single_profile_handler;
mod token_producer;
mod utilization_detector;

use core::fmt::Debug;

pub use approx_prefix_cache_producer::ApproxPrefixCacheProducer;
pub use kv_cache_utilization_scorer::KvCacheUtilizationScorer;
pub use max_score_picker::MaxScorePicker;
pub use no_hit_lru_scorer::{ColdOrder, NoHitLruScorer};
pub use parsers::{AnthropicParser, OpenaiParser, PassthroughParser, SglanghttpParser, VllmhttpParser};
pub use prefix_cache_scorer::PrefixCacheScorer;
pub use queue_scorer::QueueScorer;
pub use running_requests_size_scorer::RunningRequestsSizeScorer;
pub use single_profile_handler::SingleProfileHandler;
pub use token_producer::TokenProducer;
pub use utilization_detector::UtilizationDetector;

use crate::body::Parser;
use crate::cycle::Cycle;
use crate::memory::{Change, Memory};
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

    /// As the producer of prefix matches.
    fn as_prefix_producer(&self) -> Option<&ApproxPrefixCacheProducer> {
        None
    }

    /// The prefix producer whose matches it reads, by name.
    fn reads_prefixes_of(&self) -> Option<&str> {
        None
    }

    /// Whether the reference counts it as experimental and wants that to be acknowledged.
    fn is_alpha(&self) -> bool {
        false
    }

    /// As the reader of request bodies.
    fn as_parser(&self) -> Option<Parser> {
        None
    }

    /// The names of other instances it refers to, with the parameter that does.
    fn references(&self) -> Vec<(&'static str, &str)> {
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
}

/// Chooses among scored candidates.
pub trait Picker {
    /// The chosen endpoints, best first, at least one of `candidates` (endpoint indices, never empty). `totals[i]` is the
    /// weighted score of `candidates[i]`, never NaN.
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Vec<usize>;
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
    /// Whether the stage is to run for a request that `decode` will serve.
    fn agrees(&self, cycle: &Cycle<'_>, decode: usize) -> bool;
}

/// Remembers where requests went.
pub trait Recorder {
    /// The memory of a new instance.
    fn new_memory(&self) -> Memory;

    /// What to remember of a request that was routed.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<Change>;
}

/// Adds to the answer's headers.
pub trait ResponseMarker {
    /// The header that an answer from `endpoint` carries.
    fn response_header(&self, endpoint: &Endpoint) -> Option<(String, String)>;
}

/// Where a request was routed, seen by one plugin.
#[derive(Clone, Copy, Debug)]
pub struct Routed<'a> {
    /// First endpoint of the primary profile: where the request goes.
    pub destination: usize,
    /// First endpoint of the profile named `prefill`, if it ran.
    pub prefill: Option<usize>,
    /// The prompt's block hashes, if the plugin at work is a prefix producer.
    pub hashes: &'a [u64],
}

impl Routed<'_> {
    /// The destination, then the prefill endpoint if it is another one.
    pub fn endpoints(&self) -> impl Iterator<Item = usize> {
        let prefill = self.prefill.filter(|&endpoint| endpoint != self.destination);
        core::iter::once(self.destination).chain(prefill)
    }
}

/// The score of a load where less is better, relative to the other candidates: 1 for the least loaded, 0 for the most,
/// 1 for all when all are equal.
fn score_by_least(candidates: &[usize], scores: &mut [f64], load: impl Fn(usize) -> u64) {
    let loads = || candidates.iter().map(|&endpoint| load(endpoint));
    let (Some(least), Some(most)) = (loads().min(), loads().max()) else { return };
    if least == most {
        scores.fill(1.0);
        return;
    }
    let range = (most - least) as f64;
    for (score, load) in scores.iter_mut().zip(loads()) {
        *score = (most - load) as f64 / range;
    }
}

#[cfg(test)]
mod fixture;
