//! The saturation of the whole pool, by which flow control lets requests go on.

use core::time::Duration;

use super::Pipeline;
use crate::flow_control::{StageSaturation, Stages};
use crate::pool::candidates::candidates;
use crate::request::Request;
use crate::view::View;

impl Pipeline {
    /// The endpoints that a request may go to, by stage. Of the view, only endpoints and readings count.
    pub fn endpoints_by_stage(&self, view: &View<'_>) -> Stages {
        Stages::new(view.pool, candidates(&Request::default(), view))
    }

    /// How saturated these endpoints are. When the agent's readings are too old to be used, nothing is known to be saturated: requests
    /// go on as without flow control, so that none waits for an agent that is gone.
    pub fn saturation(&self, stages: &Stages, view: &View<'_>, now: Duration) -> StageSaturation {
        if self.detector.plugin.needs_readings() && self.is_stale(view, now) {
            return StageSaturation::NONE;
        }
        let request = Request::default();
        let cycle = self.cycle(&request, view, now);
        stages.measure(|endpoints| self.detector.plugin.saturation(&cycle, endpoints))
    }
}
