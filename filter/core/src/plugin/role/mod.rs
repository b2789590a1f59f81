//! The roles that plugins play in a pipeline.

mod need;
mod recorder;

use core::fmt::Debug;
use std::sync::Arc;

use crate::input::load_estimator::LoadEstimator;
use crate::input::providers::{AgentSessionHeaders, Topology};
use crate::plugin::admitter::Admitter;
use crate::plugin::detector::{MaxSaturationDetector, SaturationDetector};
use crate::plugin::filter::{Filter, ServedModelFilter};
use crate::plugin::flow_control::fairness::Fairness;
use crate::plugin::flow_control::ordering::OrderingPolicy;
use crate::plugin::flow_control::usage_limit::UsageLimitPolicy;
use crate::plugin::picker::Picker;
use crate::plugin::producer::{
    CacheSourceProducer, LatencyPredictor, MmEmbeddingsCacheProducer, PrefixProducer, SessionProducer,
};
use crate::plugin::profile_handler::{Decider, ProfileHandler};
use crate::plugin::reporter::RequestAttributeReporter;
use crate::plugin::scorer::Scorer;
use crate::request::body::Parser;
use crate::request::prompt::Media;
pub use need::{Need, NeedKind};
pub use recorder::{Recorder, ResponseMarker, Routed, Stage};

/// A configured plugin.
pub trait Plugin: Debug {
    /// Refuses parameters that contradict each other or are out of range, with what is allowed.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// The roles it can play. They are read once, when a configuration is compiled to typed slots.
    fn roles(self: Arc<Self>) -> Roles {
        Roles::default()
    }

    /// Other plugins, and metrics, that it works with.
    fn needs(&self) -> Vec<Need<'_>> {
        Vec::new()
    }

    /// Parameters that are accepted and do not have the EPP's effect, each with what happens in its place.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the EPP counts it as experimental and requires an acknowledgement of that.
    fn is_alpha(&self) -> bool {
        false
    }
}

/// The roles of a plugin. A profile that names it uses it in each of the first three that it has.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Drops candidates of a profile.
    pub filter: Option<Arc<dyn Filter>>,
    /// Drops candidates of a profile by their lists of models.
    pub served_models: Option<Arc<ServedModelFilter>>,
    /// Rates candidates of a profile.
    pub scorer: Option<Arc<dyn Scorer>>,
    /// Chooses among scored candidates of a profile.
    pub picker: Option<Arc<dyn Picker>>,
    /// Decides which profiles run.
    pub profile_handler: Option<Arc<dyn ProfileHandler>>,
    /// Decides for a profile handler whether a stage runs.
    pub decider: Option<Arc<dyn Decider>>,
    /// Measures saturation, for admission.
    pub saturation_detector: Option<Arc<dyn SaturationDetector>>,
    /// Measures saturation with other detectors, which it knows by name.
    pub combined_detector: Option<Arc<MaxSaturationDetector>>,
    /// May turn requests away.
    pub admitter: Option<Arc<dyn Admitter>>,
    /// Cuts prompts into blocks, for the prefix index.
    pub prefix_producer: Option<Arc<dyn PrefixProducer>>,
    /// Finds the session of a request.
    pub session_producer: Option<Arc<dyn SessionProducer>>,
    /// Finds the agent session of a request.
    pub agent_identity: Option<Arc<AgentSessionHeaders>>,
    /// Knows where endpoints are.
    pub topology: Option<Arc<Topology>>,
    /// Names an endpoint to copy KV blocks from.
    pub cache_source: Option<Arc<dyn CacheSourceProducer>>,
    /// Predicts the latency of requests.
    pub latency_predictor: Option<Arc<dyn LatencyPredictor>>,
    /// Estimates the load of a request.
    pub load_estimator: Option<LoadEstimator>,
    /// Remembers which images, videos and audio were sent to endpoints.
    pub media_cache: Option<Arc<MmEmbeddingsCacheProducer>>,
    /// Counts the tokens of images, videos and audio.
    pub media: Option<Media>,
    /// Remembers where requests went.
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Adds to the response's headers.
    pub response_marker: Option<Arc<dyn ResponseMarker>>,
    /// Orders the waiting requests of a flow.
    pub ordering: Option<Arc<dyn OrderingPolicy>>,
    /// Chooses among the flows of a band.
    pub fairness: Option<Fairness>,
    /// Limits the share of the pool that each priority may use.
    pub usage_limit: Option<Arc<dyn UsageLimitPolicy>>,
    /// Reads request bodies.
    pub parser: Option<Parser>,
    /// Reports a number of each response to the proxy.
    pub reporter: Option<Arc<RequestAttributeReporter>>,
}

impl Roles {
    /// Whether a profile can use it: as a filter, scorer or picker.
    pub fn is_for_profiles(&self) -> bool {
        self.filter.is_some() || self.scorer.is_some() || self.picker.is_some()
    }
}
