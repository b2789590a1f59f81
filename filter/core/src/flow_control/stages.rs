//! The saturation of a pool whose servers have different roles.

use crate::input::SaturationStage;
use crate::plugin::role_label;
use crate::pool::Endpoints;

/// The saturation of each stage of disaggregated serving.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageSaturation {
    /// Saturation of the endpoints that compute prompts for others, or do both; `None`: there are none.
    pub prefill: Option<f64>,
    /// Saturation of the endpoints that generate, or do both; `None`: there are none.
    pub decode: Option<f64>,
    /// The greater of both; without either that of all endpoints.
    pub effective: f64,
}

impl StageSaturation {
    /// The saturation of a pool of which nothing is known to be saturated.
    pub const NONE: Self = Self { prefill: None, decode: None, effective: 0.0 };

    /// Whether the pool is saturated.
    pub fn is_saturated(&self) -> bool {
        is_saturated(self.effective)
    }
}

/// The saturation by one of the detectors that `max-saturation-detector` combines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectorSaturation<'a> {
    /// The detector's name in the configuration.
    pub detector: &'a str,
    /// As [`StageSaturation::prefill`]; also `None` where the detector does not count for the stage.
    pub prefill: Option<f64>,
    /// The same of [`StageSaturation::decode`].
    pub decode: Option<f64>,
}

/// Whether endpoints of this saturation are at their limits.
pub(crate) fn is_saturated(saturation: f64) -> bool {
    saturation >= 1.0
}

/// The endpoints of a pool by the stages of disaggregated serving that they take part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    all: Vec<usize>,
    prefill: Vec<usize>,
    decode: Vec<usize>,
}

impl Stages {
    /// The stages of these endpoints. Those that only encode are in no stage.
    pub fn new(pool: &Endpoints, endpoints: Vec<usize>) -> Self {
        let (mut prefill, mut decode) = (Vec::new(), Vec::new());
        for &endpoint in &endpoints {
            let (is_prefill, is_decode) = match role_label(pool.endpoint(endpoint)) {
                Some("prefill" | "encode-prefill") => (true, false),
                Some("decode") | None => (false, true),
                Some("prefill-decode" | "both" | "encode-prefill-decode") => (true, true),
                Some(_) => (false, false),
            };
            prefill.extend(is_prefill.then_some(endpoint));
            decode.extend(is_decode.then_some(endpoint));
        }
        Self { all: endpoints, prefill, decode }
    }

    /// The endpoints of all stages, and those of none.
    pub fn all(&self) -> &[usize] {
        &self.all
    }

    /// Whether the pool has no endpoints.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The endpoints of a stage; `None`: there are none.
    pub(crate) fn of(&self, stage: SaturationStage) -> Option<&[usize]> {
        let endpoints = match stage {
            SaturationStage::Prefill => &self.prefill,
            SaturationStage::Decode => &self.decode,
        };
        (!endpoints.is_empty()).then_some(endpoints)
    }

    /// Measures the stages with a detector; where there is none, all endpoints.
    pub fn measure(&self, detect: impl Fn(Option<SaturationStage>, &[usize]) -> f64) -> StageSaturation {
        let of = |stage| self.of(stage).map(|endpoints| detect(Some(stage), endpoints));
        let prefill = of(SaturationStage::Prefill);
        let decode = of(SaturationStage::Decode);
        let effective = prefill.into_iter().chain(decode).reduce(f64::max);
        StageSaturation { prefill, decode, effective: effective.unwrap_or_else(|| detect(None, &self.all)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Endpoint;
    use crate::test;

    /// Measures endpoints of these roles by the index of the last one.
    fn measure(roles: &[Option<&str>]) -> (Option<f64>, Option<f64>, f64) {
        let endpoint = |(index, role): (usize, Option<&str>)| {
            let address = core::net::SocketAddr::from(([10, 0, 0, u8::try_from(index).unwrap()], 8000));
            let labels = role.map(|role| ("llm-d.ai/role".to_owned(), role.to_owned()));
            Endpoint::new(format!("ns/{index}"), address, labels.into_iter().collect())
        };
        let endpoints = roles.iter().copied().enumerate().map(endpoint).collect();
        let pool = Endpoints::new("pool".to_owned(), endpoints).unwrap();
        let stages = Stages::new(&pool, (0..roles.len()).collect());
        let saturation = stages.measure(|_, stage| stage.last().map_or(9.0, |&last| last as f64));
        (saturation.prefill, saturation.decode, saturation.effective)
    }

    #[test]
    fn the_more_saturated_stage_counts() {
        assert_eq!(measure(&[Some("decode"), None, Some("prefill")]), (Some(2.0), Some(1.0), 2.0));
        assert_eq!(measure(&[Some("encode-prefill"), None]), (Some(0.0), Some(1.0), 1.0));
    }

    #[test]
    fn endpoints_of_both_stages_are_in_both() {
        for role in ["prefill-decode", "both", "encode-prefill-decode"] {
            assert_eq!(measure(&[None, Some(role)]), (Some(1.0), Some(1.0), 1.0), "{role}");
        }
    }

    #[test]
    fn without_a_stage_all_endpoints_count() {
        assert_eq!(measure(&[None, Some("encode"), Some("other")]), (None, Some(0.0), 0.0));
        assert_eq!(measure(&[Some("encode"), Some("encode")]), (None, None, 1.0));
        assert_eq!(measure(&[]), (None, None, 9.0));
    }
}
