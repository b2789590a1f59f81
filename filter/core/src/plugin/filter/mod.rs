//! Filters: plugins that drop candidates.

mod active_request_filter;
mod endpoint_attribute_filter;
mod header_based_testing_filter;
mod label_selector;
mod label_selector_filter;
mod legacy_filter_tree;
mod prefix_cache_affinity_filter;
mod role_filters;
mod served_model_filter;
mod session_affinity_filter;
mod slo_headroom_tier_filter;
mod topology_affinity_filter;
mod utilization_filter;

pub use active_request_filter::ActiveRequestFilter;
pub use endpoint_attribute_filter::EndpointAttributeFilter;
pub use header_based_testing_filter::HeaderBasedTestingFilter;
pub use label_selector::LabelSelector;
pub use label_selector_filter::LabelSelectorFilter;
pub use legacy_filter_tree::LegacyFilterTree;
pub use prefix_cache_affinity_filter::PrefixCacheAffinityFilter;
pub(crate) use role_filters::role_label;
pub use role_filters::{DecodeFilter, EncodeFilter, PrefillFilter};
pub use served_model_filter::ServedModelFilter;
pub use session_affinity_filter::SessionAffinityFilter;
pub use slo_headroom_tier_filter::SloHeadroomTierFilter;
pub use topology_affinity_filter::TopologyAffinityFilter;
pub use utilization_filter::UtilizationFilter;

use core::fmt::Debug;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::rng::Rng;

/// Drops candidates.
pub trait Filter: Debug + Send + Sync {
    /// Keeps in `candidates` (endpoint indices) those that may be picked, in their order.
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng);

    /// Whether an endpoint that it drops could not serve the request, however idle it is.
    fn eligibility(&self) -> Eligibility {
        Eligibility::No
    }
}

/// Whether a filter is about which endpoints could serve a request. If such filters alone leave none, the
/// request gets 503 in place of 429.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// The filter is about the state of endpoints.
    No,
    /// The filter is about the labels of endpoints, which counts by the rules of the EPP's v0.11.
    SinceV011,
    /// The filter is about the models that endpoints serve, which counts by all rules.
    Always,
}

/// Whether endpoints are kept about which a filter knows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum OnMissing {
    #[default]
    #[serde(alias = "")]
    Pass,
    Fail,
}
