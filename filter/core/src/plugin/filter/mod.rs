//! Filters: plugins that drop candidates.

mod active_request_filter;
mod endpoint_attribute_filter;
mod label_selector;
mod label_selector_filter;
mod prefix_cache_affinity_filter;
mod role_filters;
mod session_affinity_filter;
mod slo_headroom_tier_filter;
mod topology_affinity_filter;
mod utilization_filter;

pub use active_request_filter::ActiveRequestFilter;
pub use endpoint_attribute_filter::EndpointAttributeFilter;
pub use label_selector::LabelSelector;
pub use label_selector_filter::LabelSelectorFilter;
pub use prefix_cache_affinity_filter::PrefixCacheAffinityFilter;
pub(crate) use role_filters::role_label;
pub use role_filters::{DecodeFilter, EncodeFilter, PrefillFilter};
pub use session_affinity_filter::SessionAffinityFilter;
pub use slo_headroom_tier_filter::SloHeadroomTierFilter;
pub use topology_affinity_filter::TopologyAffinityFilter;
pub use utilization_filter::UtilizationFilter;

use core::fmt::Debug;

use crate::input::cycle::Cycle;
use crate::rng::Rng;

/// Drops candidates.
pub trait Filter: Debug + Send + Sync {
    /// Keeps in `candidates` (endpoint indices) those that may be picked.
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng);

    /// Whether it depends on the endpoints' labels alone, and not on their state.
    fn is_about_eligibility(&self) -> bool {
        false
    }
}
