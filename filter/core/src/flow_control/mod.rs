//! Flow control: requests wait in front of a pool until it has capacity for them.
//!
//! A [`Machine`] is the queue of one pool. A *flow* has the requests of one fairness id and one priority, a
//! *band* has all flows of one priority. Requests are dispatched by the EPP's rules: the highest band first,
//! unless the pool is too saturated for it; in the band the flow that the fairness policy chooses; in the
//! flow the request that the ordering policy puts first.

mod band;
mod drain;
mod eviction;
mod flows;
mod machine;
mod nanos;
mod outcome;
mod stages;
mod status;
mod waiting;

use core::time::Duration;
use std::sync::Arc;

use crate::plugin::{Fairness, OrderingPolicy, UsageLimitPolicy};
pub use flows::Tokens;
pub use machine::{CacheRoom, Machine};
pub use outcome::{Event, Outcome, Ticket};
pub(crate) use stages::is_saturated;
pub use stages::{DetectorSaturation, StageSaturation, Stages};
pub use status::{BandStatus, MAX_TENANTS, OTHER_TENANTS, TenantStatus, WAIT_BOUNDS, Waits};

/// Maximum number of bands of a pool. A dispatch cycle reads each.
pub const MAX_BANDS: usize = 256;

/// The priority of the band for requests whose priority has no band of its own.
pub const FALLBACK_PRIORITY: i32 = 0;

/// The rules of a [`Machine`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of bytes that may wait in all bands together; `None`: unlimited.
    pub max_bytes: Option<u64>,
    /// Maximum number of requests that may wait in all bands together; `None`: unlimited.
    pub max_requests: Option<u64>,
    /// Maximum wait while the pool has no endpoints; `None`: unlimited.
    pub no_endpoint_request_ttl: Option<Duration>,
    /// The bands and their priorities.
    pub bands: Vec<(i32, BandConfig)>,
    /// The band of a priority without one of its own.
    pub default_band: BandConfig,
    /// The same for priorities below 0.
    pub default_negative_band: BandConfig,
    /// The saturation up to which each band is served.
    pub usage_limit: Arc<dyn UsageLimitPolicy>,
    /// Whether the service of a program decays while it has requests too, as in the EPP since v0.11 (#2120).
    pub service_decays_in_use: bool,
    /// Whether and how requests in flight make room; `None`: they do not.
    pub eviction: Option<Eviction>,
}

/// The rules of one band.
#[derive(Clone, Debug)]
pub struct BandConfig {
    /// Maximum number of bytes that may wait in the band.
    pub max_bytes: u64,
    /// Maximum number of requests that may wait in the band.
    pub max_requests: u64,
    /// Maximum wait while the pool has endpoints; `None`: unlimited.
    pub request_ttl: Option<Duration>,
    /// Orders the requests of a flow.
    pub ordering: Arc<dyn OrderingPolicy>,
    /// The fairness policy's name. Bands with the same name share the policy's state.
    pub fairness_name: Arc<str>,
    /// Chooses the flow.
    pub fairness: Fairness,
}

/// Eviction of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// How long after the end of an evicted request the saturation does not show its absence yet.
    pub grace: Duration,
}

impl Config {
    /// Whether a policy depends on the tokens that requests were served.
    pub fn counts_service(&self) -> bool {
        self.bands.iter().any(|(_, band)| matches!(band.fairness, Fairness::ProgramAware(_)))
    }

    /// Adds a band for each priority that has none, up to [`MAX_BANDS`]. Requests of other priorities fall
    /// back to priority 0.
    #[must_use]
    pub fn with_priorities(mut self, priorities: impl IntoIterator<Item = i32>) -> Self {
        for priority in [FALLBACK_PRIORITY].into_iter().chain(priorities) {
            let is_new = self.bands.iter().all(|(existing, _)| *existing != priority);
            if is_new && self.bands.len() < MAX_BANDS {
                let template = if priority < 0 { &self.default_negative_band } else { &self.default_band };
                self.bands.push((priority, template.clone()));
            }
        }
        self
    }
}
