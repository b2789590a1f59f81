//! `max-saturation-detector`: the greatest saturation of several detectors.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use crate::input::SaturationStage;
use crate::input::cycle::Cycle;
use crate::plugin::{Need, NeedKind, Plugin, Roles, SaturationDetector};

/// The maximum of other detectors. Where stages of disaggregated serving are measured, a detector may count
/// for some of them only; a stage that no detector counts for has the saturation 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MaxSaturationDetector {
    /// Names of detectors, at least one, each once.
    detectors: Vec<String>,
    /// The stages of a detector, by its name; one that is not here counts for all.
    stages: BTreeMap<String, Vec<SaturationStage>>,
}

impl Plugin for MaxSaturationDetector {
    fn check(&self) -> Result<(), String> {
        if self.detectors.is_empty() {
            return Err("detectors is empty; at least one name is needed".to_owned());
        }
        for (index, name) in self.detectors.iter().enumerate() {
            if self.detectors.iter().take(index).any(|earlier| earlier == name) {
                return Err(format!("detectors[{index}] is {name:?} again; each is listed once"));
            }
        }
        for (name, stages) in &self.stages {
            if !self.detectors.contains(name) {
                return Err(format!("stages.{name} is not one of detectors, {}", self.detectors.join(", ")));
            }
            if stages.is_empty() {
                return Err(format!("stages.{name} is empty; allowed are prefill and decode"));
            }
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { combined_detector: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let names = self.detectors.iter();
        names.map(|name| Need { parameter: "detectors", name, kind: NeedKind::Detector }).collect()
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl MaxSaturationDetector {
    /// The detector, with the detectors that `find` returns by name; `None`: one is missing.
    pub(crate) fn combine(
        &self,
        find: impl Fn(&str) -> Option<Arc<dyn SaturationDetector>>,
    ) -> Option<Arc<dyn SaturationDetector>> {
        let child = |name: &String| {
            let stages = self.stages.get(name).cloned();
            Some(CombinedChild { name: name.clone(), detector: find(name)?, stages })
        };
        let children = self.detectors.iter().map(child).collect::<Option<Vec<_>>>()?;
        Some(Arc::new(CombinedDetector { children }))
    }
}

#[derive(Debug)]
struct CombinedDetector {
    children: Vec<CombinedChild>,
}

/// One of the detectors that [`MaxSaturationDetector`] combines.
#[derive(Debug)]
pub struct CombinedChild {
    pub(crate) name: String,
    pub(crate) detector: Arc<dyn SaturationDetector>,
    /// `None`: all stages.
    stages: Option<Vec<SaturationStage>>,
}

impl CombinedChild {
    /// Whether it counts where this stage is measured; `None`: no stage by itself.
    pub(crate) fn counts_for(&self, stage: Option<SaturationStage>) -> bool {
        let is_listed = |stage| self.stages.as_ref().is_none_or(|stages| stages.contains(&stage));
        stage.is_none_or(is_listed)
    }
}

impl SaturationDetector for CombinedDetector {
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize], pending: u64) -> f64 {
        let children = self.children.iter().filter(|child| child.counts_for(cycle.stage));
        children.map(|child| child.detector.saturation(cycle, candidates, pending)).fold(0.0, f64::max)
    }

    fn holds_until(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Duration> {
        let mut least = Duration::MAX;
        for child in &self.children {
            least = least.min(child.detector.holds_until(cycle, candidates)?);
        }
        Some(least)
    }

    fn needs_readings(&self) -> bool {
        self.children.iter().any(|child| child.detector.needs_readings())
    }

    fn lag(&self) -> Duration {
        self.children.iter().map(|child| child.detector.lag()).max().unwrap_or_default()
    }

    fn children(&self) -> &[CombinedChild] {
        &self.children
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near, waiting};
    use crate::plugin::{ConcurrencyDetector, UtilizationDetector};
    use crate::pool::load::Load;
    use crate::pool::reading::Reading;
    use crate::test;
    use serde_json::{Value, json};

    fn plugin(parameters: Value) -> MaxSaturationDetector {
        serde_json::from_value(parameters).unwrap()
    }

    fn combined(parameters: Value) -> Arc<dyn SaturationDetector> {
        let find = |name: &str| -> Option<Arc<dyn SaturationDetector>> {
            match name {
                "load" => {
                    let load = serde_json::from_value::<ConcurrencyDetector>(json!({"maxConcurrency": 10}));
                    Some(Arc::new(load.unwrap()))
                }
                "queue" => Some(Arc::new(UtilizationDetector::default())),
                _ => None,
            }
        };
        plugin(parameters).combine(find).unwrap()
    }

    /// An endpoint with 2 of 5 requests waiting, and 7 of 10 in flight.
    fn saturation(parameters: Value, stage: Option<SaturationStage>) -> f64 {
        let reading = Reading { updated: Some(crate::plugin::fixture::NOW), ..waiting(2) };
        let mut fixture = Fixture::with_readings(&[reading]);
        fixture.in_flight = vec![Load { requests: 7, tokens: 0 }];
        fixture.with_cycle(|cycle| combined(parameters).saturation(&Cycle { stage, ..*cycle }, &[0], 0))
    }

    #[test]
    fn the_greatest_saturation_counts() {
        let both = json!({"detectors": ["queue", "load"]});
        assert_near(&[saturation(both, None)], &[0.7]);
        assert_near(&[saturation(json!({"detectors": ["queue"]}), None)], &[0.4]);
    }

    #[test]
    fn a_detector_may_count_for_some_stages_only() {
        let staged = json!({"detectors": ["queue", "load"], "stages": {"load": ["prefill"], "queue": ["prefill", "decode"]}});
        assert_near(&[saturation(staged.clone(), Some(SaturationStage::Prefill))], &[0.7]);
        assert_near(&[saturation(staged.clone(), Some(SaturationStage::Decode))], &[0.4]);
        assert_near(&[saturation(staged, None)], &[0.7]);
        let none = json!({"detectors": ["load"], "stages": {"load": ["prefill"]}});
        assert_near(&[saturation(none, Some(SaturationStage::Decode))], &[0.0]);
    }

    #[test]
    fn it_depends_on_readings_and_time_as_its_detectors_do() {
        let lag = |detectors: Value| combined(json!({"detectors": detectors})).lag();
        assert_eq!(lag(json!(["load", "queue"])), UtilizationDetector::default().lag());
        assert!(combined(json!({"detectors": ["load", "queue"]})).needs_readings());
        assert!(!combined(json!({"detectors": ["load"]})).needs_readings());
        let holds = |detectors: Value| {
            let detector = combined(json!({"detectors": detectors}));
            Fixture::of(1).with_cycle(|cycle| detector.holds_until(cycle, &[0]))
        };
        assert_eq!(holds(json!(["queue", "load"])), None, "the load changes with every request");
        assert_eq!(holds(json!(["queue"])), Some(Duration::MAX));
    }

    #[test]
    fn detectors_are_listed_once_and_stages_are_of_a_listed_one() {
        for (parameters, expected) in [
            (json!({}), "detectors is empty"),
            (json!({"detectors": ["a", "a"]}), "detectors[1] is \"a\" again"),
            (
                json!({"detectors": ["a"], "stages": {"b": ["prefill"]}}),
                "stages.b is not one of detectors, a",
            ),
            (json!({"detectors": ["a"], "stages": {"a": []}}), "stages.a is empty"),
        ] {
            let error = plugin(parameters.clone()).check().unwrap_err();
            assert!(error.starts_with(expected), "{parameters}: {error}");
        }
    }
}
