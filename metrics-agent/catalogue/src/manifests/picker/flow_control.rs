//! `flowControl`: the detector, which always counts, and how requests wait.

use core::time::Duration;

use deserr::Deserr;
use endpoint_picker::plugin::parameter::duration;
use endpoint_picker_wire::v1;

use super::quantity::Quantity;
use crate::manifests::fault::{Faults, quoted};

#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct FlowControl {
    #[deserr(default)]
    max_bytes: Option<Quantity>,
    #[deserr(default)]
    max_requests: Option<Quantity>,
    #[deserr(default, rename = "defaultRequestTTL")]
    default_request_ttl: Option<Ttl>,
    #[deserr(default, rename = "noEndpointRequestTTL")]
    no_endpoint_request_ttl: Option<Ttl>,
    #[deserr(default)]
    default_priority_band: Option<DeclaredBand>,
    #[deserr(default)]
    default_negative_priority_band: Option<DeclaredBand>,
    #[deserr(default)]
    priority_bands: Vec<DeclaredBand>,
    #[deserr(default)]
    usage_limit_policy_plugin_ref: Option<String>,
    #[deserr(default)]
    pub(super) saturation_detector: Option<Detector>,
    #[deserr(default)]
    enable_eviction: bool,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct DeclaredBand {
    #[deserr(default)]
    priority: i32,
    #[deserr(default)]
    max_bytes: Option<Quantity>,
    #[deserr(default)]
    max_requests: Option<Quantity>,
    #[deserr(default, rename = "defaultRequestTTL")]
    default_request_ttl: Option<Ttl>,
    #[deserr(default)]
    fairness_policy_ref: Option<String>,
    #[deserr(default)]
    ordering_policy_ref: Option<String>,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct Detector {
    #[deserr(default)]
    pub(super) plugin_ref: Option<String>,
}

/// A duration in Go's format.
#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct Ttl(Duration);

impl Ttl {
    fn new(text: &str) -> Result<Self, String> {
        duration::parse(text).map(Self).ok_or_else(|| {
            format!("{} is not a duration; allowed is one such as 60s, 1m30s or 0s", quoted(text))
        })
    }

    /// Whole milliseconds. A duration above zero gives at least one, because zero has a meaning of its own.
    fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

impl FlowControl {
    /// Whether a field besides the detector is set.
    pub(super) fn has_queueing(&self) -> bool {
        self.on_the_wire() != v1::FlowControl::default()
    }

    /// How requests wait.
    pub(super) fn on_the_wire(&self) -> v1::FlowControl {
        let limit = |quantity: Option<Quantity>| quantity.map_or(0, |quantity| quantity.0);
        let band = |band: &DeclaredBand| v1::PriorityBand {
            priority: band.priority,
            max_bytes: limit(band.max_bytes),
            max_requests: limit(band.max_requests),
            default_request_ttl_ms: band.default_request_ttl.map(Ttl::milliseconds),
            fairness_policy: band.fairness_policy_ref.clone().unwrap_or_default(),
            ordering_policy: band.ordering_policy_ref.clone().unwrap_or_default(),
        };
        v1::FlowControl {
            max_bytes: limit(self.max_bytes),
            max_requests: limit(self.max_requests),
            default_request_ttl_ms: self.default_request_ttl.map(Ttl::milliseconds),
            no_endpoint_request_ttl_ms: self.no_endpoint_request_ttl.map(Ttl::milliseconds),
            default_priority_band: self.default_priority_band.as_ref().map(band),
            default_negative_priority_band: self.default_negative_priority_band.as_ref().map(band),
            priority_bands: self.priority_bands.iter().map(band).collect(),
            usage_limit_policy: self.usage_limit_policy_plugin_ref.clone().unwrap_or_default(),
            enable_eviction: self.enable_eviction,
        }
    }
}

/// The policies' names, with their roles and paths.
pub(super) fn references(queueing: &v1::FlowControl) -> impl Iterator<Item = (&str, &'static str, String)> {
    let default = queueing.default_priority_band.iter().map(|band| (band, "defaultPriorityBand".to_owned()));
    let negative = queueing.default_negative_priority_band.iter();
    let negative = negative.map(|band| (band, "defaultNegativePriorityBand".to_owned()));
    let bands = queueing.priority_bands.iter().enumerate();
    let bands = bands.map(|(index, band)| (band, format!("priorityBands[{index}]")));
    let of_bands = default.chain(negative).chain(bands).flat_map(|(band, at)| {
        let fairness = format!("flowControl.{at}.fairnessPolicyRef");
        let ordering = format!("flowControl.{at}.orderingPolicyRef");
        [
            (band.fairness_policy.as_str(), "fairness policy", fairness),
            (band.ordering_policy.as_str(), "request ordering policy", ordering),
        ]
    });
    let at = "flowControl.usageLimitPolicyPluginRef".to_owned();
    of_bands.chain([(queueing.usage_limit_policy.as_str(), "usage limit policy", at)])
}
