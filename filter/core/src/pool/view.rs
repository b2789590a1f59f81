//! The state of a pool at the time of a decision.

use core::time::Duration;

use crate::period::Period;
use crate::pool::Pool;
use crate::pool::by_readings::ByReadings;
use crate::pool::load::{FractionalLoad, Load};
use crate::pool::reading::Reading;
use crate::state::PluginStates;

/// The state of a pool at the time of a decision. Slices by endpoint have the pool's order; those missing at the end count
/// as unknown or idle.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The endpoints.
    pub pool: &'a Pool,
    /// Each endpoint's newest reading.
    pub readings: &'a [Reading],
    /// When the readings arrived, on the shell's clock.
    pub readings_arrived: Duration,
    /// Load in flight at each endpoint.
    pub in_flight: &'a [Load],
    /// The part of it that is [deferred](crate::state::deferred_load).
    pub deferred: &'a [FractionalLoad],
    /// When each endpoint is [avoided](crate::state::avoidance), on the shell's clock.
    pub avoided: &'a [Period],
    /// The state of the pipeline's plugins.
    pub states: &'a PluginStates,
    /// What follows from these readings alone, if it was computed before.
    pub by_readings: Option<&'a ByReadings>,
}

impl View<'_> {
    /// Whether the endpoint failed a moment ago.
    pub fn avoids(&self, endpoint: usize, now: Duration) -> bool {
        self.avoided.get(endpoint).is_some_and(|period| period.contains(now))
    }

    /// The endpoints among these that did not fail a moment ago; `None` if that is all of them, or none.
    pub(crate) fn unavoided(&self, endpoints: &[usize], now: Duration) -> Option<Vec<usize>> {
        if self.avoided.is_empty() {
            return None;
        }
        let unavoided: Vec<usize> =
            endpoints.iter().copied().filter(|&endpoint| !self.avoids(endpoint, now)).collect();
        (!unavoided.is_empty() && unavoided.len() < endpoints.len()).then_some(unavoided)
    }
}
