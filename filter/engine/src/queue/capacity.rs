//! The capacity of the pool behind the queue.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::flow_control::{CacheRoom, DetectorSaturation, StageSaturation, Stages};

use crate::ledger::Ledger;
use crate::pool_view::PoolView;

/// The endpoints of the newest view, and how saturated they are.
#[derive(Default)]
pub(super) struct QueueCapacity {
    view: Option<Arc<PoolView>>,
    /// The endpoints of the view.
    stages: Stages,
    /// As it was measured last.
    saturation: Option<StageSaturation>,
    /// The times at which `saturation` holds by the view's readings alone.
    holds: Option<RangeInclusive<Duration>>,
}

impl QueueCapacity {
    /// Follows a view. Returns whether its topology is another one.
    pub(super) fn follow(&mut self, view: &Arc<PoolView>) -> bool {
        if self.view.as_ref().is_some_and(|older| Arc::ptr_eq(older, view)) {
            return false;
        }
        let topology = view.topology();
        self.stages = topology.pipeline.endpoints_by_stage(&view.without_ledger(&[]));
        self.holds = None;
        let older = self.view.replace(Arc::clone(view));
        older.is_none_or(|older| !Arc::ptr_eq(older.topology(), topology))
    }

    /// Measures the saturation, with `pending` dispatched requests that no load includes yet. `None`: the
    /// ledger has the endpoints of a newer snapshot already.
    pub(super) fn measure(
        &mut self,
        ledger: &Ledger,
        pending: u64,
        now: Duration,
    ) -> Option<StageSaturation> {
        if self.holds.as_ref().is_some_and(|times| times.contains(&now)) {
            return self.saturation;
        }
        let view = self.view.as_ref().filter(|view| Arc::ptr_eq(ledger.pool(), view.pool()))?;
        let pool = ledger.input(view.readings(), view.arrived());
        let pipeline = &view.topology().pipeline;
        self.saturation = Some(pipeline.saturation(&self.stages, &pool, pending, now));
        // The result of a detector that reads only metrics holds for all requests until a reading is stale.
        self.holds = pipeline.saturation_holds_until(&self.stages, &pool, now).map(|until| now..=until);
        self.saturation
    }

    /// The room in the caches of the pool; `None`: sessions are not limited, or no size is known.
    pub(super) fn cache_room(&self, ledger: &Ledger, now: Duration) -> Option<CacheRoom> {
        let view = self.view.as_ref().filter(|view| Arc::ptr_eq(ledger.pool(), view.pool()))?;
        let input = ledger.input(view.readings(), view.arrived());
        view.topology().pipeline.cache_room(&self.stages, &input, now)
    }

    /// The last measured saturation; before the first measurement, nothing is saturated.
    pub(super) fn saturation(&self) -> StageSaturation {
        self.saturation.unwrap_or(StageSaturation::NONE)
    }

    /// The parts of the saturation now by each of the detectors that are combined; none while the ledger has
    /// the endpoints of a newer snapshot already.
    pub(super) fn by_detector(
        &self,
        ledger: &Ledger,
        pending: u64,
        now: Duration,
    ) -> Vec<DetectorSaturation<'_>> {
        let Some(view) = self.view.as_ref().filter(|view| Arc::ptr_eq(ledger.pool(), view.pool())) else {
            return Vec::new();
        };
        let pool = ledger.input(view.readings(), view.arrived());
        view.topology().pipeline.saturation_by_detector(&self.stages, &pool, pending, now)
    }

    /// Whether a request can go anywhere.
    pub(super) fn has_endpoints(&self) -> bool {
        !self.stages.is_empty()
    }

    /// Whether a request can go to an endpoint that is not avoided.
    pub(super) fn has_unavoided_endpoints(&self, ledger: &Ledger, now: Duration) -> bool {
        // The ledger may have the endpoints of a newer snapshot already, whose indices are others.
        let has_same = self.view.as_ref().is_some_and(|view| Arc::ptr_eq(ledger.pool(), view.pool()));
        let avoided = if has_same { ledger.avoided() } else { &[] };
        let is_avoided = |&endpoint: &usize| avoided.get(endpoint).is_some_and(|period| period.contains(now));
        !self.stages.all().iter().all(is_avoided)
    }
}
