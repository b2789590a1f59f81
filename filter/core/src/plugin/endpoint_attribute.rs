//! Attributes of endpoints: numbers that plugins read by their names.

use crate::input::cycle::Cycle;
use crate::plugin::parameter::{LOAD_PRODUCER, allow};
use crate::plugin::{Need, NeedKind};
use crate::pool::reading::GPU_UTILIZATION;

/// A number that endpoints have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute<'a> {
    /// One of the extractor's `customMetrics`.
    Custom(&'a str),
    Waiting,
    Running,
    KvUsage,
    GpuUtilization,
    Requests,
    Tokens,
}

const EXTRACTOR: &str = "core-metrics-extractor";
const GPU_EXTRACTOR: &str = "dcgm-extractor";

impl Attribute<'_> {
    /// The attributes there always are: name, producer.
    const ALL: [(&'static str, &'static str, Self); 6] = [
        ("WaitingQueueSize", EXTRACTOR, Self::Waiting),
        ("RunningRequestsSize", EXTRACTOR, Self::Running),
        ("KVCacheUsagePercent", EXTRACTOR, Self::KvUsage),
        ("GPUUtilization", GPU_EXTRACTOR, Self::GpuUtilization),
        ("InFlightRequests", LOAD_PRODUCER, Self::Requests),
        ("InFlightTokens", LOAD_PRODUCER, Self::Tokens),
    ];

    /// Whether the attribute is a load that this proxy counts.
    pub(crate) fn is_load(self) -> bool {
        matches!(self, Self::Requests | Self::Tokens)
    }

    /// The endpoint's value; `None`: the endpoint has none.
    pub(crate) fn value(self, cycle: &Cycle<'_>, endpoint: usize) -> Option<f64> {
        let (reading, load) = (cycle.reading(endpoint), cycle.comparable_load(endpoint));
        match self {
            Self::Custom(name) => reading.attribute(name),
            Self::Waiting => reading.waiting.map(|requests| requests as f64),
            Self::Running => reading.running.map(|requests| requests as f64),
            Self::KvUsage => reading.kv_usage,
            Self::GpuUtilization => reading.attribute(GPU_UTILIZATION),
            Self::Requests => Some(load.requests),
            Self::Tokens => Some(load.tokens),
        }
    }

    /// The value that an endpoint is rated by, its source and its age, in words.
    pub(crate) fn explain(self, cycle: &Cycle<'_>, endpoint: usize) -> String {
        let known = Attribute::ALL.iter().find(|(.., attribute)| *attribute == self);
        let custom = if let Self::Custom(name) = self { name } else { "" };
        let (name, producer) = known.map_or((custom, EXTRACTOR), |&(name, producer, _)| (name, producer));
        let Some(value) = self.value(cycle, endpoint) else { return format!("no {name} of {producer}") };
        let age = match (self, cycle.reading(endpoint).age(cycle.now)) {
            (Self::Requests | Self::Tokens, _) => "now".to_owned(),
            // Exporters are scraped by themselves, and the agent drops what is older.
            (Self::GpuUtilization, _) | (_, None) => "of unknown age".to_owned(),
            (_, Some(age)) => format!("{} ms old", age.as_millis()),
        };
        format!("{name} {value} of {producer}, {age}")
    }
}

/// An attribute as a configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttributeRef<'a> {
    /// The parameter with the name.
    pub(crate) parameter: &'static str,
    pub(crate) key: &'a str,
    /// The plugin that publishes the attribute; `core-metrics-extractor` if not given.
    pub(crate) producer: Option<&'a str>,
}

impl<'a> AttributeRef<'a> {
    /// Name and producer. The EPP v0.10 has both in one text, `name/producer`.
    fn parts(self) -> (&'a str, &'a str) {
        match (self.producer, self.key.rsplit_once('/')) {
            (None, Some(parts)) => parts,
            (producer, _) => (self.key, producer.unwrap_or(EXTRACTOR)),
        }
    }

    /// `None`: there is no such attribute.
    pub(crate) fn find(self) -> Option<Attribute<'a>> {
        let (key, producer) = self.parts();
        let known = Attribute::ALL.into_iter().find(|&(name, by, _)| name == key && by == producer);
        let custom = || (producer == EXTRACTOR && !key.is_empty()).then_some(Attribute::Custom(key));
        known.map(|(.., attribute)| attribute).or_else(custom)
    }

    /// Refuses an attribute that no plugin publishes, with the list of the published ones.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.find().is_some() {
            return Ok(());
        }
        let known: Vec<String> =
            Attribute::ALL.iter().map(|(name, producer, _)| format!("{name} of {producer}")).collect();
        let (key, producer) = self.parts();
        let known = format!("{}, and {EXTRACTOR}'s customMetrics", known.join(", "));
        allow(false, self.parameter, format!("{key:?} of {producer:?}"), &known)
    }

    /// The plugin or metric that publishes it.
    pub(crate) fn needs(self) -> Vec<Need<'a>> {
        match self.find() {
            Some(Attribute::Requests | Attribute::Tokens) => {
                vec![Need { parameter: "producer", name: LOAD_PRODUCER, kind: NeedKind::LoadProducer }]
            }
            Some(Attribute::Custom(name)) => {
                vec![Need { parameter: self.parameter, name, kind: NeedKind::CustomMetric }]
            }
            Some(Attribute::GpuUtilization) => {
                vec![Need { parameter: self.parameter, name: GPU_UTILIZATION, kind: NeedKind::CustomMetric }]
            }
            Some(Attribute::Waiting | Attribute::Running | Attribute::KvUsage) | None => Vec::new(),
        }
    }

    /// Names the two parameters that take the place of `name/producer`.
    pub(crate) fn warnings(self) -> Vec<String> {
        match (self.producer, self.key.rsplit_once('/')) {
            (None, Some((name, producer))) => vec![format!(
                "{} {:?} is the spelling of v0.10, and later versions of the EPP refuse it; use {}: {name} and producer: {producer}",
                self.parameter, self.key, self.parameter
            )],
            _ => Vec::new(),
        }
    }
}
