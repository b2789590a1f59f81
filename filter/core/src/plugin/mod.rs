//! Plugins: the parts that a scheduling profile consists of, under the EPP's type names.
//!
//! To add one: a file of its own with the parameters as a struct, its rule, and `impl Plugin` with the [`Roles`] it can play; a
//! line in [`registry`]; a section in `docs/reference/rules`. A plugin that remembers something from request to request also is a
//! [`Recorder`] and has a [`PluginState`](crate::state::PluginState) of its own.
//!
//! A parameter out of range falls back to its default where the EPP does so, and is refused otherwise.

mod admitter;
mod detector;
mod filter;
mod flow_control;
pub mod parameter;
mod parser;
mod picker;
mod producer;
mod profile_handler;
pub mod registry;
mod role;
mod scorer;
mod session_affinity;

pub use admitter::{Admitter, ProbabilisticAdmitter};
pub use detector::{ConcurrencyDetector, SaturationDetector, UtilizationDetector};
pub(crate) use filter::role_label;
pub use filter::{
    DecodeFilter, EncodeFilter, Filter, LabelSelector, LabelSelectorFilter, PrefillFilter,
    PrefixCacheAffinityFilter, SessionAffinityFilter, UtilizationFilter,
};
pub use flow_control::arrival::{Arrival, DEFAULT_FLOW, MAX_FAIRNESS_ID};
pub(crate) use flow_control::fairness::Range as FairnessRange;
pub use flow_control::fairness::{
    Fairness, GlobalStrictFairnessPolicy, ProgramAwareFairness, RoundRobinFairnessPolicy,
};
pub use flow_control::ordering::{
    EdfOrderingPolicy, FcfsOrderingPolicy, OrderingPolicy, Rank, SloDeadlineOrderingPolicy,
};
pub use flow_control::usage_limit::{
    PriorityHoldbackPolicy, SoftReflectiveCeilingPolicy, StaticUsageLimitPolicy, UsageLimitPolicy,
};
pub use parameter::deserializer::Parameters;
pub use parser::{AnthropicParser, OpenaiParser, PassthroughParser, SglanghttpParser, VllmhttpParser};
pub use picker::{MaxScorePicker, Picker, RandomPicker, WeightedRandomPicker};
pub use producer::{
    ApproxPrefixCacheProducer, InflightLoadProducer, PrefixProducer, SessionIdProducer, SessionProducer,
    TokenProducer,
};
pub use profile_handler::{
    AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, Decider, DisaggProfileHandler,
    HeaderProfileHandler, PrefixBasedPdDecider, ProfileHandler, Profiles, Schedule, SingleProfileHandler,
};
pub use registry::Instance;
pub use role::{Need, NeedKind, Plugin, Recorder, ResponseMarker, Roles, Routed, Stage};
pub use scorer::{
    ActiveRequestScorer, ContextLengthAware, EndpointAttributeScorer, HeaderLabelAffinityScorer,
    KvCacheUtilizationScorer, LoadAwareScorer, LoraAffinityScorer, NoHitLruScorer, PrefixCacheScorer,
    QueueScorer, RunningRequestsSizeScorer, Scorer, SessionAffinityScorer, TokenLoadScorer,
};

#[cfg(test)]
pub(crate) mod fixture;
