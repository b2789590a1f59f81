//! Plugins: the pieces a scheduling profile is put together from, under the EPP's type names.
//!
//! To add one: a file of its own with the parameters as a struct, its rule, and `impl Plugin` naming the roles it can
//! play; a line in [`registry`]; a section in `docs/rules.md`. A plugin that remembers something from request to request
//! also has a [`PluginState`] of its own and a [`Change`] for it.
//!
//! A parameter out of range falls back to its default where the EPP does so, and is refused otherwise.

mod admitter;
mod data_layer;
mod detector;
mod filter;
mod instance;
mod need;
mod parameter;
mod parser;
mod picker;
mod producer;
mod profile_handler;
mod recorder;
pub mod registry;
mod scorer;
mod session;

pub use admitter::{Admitter, ProbabilisticAdmitter};
pub use data_layer::{
    CoreMetricsExtractor, CustomMetric, EngineConfig, FileDiscovery, MetricsDataSource, Scheme,
};
pub use detector::{ConcurrencyDetector, SaturationDetector, UtilizationDetector};
pub use filter::{
    ByLabel, ByLabelSelector, DecodeFilter, EncodeFilter, Filter, LabelSelector, LabelSelectorFilter,
    PrefillFilter, PrefixCacheAffinityFilter, UtilizationFilter,
};
pub use instance::Instance;
pub use need::{PluginRef, Role};
pub use parser::{AnthropicParser, OpenaiParser, PassthroughParser, SglanghttpParser, VllmhttpParser};
pub use picker::{MaxScorePicker, Picker, RandomPicker, WeightedRandomPicker};
pub use producer::{ApproxPrefixCacheProducer, InflightLoadProducer, SessionIdProducer, TokenProducer};
pub use profile_handler::{
    AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, DataParallelProfileHandler, Decider,
    DisaggHeadersHandler, DisaggProfileHandler, HeaderProfileHandler, PdProfileHandler, PrefillHeaderHandler,
    PrefixBasedPdDecider, ProfileHandler, SingleProfileHandler,
};
pub use recorder::{Recorder, ResponseMarker, Routed, Stage};
pub use scorer::{
    ActiveRequestScorer, ContextLengthAware, EndpointAttributeScorer, HeaderLabelAffinityScorer,
    KvCacheUtilizationScorer, LoadAwareScorer, LoraAffinityScorer, NoHitLruScorer, PrefixCacheScorer,
    QueueScorer, RunningRequestsSizeScorer, Scorer, TokenLoadScorer,
};
pub use session::{SessionAffinityFilter, SessionAffinityScorer};

use core::fmt::Debug;

use crate::body::Parser;

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

#[cfg(test)]
pub(crate) mod fixture;
