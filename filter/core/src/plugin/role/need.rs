//! Other plugins, and metrics, that a plugin works with.

use crate::plugin::parameter::{LATENCY_PREDICTOR, LOAD_PRODUCER, TOPOLOGY_EXTRACTOR, or_default};

/// Something that a plugin needs, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// The parameter that names it, as a path such as `deciders.prefill`; empty if no parameter does.
    pub parameter: &'static str,
    /// The name of a plugin instance, or of a metric.
    pub name: &'a str,
    /// Its kind.
    pub kind: NeedKind,
}

impl<'a> Need<'a> {
    /// The prefix producer that the usual parameter names.
    pub(crate) fn prefix_producer(name: &'a str) -> Self {
        Self { parameter: "prefixMatchInfoProducerName", name, kind: NeedKind::PrefixProducer }
    }

    /// The latency predictor that the usual parameter names; empty: the default one.
    pub(crate) fn latency_predictor(name: &'a str) -> Self {
        let name = or_default(name, LATENCY_PREDICTOR);
        Self { parameter: "latencyPredictionInfoProducerName", name, kind: NeedKind::LatencyPredictor }
    }

    /// The topology extractor that the usual parameter names; empty: the default one.
    pub(crate) fn topology(name: &'a str) -> Self {
        let name = or_default(name, TOPOLOGY_EXTRACTOR);
        Self { parameter: "topologyProducerName", name, kind: NeedKind::Topology }
    }

    /// The load producer that the usual parameter names; empty: the default one.
    pub(crate) fn load_producer(name: &'a str) -> Self {
        let name = or_default(name, LOAD_PRODUCER);
        Self { parameter: "inFlightLoadProducerName", name, kind: NeedKind::LoadProducer }
    }

    /// The same, for a plugin to which tokens in flight are tokens that a server has yet to read.
    pub(crate) fn prompt_load_producer(name: &'a str) -> Self {
        Self { kind: NeedKind::PromptLoadProducer, ..Self::load_producer(name) }
    }
}

/// Kinds of [`Need`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedKind {
    /// A plugin that decides whether a stage runs.
    Decider,
    /// A plugin that measures saturation.
    Detector,
    /// Any plugin that finds agent sessions; the name is the attribute's.
    AgentIdentity,
    /// A plugin that finds prefix matches. The default one is added where it is needed and not declared.
    PrefixProducer,
    /// A plugin that predicts latencies. The default one is added where it is needed and not declared.
    LatencyPredictor,
    /// A plugin that remembers images, videos and audio. The default one is added where it is needed and not
    /// declared.
    MediaProducer,
    /// A plugin that finds the session of a request.
    SessionProducer,
    /// The plugin that counts the load of endpoints. There is only one; a default if none is declared.
    LoadProducer,
    /// The same one, without tokens of responses.
    PromptLoadProducer,
    /// A metric that an extractor publishes under this name.
    CustomMetric,
    /// A plugin that knows the places of endpoints. It may be missing.
    Topology,
}

impl NeedKind {
    /// In words, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decider => "decider",
            Self::Detector => "saturation detector",
            Self::AgentIdentity => "agent identity",
            Self::PrefixProducer => "prefix producer",
            Self::LatencyPredictor => "latency predictor",
            Self::MediaProducer => "producer of multimodal matches",
            Self::SessionProducer => "session producer",
            Self::LoadProducer | Self::PromptLoadProducer => "load producer",
            Self::CustomMetric => "custom metric",
            Self::Topology => "topology extractor",
        }
    }
}
