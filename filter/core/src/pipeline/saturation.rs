//! The saturation of the whole pool, by which flow control dispatches requests.

use core::time::Duration;

use super::Pipeline;
use crate::flow_control::{DetectorSaturation, StageSaturation, Stages};
use crate::input::DecisionInput;
use crate::input::SaturationStage;
use crate::input::candidates;
use crate::input::cycle::Cycle;
use crate::plugin::CombinedChild;
use crate::request::Request;

impl Pipeline {
    /// The endpoints that a request may go to, by stage. Of the input, only endpoints and readings count.
    pub fn endpoints_by_stage(&self, input: &DecisionInput<'_>) -> Stages {
        Stages::new(input.pool, candidates(&Request::default(), input))
    }

    /// The saturation of these endpoints, with `pending` requests that go to one of them and are in no load
    /// yet. When the agent's readings are too old to be used, nothing counts as saturated: requests are
    /// dispatched as without flow control, so that none waits for an agent that has stopped.
    pub fn saturation(
        &self,
        stages: &Stages,
        input: &DecisionInput<'_>,
        pending: u64,
        now: Duration,
    ) -> StageSaturation {
        let detector = &self.detector.plugin;
        if detector.needs_readings() && self.is_stale(input, now) {
            return StageSaturation::NONE;
        }
        let request = Request::default();
        let cycle = self.cycle(&request, input, now);
        stages.measure(|stage, endpoints| detector.saturation(&Cycle { stage, ..cycle }, endpoints, pending))
    }

    /// The parts of [`Self::saturation`] by each of the detectors that the detector combines; none for a
    /// detector that measures by itself, and for readings that are too old to be used.
    pub fn saturation_by_detector(
        &self,
        stages: &Stages,
        input: &DecisionInput<'_>,
        pending: u64,
        now: Duration,
    ) -> Vec<DetectorSaturation<'_>> {
        let detector = &self.detector.plugin;
        if detector.needs_readings() && self.is_stale(input, now) {
            return Vec::new();
        }
        let request = Request::default();
        let cycle = self.cycle(&request, input, now);
        let of_child = |child: &CombinedChild, stage| {
            let endpoints = stages.of(stage).filter(|_| child.counts_for(Some(stage)))?;
            let cycle = Cycle { stage: Some(stage), ..cycle };
            Some(child.detector.saturation(&cycle, endpoints, pending))
        };
        let children = detector.children().iter().map(|child| DetectorSaturation {
            detector: &child.name,
            prefill: of_child(child, SaturationStage::Prefill),
            decode: of_child(child, SaturationStage::Decode),
        });
        children.collect()
    }

    /// How long [`Self::saturation`] stays valid while no reading changes (inclusive); `None`: it changes
    /// with every request.
    pub fn saturation_holds_until(
        &self,
        stages: &Stages,
        input: &DecisionInput<'_>,
        now: Duration,
    ) -> Option<Duration> {
        let request = Request::default();
        let holds = self.detector.plugin.holds_until(&self.cycle(&request, input, now), stages.all())?;
        // Readings that are too old stay so until new ones come.
        if self.is_stale(input, now) {
            return Some(Duration::MAX);
        }
        Some(holds.min(input.readings_arrived.saturating_add(self.stale_after)))
    }
}
